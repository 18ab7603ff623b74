//! The way of accepted events to `EVENTS`.

use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use hooklane_nats::events::{Counts, Lane};
use hooklane_proto::event::Event;
use hooklane_proto::id::MessageId;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_testkit::wait;
use tokio::time::Instant;

use crate::broker::{Broker, SOON, in_time};

fn event(n: u64) -> Result<Event> {
    Ok(Event {
        message: MessageId::for_test(n),
        consumer: ConsumerId::new("acme")?,
        event_type: EventType::new("invoice.paid")?,
        content_type: "application/json".to_owned(),
        accepted_at: DateTime::<Utc>::UNIX_EPOCH,
        not_after: DateTime::<Utc>::UNIX_EPOCH,
        deadline: DateTime::<Utc>::UNIX_EPOCH,
        part: 0,
        targets: Vec::new(),
        trace: None,
        payload: "{}".into(),
    })
}

#[tokio::test]
async fn what_a_lane_was_given_is_published_before_it_ends() -> Result<()> {
    let broker = Broker::start().await?;
    let counts = Counts::default();
    let lane = Lane::start(&broker.client, &broker.publisher(), &counts);
    for n in 0..5 {
        let events: Result<Vec<_>> = (0..20).map(|of| event(n * 20 + of)).collect();
        lane.publish(events?, in_time()).await;
    }
    lane.finish().await;
    assert_eq!((counts.published(), counts.left()), (100, 0));
    assert_eq!(broker.count("EVENTS").await?, 100);
    Ok(())
}

#[tokio::test]
async fn that_publishing_works_again_is_noticed_without_anything_new() -> Result<()> {
    let broker = Broker::start().await?;
    let counts = Counts::default();
    let lane = Lane::start(&broker.client, &broker.publisher(), &counts);
    broker.server.kill9().await?;
    let soon = Instant::now() + Duration::from_millis(100);
    lane.publish(vec![event(1)?, event(2)?], soon).await;
    wait::until("publishing is down", SOON, async || counts.is_down()).await?;
    assert_eq!(counts.left(), 2);
    broker.server.wipe_store().await?;
    wait::until("publishing is up", SOON, async || !counts.is_down()).await?;
    // What was left is the sweep's.
    assert_eq!((counts.published(), counts.left()), (0, 2));
    lane.finish().await;
    Ok(())
}
