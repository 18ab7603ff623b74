//! Streams that take nothing more, and keep what they have.

use std::time::Duration;

use bytes::Bytes;
use hooklane_core::rules::address::Policy;
use hooklane_core::rules::partition::partition;
use hooklane_dispatcher::Config;
use hooklane_nats::inspect;
use hooklane_proto::record::{ParkReason, Record, Verdict};
use hooklane_proto::room::Request;
use hooklane_proto::route::Route;
use hooklane_proto::subject;
use hooklane_testkit::{Receiver, wait};
use serde_json::{Value, json};

use crate::bench::{Bench, Running, SOON, consumer};

/// Long past what the dispatchers of these tests may take to stop.
const A_WHILE: Duration = Duration::from_secs(4);

/// Gives up soon what it may give up. The brake, which has tests of its own, stays off.
fn impatient() -> Config {
    Config {
        drain_attempts: Duration::from_secs(1),
        drain_records: Duration::from_secs(1),
        brake_percent: 100,
        ..Config::default()
    }
}

/// The partition of the bench's consumer.
fn number(bench: &Bench) -> u16 {
    let partitions = std::num::NonZeroU16::new(bench.nats.partitions()).unwrap();
    partition(partitions, consumer().as_str())
}

async fn ask(bench: &Bench, subject: String, body: &Value) -> Bytes {
    let body = Bytes::from(body.to_string());
    wait::until_some(&format!("an answer on {subject}"), SOON, async || {
        let asked = bench
            .nats
            .request(subject.clone(), body.clone(), Duration::from_secs(2));
        asked.await.ok()
    })
    .await
    .unwrap()
}

async fn api(bench: &Bench, request: &str, body: &Value) -> Value {
    let answer = ask(bench, format!("$JS.API.{request}"), body).await;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert!(answer.get("error").is_none(), "{request}: {answer}");
    answer
}

/// A stream that is full.
struct Full<'a> {
    bench: &'a Bench,
    stream: &'static str,
    before: Value,
}

impl<'a> Full<'a> {
    async fn make(bench: &'a Bench, stream: &'static str) -> Self {
        let mut info = api(bench, &format!("STREAM.INFO.{stream}"), &json!({})).await;
        let before = info["config"].take();
        let mut config = before.clone();
        config["max_bytes"] = 1.into();
        api(bench, &format!("STREAM.UPDATE.{stream}"), &config).await;
        Self {
            bench,
            stream,
            before,
        }
    }

    /// Makes room again.
    async fn end(self) {
        let request = format!("STREAM.UPDATE.{}", self.stream);
        api(self.bench, &request, &self.before).await;
    }
}

/// Has new events of an endpoint go behind its backlog, which lasts for two seconds.
async fn name_backlog(bench: &Bench, route: &Route) {
    let request = Request {
        endpoints: vec![route.endpoint],
    };
    let body = serde_json::to_value(&request).unwrap();
    ask(bench, subject::room(number(bench)), &body).await;
}

/// Waits until an event was pulled.
async fn pulled(bench: &Bench) {
    let durable = subject::fanout_durable(number(bench));
    let request = format!("CONSUMER.INFO.{}.{durable}", subject::EVENTS);
    wait::until("the event to be pulled", SOON, async || {
        let info = api(bench, &request, &json!({})).await;
        info["num_ack_pending"] == 1
    })
    .await
    .unwrap();
}

async fn events_settled(bench: &Bench) {
    let durables: Vec<_> = (0..2).map(subject::fanout_durable).collect();
    bench.settled(subject::EVENTS, &durables).await;
}

/// Asks the dispatcher as one would that has nothing.
async fn hand_over(bench: &Bench) {
    let request = json!({"owner": "another", "has": 0});
    ask(bench, subject::hand_over(number(bench)), &request).await;
}

async fn owns(running: &Running, count: usize, budget: Duration) -> bool {
    let owned = wait::until("partitions", budget, async || {
        running.handle.owned().len() == count
    });
    owned.await.is_ok()
}

