//! What lanes do with what they may not start at once.

use std::collections::HashMap;
use std::time::Duration;

use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_core::rules::partition::partition;
use hooklane_dispatcher::Config;
use hooklane_nats::{Outgoing, PullConfig, Puller};
use hooklane_proto::header::Headers;
use hooklane_proto::id::EndpointId;
use hooklane_proto::record::{ParkReason, Record, SkipReason, Verdict};
use hooklane_proto::room::{Reply as RoomReply, Request};
use hooklane_proto::route::State;
use hooklane_proto::subject;
use hooklane_testkit::receiver::Reply;
use hooklane_testkit::{Receiver, wait};
use tokio::time::Instant;

use crate::bench::{Bench, SOON, consumer};

fn short_horizon() -> Config {
    Config {
        horizon: Duration::from_secs(1),
        ..Config::default()
    }
}

fn parked(records: &[Record], reason: ParkReason) -> usize {
    let is = |r: &&Record| matches!(r, Record::Parked(p) if p.reason == reason);
    records.iter().filter(is).count()
}

/// The partition of the bench's consumer.
fn number(bench: &Bench) -> u16 {
    let partitions = std::num::NonZeroU16::new(bench.nats.partitions()).unwrap();
    partition(partitions, consumer().as_str())
}

async fn ask_room(bench: &Bench, endpoints: Vec<EndpointId>) -> HashMap<EndpointId, u32> {
    let number = number(bench);
    let body = serde_json::to_vec(&Request { endpoints }).unwrap();
    let reply = wait::until_some("an owner to answer", SOON, || async {
        let asked = bench.nats.request(
            subject::room(number),
            body.clone().into(),
            Duration::from_secs(2),
        );
        asked.await.ok()
    })
    .await
    .unwrap();
    let reply: RoomReply = serde_json::from_slice(&reply).unwrap();
    reply
        .rooms
        .into_iter()
        .map(|room| (room.endpoint, room.room))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_hold_makes_the_others_wait_and_then_they_go() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", [Reply::status(429).retry_after(2)]);
    let route = bench.endpoint(&receiver.url("/")).await;
    let running = bench.dispatcher(Config::default());
    let first = bench.deliver(&route).await;
    let held_until = bench.recorded.attempt(&first).await.hold_until.unwrap();
    let later = [bench.deliver(&route).await, bench.deliver(&route).await];
    for delivery in &later {
        let attempt = bench.recorded.attempt(delivery).await;
        assert_eq!(attempt.verdict, Verdict::Sent);
        assert!(attempt.started_at >= held_until - TimeDelta::milliseconds(5));
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_hold_parks_the_others_until_its_end() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", [Reply::status(429).retry_after(600)]);
    let route = bench.endpoint(&receiver.url("/")).await;
    let running = bench.dispatcher(Config::default());
    let first = bench.deliver(&route).await;
    let held_until = bench.recorded.attempt(&first).await.hold_until.unwrap();
    let later = bench.deliver(&route).await;
    match bench.recorded.first(&later).await {
        Record::Parked(parked) => {
            assert_eq!(parked.reason, ParkReason::Held);
            let off = (parked.next_attempt_at - held_until)
                .num_milliseconds()
                .abs();
            assert!(off < 50, "{off} ms");
        }
        other => panic!("{other:?}"),
    }
    // A new event does not even travel.
    let event = bench.event(&[&route]);
    bench.publish_event(&event).await;
    let records = bench.recorded.wait(3, SOON).await;
    assert_eq!(parked(&records, ParkReason::Held), 2);
    assert!(ask_room(&bench, vec![route.endpoint]).await.is_empty());
    assert_eq!(receiver.counts().arrived, 1);
    running.stop().await;

    // The hold is in the settings for the next owner.
    let mut held = route.clone();
    held.version = 2;
    held.held_until = Some(held_until);
    bench.routes.put(&held).await.unwrap();
    let running = bench.dispatcher(Config::default());
    let later = bench.deliver(&held).await;
    let record = bench.recorded.first(&later).await;
    assert!(matches!(record, Record::Parked(p) if p.reason == ParkReason::Held));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_takes_none_skips_until_it_is_resumed() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let mut route = bench.route(&receiver.url("/"));
    route.state = State::Paused;
    bench.routes.put(&route).await.unwrap();
    let running = bench.dispatcher(Config::default());
    for (version, state, reason) in [
        (1, State::Paused, SkipReason::Paused),
        (2, State::Disabled, SkipReason::Disabled),
    ] {
        route.version = version;
        route.state = state;
        bench.routes.put(&route).await.unwrap();
        let event = bench.event(&[&route]);
        bench.publish_event(&event).await;
        let records = bench
            .recorded
            .wait(usize::try_from(version).unwrap(), SOON)
            .await;
        match records.last().unwrap() {
            Record::Skipped(skipped) => assert_eq!(skipped.reason, reason),
            other => panic!("{other:?}"),
        }
    }
    route.version = 3;
    route.state = State::Active;
    bench.routes.put(&route).await.unwrap();
    let delivery = bench.deliver(&route).await;
    assert_eq!(
        bench.recorded.attempt(&delivery).await.verdict,
        Verdict::Sent
    );
    route.version = 4;
    route.state = State::Deleted;
    bench.routes.put(&route).await.unwrap();
    let delivery = bench.deliver(&route).await;
    let record = bench.recorded.first(&delivery).await;
    assert!(matches!(record, Record::Skipped(s) if s.reason == SkipReason::Deleted));
    bench.deliveries_settled().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_made_for_newer_settings_waits_for_them() {
    let bench = Bench::start().await;
    let (old, new) = (
        Receiver::start().await.unwrap(),
        Receiver::start().await.unwrap(),
    );
    let mut route = bench.endpoint(&old.url("/")).await;
    let running = bench.dispatcher(Config::default());
    let first = bench.deliver(&route).await;
    bench.recorded.attempt(&first).await;
    route.version = 2;
    route.url = new.url("/");
    let delivery = bench.deliver(&route).await;
    bench.routes.put(&route).await.unwrap();
    assert_eq!(
        bench.recorded.attempt(&delivery).await.verdict,
        Verdict::Sent
    );
    assert_eq!((old.counts().arrived, new.counts().arrived), (1, 1));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_nobody_knows_is_parked_at_the_horizon() {
    let bench = Bench::start().await;
    let route = bench.route("http://127.0.0.1:1/");
    let running = bench.dispatcher(short_horizon());
    let event = bench.event(&[&route]);
    bench.publish_event(&event).await;
    let records = bench.recorded.wait(1, SOON).await;
    assert_eq!(parked(&records, ParkReason::UnknownVersion), 1);
    assert!(ask_room(&bench, vec![route.endpoint]).await.is_empty());
    bench.deliveries_settled().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_sees_no_more_than_its_rate_and_its_concurrency() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(200).after(Duration::from_millis(20)));
    let mut limited = bench.route(&receiver.url("/rate"));
    (limited.rate, limited.burst) = (Some(20), 20);
    let mut narrow = bench.route(&receiver.url("/narrow"));
    narrow.concurrency = 3;
    for route in [&limited, &narrow] {
        bench.routes.put(route).await.unwrap();
        for _ in 0..60 {
            bench.deliver(route).await;
        }
    }
    let running = bench.dispatcher(Config::default());
    bench.recorded.wait(120, SOON).await;
    assert!(receiver.counts_of("/narrow").max_in_flight <= 3);
    let arrivals: Vec<Instant> = receiver.requests_to("/rate").iter().map(|r| r.at).collect();
    for (i, from) in arrivals.iter().enumerate() {
        for (j, to) in arrivals.iter().enumerate().skip(i) {
            // Starts are metered; arrivals may bunch by what the host's scheduling takes.
            let seconds = (*to - *from).as_secs_f64() + 0.25;
            let allowed = 20.0 + 20.0 * seconds;
            assert!(
                (j - i + 1) as f64 <= allowed,
                "{} within {seconds} s",
                j - i + 1
            );
        }
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_endpoint_parks_what_it_can_not_start() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::hang());
    let mut route = bench.route(&receiver.url("/"));
    route.concurrency = 2;
    route.timeout_ms = 4_000;
    bench.routes.put(&route).await.unwrap();
    let running = bench.dispatcher(short_horizon());
    for _ in 0..6 {
        bench.deliver(&route).await;
    }
    let records = bench.recorded.wait(4, SOON).await;
    assert_eq!(parked(&records, ParkReason::Horizon), 4);
    for record in &records {
        let Record::Parked(parked) = record else {
            panic!("{record:?}");
        };
        assert_eq!(
            parked.next_attempt_at,
            record.drive().key.accepted_at,
            "its due time stays"
        );
    }
    // It has no room, so that a new event does not even travel, and the scheduler gets none.
    let event = bench.event(&[&route]);
    bench.publish_event(&event).await;
    let records = bench.recorded.wait(5, SOON).await;
    assert_eq!(parked(&records, ParkReason::NoRoom), 1);
    assert!(ask_room(&bench, vec![route.endpoint]).await.is_empty());
    // Both time out, and the idle lane takes one.
    bench.recorded.wait(7, SOON).await;
    let room = ask_room(&bench, vec![route.endpoint]).await;
    assert_eq!(room.get(&route.endpoint), Some(&1), "{room:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_events_go_behind_a_backlog_while_it_is_named() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let named = bench.endpoint(&receiver.url("/named")).await;
    let other = bench.endpoint(&receiver.url("/other")).await;
    let running = bench.dispatcher(Config::default());
    let room = ask_room(&bench, vec![named.endpoint]).await;
    assert!(room[&named.endpoint] > 1);
    let event = bench.event(&[&named, &other]);
    bench.publish_event(&event).await;
    let records = bench.recorded.wait(2, SOON).await;
    assert_eq!(parked(&records, ParkReason::Backlog), 1);
    assert_eq!(receiver.counts_of("/other").arrived, 1);
    assert_eq!(receiver.counts_of("/named").arrived, 0);
    // A drive of the backlog passes.
    let mut driven = bench.delivery(&named);
    driven.drive = 2;
    bench.publish(&driven).await;
    assert_eq!(bench.recorded.attempt(&driven).await.verdict, Verdict::Sent);
    ask_room(&bench, vec![other.endpoint]).await;
    let event = bench.event(&[&named]);
    bench.publish_event(&event).await;
    bench.recorded.wait(4, SOON).await;
    assert_eq!(receiver.counts_of("/named").arrived, 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_comes_again_is_copied_and_never_parked() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let named = bench.endpoint(&receiver.url("/named")).await;
    let event = bench.event(&[&named]);
    bench.publish_event(&event).await;
    // An owner before us had it, and gave it back after it may have copied it.
    let durable = subject::fanout_durable(number(&bench));
    let mut before = Puller::new(
        &bench.nats,
        subject::EVENTS,
        &durable,
        PullConfig::default(),
    );
    let held = before.next().await;
    held.token.nak(Some(Duration::from_secs(2))).await;
    before.stop().await;
    let running = bench.dispatcher(Config::default());
    wait::until("the event to be delivered", SOON, async || {
        ask_room(&bench, vec![named.endpoint]).await;
        receiver.counts_of("/named").arrived == 1
    })
    .await
    .unwrap();
    let records = bench.recorded.wait(1, SOON).await;
    assert_eq!(parked(&records, ParkReason::Backlog), 0, "{records:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_kept_for_the_asker() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let mut route = bench.route(&receiver.url("/"));
    (route.rate, route.burst) = (Some(1), 1);
    bench.routes.put(&route).await.unwrap();
    let running = bench.dispatcher(Config::default());
    let first = ask_room(&bench, vec![route.endpoint]).await;
    assert_eq!(
        first[&route.endpoint], 11,
        "one token and one each second of the horizon"
    );
    let second = ask_room(&bench, vec![route.endpoint]).await;
    assert!(second.is_empty(), "{second:?}");
    wait::until("the reservation to lapse", SOON, || async {
        !ask_room(&bench, vec![route.endpoint]).await.is_empty()
    })
    .await
    .unwrap();
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_copies_are_dropped_and_unreadable_ones_dead_lettered() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let route = bench.endpoint(&receiver.url("/")).await;
    let mut late = bench.delivery(&route);
    late.not_after = clock::now() - TimeDelta::seconds(1);
    bench.publish(&late).await;
    let mut stale = bench.event(&[&route]);
    stale.not_after = clock::now() - TimeDelta::seconds(1);
    bench.publish_event(&stale).await;
    let mut headers = Headers::new();
    headers.push(hooklane_proto::header::MESSAGE, "nonsense");
    let unreadable = Outgoing {
        subject: subject::deliveries(&consumer(), route.endpoint),
        headers,
        payload: "x".into(),
    };
    let publisher = hooklane_nats::Publisher::new(&bench.nats, 1, 1 << 20);
    publisher
        .publish(unreadable, Instant::now() + SOON)
        .await
        .unwrap();
    let running = bench.dispatcher(Config::default());
    let good = bench.deliver(&route).await;
    bench.recorded.attempt(&good).await;
    bench.deliveries_settled().await;
    assert_eq!(receiver.counts().arrived, 1);
    assert_eq!(bench.recorded.all().len(), 1);
    let dead = hooklane_nats::stored::get(&bench.nats, subject::DLQ, 1).await;
    let dead = dead.unwrap().unwrap();
    assert_eq!(
        dead.subject,
        subject::dead_letters(&consumer(), route.endpoint)
    );
    assert_eq!(dead.payload, "x");
    let header = |name| dead.header(name);
    assert_eq!(header(hooklane_proto::header::REASON), Some("unreadable"));
    assert_eq!(header(hooklane_proto::header::MESSAGE), Some("nonsense"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_copy_of_a_drive_is_not_attempted() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", [Reply::status(200).after(Duration::from_millis(500))]);
    let route = bench.endpoint(&receiver.url("/")).await;
    let running = bench.dispatcher(Config::default());
    let delivery = bench.delivery(&route);
    bench.publish(&delivery).await;
    receiver.wait_for(1, SOON).await.unwrap();
    // As the broker would give it again, but with an id that it does not know.
    let copy = || {
        let mut headers = Headers::new();
        for (name, value) in delivery.headers().iter() {
            if name != hooklane_proto::header::MSG_ID {
                headers.push(name, value);
            }
        }
        Outgoing {
            subject: delivery.subject(),
            headers,
            payload: delivery.payload.clone(),
        }
    };
    let publisher = hooklane_nats::Publisher::new(&bench.nats, 1, 1 << 20);
    publisher
        .publish(copy(), Instant::now() + SOON)
        .await
        .unwrap();
    bench.recorded.attempt(&delivery).await;
    bench.deliveries_settled().await;
    publisher
        .publish(copy(), Instant::now() + SOON)
        .await
        .unwrap();
    bench.deliveries_settled().await;
    assert_eq!(receiver.counts().arrived, 1);
    assert_eq!(bench.recorded.all().len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_endpoints_leave_the_others_their_pace() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.always("/hang", Reply::hang());
    let config = Config {
        max_in_flight: 64,
        ..Config::default()
    };
    let running = bench.dispatcher(config);
    let healthy = bench.endpoint(&receiver.url("/healthy")).await;
    for _ in 0..24 {
        let mut hanging = bench.route(&receiver.url("/hang"));
        hanging.timeout_ms = 30_000;
        bench.routes.put(&hanging).await.unwrap();
        let deliveries: Vec<_> = (0..20).map(|_| bench.delivery(&hanging)).collect();
        futures::future::join_all(deliveries.iter().map(|d| bench.publish(d))).await;
    }
    receiver.wait_for_path("/hang", 32, SOON).await.unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..100 {
        let started = Instant::now();
        let delivery = bench.deliver(&healthy).await;
        bench.recorded.attempt(&delivery).await;
        slowest = slowest.max(started.elapsed());
    }
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    let hanging = receiver.counts_of("/hang").in_flight;
    assert!(
        (24..=63).contains(&hanging),
        "{hanging}: each at least one, all less than the cap"
    );
    running.shutdown.cancel();
    running.kill().await;
}
