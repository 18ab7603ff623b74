//! What the broker lost is put back, and nothing that it still has.

use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_nats::{Outgoing, PullConfig, Puller, inspect, topology};
use hooklane_proto::delivery::{Delivery, DeliveryKey};
use hooklane_proto::event::{Event, Target};
use hooklane_proto::header::Headers;
use hooklane_proto::record::{Batch, ParkReason};
use hooklane_proto::subject;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_testkit::wait;

use crate::bench::{BUDGET, Bench, Owner, PARTITION};
use crate::ledger::{drive, parked};

const STATES: &str =
    "SELECT string_agg(status || ':' || drive, ' ' ORDER BY message_id) FROM hooklane.deliveries";

fn event(key: DeliveryKey) -> Event {
    Event {
        message: key.message,
        consumer: ConsumerId::new("acme").unwrap(),
        event_type: EventType::new("invoice.paid").unwrap(),
        content_type: "application/json".to_owned(),
        accepted_at: key.accepted_at,
        not_after: key.accepted_at + TimeDelta::seconds(20),
        deadline: key.accepted_at + TimeDelta::hours(48),
        part: 0,
        targets: vec![Target {
            endpoint: key.endpoint,
            version: 1,
        }],
        trace: None,
        payload: "{}".into(),
    }
}

fn of_event(event: &Event) -> Outgoing {
    Outgoing {
        subject: event.subject(),
        headers: event.headers(),
        payload: event.payload.clone(),
    }
}

fn of_delivery(delivery: &Delivery) -> Outgoing {
    Outgoing {
        subject: delivery.subject(),
        headers: delivery.headers(),
        payload: delivery.payload.clone(),
    }
}

impl Bench {
    /// Waits until something in each stage was looked at for a while and nothing was put back.
    async fn nothing_is_put_back(&self) {
        let begun = tokio::time::Instant::now();
        wait::until("a second of waiting sweeps", BUDGET, || async {
            begun.elapsed() > std::time::Duration::from_secs(1)
        })
        .await
        .unwrap();
        let states = self.ledger.sql(STATES).await;
        assert!(!states.contains("stalled"), "{states}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_never_published_is_put_back_and_driven() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let old = bench.driven_a_minute_ago(1..4, endpoint).await;
    let young = bench.ledger.delivery(9, endpoint, clock::now()).await;
    bench
        .ledger
        .sql("UPDATE hooklane.deliveries SET partition = 15")
        .await;
    let owner = Owner::of(&bench).await;
    owner.set_room(endpoint, 10);
    let scheduler = bench.schedule();
    let mut lanes = bench.lanes();
    let mut driven = Vec::new();
    for _ in 0..3 {
        let delivery = lanes.next().await;
        assert_eq!(delivery.drive, 2);
        driven.push(delivery.key);
    }
    driven.sort_unstable();
    assert_eq!(driven, old);
    assert!(!driven.contains(&young));
    assert!(bench.ledger.sql(STATES).await.ends_with("received:1"));
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purged_deliveries_stream_is_found_and_not_before_it_is_purged() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.driven_a_minute_ago(1..4, endpoint).await;
    let late = clock::now() + TimeDelta::hours(1);
    for key in &keys {
        let event = event(*key);
        let delivery = Delivery::first(&event, event.targets[0], late);
        bench.publish(of_delivery(&delivery)).await;
    }
    let scheduler = bench.schedule();
    scheduler.until("the lead", |stats| stats.leads).await;
    bench.nothing_is_put_back().await;
    bench.purge(subject::DELIVERIES).await;
    bench.until(STATES, "stalled:1 stalled:1 stalled:1").await;
    assert_eq!(scheduler.stats().lost, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_waits_for_its_fan_out_is_not_lost() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.driven_a_minute_ago(1..2, endpoint).await;
    bench.publish(of_event(&event(keys[0]))).await;
    let scheduler = bench.schedule();
    scheduler.until("the lead", |stats| stats.leads).await;
    bench.nothing_is_put_back().await;
    // The fan-out has it in hand: still not lost.
    let durable = subject::fanout_durable(PARTITION);
    let mut fanout = Puller::new(
        &bench.client,
        subject::EVENTS,
        &durable,
        PullConfig::default(),
    );
    let message = fanout.next().await;
    bench.nothing_is_put_back().await;
    message.token.ack_confirmed().await.unwrap();
    bench.until(STATES, "stalled:1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_waits_for_the_ledger_is_not_lost() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.driven_a_minute_ago(1..2, endpoint).await;
    let records = vec![parked(drive(keys[0], 1), ParkReason::Held, clock::now())];
    bench
        .publish(Outgoing {
            subject: subject::records(PARTITION),
            headers: Headers::new(),
            payload: Batch { records }.encode().into(),
        })
        .await;
    let scheduler = bench.schedule();
    scheduler.until("the lead", |stats| stats.leads).await;
    bench.nothing_is_put_back().await;
    bench.purge(subject::RECORDS).await;
    bench.until(STATES, "stalled:1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_driven_again_after_the_store_was_wiped() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.driven_a_minute_ago(1..21, endpoint).await;
    let late = clock::now() + TimeDelta::hours(1);
    for (n, key) in (0..).zip(&keys) {
        let event = event(*key);
        if n % 2 == 0 {
            bench.publish(of_event(&event)).await;
        } else {
            let delivery = Delivery::first(&event, event.targets[0], late);
            bench.publish(of_delivery(&delivery)).await;
        }
    }
    let owner = Owner::of(&bench).await;
    owner.set_room(endpoint, 7);
    let scheduler = bench.schedule();
    scheduler.until("the lead", |stats| stats.leads).await;
    bench.nothing_is_put_back().await;
    bench.nats.wipe_store().await.unwrap();
    wait::until("the streams to be made anew", BUDGET, || async {
        topology::ensure(&bench.client).await.is_ok()
    })
    .await
    .unwrap();
    let mut lanes = bench.lanes();
    let mut driven = Vec::new();
    while driven.len() < keys.len() {
        let delivery = lanes.next().await;
        if !driven.contains(&delivery.key) {
            driven.push(delivery.key);
        }
    }
    driven.sort_unstable();
    assert_eq!(driven, keys);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_put_back_while_the_broker_cannot_be_read() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let scheduler = bench.schedule();
    scheduler.until("the lead", |stats| stats.leads).await;
    bench.nats.stop().await.unwrap();
    bench.driven_a_minute_ago(1..3, endpoint).await;
    bench.nothing_is_put_back().await;
    bench.nats.restart().await.unwrap();
    bench.until(STATES, "stalled:1 stalled:1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_publishing_failed_is_found_by_the_sweep() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    bench.stalled(5, 1, endpoint).await;
    let owner = Owner::of(&bench).await;
    owner.set_room(endpoint, 5);
    // It has no room for anything: every publish is refused for now.
    let info = inspect::stream_state(&bench.client, subject::DELIVERIES)
        .await
        .unwrap();
    assert_eq!(info.messages, 0);
    let subject = format!("$JS.API.STREAM.DELETE.{}", subject::DELIVERIES);
    bench
        .client
        .request(subject, bytes::Bytes::new(), BUDGET)
        .await
        .unwrap();
    let scheduler = bench.schedule();
    scheduler
        .until("unconfirmed deliveries", |stats| stats.unconfirmed == 5)
        .await;
    topology::ensure(&bench.client).await.unwrap();
    let mut lanes = bench.lanes();
    for _ in 0..5 {
        assert!(lanes.next().await.drive >= 3);
    }
}
