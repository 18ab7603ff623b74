//! One endpoint with a huge backlog that is due, beside quiet ones with a retry now and then.

use std::time::Duration;

use hooklane_testkit::wait::until;
use tokio::time::Instant;

use super::receiver;
use crate::bench::Bench;
use crate::messages::sql;
use crate::process::Process;
use crate::system::{BUDGET, add_endpoint, count, system};

/// What to put beside what, and for how long.
struct Scene {
    /// Deliveries that are due to the one endpoint.
    due: u64,
    /// Quiet endpoints.
    quiet: u64,
    /// Retries of each, over the whole time.
    retries: u64,
    /// How long it is looked at.
    time: Duration,
    /// How late a retry of a quiet endpoint may be.
    latest: Duration,
}

/// What the one endpoint takes in a second.
const RATE: u64 = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_touched_only_as_it_drains_and_holds_up_no_quiet_endpoint() {
    let figures = look(Scene {
        due: 20_000,
        quiet: 5,
        retries: 4,
        time: Duration::from_secs(8),
        // The backlog takes minutes.
        latest: Duration::from_secs(5),
    })
    .await;
    println!("{figures}");
}

/// In numbers that take minutes; with `--release`, or its figures say little.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn a_million_due_deliveries_hold_up_none_of_a_hundred_quiet_endpoints() {
    let figures = look(Scene {
        due: 1_000_000,
        quiet: 100,
        retries: 20,
        time: Duration::from_secs(120),
        latest: Duration::from_secs(2),
    })
    .await;
    println!("{figures}");
}

async fn look(scene: Scene) -> String {
    let Scene {
        due,
        quiet,
        retries,
        time,
        latest,
    } = scene;
    let (mut bench, _nats, _health) = system().await;
    bench.set("HOOKLANE__HEALTH__ENABLED", "false");
    let receiver = receiver(0).await;
    let (big, _) = add_endpoint(&bench, &receiver.url("/big"));
    let (rate, burst) = (RATE.to_string(), ["--burst", "1"]);
    let limits = [&["--rate", &rate][..], &burst].concat();
    bench.ok(&[&["endpoint", "update", &big][..], &limits].concat());
    let mut few = Vec::new();
    for n in 0..quiet {
        let added = bench.json(&["endpoint", "add", "acme", &receiver.url(&format!("/{n}"))]);
        few.push(added["endpoint"]["id"].as_str().unwrap().to_owned());
    }
    stall(&bench, &big, due, "now() - interval '1 minute'").await;
    // All of one consumer, and so of one partition and one dispatcher.
    let _services = ["relay", "dispatch", "record"].map(|role| Process::start(&bench, &[role]));
    let scheduler = Process::start(&bench, &["schedule"]);
    until("the backlog to drain", BUDGET, || async {
        receiver.counts().arrived > RATE
    })
    .await
    .unwrap();

    let seconds = time.as_secs_f64();
    let step = seconds / retries as f64;
    for (nth, endpoint) in few.iter().enumerate() {
        let phase = step * nth as f64 / quiet as f64;
        let at = format!("now() + make_interval(secs => 1 + {phase} + (n - 1) * {step})");
        stall(&bench, endpoint, retries, &at).await;
    }
    let before = Sample::take(&bench, &big, &scheduler).await;
    let begun = Instant::now();
    let mut cpu = vec![before.cpu];
    for part in 1..=4 {
        until("a quarter of the time", time, || async {
            begun.elapsed() >= time * part / 4
        })
        .await
        .unwrap();
        cpu.push(scheduler.cpu().as_secs_f64());
    }
    let after = Sample::take(&bench, &big, &scheduler).await;
    let sent = "SELECT count(*) FROM hooklane.deliveries d
                  JOIN hooklane.endpoints e ON e.id = d.endpoint_id AND e.url NOT LIKE '%/big'
                 WHERE d.status = 'sent'";
    let all = (quiet * retries).to_string();
    bench.database().until(sent, &all, BUDGET).await.unwrap();

    let late = lateness(&bench).await;
    assert!(late.most <= latest.as_secs_f64(), "{late:?}");
    // A row of the backlog changes when it is claimed and when its attempt is written down. Besides
    // there is what the quiet endpoints had, and what is in the broker at either end.
    let attempted = after.attempted - before.attempted;
    let updated = after.updated - before.updated;
    let room = 10 * RATE + 4 * quiet * retries + 200;
    assert!(
        updated <= 2 * attempted + room,
        "{updated} for {attempted} attempts"
    );
    assert!(
        after.touched <= after.attempted + room,
        "{} for {} attempts",
        after.touched,
        after.attempted
    );
    let quarters: Vec<f64> = cpu
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) / (seconds / 4.0))
        .collect();
    let (first, last) = (quarters[0], quarters[3]);
    assert!(
        last <= 2.0 * first + 0.1,
        "the scheduler's CPU grows: {quarters:.3?}"
    );
    format!(
        "{due} due beside {quiet} quiet endpoints, {seconds:.0} s at {RATE} a second: retries late by {:.0} ms \
         in the median, {:.0} ms p99, {:.0} ms at the most, of {}; the scheduler's share of a CPU by quarters \
         {quarters:.3?}; {attempted} attempts, {updated} rows updated in all, {} of the backlog ever touched",
        late.median * 1e3,
        late.p99 * 1e3,
        late.most * 1e3,
        quiet * retries,
        after.touched
    )
}

