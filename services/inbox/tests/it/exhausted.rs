//! What the adopter's JetStream consumer gives up.

use std::time::Duration;

use hooklane_proto::header;
use hooklane_testkit::wait;
use serde_json::{Value, json};

use crate::bench::{BUDGET, Bench, config};
use crate::client::Event;

/// An adopter's durable that gets a message twice at the most.
async fn durable(bench: &Bench) {
    let config = json!({"stream_name": "INBOX", "action": "create", "config": {
        "name": "billing", "durable_name": "billing", "ack_policy": "explicit", "max_deliver": 2,
        "deliver_policy": "all", "ack_wait": Duration::from_millis(100).as_nanos() as u64,
    }});
    let made = ask(
        bench,
        "$JS.API.CONSUMER.DURABLE.CREATE.INBOX.billing",
        &config,
    )
    .await;
    assert!(made["error"].is_null(), "{made}");
}

async fn ask(bench: &Bench, subject: &str, body: &Value) -> Value {
    let answer = bench
        .client
        .request(subject.to_owned(), body.to_string().into(), BUDGET);
    serde_json::from_slice(&answer.await.unwrap()).unwrap()
}

/// Pulls one message and does nothing with it.
async fn pull(bench: &Bench) {
    let subject = "$JS.API.CONSUMER.MSG.NEXT.INBOX.billing".to_owned();
    let body = json!({"batch": 1, "expires": 200_000_000}).to_string();
    // Where there is none, a status comes.
    let _ = bench
        .client
        .request(subject, body.into(), Duration::from_millis(400))
        .await;
}

#[tokio::test]
async fn what_an_adopters_consumer_gives_up_is_published_again_and_then_set_aside() {
    let bench = Bench::new().await;
    let served = bench.serve(config("")).await;
    durable(&bench).await;
    let now = bench.clock.now();
    let mut partner = served.connect().await;
    partner
        .send(&Event::order("evt_1", "order.paid", "o1", now))
        .await;
    let failures = "SELECT failures FROM hooklane.webhook_inbox";
    for (failed, delay) in [(1, 60), (2, 300), (3, 900), (4, 0)] {
        let published = bench.published(failed).await;
        let last = published.last().unwrap();
        assert_eq!(
            last.header(header::INBOX_ATTEMPT),
            Some(failed.to_string().as_str())
        );
        assert_eq!(last.payload, published[0].payload);
        wait::until("the failure to count", BUDGET, async || {
            pull(&bench).await;
            bench.ledger.sql(failures).await == failed.to_string()
        })
        .await
        .unwrap();
        bench.clock.forward(delay);
    }
    let status = "SELECT status, reason FROM hooklane.webhook_inbox";
    bench.until_sql(status, "QUARANTINED|handler_failed").await;
    bench.published(4).await;
    served.running.stop().await;
}
