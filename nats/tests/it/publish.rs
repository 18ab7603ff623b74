//! Publishing through faults.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use hooklane_nats::{Error, Outgoing, PublishError, Publisher};
use hooklane_proto::header::{self, Headers};
use hooklane_testkit::wait;
use tokio::time::{Instant, timeout};

use crate::broker::{Broker, SOON, in_time, next, number, outgoing};

#[tokio::test]
async fn a_batch_is_stored_in_order_and_answered_in_order() -> Result<()> {
    let broker = Broker::start().await?;
    let publisher = Publisher::new(&broker.client, 10, 200);
    let messages = (0..500).map(|n| outgoing("records.0", n)).collect();
    let acks: Result<Vec<_>, _> = publisher
        .publish_all(messages, in_time())
        .await
        .into_iter()
        .collect();
    let sequences: Vec<u64> = acks?.iter().map(|ack| ack.sequence).collect();
    assert_eq!(sequences, (1..=500).collect::<Vec<_>>());
    let mut puller = broker.puller("RECORDS", "recorder", 100);
    for n in 0..500 {
        let incoming = next(&mut puller).await?;
        assert_eq!(number(&incoming), n);
        assert_eq!(
            incoming.header(header::MSG_ID),
            Some(format!("id-{n}").as_str())
        );
        incoming.token.ack().await;
    }
    Ok(())
}

#[tokio::test]
async fn the_same_id_is_stored_once() -> Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher();
    let first = publisher
        .publish(outgoing("records.0", 1), in_time())
        .await?;
    let second = publisher
        .publish(outgoing("records.0", 1), in_time())
        .await?;
    assert!(!first.duplicate && second.duplicate);
    assert_eq!(first.sequence, second.sequence);
    assert_eq!(broker.count("RECORDS").await?, 1);
    Ok(())
}

#[tokio::test]
async fn what_can_never_be_stored_fails_at_once_and_alone() -> Result<()> {
    let broker = Broker::start().await?;
    let mut broken = outgoing("records.0", 1);
    broken.headers.push(header::MESSAGE, "a\r\nNats-Msg-Id: b");
    let large = Outgoing {
        payload: Bytes::from(vec![0; broker.client.max_payload() + 1]),
        ..outgoing("records.0", 2)
    };
    let messages = vec![
        broken,
        large,
        outgoing("records.*", 3),
        outgoing("records. 0", 4),
        outgoing("records.0", 5),
    ];
    let started = Instant::now();
    let results = broker.publisher().publish_all(messages, in_time()).await;
    assert!(started.elapsed() < SOON / 2);
    let permanent: Vec<_> = results[..4]
        .iter()
        .map(|result| match result {
            Err(PublishError::Permanent(error)) => error,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(matches!(permanent[0], Error::InvalidHeader { .. }));
    assert!(matches!(permanent[1], Error::TooLarge { .. }));
    assert!(matches!(permanent[2], Error::InvalidSubject(_)));
    assert!(matches!(permanent[3], Error::InvalidSubject(_)));
    assert!(results[4].is_ok());
    Ok(())
}

#[tokio::test]
async fn a_missing_stream_is_waited_for() -> Result<()> {
    let broker = Broker::start().await?;
    broker.jetstream().await?.delete_stream("RECORDS").await?;
    let publisher = broker.publisher();
    let soon = Instant::now() + Duration::from_millis(300);
    let gave_up = publisher.publish(outgoing("records.0", 1), soon).await;
    assert!(
        matches!(
            gave_up,
            Err(PublishError::GaveUp(Error::NoResponders { .. }))
        ),
        "{gave_up:?}"
    );
    let publishing =
        tokio::spawn(async move { publisher.publish(outgoing("records.0", 2), in_time()).await });
    hooklane_nats::topology::ensure(&broker.client).await?;
    publishing.await??;
    Ok(())
}

#[tokio::test]
async fn a_killed_server_costs_no_message_and_makes_no_double() -> Result<()> {
    let broker = Broker::start().await?;
    let publisher = Publisher::new(&broker.client, 64, 1 << 20);
    let total = 20_000;
    let publishing = tokio::spawn(async move {
        let messages = (0..total)
            .map(|n| outgoing("events.acme.paid", n))
            .collect();
        publisher.publish_all(messages, in_time() + SOON).await
    });
    for share in [1, 2] {
        wait::until("a part of them", SOON, || async {
            broker
                .count("EVENTS")
                .await
                .is_ok_and(|count| count >= u64::from(total * share / 4))
        })
        .await?;
        broker.server.kill9().await?;
        broker.server.restart().await?;
    }
    let results = publishing.await?;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(broker.count("EVENTS").await?, u64::from(total));
    Ok(())
}

#[tokio::test]
async fn a_full_stream_holds_the_publisher_until_there_is_room() -> Result<()> {
    // One percent of the definition: RECORDS takes 5 MiB.
    let broker = Broker::start_with(|config| config.stream_size_percent = 1).await?;
    let large = |n: u32| Outgoing {
        payload: Bytes::from(vec![0; 500_000]),
        ..outgoing("records.0", n)
    };
    let publisher = broker.publisher();
    let mut stored = 0;
    let last = loop {
        let soon = Instant::now() + Duration::from_millis(400);
        match publisher.publish(large(stored), soon).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!((8..=12).contains(&stored), "{stored}");
    assert!(last.is_transient(), "{last}");

    let waiting = tokio::spawn({
        let publisher = publisher.clone();
        async move {
            let messages = (stored..stored + 3).map(large).collect();
            publisher.publish_all(messages, in_time()).await
        }
    });
    let mut puller = broker.puller("RECORDS", "recorder", 4);
    let mut seen = BTreeSet::new();
    for _ in 0..stored + 3 {
        let incoming = next(&mut puller).await?;
        seen.insert(incoming.header(header::MSG_ID).unwrap().to_owned());
        incoming.token.ack_confirmed().await?;
    }
    assert!(waiting.await?.iter().all(Result::is_ok));
    assert_eq!(seen.len(), stored as usize + 3);
    Ok(())
}

#[tokio::test]
async fn the_window_is_given_back_when_the_broker_does_not_answer() -> Result<()> {
    let broker = Broker::start().await?;
    let publisher = Publisher::new(&broker.client, 4, 1 << 20);
    broker.server.process().unwrap().suspend();
    wait::until("the server to be silent", SOON, || async {
        let asked = broker.count("RECORDS");
        timeout(Duration::from_millis(200), asked).await.is_err()
    })
    .await?;
    let soon = Instant::now() + Duration::from_millis(500);
    let messages = (0..10).map(|n| outgoing("records.0", n)).collect();
    let results = timeout(SOON, publisher.publish_all(messages, soon)).await?;
    assert!(
        results
            .iter()
            .all(|r| matches!(r, Err(PublishError::GaveUp(_)))),
        "{results:?}"
    );
    broker.server.process().unwrap().resume();
    let messages = (0..10).map(|n| outgoing("records.0", n)).collect();
    let results = publisher.publish_all(messages, in_time()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(broker.count("RECORDS").await?, 10);
    Ok(())
}

#[tokio::test]
async fn a_message_larger_than_the_window_goes_alone() -> Result<()> {
    let broker = Broker::start().await?;
    let publisher = Publisher::new(&broker.client, 4, 100);
    let message = Outgoing {
        headers: Headers::new(),
        payload: Bytes::from(vec![0; 100_000]),
        subject: "records.0".to_owned(),
    };
    let results = timeout(
        SOON,
        publisher.publish_all(vec![message.clone(), message], in_time()),
    )
    .await?;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    Ok(())
}
