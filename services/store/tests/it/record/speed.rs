//! How many records a second one recorder writes. Ignored: a figure to look at, not a gate.

#![allow(clippy::print_stdout, reason = "the figure is what this is for")]

use std::time::Duration;

use chrono::TimeDelta;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::record::{Record, Verdict};
use tokio::time::Instant;
use uuid::Uuid;

use crate::ledger::{Ledger, attempt, drive, noon};

const ROWS: usize = 200_000;
const BATCH: usize = 2_000;

#[tokio::test]
#[ignore = "a figure to look at: cargo test --release -p hooklane-store -- --ignored --nocapture a_recorder"]
async fn a_recorder_writes_at_this_pace() {
    pace(0, true).await;
    // As many days as there are with the default retention.
    pace(35, true).await;
    // A thousand endpoints, all of them failing.
    pace(0, false).await;
}

async fn pace(days_before: i64, well: bool) {
    let ledger = Ledger::new().await;
    ledger
        .sql(
            "INSERT INTO hooklane.consumers (id) VALUES ('acme');
             INSERT INTO hooklane.endpoints (id, consumer_id, url, filters)
             SELECT md5('e' || n)::uuid, 'acme', 'https://example.com/', '{*}'
               FROM generate_series(0, 999) n",
        )
        .await;
    let days = (-days_before..=2).map(|day| noon() + TimeDelta::days(day));
    ledger.store.ensure_days(days).await.unwrap();
    sqlx::query(
        "INSERT INTO hooklane.deliveries (accepted_at, message_id, endpoint_id, consumer_id, partition,
             status, driven_at, not_after, next_attempt_at, deadline)
         SELECT a, md5('m' || n)::uuid, md5('e' || n % 1000)::uuid, 'acme', n % 16, 'received', a,
                a + '20 s'::interval, a, a + '48 h'::interval
           FROM (SELECT n, $1 + n / 5 * '1 ms'::interval AS a FROM generate_series(1, $2) n) s",
    )
    .bind(noon())
    .bind(i32::try_from(ROWS).unwrap())
    .execute(&mut ledger.connect().await)
    .await
    .unwrap();
    let keys: Vec<(chrono::DateTime<chrono::Utc>, Uuid, Uuid)> = sqlx::query_as(
        "SELECT accepted_at, message_id, endpoint_id FROM hooklane.deliveries ORDER BY 1",
    )
    .fetch_all(&mut ledger.connect().await)
    .await
    .unwrap();
    let mut records = Vec::with_capacity(ROWS);
    for (n, (accepted_at, message, endpoint)) in (0_u64..).zip(keys) {
        let key = DeliveryKey {
            accepted_at,
            message: MessageId::from_uuid(message),
            endpoint: EndpointId::from_uuid(endpoint),
        };
        let verdict = if well {
            Verdict::Sent
        } else {
            Verdict::Retry {
                next_attempt_at: accepted_at + TimeDelta::seconds(5),
            }
        };
        let mut record = attempt(drive(key, 1), n, 1, verdict);
        record.started_at = accepted_at;
        record.headers = vec![
            ("content-type".to_owned(), "text/plain".to_owned()),
            (
                "date".to_owned(),
                "Sun, 01 Mar 2026 12:00:00 GMT".to_owned(),
            ),
        ];
        record.body = b"ok".to_vec();
        records.push(Record::Attempt(record));
    }
    let started = Instant::now();
    let mut slowest = Duration::ZERO;
    for batch in records.chunks(BATCH) {
        let begun = Instant::now();
        let applied = ledger.store.apply(batch).await.unwrap();
        assert_eq!(applied.changed, batch.len() as u64);
        slowest = slowest.max(begun.elapsed());
    }
    let pace = ROWS as f64 / started.elapsed().as_secs_f64();
    println!(
        "{days_before} days before, endpoints well: {well}: {pace:.0} records a second, slowest batch of {BATCH} {slowest:?}"
    );
}
