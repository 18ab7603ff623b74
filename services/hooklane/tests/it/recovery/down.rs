//! An endpoint that is down for 36 hours, of which one lasts 0.72 seconds here.

use std::collections::HashMap;
use std::time::Duration;

use hooklane_testkit::Reply;
use hooklane_testkit::wait::until;
use serde_json::json;
use tokio::time::Instant;

use super::receiver;
use crate::messages::sql;
use crate::process::Process;
use crate::system::{BUDGET, add_endpoint, assert_paced, count, ready, system, write_rows};

/// Hours go by so many times as fast.
const FASTER: u32 = 5_000;
const HOUR: Duration = Duration::from_secs(3_600);
/// The schedule that is the default.
const DELAYS: [Duration; 7] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3_600),
    Duration::from_secs(5 * 3_600),
    Duration::from_secs(10 * 3_600),
    Duration::from_secs(10 * 3_600),
];
const EVENTS: u64 = 60;
/// What the endpoint takes once it is back: so many a second, after so many at once.
const RATE: u64 = 20;
const BURST: u64 = 5;

fn soon(time: Duration) -> String {
    format!("{}us", (time / FASTER).as_micros())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_endpoint_missed_in_36_hours_waits_in_the_dlq_and_is_replayed_once_at_its_rate() {
    let (mut bench, _nats, health) = system().await;
    let delays: Vec<String> = DELAYS.iter().map(|delay| soon(*delay)).collect();
    bench.set("HOOKLANE__RETRY__DELAYS", json!(delays).to_string());
    bench.set("HOOKLANE__RETRY__DEADLINE", soon(48 * HOUR));
    bench.set("HOOKLANE__RETRY__RETRY_AFTER_CAP", soon(HOUR));
    let receiver = receiver(20 * EVENTS).await;
    receiver.fallback(Reply::reset());
    let (endpoint, _) = add_endpoint(&bench, &receiver.url("/hook"));
    let update = |settings: &[&str]| {
        bench.ok(&[&["endpoint", "update", &endpoint][..], settings].concat());
    };
    // While it is down its rate would only hold up the schedule, which runs so fast.
    update(&["--rate", "none", "--concurrency", "64"]);
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    let begun = Instant::now();
    write_rows(&bench, EVENTS).await;
    let letters = "deliveries WHERE status = 'failed' AND dead_lettered_at IS NOT NULL";
    until("everything to be a dead letter", 2 * BUDGET, || async {
        count(&bench, letters).await == EVENTS
    })
    .await
    .unwrap();
    // Eight attempts each, none before its time.
    let walked = sql(
        &bench,
        "SELECT string_agg(DISTINCT attempt_count || ' ' || counted || ' ' || series || ' ' || failure_reason, ',')
           FROM hooklane.deliveries",
    )
    .await;
    assert_eq!(walked, "8 8 1 exhausted");
    let gaps = sql(
        &bench,
        "SELECT number, min(extract(epoch FROM started_at - before))
           FROM (SELECT number, started_at, lag(started_at) OVER (PARTITION BY message_id ORDER BY number) AS before
                   FROM hooklane.attempts) a
          WHERE before IS NOT NULL GROUP BY number ORDER BY number",
    )
    .await;
    let gaps: Vec<f64> = gaps
        .lines()
        .map(|line| line.split('|').nth(1).unwrap().parse().unwrap())
        .collect();
    assert_eq!(gaps.len(), DELAYS.len());
    for (gap, delay) in gaps.iter().zip(DELAYS) {
        assert!(
            *gap >= (delay / FASTER).as_secs_f64(),
            "{gap} after {delay:?}"
        );
    }

    // The 36 hours are over, and it is back.
    until("36 hours to be over", BUDGET, || async {
        begun.elapsed() >= 36 * HOUR / FASTER
    })
    .await
    .unwrap();
    let listed = bench.json(&["dlq", "list", "--endpoint", &endpoint, "--limit", "100"]);
    assert_eq!(
        listed["dead_letters"].as_array().unwrap().len() as u64,
        EVENTS
    );
    receiver.fallback(Reply::status(204));
    let (rate, burst) = (RATE.to_string(), BURST.to_string());
    update(&["--rate", &rate, "--burst", &burst]);
    until("the lanes to know", BUDGET, || async {
        bench.json(&["endpoint", "show", &endpoint])["routed"] == true
    })
    .await
    .unwrap();
    receiver.forget();
    let replayed = bench.json(&["dlq", "replay", "--endpoint", &endpoint]);
    assert_eq!(replayed["replayed"], EVENTS);
    let sent = "SELECT count(*) FROM hooklane.deliveries WHERE status = 'sent' AND series = 2";
    let all = EVENTS.to_string();
    bench
        .database()
        .until(sent, &all, 2 * BUDGET)
        .await
        .unwrap();
    let requests = receiver.requests();
    let mut arrived: HashMap<&str, u64> = HashMap::new();
    for request in &requests {
        *arrived
            .entry(request.header("webhook-id").unwrap())
            .or_insert(0) += 1;
    }
    assert_eq!(arrived.len() as u64, EVENTS);
    assert!(arrived.values().all(|times| *times == 1), "{arrived:?}");
    assert_paced(&requests, BURST as f64, RATE as f64);
    // And one of them once more, waiting for it.
    let id = requests[0].header("webhook-id").unwrap();
    let done = bench.json(&["message", "replay", id, "--wait"]);
    assert_eq!((&done["status"], &done["due"]), (&json!("done"), &json!(1)));
    receiver.wait_for(EVENTS + 1, BUDGET).await.unwrap();
    let again = receiver.requests();
    assert_eq!(again[again.len() - 1].header("webhook-id"), Some(id));
    up.signal("TERM");
    assert_eq!(up.wait(BUDGET).await.code, 0);
}