/// Makes an attempt that can't be recorded now.
async fn attempt_unrecorded(bench: &Bench, receiver: &Receiver, route: &Route) {
    bench.deliver(route).await;
    receiver.wait_for(1, SOON).await.unwrap();
    receiver.wait_idle(SOON).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_handed_over_when_its_records_are_safe_and_not_before() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let route = bench.endpoint(&receiver.url("/")).await;
    let named = bench.endpoint(&receiver.url("/named")).await;
    let one = bench.dispatcher(impatient());
    assert!(owns(&one, 2, SOON).await);
    let full = Full::make(&bench, subject::RECORDS).await;
    name_backlog(&bench, &named).await;
    let event = bench.event(&[&named]);
    bench.publish_event(&event).await;
    pulled(&bench).await;
    attempt_unrecorded(&bench, &receiver, &route).await;

    hand_over(&bench).await;
    assert!(!owns(&one, 1, A_WHILE).await, "handed over without records");
    full.end().await;
    assert!(owns(&one, 1, SOON).await);
    let records = bench.recorded.wait(2, SOON).await;
    let sent = |r: &Record| matches!(r, Record::Attempt(a) if a.verdict == Verdict::Sent);
    let parked = |r: &Record| matches!(r, Record::Parked(p) if p.reason == ParkReason::Backlog);
    assert!(
        records.iter().any(sent) && records.iter().any(parked),
        "{records:?}"
    );

    // Whoever has it next finds nothing to do again.
    let two = bench.dispatcher_with(impatient(), Policy::loopback(), bench.connect().await);
    assert!(owns(&two, 1, SOON).await);
    one.stop().await;
    assert!(owns(&two, 2, SOON).await);
    let next = bench.deliver(&named).await;
    bench.recorded.attempt(&next).await;
    events_settled(&bench).await;
    bench.deliveries_settled().await;
    assert_eq!(receiver.counts_of("/").arrived, 1);
    assert_eq!(receiver.counts_of("/named").arrived, 1);
    assert_eq!(bench.recorded.all().len(), 3);
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_a_hand_over_that_waits_for_records() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let route = bench.endpoint(&receiver.url("/")).await;
    let running = bench.dispatcher(impatient());
    assert!(owns(&running, 2, SOON).await);
    let full = Full::make(&bench, subject::RECORDS).await;
    attempt_unrecorded(&bench, &receiver, &route).await;
    hand_over(&bench).await;
    assert!(!owns(&running, 1, A_WHILE).await);
    let took = running.stop().await;
    assert!(took < Duration::from_secs(4), "{took:?}");
    full.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_outlast_a_lease_that_is_lost_while_a_partition_is_handed_over() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let route = bench.endpoint(&receiver.url("/")).await;
    let running = bench.dispatcher(impatient());
    assert!(owns(&running, 2, SOON).await);
    let full = Full::make(&bench, subject::RECORDS).await;
    attempt_unrecorded(&bench, &receiver, &route).await;
    hand_over(&bench).await;
    bench.server.kill9().await.unwrap();
    assert!(owns(&running, 0, SOON).await);
    bench.server.restart().await.unwrap();
    full.end().await;
    let records = bench.recorded.wait(1, SOON).await;
    assert!(matches!(&records[0], Record::Attempt(a) if a.verdict == Verdict::Sent));
    assert!(owns(&running, 2, SOON).await);
    bench.deliveries_settled().await;
    let next = bench.deliver(&route).await;
    bench.recorded.attempt(&next).await;
    assert_eq!(receiver.counts().arrived, 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_copies_are_refused_too_long_is_left_to_the_sweep() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let named = bench.endpoint(&receiver.url("/named")).await;
    let other = bench.endpoint(&receiver.url("/other")).await;
    let config = Config {
        not_after: Duration::from_secs(3),
        ..impatient()
    };
    let running = bench.dispatcher(config);
    let full = Full::make(&bench, subject::DELIVERIES).await;
    name_backlog(&bench, &named).await;
    let event = bench.event(&[&named, &other]);
    bench.publish_event(&event).await;
    let records = bench.recorded.wait(1, SOON).await;
    assert!(
        matches!(&records[0], Record::Parked(p) if p.reason == ParkReason::Backlog),
        "{records:?}"
    );
    full.end().await;
    // The ledger drives what was parked, and what the sweep finds to be lost. Nothing comes beside.
    events_settled(&bench).await;
    for route in [&named, &other] {
        let mut driven = bench.delivery(route);
        driven.key.message = event.message;
        driven.key.accepted_at = event.accepted_at;
        driven.drive = 2;
        bench.publish(&driven).await;
    }
    bench.deliveries_settled().await;
    let records = bench.recorded.all();
    let sent = |r: &&Record| matches!(r, Record::Attempt(a) if a.verdict == Verdict::Sent);
    assert_eq!(records.iter().filter(sent).count(), 2, "{records:?}");
    for path in ["/named", "/other"] {
        assert_eq!(receiver.counts_of(path).arrived, 1, "{path}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_are_refused_for_a_moment_are_made_once() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let route = bench.endpoint(&receiver.url("/")).await;
    let running = bench.dispatcher(impatient());
    assert!(owns(&running, 2, SOON).await);
    let full = Full::make(&bench, subject::DELIVERIES).await;
    let event = bench.event(&[&route]);
    bench.publish_event(&event).await;
    pulled(&bench).await;
    full.end().await;
    bench.recorded.wait(1, SOON).await;
    events_settled(&bench).await;
    bench.deliveries_settled().await;
    assert_eq!(receiver.counts().arrived, 1);
    let copies = inspect::stream_state(&bench.nats, subject::DELIVERIES).await;
    assert_eq!(copies.unwrap().last_sequence, 1);
    running.stop().await;
}
