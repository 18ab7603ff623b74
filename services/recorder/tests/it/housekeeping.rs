//! Days made ahead, and what is too old.

use std::time::Duration;

use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_recorder::Config;

use crate::bench::Bench;

fn day(ago: i64) -> String {
    (clock::now() - TimeDelta::days(ago))
        .format("%Y%m%d")
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn days_are_made_ahead_of_time() {
    let bench = Bench::new().await;
    let expected: Vec<String> = (-3..=0).rev().map(day).collect();
    let _recorder = bench.record(Config {
        days_ahead: 3,
        ..Config::default()
    });
    let made = "SELECT string_agg(right(relname, 8), ' ' ORDER BY relname) FROM pg_class
                 WHERE relname ~ '^deliveries_[0-9]{8}$'";
    bench.until(made, &expected.join(" ")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_days_go_but_not_one_with_open_deliveries() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    for (n, ago) in [(1, 6), (2, 5), (3, 4), (4, 2)] {
        let accepted = clock::now() - TimeDelta::days(ago);
        bench.ledger.delivery(n, endpoint, accepted).await;
    }
    bench
        .ledger
        .sql(&format!(
            "UPDATE hooklane.deliveries_{} SET status = 'sent';
             UPDATE hooklane.deliveries_{} SET status = 'failed';
             UPDATE hooklane.deliveries_{} SET status = 'stalled'",
            day(6),
            day(4),
            day(5)
        ))
        .await;
    let _recorder = bench.record(Config {
        days_ahead: 1,
        retention_days: 3,
        housekeeping_every: Duration::from_secs(1),
        ..Config::default()
    });
    let days = "SELECT string_agg(right(relname, 8), ' ' ORDER BY relname) FROM pg_class
                 WHERE relname ~ '^messages_[0-9]{8}$'";
    let kept = [day(5), day(2), day(0), day(-1)].join(" ");
    bench.until(days, &kept).await;
    // Once its deliveries are done it goes too.
    bench
        .ledger
        .sql(&format!(
            "UPDATE hooklane.deliveries_{} SET status = 'skipped'",
            day(5)
        ))
        .await;
    let kept = [day(2), day(0), day(-1)].join(" ");
    bench.until(days, &kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_inbox_events_go_and_open_ones_keep_the_day_of_their_body() {
    let bench = Bench::new().await;
    for ago in [6, 5, 2] {
        let received = clock::now() - TimeDelta::days(ago);
        bench.ledger.store.ensure_days([received]).await.unwrap();
    }
    bench
        .ledger
        .sql(
            "INSERT INTO hooklane.webhook_inbox (id, partner_name, partner_event_id, signature_verified,
                 status, received_at, body_sha256, body_bytes, id_signed, integrity, next_at)
             SELECT gen_random_uuid(), 'shop', name, true, status, now() - ago * '1 day'::interval,
                    sha256(''), 0, true, 'full', now()
               FROM (VALUES ('closed', 'PROCESSED', 6), ('also', 'DISCARDED', 5),
                            ('open', 'QUARANTINED', 5), ('recent', 'SUPERSEDED', 2))
                    AS e (name, status, ago);
             INSERT INTO hooklane.inbox_bodies (received_at, id, body)
             SELECT received_at, id, '' FROM hooklane.webhook_inbox",
        )
        .await;
    let _recorder = bench.record(Config {
        days_ahead: 1,
        retention_days: 3,
        housekeeping_every: Duration::from_secs(1),
        ..Config::default()
    });
    let events = "SELECT string_agg(partner_event_id, ' ' ORDER BY partner_event_id) FROM hooklane.webhook_inbox";
    bench.until(events, "open recent").await;
    let days = "SELECT string_agg(right(relname, 8), ' ' ORDER BY relname) FROM pg_class
                 WHERE relname ~ '^inbox_bodies_[0-9]{8}$'";
    let kept = [day(5), day(2), day(0), day(-1)].join(" ");
    bench.until(days, &kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_keys_and_expired_secrets_are_forgotten_when_their_time_is_over() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    bench
        .ledger
        .sql(&format!(
            "INSERT INTO hooklane.idempotency_keys
             SELECT 'acme', 'k' || n, '', gen_random_uuid(), now() - n * '1 day'::interval
               FROM generate_series(1, 10) n;
             INSERT INTO hooklane.endpoint_secrets VALUES
                 ('{0}', now() - '9 d'::interval, 'old', now() - '2 d'::interval),
                 ('{0}', now() - '2 d'::interval, 'rotating', now() + '1 d'::interval),
                 ('{0}', now() - '1 d'::interval, 'new', NULL)",
            endpoint.uuid()
        ))
        .await;
    let _recorder = bench.record(Config::default());
    bench
        .until("SELECT string_agg(convert_from(sealed, 'UTF8'), ' ' ORDER BY created_at) FROM hooklane.endpoint_secrets", "rotating new")
        .await;
    bench
        .until(
            "SELECT count(*), max(key) FROM hooklane.idempotency_keys",
            "6|k6",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_tasks_go_with_the_days_that_they_were_about() {
    let bench = Bench::new().await;
    bench
        .ledger
        .sql(
            "INSERT INTO hooklane.tasks (id, kind, consumer_id, message_id, status, created_at, turn_at, ended_at)
             SELECT gen_random_uuid(), 'replay', name, gen_random_uuid(), status::hooklane.task_status, at, at, at_end
               FROM (VALUES ('old', 'done', now() - '40 d'::interval, now() - '40 d'::interval),
                            ('open', 'running', now() - '40 d'::interval, NULL),
                            ('recent', 'cancelled', now() - '40 d'::interval, now() - '2 d'::interval))
                    AS t (name, status, at, at_end)",
        )
        .await;
    let _recorder = bench.record(Config::default());
    let left = "SELECT string_agg(consumer_id, ' ' ORDER BY consumer_id) FROM hooklane.tasks";
    bench.until(left, "open recent").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_entries_are_forgotten_when_their_time_is_over() {
    let bench = Bench::new().await;
    bench
        .ledger
        .sql(
            "INSERT INTO hooklane.audit_log (id, at, actor, actor_name, action, subject)
             SELECT gen_random_uuid(), now() - n * '1 day'::interval, 'cli', 'cli', 'task.create', n::text
               FROM generate_series(1, 9) n",
        )
        .await;
    let _recorder = bench.record(Config {
        audit_days: 5,
        ..Config::default()
    });
    let left = "SELECT count(*), max(subject) FROM hooklane.audit_log";
    bench.until(left, "4|4").await;
}
