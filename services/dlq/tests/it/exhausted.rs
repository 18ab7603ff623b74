//! A message that nobody ever settles is taken off its stream; its delivery has a fault more.

use std::time::Duration;

use hooklane_core::clock;
use hooklane_dlq::Config;
use hooklane_nats::{Outgoing, inspect};
use hooklane_proto::header::{self, Headers};
use hooklane_proto::subject;
use serde_json::Value;

use crate::bench::{Bench, PARTITION, config};

const STATES: &str =
    "SELECT string_agg(status || ':' || drive || ':' || faults, ' ' ORDER BY message_id)
                        FROM hooklane.deliveries";

impl Bench {
    /// Nothing of the partition is in the way of its sweep.
    async fn sweep_is_free(&self) -> bool {
        let subjects = subject::deliveries_of(PARTITION);
        let first = inspect::first_sequence_of(&self.client, subject::DELIVERIES, &subjects);
        first.await.unwrap().is_none()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_never_settled_is_taken_off_and_its_delivery_waits() {
    let bench = Bench::new().await;
    bench.hurry_lanes().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..4, endpoint, clock::now()).await;
    let (one, two) = (bench.mover(config()), bench.mover(config()));
    for key in &keys {
        bench.drive(*key, 1).await;
    }
    let _lane = bench.stuck_lane();
    bench
        .until(STATES, "stalled:1:1 stalled:1:1 stalled:1:1")
        .await;
    bench.until_count(subject::DELIVERIES, 0).await;
    assert!(bench.sweep_is_free().await);
    let due = "SELECT count(*) FROM hooklane.backlogs b JOIN hooklane.deliveries d USING (endpoint_id)
                WHERE b.due_at <= d.next_attempt_at
                  AND d.next_attempt_at BETWEEN clock_timestamp() + '20 s' AND clock_timestamp() + '61 s'";
    assert_eq!(bench.ledger.sql(due).await, "3");
    let taken = one.handle.stats().taken_off + two.handle.stats().taken_off;
    let stalled = one.handle.stats().stalled + two.handle.stats().stalled;
    assert_eq!((taken, stalled), (3, 3));
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fifth_fault_is_poison_and_ends_in_the_dlq() {
    let bench = Bench::new().await;
    bench.hurry_lanes().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let key = bench.ledger.delivery(1, endpoint, clock::now()).await;
    let mover = bench.mover(config());
    let _lane = bench.stuck_lane();
    for drive in 1..=5 {
        bench
            .ledger
            .sql(&format!(
                "UPDATE hooklane.deliveries SET status = 'received', drive = {drive}"
            ))
            .await;
        bench.drive(key, drive).await;
        let expected = match drive {
            5 => "failed:5:5".to_owned(),
            n => format!("stalled:{n}:{n}"),
        };
        bench.until(STATES, &expected).await;
    }
    bench.until_count(subject::DLQ, 1).await;
    let letters = bench.letters().await;
    assert_eq!(
        (letters[0].key, letters[0].reason.as_str()),
        (key, "poison")
    );
    assert_eq!(mover.handle.stats().poisoned, 1);
    mover.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_broker_said_nothing_of_is_found_and_nothing_else() {
    let bench = Bench::new().await;
    bench.hurry_lanes().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..3, endpoint, clock::now()).await;
    bench.drive(keys[0], 1).await;
    let lane = bench.stuck_lane();
    bench.until_count(subject::ADVISORIES, 1).await;
    drop(lane);
    bench.api("STREAM.PURGE.ADVISORIES", &Value::Null).await;
    // This one is only waiting.
    bench.drive(keys[1], 1).await;
    let mover = bench.mover(Config {
        search_every: Duration::from_millis(100),
        ..config()
    });
    bench.until(STATES, "stalled:1:1 received:1:0").await;
    bench.until_count(subject::DELIVERIES, 1).await;
    assert_eq!(mover.handle.stats().advisories, 0);
    mover.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settled_delivery_keeps_its_end() {
    let bench = Bench::new().await;
    bench.hurry_lanes().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let key = bench.ledger.delivery(1, endpoint, clock::now()).await;
    bench
        .ledger
        .sql("UPDATE hooklane.deliveries SET status = 'sent'")
        .await;
    bench.drive(key, 1).await;
    let mover = bench.mover(config());
    let _lane = bench.stuck_lane();
    bench.until_count(subject::DELIVERIES, 0).await;
    assert_eq!(bench.ledger.sql(STATES).await, "sent:1:0");
    assert_eq!(mover.handle.stats().taken_off, 1);
    mover.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_message_that_cannot_be_read_is_dead_lettered_with_what_is_there() {
    let bench = Bench::new().await;
    bench.hurry_lanes().await;
    let mut headers = Headers::new();
    headers.push(header::SERIES, "first");
    bench
        .publish(Outgoing {
            subject: "deliveries.acme.ep_x".to_owned(),
            headers,
            payload: "what was there".into(),
        })
        .await;
    let mover = bench.mover(config());
    let _lane = bench.stuck_lane();
    bench.until_count(subject::DLQ, 1).await;
    bench.until_count(subject::DELIVERIES, 0).await;
    let stored = bench.stored().await.remove(0);
    assert_eq!(stored.subject, "dlq.acme.ep_x");
    assert_eq!(stored.payload, "what was there");
    assert_eq!(stored.header(header::REASON), Some("unreadable"));
    assert_eq!(stored.header(header::SERIES), Some("first"));
    let origin = stored.header(header::ORIGIN).unwrap();
    assert!(
        origin.starts_with("DELIVERIES 1 deliveries.15.acme"),
        "{origin}"
    );
    mover.stop().await;
}
