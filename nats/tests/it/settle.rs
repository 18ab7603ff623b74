//! Ack tokens.

use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use hooklane_nats::{Incoming, ack_all_confirmed};
use hooklane_testkit::wait;
use tokio::time::{Instant, timeout};

use crate::broker::{Broker, SOON, next, number};

#[tokio::test]
async fn a_confirmed_ack_has_removed_the_message() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records([1]).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 1);
    next(&mut puller).await?.token.ack_confirmed().await?;
    assert_eq!(broker.count("RECORDS").await?, 0);
    Ok(())
}

#[tokio::test]
async fn many_acks_are_confirmed_together() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records(0..300).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 300);
    let mut tokens = Vec::new();
    for _ in 0..300 {
        tokens.push(next(&mut puller).await?.token);
    }
    let results = ack_all_confirmed(tokens).await;
    assert_eq!(results.len(), 300);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(broker.count("RECORDS").await?, 0);
    assert_eq!(broker.client.abandoned_tokens(), 0);
    Ok(())
}

#[tokio::test]
async fn confirming_goes_on_after_a_restart() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records(0..2).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 2);
    let (first, second) = (next(&mut puller).await?, next(&mut puller).await?);
    // In order: a killed server may have forgotten the deliveries, and confirms none of those.
    broker.server.stop().await?;
    let one = tokio::spawn(first.token.ack_confirmed());
    let all = tokio::spawn(ack_all_confirmed(vec![second.token]));
    broker.server.restart().await?;
    one.await??;
    assert!(all.await?.iter().all(Result::is_ok));
    assert_eq!(broker.count("RECORDS").await?, 0);
    Ok(())
}

#[tokio::test]
async fn what_a_killed_server_does_not_confirm_comes_again() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records([1]).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 1);
    let held = next(&mut puller).await?;
    broker.server.kill9().await?;
    let confirming = tokio::spawn(held.token.ack_confirmed());
    broker.server.restart().await?;
    if confirming.await?.is_err() {
        next(&mut puller).await?.token.ack_confirmed().await?;
    }
    assert_eq!(broker.count("RECORDS").await?, 0);
    Ok(())
}

#[tokio::test]
async fn confirming_without_a_server_ends_with_an_error() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records(0..2).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 2);
    let (first, second) = (next(&mut puller).await?, next(&mut puller).await?);
    broker.server.stop().await?;
    let both = async {
        tokio::join!(
            first.token.ack_confirmed(),
            ack_all_confirmed(vec![second.token])
        )
    };
    let (one, all) = timeout(SOON, both).await?;
    assert!(one.is_err() && all[0].is_err());
    Ok(())
}

#[tokio::test]
async fn a_terminated_message_is_gone_and_the_reason_is_told() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records([1]).await?;
    let watcher = async_nats::connect(broker.server.url()).await?;
    let mut advisories = watcher
        .subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.RECORDS.recorder")
        .await?;
    watcher.flush().await?;
    let mut puller = broker.puller("RECORDS", "recorder", 1);
    next(&mut puller)
        .await?
        .token
        .term("out of\nretries: msg_1:ep_2")
        .await?;
    assert_eq!(broker.count("RECORDS").await?, 0);
    let advisory = timeout(SOON, advisories.next()).await?.unwrap();
    let text = String::from_utf8_lossy(&advisory.payload).into_owned();
    assert!(
        text.contains("\"reason\":\"out of retries: msg_1:ep_2\""),
        "{text}"
    );
    Ok(())
}

/// The one message again, sooner than the ack wait would bring it.
async fn again(puller: &mut hooklane_nats::Puller, started: Instant) -> Result<Incoming> {
    let incoming = next(puller).await?;
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(number(&incoming), 1);
    Ok(incoming)
}

#[tokio::test]
async fn a_dropped_token_naks_and_counts() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records([1]).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 4);
    let incoming = next(&mut puller).await?;
    let started = Instant::now();
    drop(incoming);
    assert_eq!(broker.client.abandoned_tokens(), 1);
    let incoming = again(&mut puller, started).await?;
    assert_eq!(incoming.delivered, 2);

    // Outside the runtime it does the same.
    let started = Instant::now();
    std::thread::spawn(move || drop(incoming)).join().unwrap();
    assert_eq!(broker.client.abandoned_tokens(), 2);
    let incoming = again(&mut puller, started).await?;
    incoming.token.ack_confirmed().await?;
    assert_eq!(broker.client.abandoned_tokens(), 2);
    Ok(())
}

#[test]
fn a_token_may_outlive_its_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let (broker, incoming) = runtime
        .block_on(async {
            let broker = Broker::start().await?;
            broker.records([1]).await?;
            let incoming = next(&mut broker.puller("RECORDS", "recorder", 1)).await?;
            Ok::<_, anyhow::Error>((broker, incoming))
        })
        .unwrap();
    drop(runtime);
    drop(incoming);
    assert_eq!(broker.client.abandoned_tokens(), 1);
}

#[tokio::test]
async fn a_nak_brings_it_back_after_its_delay() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records([1]).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 4);
    let started = Instant::now();
    next(&mut puller).await?.token.nak(None).await;
    let incoming = again(&mut puller, started).await?;
    let started = Instant::now();
    incoming.token.nak(Some(Duration::from_millis(700))).await;
    let incoming = again(&mut puller, started).await?;
    assert!(
        started.elapsed() >= Duration::from_millis(600),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(broker.client.abandoned_tokens(), 0);
    incoming.token.ack().await;
    wait::until("the ack to arrive", SOON, || async {
        broker.count("RECORDS").await.is_ok_and(|count| count == 0)
    })
    .await
}

#[tokio::test]
async fn progress_holds_a_message_longer_than_the_ack_wait() -> Result<()> {
    let broker = Broker::start().await?;
    let stream = broker.jetstream().await?.get_stream("RECORDS").await?;
    let mut config = stream.consumer_info("recorder").await?.config;
    config.ack_wait = Duration::from_secs(1);
    stream.update_consumer(config).await?;
    broker.records([1]).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 4);
    let incoming = next(&mut puller).await?;
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        incoming.token.progress().await;
        assert!(
            timeout(Duration::from_millis(250), puller.next())
                .await
                .is_err()
        );
    }
    incoming.token.ack_confirmed().await?;
    Ok(())
}
