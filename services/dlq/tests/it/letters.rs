//! What failed for good is in `DLQ`, once, and whatever the broker said or lost.

use std::time::Duration;

use bytes::Bytes;
use hooklane_core::clock;
use hooklane_dlq::Config;
use hooklane_proto::record::FailureReason;
use hooklane_proto::subject;
use hooklane_store::dead_letter::Series;
use hooklane_testkit::wait;
use serde_json::Value;

use crate::bench::{BUDGET, Bench, config};

const UNFILED: &str = "SELECT count(*) FROM hooklane.deliveries
                        WHERE status = 'failed' AND dead_lettered_at IS NULL";
const FILED: &str = "SELECT count(*) FROM hooklane.deliveries
                      WHERE status = 'failed' AND dead_lettered_at IS NOT NULL";

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_out_of_retries_is_dead_lettered_with_its_reason() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..4, endpoint, clock::now()).await;
    bench.fail(keys[0], FailureReason::Exhausted).await;
    bench.fail(keys[1], FailureReason::Gone).await;
    let mover = bench.mover(config());
    bench.until(FILED, "2").await;
    let mut letters = bench.letters().await;
    letters.sort_by_key(|letter| letter.key);
    assert_eq!(letters.len(), 2);
    let first = &letters[0];
    assert_eq!(first.key, keys[0]);
    assert_eq!(
        (first.reason.as_str(), first.last_status),
        ("exhausted", Some(500))
    );
    assert_eq!((first.series, first.attempts), (1, 1));
    assert_eq!(first.event_type.as_str(), "invoice.paid");
    assert_eq!(first.payload, Bytes::from_static(b"{}"));
    assert_eq!(letters[1].reason, "gone");
    assert_eq!(
        bench.stored().await[0].subject,
        format!("dlq.acme.{endpoint}")
    );
    mover.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_movers_put_each_delivery_there_once() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench
        .ledger
        .deliveries(1..201, endpoint, clock::now())
        .await;
    let few = || Config {
        letters_at_once: 30,
        ..config()
    };
    let (one, two) = (bench.mover(few()), bench.mover(few()));
    for key in &keys {
        bench.fail(*key, FailureReason::Exhausted).await;
    }
    bench.until(FILED, "200").await;
    let mut letters: Vec<_> = bench.letters().await.iter().map(|l| l.key).collect();
    letters.sort_unstable();
    assert_eq!(letters, keys);
    let noted = one.handle.stats().dead_lettered + two.handle.stats().dead_lettered;
    one.stop().await;
    two.stop().await;
    assert_eq!(noted, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_message_is_looked_up_at_once_and_again_without_harm() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..3, endpoint, clock::now()).await;
    bench.fail(keys[0], FailureReason::Exhausted).await;
    // So seldom that within the test nothing but the broker's word makes it look.
    let mover = bench.mover(Config {
        look_every: Duration::from_secs(3_600),
        ..config()
    });
    bench.until(FILED, "1").await;
    bench.drive(keys[1], 1).await;
    let message = bench.next().await;
    bench.fail(keys[1], FailureReason::Exhausted).await;
    message.token.term("exhausted: a test").await.unwrap();
    bench.until(FILED, "2").await;

    let first = serde_json::json!({"seq": 1});
    let mut advisory = bench.api("STREAM.MSG.GET.ADVISORIES", &first).await;
    let advisory = advisory["message"].take();
    let text = |name: &str| advisory[name].as_str().unwrap().to_owned();
    // Base64, which is no advisory that can be read: dropped. Then the same one again.
    let said = format!(
        r#"{{"type":"io.nats.jetstream.advisory.v1.terminated","timestamp":"{}","stream":"DELIVERIES","stream_seq":1}}"#,
        text("time")
    );
    for payload in [text("data"), said] {
        let subject = text("subject");
        bench
            .client
            .publish_core(subject, payload.into())
            .await
            .unwrap();
    }
    wait::until("both to be read", BUDGET, async || {
        mover.handle.stats().advisories == 3
    })
    .await
    .unwrap();
    mover.stop().await;
    assert_eq!(bench.letters().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_wiped_store_everything_is_there_again_but_what_was_discarded() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..41, endpoint, clock::now()).await;
    for key in &keys {
        bench.fail(*key, FailureReason::Deadline).await;
    }
    let mover = bench.mover(Config {
        letters_at_once: 7,
        ..config()
    });
    bench.until(UNFILED, "0").await;
    bench.until_count(subject::DLQ, 40).await;
    let discarded = Series {
        key: keys[3],
        series: 1,
    };
    let gone = bench.ledger.store.discard(&[discarded]).await.unwrap();
    assert_eq!(gone.len(), 1);
    assert!(gone[0].1.is_some(), "{gone:?}");
    bench.nats.wipe_store().await.unwrap();
    bench.until_count(subject::DLQ, 39).await;
    assert!(bench.letters().await.iter().all(|l| l.key != keys[3]));
    // The stream has them a moment before the ledger hears so.
    wait::until("the ledger to hear", BUDGET, async || {
        mover.handle.stats().put_again == 39
    })
    .await
    .unwrap();
    // A mover that comes later finds nothing that is missing.
    let second = bench.mover(config());
    bench.fail_another(keys[0]).await;
    bench.until_count(subject::DLQ, 40).await;
    assert_eq!(mover.handle.stats().put_again, 39);
    mover.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_the_broker_does_not_take_is_left_out_and_said_so() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..3, endpoint, clock::now()).await;
    bench
        .ledger
        .sql(&format!(
            "UPDATE hooklane.messages SET payload = convert_to(repeat('x', 1048576), 'UTF8')
              WHERE id = '{}'",
            keys[0].message.uuid()
        ))
        .await;
    bench.fail(keys[0], FailureReason::Exhausted).await;
    bench.fail(keys[1], FailureReason::Exhausted).await;
    let mover = bench.mover(config());
    bench.until(FILED, "2").await;
    let letters = bench.letters().await;
    let large = letters.iter().find(|l| l.key == keys[0]).unwrap();
    assert_eq!((large.left_out, large.payload.len()), (Some(1_048_576), 0));
    let other = letters.iter().find(|l| l.key == keys[1]).unwrap();
    assert_eq!(other.left_out, None);
    assert_eq!(mover.handle.stats().stripped, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_while_the_broker_is_away_is_there_afterwards() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let key = bench.ledger.delivery(1, endpoint, clock::now()).await;
    let mover = bench.mover(config());
    bench.nats.kill9().await.unwrap();
    bench.fail(key, FailureReason::Exhausted).await;
    bench.nats.restart().await.unwrap();
    bench.until(FILED, "1").await;
    assert_eq!(bench.letters().await.len(), 1);
    mover.stop().await;
}

impl Bench {
    /// Another delivery to the same endpoint fails.
    async fn fail_another(&self, like: hooklane_proto::delivery::DeliveryKey) {
        let key = self
            .ledger
            .delivery(9_999, like.endpoint, like.accepted_at)
            .await;
        self.fail(key, FailureReason::Exhausted).await;
    }
}

/// The stream as an operator sees it.
#[tokio::test(flavor = "multi_thread")]
async fn the_stream_limits_the_age_and_size_of_what_it_keeps() {
    let bench = Bench::new().await;
    let info = bench.api("STREAM.INFO.DLQ", &Value::Null).await;
    let config = &info["config"];
    assert_eq!(
        config["max_age"].as_u64(),
        Some(35 * 86_400 * 1_000_000_000)
    );
    assert_eq!(config["retention"], "limits");
    assert!(config["max_bytes"].as_i64().unwrap() > 0);
}