/// Deliveries of `acme` to an endpoint that wait in the ledger, the n-th due at a time in SQL.
async fn stall(bench: &Bench, endpoint: &str, deliveries: u64, at: &str) {
    let endpoint = endpoint.trim_start_matches("ep_");
    sql(
        bench,
        &format!(
            "SELECT hooklane.ensure_day(now());
             CREATE TEMP TABLE new AS
             SELECT now() AS at, gen_random_uuid() AS id, {at} AS due FROM generate_series(1, {deliveries}) n;
             INSERT INTO hooklane.messages (accepted_at, id, consumer_id, event_type, payload, source)
             SELECT at, id, 'acme', 'invoice.paid', '{{}}', 'api' FROM new;
             INSERT INTO hooklane.deliveries (accepted_at, message_id, endpoint_id, consumer_id, partition,
                    status, settled, driven_at, not_after, next_attempt_at, deadline)
             SELECT at, id, '{endpoint}', 'acme', 0, 'stalled', 1, at, at, due, at + interval '2 days' FROM new;
             INSERT INTO hooklane.backlogs AS b (endpoint_id, consumer_id, partition, due_at, accepted_from)
             SELECT '{endpoint}', 'acme', 0, min(due), min(at) FROM new
             ON CONFLICT (endpoint_id) DO UPDATE SET due_at = least(b.due_at, excluded.due_at);"
        ),
    )
    .await;
}

/// What has happened by a moment.
struct Sample {
    /// Attempts of the backlog.
    attempted: u64,
    /// Rows of the backlog that were ever claimed.
    touched: u64,
    /// Rows of deliveries that were ever updated.
    updated: u64,
    /// The scheduler's, in seconds.
    cpu: f64,
}

impl Sample {
    async fn take(bench: &Bench, big: &str, scheduler: &Process) -> Self {
        let big = big.trim_start_matches("ep_");
        let updated = "SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_user_tables
                        WHERE schemaname = 'hooklane' AND relname LIKE 'deliveries_2%'";
        Self {
            attempted: count(bench, &format!("attempts WHERE endpoint_id = '{big}'")).await,
            touched: count(
                bench,
                &format!("deliveries WHERE endpoint_id = '{big}' AND drive > 1"),
            )
            .await,
            updated: sql(bench, updated).await.parse().unwrap(),
            cpu: scheduler.cpu().as_secs_f64(),
        }
    }
}

/// How much later than due the quiet endpoints' attempts began, in seconds.
#[derive(Debug)]
struct Late {
    median: f64,
    p99: f64,
    most: f64,
}

async fn lateness(bench: &Bench) -> Late {
    let text = sql(
        bench,
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY late), percentile_cont(0.99) WITHIN GROUP (ORDER BY late),
                max(late)
           FROM (SELECT extract(epoch FROM a.started_at - d.next_attempt_at)::float8 AS late
                   FROM hooklane.attempts a
                   JOIN hooklane.deliveries d ON d.accepted_at = a.accepted_at AND d.message_id = a.message_id
                    AND d.endpoint_id = a.endpoint_id
                   JOIN hooklane.endpoints e ON e.id = a.endpoint_id AND e.url NOT LIKE '%/big') late",
    )
    .await;
    let figures: Vec<f64> = text.split('|').map(|n| n.parse().unwrap()).collect();
    Late {
        median: figures[0],
        p99: figures[1],
        most: figures[2],
    }
}
