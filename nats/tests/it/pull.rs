//! Pulling through faults.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use hooklane_nats::{Outgoing, PullConfig, Puller};
use tokio::time::{Instant, timeout};

use crate::broker::{Broker, SOON, in_time, next, number, outgoing};

/// Pulls until every number below `total` was seen, acknowledging each.
async fn pull_all(puller: &mut Puller, total: u32) -> Result<BTreeSet<u32>> {
    let mut seen = BTreeSet::new();
    while seen.len() < total as usize {
        let incoming = next(puller).await?;
        seen.insert(number(&incoming));
        incoming.token.ack_confirmed().await?;
    }
    Ok(seen)
}

#[tokio::test]
async fn a_killed_server_interrupts_and_then_it_goes_on() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records(0..50).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 10);
    for _ in 0..25 {
        next(&mut puller).await?.token.ack_confirmed().await?;
    }
    broker.server.kill9().await?;
    broker.server.restart().await?;
    broker.records(50..60).await?;
    let mut seen = BTreeSet::new();
    while seen.last() != Some(&59) || seen.len() < 35 {
        let incoming = next(&mut puller).await?;
        seen.insert(number(&incoming));
        incoming.token.ack().await;
    }
    Ok(())
}

#[tokio::test]
async fn an_idle_pull_goes_on_at_once_after_a_restart() -> Result<()> {
    let broker = Broker::start().await?;
    let mut puller = broker.puller("RECORDS", "recorder", 10);
    assert!(
        timeout(Duration::from_millis(300), puller.next())
            .await
            .is_err()
    );
    broker.server.kill9().await?;
    broker.server.restart().await?;
    broker.records([7]).await?;
    let started = Instant::now();
    assert_eq!(number(&next(&mut puller).await?), 7);
    assert!(
        started.elapsed() < Duration::from_secs(6),
        "{:?}",
        started.elapsed()
    );
    Ok(())
}

#[tokio::test]
async fn a_wiped_store_is_made_anew_and_it_goes_on() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records(0..20).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 5);
    next(&mut puller).await?.token.ack().await;
    broker.server.wipe_store().await?;
    // Nobody but the puller makes the stream anew; the publisher waits for it.
    let (published, pulled) = tokio::join!(broker.records(100..120), async {
        let mut seen = BTreeSet::new();
        while seen.range(100..).count() < 20 {
            let incoming = next(&mut puller).await?;
            seen.insert(number(&incoming));
            incoming.token.ack().await;
        }
        Ok::<_, anyhow::Error>(())
    });
    published?;
    pulled
}

#[tokio::test]
async fn a_deleted_durable_is_made_anew_and_it_goes_on() -> Result<()> {
    let broker = Broker::start().await?;
    let mut puller = broker.puller("RECORDS", "recorder", 5);
    assert!(
        timeout(Duration::from_millis(300), puller.next())
            .await
            .is_err()
    );
    let stream = broker.jetstream().await?.get_stream("RECORDS").await?;
    stream.delete_consumer("recorder").await?;
    broker.records(0..10).await?;
    pull_all(&mut puller, 10).await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_stream_is_made_anew_and_it_goes_on() -> Result<()> {
    let broker = Broker::start().await?;
    let mut puller = broker.puller("DELIVERIES", "lanes-1", 5);
    assert!(
        timeout(Duration::from_millis(300), puller.next())
            .await
            .is_err()
    );
    broker
        .jetstream()
        .await?
        .delete_stream("DELIVERIES")
        .await?;
    // Of two partitions, `a` is in 0 and `b` in 1.
    let publishing = tokio::spawn({
        let publisher = broker.publisher();
        async move {
            publisher
                .publish(outgoing("deliveries.b.ep_1", 1), in_time())
                .await
        }
    });
    let incoming = next(&mut puller).await?;
    assert_eq!(incoming.subject, "deliveries.1.b.ep_1");
    publishing.await??;
    Ok(())
}

#[tokio::test]
async fn a_cancelled_next_loses_nothing() -> Result<()> {
    let broker = Broker::start().await?;
    let mut puller = broker.puller("RECORDS", "recorder", 7);
    let publishing = broker.records(0..400);
    let pulling = async {
        let mut seen = Vec::new();
        while seen.len() < 400 {
            let moment = Duration::from_micros(50 * (seen.len() as u64 % 5));
            if let Ok(incoming) = timeout(moment, puller.next()).await {
                assert_eq!(incoming.delivered, 1, "{incoming:?}");
                seen.push(number(&incoming));
                incoming.token.ack().await;
            }
        }
        seen
    };
    let (published, seen) = tokio::join!(publishing, timeout(SOON, pulling));
    published?;
    assert_eq!(seen?, (0..400).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn no_more_is_under_way_than_the_batch() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records(0..50).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 8);
    let held = next(&mut puller).await?;
    let stream = broker.jetstream().await?.get_stream("RECORDS").await?;
    let info = stream.consumer_info("recorder").await?;
    assert!(info.num_ack_pending <= 8, "{}", info.num_ack_pending);
    held.token.ack().await;
    Ok(())
}

#[tokio::test]
async fn a_message_over_the_byte_limit_comes_alone() -> Result<()> {
    let broker = Broker::start().await?;
    for (n, size) in [(0, 10), (1, 50_000), (2, 10), (3, 60_000), (4, 70_000)] {
        let message = Outgoing {
            payload: Bytes::from(vec![b'x'; size]),
            ..outgoing("records.0", n)
        };
        broker.publisher().publish(message, in_time()).await?;
    }
    let config = PullConfig {
        batch: 10,
        max_bytes: 1_000,
        ..PullConfig::default()
    };
    let mut puller = Puller::new(&broker.client, "RECORDS", "recorder", config);
    let mut sizes = Vec::new();
    for _ in 0..5 {
        let incoming = next(&mut puller).await?;
        sizes.push(incoming.payload.len());
        incoming.token.ack().await;
    }
    assert_eq!(sizes, [10, 50_000, 10, 60_000, 70_000]);
    Ok(())
}

#[tokio::test]
async fn stopping_gives_back_what_was_under_way() -> Result<()> {
    let broker = Broker::start().await?;
    broker.records(0..30).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 30);
    next(&mut puller).await?.token.ack_confirmed().await?;
    puller.stop().await;
    assert_eq!(broker.client.abandoned_tokens(), 0);
    // Sooner than the ack wait of 10 s would bring them.
    let started = Instant::now();
    let mut other = broker.puller("RECORDS", "recorder", 30);
    assert_eq!(pull_all(&mut other, 29).await?, (1..30).collect());
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
    Ok(())
}

#[tokio::test]
async fn a_long_absence_does_no_harm() -> Result<()> {
    let broker = Broker::start().await?;
    let config = PullConfig {
        batch: 4,
        expires: Duration::from_secs(1),
        heartbeat: Duration::from_millis(200),
        ..PullConfig::default()
    };
    let mut puller = Puller::new(&broker.client, "RECORDS", "recorder", config);
    assert!(
        timeout(Duration::from_millis(100), puller.next())
            .await
            .is_err()
    );
    // Longer than the request lives: the absence itself is what is tested.
    tokio::time::sleep(Duration::from_secs(2)).await;
    broker.records([3]).await?;
    assert_eq!(number(&next(&mut puller).await?), 3);
    Ok(())
}
