//! Stopping, crashing, sharing out, and a broker that goes away.

use std::collections::HashSet;
use std::time::Duration;

use hooklane_core::rules::address::Policy;
use hooklane_dispatcher::Config;
use hooklane_proto::record::{Record, Verdict};
use hooklane_testkit::receiver::Reply;
use hooklane_testkit::{Receiver, wait};

use crate::bench::{Bench, SOON};

fn impatient() -> Config {
    Config {
        drain_attempts: Duration::from_secs(1),
        ..Config::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_attempts_end_and_gives_back_the_rest() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", [Reply::status(200).after(Duration::from_secs(2))]);
    let mut route = bench.route(&receiver.url("/"));
    route.concurrency = 1;
    route.timeout_ms = 10_000;
    bench.routes.put(&route).await.unwrap();
    let running = bench.dispatcher(Config::default());
    let first = bench.deliver(&route).await;
    receiver.wait_for(1, SOON).await.unwrap();
    let rest = [bench.deliver(&route).await, bench.deliver(&route).await];
    let took = running.stop().await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(bench.recorded.attempt(&first).await.verdict, Verdict::Sent);
    assert_eq!(receiver.counts().arrived, 1);

    // The leases are released: the next one begins at once with what was given back.
    let running = bench.dispatcher(Config::default());
    for delivery in &rest {
        assert_eq!(
            bench.recorded.attempt(delivery).await.verdict,
            Verdict::Sent
        );
    }
    assert_eq!(receiver.counts().arrived, 3);
    bench.deliveries_settled().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_outlast_the_drain_are_cut_and_recorded_uncounted() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::hang());
    let mut route = bench.route(&receiver.url("/"));
    route.timeout_ms = 60_000;
    bench.routes.put(&route).await.unwrap();
    let running = bench.dispatcher(impatient());
    let deliveries = [bench.deliver(&route).await, bench.deliver(&route).await];
    receiver.wait_for(2, SOON).await.unwrap();
    let took = running.stop().await;
    assert!(took < Duration::from_secs(4), "{took:?}");
    for delivery in &deliveries {
        let attempt = bench.recorded.attempt(delivery).await;
        assert_eq!(attempt.error.as_deref(), Some("interrupted"));
        assert_eq!((attempt.number, attempt.counted), (1, 0));
        assert!(matches!(attempt.verdict, Verdict::Retry { .. }));
    }
    bench.deliveries_settled().await;
    assert_eq!(bench.nats.abandoned_tokens(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_shared_evenly_and_taken_over() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let route = bench.endpoint(&receiver.url("/")).await;
    let one = bench.dispatcher(Config::default());
    let owns = |running: &crate::bench::Running, count: usize| {
        let handle = running.handle.clone();
        async move {
            wait::until(&format!("{count} partitions"), SOON, || async {
                handle.owned().len() == count
            })
            .await
            .unwrap();
        }
    };
    owns(&one, 2).await;
    let two = bench.dispatcher_with(Config::default(), Policy::loopback(), bench.connect().await);
    owns(&one, 1).await;
    owns(&two, 1).await;
    let both: HashSet<u16> = one
        .handle
        .owned()
        .into_iter()
        .chain(two.handle.owned())
        .collect();
    assert_eq!(both.len(), 2);
    let delivery = bench.deliver(&route).await;
    assert_eq!(
        bench.recorded.attempt(&delivery).await.verdict,
        Verdict::Sent
    );
    // One that stops in order is missed for a moment, one that crashes until its leases expire.
    one.stop().await;
    owns(&two, 2).await;
    let delivery = bench.deliver(&route).await;
    assert_eq!(
        bench.recorded.attempt(&delivery).await.verdict,
        Verdict::Sent
    );
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_away_while_an_attempt_ends_causes_no_second_attempt() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", [Reply::status(200).after(Duration::from_millis(500))]);
    let route = bench.endpoint(&receiver.url("/")).await;
    let running = bench.dispatcher(Config::default());
    let delivery = bench.deliver(&route).await;
    receiver.wait_for(1, SOON).await.unwrap();
    bench.server.kill9().await.unwrap();
    receiver.wait_idle(SOON).await.unwrap();
    bench.server.restart().await.unwrap();
    let attempt = bench.recorded.attempt(&delivery).await;
    assert_eq!((attempt.status, attempt.number), (Some(200), 1));
    bench.deliveries_settled().await;
    // It goes on as before.
    let next = bench.deliver(&route).await;
    bench.recorded.attempt(&next).await;
    assert_eq!(receiver.counts().arrived, 2);
    let of_first = bench.recorded.of(&delivery);
    let ids: HashSet<_> = of_first
        .iter()
        .map(|record| match record {
            Record::Attempt(attempt) => attempt.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids.len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_the_record_is_safe_sends_again_with_the_same_id() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let route = bench.endpoint(&receiver.url("/")).await;
    receiver.script("/", [Reply::status(200).after(Duration::from_millis(500))]);
    let config = Config {
        drain_attempts: Duration::ZERO,
        drain_records: Duration::from_secs(1),
        ..Config::default()
    };
    let other = bench.connect().await;
    let running = bench.dispatcher_with(config, Policy::loopback(), other);
    let delivery = bench.deliver(&route).await;
    receiver.wait_for(1, SOON).await.unwrap();
    bench.server.kill9().await.unwrap();
    receiver.wait_idle(SOON).await.unwrap();
    // It has the answer and nobody to tell it to.
    running.stop().await;
    bench.server.restart().await.unwrap();
    let running = bench.dispatcher(Config::default());
    receiver.wait_for(2, SOON * 2).await.unwrap();
    let ids: HashSet<_> = receiver
        .requests()
        .iter()
        .map(|request| request.header("webhook-id").unwrap().to_owned())
        .collect();
    assert_eq!(ids, HashSet::from([delivery.key.message.to_string()]));
    bench.recorded.attempt(&delivery).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_away_longer_than_the_lease_causes_no_second_attempt() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", [Reply::status(200).after(Duration::from_millis(500))]);
    let route = bench.endpoint(&receiver.url("/")).await;
    let running = bench.dispatcher(Config::default());
    let delivery = bench.deliver(&route).await;
    receiver.wait_for(1, SOON).await.unwrap();
    bench.server.kill9().await.unwrap();
    receiver.wait_idle(SOON).await.unwrap();
    wait::until("the partitions to be lost", SOON, || async {
        running.handle.owned().is_empty()
    })
    .await
    .unwrap();
    bench.server.restart().await.unwrap();
    let attempt = bench.recorded.attempt(&delivery).await;
    assert_eq!((attempt.status, attempt.number), (Some(200), 1));
    wait::until("the partitions to be owned again", SOON, || async {
        running.handle.owned().len() == 2
    })
    .await
    .unwrap();
    bench.deliveries_settled().await;
    let next = bench.deliver(&route).await;
    bench.recorded.attempt(&next).await;
    assert_eq!(receiver.counts().arrived, 2);
    running.stop().await;
}
