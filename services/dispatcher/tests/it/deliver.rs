//! From a message to a POST and a record.

use std::collections::HashSet;

use hooklane_dispatcher::Config;
use hooklane_proto::record::{Record, Verdict};
use hooklane_testkit::Receiver;

use crate::bench::{Bench, SECRET, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_posted_signed_recorded_and_acknowledged() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let mut route = bench.route(&receiver.url("/hook?x=1"));
    let custom = r#"{"x-tenant": "blue", "user-agent": "custom"}"#;
    route.headers = Some(bench.sealed(route.endpoint, custom));
    bench.routes.put(&route).await.unwrap();
    let running = bench.dispatcher(Config::default());

    let delivery = bench.deliver(&route).await;
    let attempt = bench.recorded.attempt(&delivery).await;
    assert_eq!(
        (attempt.status, attempt.number, attempt.counted),
        (Some(200), 1, 1)
    );
    assert_eq!(attempt.verdict, Verdict::Sent);

    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(
        (request.method.as_str(), request.target.as_str()),
        ("POST", "/hook?x=1")
    );
    assert_eq!(request.body, delivery.payload, "byte for byte");
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("x-tenant"), Some("blue"));
    assert_eq!(request.header("user-agent"), Some("custom"));
    let id = delivery.key.message.to_string();
    assert_eq!(request.header("webhook-id"), Some(id.as_str()));

    let mut headers = http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let value = request.header(name).unwrap().parse().unwrap();
        headers.insert(http::HeaderName::from_static(name), value);
    }
    let verifier = standardwebhooks::Webhook::new(SECRET).unwrap();
    verifier.verify(&request.body, &headers).unwrap();

    bench.deliveries_settled().await;
    running.stop().await;
    assert_eq!(bench.nats.abandoned_tokens(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_reaches_each_of_its_endpoints_once() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let one = bench.endpoint(&receiver.url("/one")).await;
    let two = bench.endpoint(&receiver.url("/two")).await;
    let other = bench.endpoint(&receiver.url("/other")).await;
    let running = bench.dispatcher(Config::default());
    let mut events = Vec::new();
    for _ in 0..50 {
        let event = bench.event(&[&one, &two]);
        bench.publish_event(&event).await;
        events.push(event);
    }
    let records = bench.recorded.wait(100, SOON).await;
    let sent: HashSet<_> = records
        .iter()
        .map(|record| match record {
            Record::Attempt(attempt) => {
                assert_eq!(attempt.verdict, Verdict::Sent);
                (attempt.drive.key.message, attempt.drive.key.endpoint)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent.len(), 100);
    assert!(sent.iter().all(|(_, endpoint)| *endpoint != other.endpoint));
    assert_eq!(receiver.counts_of("/one").arrived, 50);
    assert_eq!(receiver.counts_of("/two").arrived, 50);
    let durables: Vec<_> = (0..2)
        .map(hooklane_proto::subject::fanout_durable)
        .collect();
    bench
        .settled(hooklane_proto::subject::EVENTS, &durables)
        .await;
    bench.deliveries_settled().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlimited_endpoint_gets_its_concurrency_and_batches_grow() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let mut route = bench.route(&receiver.url("/"));
    route.concurrency = 256;
    bench.routes.put(&route).await.unwrap();
    let mut deliveries = Vec::new();
    for _ in 0..2_000 {
        deliveries.push(bench.delivery(&route));
    }
    futures::future::join_all(deliveries.iter().map(|delivery| bench.publish(delivery))).await;
    let running = bench.dispatcher(Config::default());
    bench.recorded.wait(2_000, SOON).await;
    assert_eq!(receiver.counts().arrived, 2_000);
    assert!(receiver.counts().max_in_flight <= 256);
    let batches = bench.recorded.batches();
    assert!(batches < 500, "{batches} batches for 2,000 records");
    bench.deliveries_settled().await;
    running.stop().await;
}
