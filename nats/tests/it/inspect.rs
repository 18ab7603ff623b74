//! What the sweep asks.

use anyhow::Result;
use hooklane_nats::inspect::{first_sequence_of, stream_state, unsettled};

use crate::broker::{Broker, in_time, next, outgoing};

#[tokio::test]
async fn a_streams_state_is_its_leaders() -> Result<()> {
    let broker = Broker::start().await?;
    let empty = stream_state(&broker.client, "RECORDS").await?;
    assert_eq!((empty.last_sequence, empty.messages), (0, 0));
    assert_eq!(empty.max_bytes, Some(512 << 20));
    broker.records(0..3).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 1);
    next(&mut puller).await?.token.ack_confirmed().await?;
    let state = stream_state(&broker.client, "RECORDS").await?;
    assert_eq!(
        (state.first_sequence, state.last_sequence, state.messages),
        (2, 3, 2)
    );
    assert_eq!(state.created, empty.created);
    assert!(state.server_time > empty.server_time && empty.server_time > state.created);
    assert!(state.fill() > 0.0 && state.fill() < 0.01);
    let missing = stream_state(&broker.client, "NOSUCH").await.unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    Ok(())
}

#[tokio::test]
async fn a_durable_is_unsettled_until_the_last_one_below_is_acked() -> Result<()> {
    let broker = Broker::start().await?;
    let ask = |at| unsettled(&broker.client, "EVENTS", "fanout-0", at);
    assert!(!ask(0).await? && !ask(10).await?);
    // Of two partitions, `a` is in 0 and `b` in 1.
    for (n, consumer) in [(0, "a"), (1, "b"), (2, "a"), (3, "b")] {
        let message = outgoing(&format!("events.{consumer}.x"), n);
        broker.publisher().publish(message, in_time()).await?;
    }
    let mut puller = broker.puller("EVENTS", "fanout-0", 10);
    assert!(ask(4).await?);
    let (first, second) = (next(&mut puller).await?, next(&mut puller).await?);
    assert_eq!((first.stream_sequence, second.stream_sequence), (1, 3));
    assert!(ask(1).await? && ask(4).await?);
    first.token.ack_confirmed().await?;
    assert!(!ask(1).await?);
    assert!(ask(3).await? && ask(4).await?);
    second.token.ack_confirmed().await?;
    assert!(!ask(4).await?);
    let missing = unsettled(&broker.client, "EVENTS", "nosuch", 1)
        .await
        .unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    Ok(())
}

#[tokio::test]
async fn the_oldest_of_a_partition_is_found() -> Result<()> {
    let broker = Broker::start().await?;
    let oldest = |filter: &'static str| first_sequence_of(&broker.client, "DELIVERIES", filter);
    assert_eq!(oldest("deliveries.1.>").await?, None);
    for (n, consumer) in [(0, "a"), (1, "a"), (2, "b"), (3, "b")] {
        let message = outgoing(&format!("deliveries.{consumer}.ep_1"), n);
        broker.publisher().publish(message, in_time()).await?;
    }
    assert_eq!(oldest("deliveries.0.>").await?, Some(1));
    assert_eq!(oldest("deliveries.1.>").await?, Some(3));
    let mut puller = broker.puller("DELIVERIES", "lanes-1", 1);
    let held = next(&mut puller).await?;
    assert_eq!(oldest("deliveries.1.>").await?, Some(3));
    held.token.ack_confirmed().await?;
    assert_eq!(oldest("deliveries.1.>").await?, Some(4));
    next(&mut puller).await?.token.term("done").await?;
    assert_eq!(oldest("deliveries.1.>").await?, None);
    Ok(())
}
