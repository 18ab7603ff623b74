//! Messages that async-nats can't read.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use hooklane_nats::inspect;
use hooklane_testkit::wait;
use tokio::time::timeout;

use crate::broker::{Broker, Odd, SOON, next, number, publish_odd, unreadable};

/// Twice the ack wait, after which what the cut took along comes again.
const PROMPT: Duration = Duration::from_secs(25);

/// Alternating: the good ones have even numbers.
async fn publish(broker: &Broker) -> Result<BTreeSet<u32>> {
    let mut good = BTreeSet::new();
    for (n, odd) in (0..).step_by(2).zip(unreadable("records.0")) {
        broker.records([n]).await?;
        publish_odd(broker.server.url(), &odd, &(n + 1).to_string()).await?;
        good.insert(n);
    }
    Ok(good)
}

async fn settled(broker: &Broker) -> Result<()> {
    wait::until("nothing is left", SOON, async || {
        let left = inspect::unsettled(&broker.client, "RECORDS", "recorder", u64::MAX).await;
        matches!(left, Ok(false)) && matches!(broker.count("RECORDS").await, Ok(0))
    })
    .await
}

#[tokio::test]
async fn unreadable_messages_are_taken_off_and_the_others_come() -> Result<()> {
    let broker = Broker::start().await?;
    let good = publish(&broker).await?;
    let mut puller = broker.puller("RECORDS", "recorder", 100);
    let pulling = async {
        let mut seen = BTreeSet::new();
        while seen != good {
            let incoming = next(&mut puller).await?;
            seen.insert(number(&incoming));
            incoming.token.ack_confirmed().await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    timeout(PROMPT, pulling).await??;
    settled(&broker).await
}

#[tokio::test]
async fn unreadable_messages_are_kept_before_they_are_deleted() -> Result<()> {
    let broker = Broker::start().await?;
    publish(&broker).await?;
    let kept = Arc::new(Mutex::new(Vec::new()));
    let puller = broker.puller("RECORDS", "recorder", 100);
    let mut puller = puller.keeping({
        let kept = Arc::clone(&kept);
        move |unreadable| {
            let mut kept = kept.lock().unwrap();
            kept.push(unreadable);
            // Not the first time.
            std::future::ready(kept.len() > 1)
        }
    });
    let pulling = async {
        while kept.lock().unwrap().len() < 2 {
            let incoming = timeout(Duration::from_millis(100), puller.next()).await;
            if let Ok(incoming) = incoming {
                incoming.token.ack().await;
            }
        }
    };
    timeout(PROMPT, pulling).await?;
    let kept = kept.lock().unwrap().clone();
    assert_eq!(kept[0], kept[1]);
    let bodies: Vec<_> = kept[1].iter().map(|kept| &*kept.message.payload).collect();
    assert_eq!(bodies, [b"1", b"3", b"5", b"7"]);
    let reasons: BTreeSet<_> = kept[1].iter().map(|kept| kept.reason).collect();
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    Ok(())
}

#[tokio::test]
async fn a_status_in_a_stored_messages_headers_is_not_the_servers() -> Result<()> {
    let broker = Broker::start().await?;
    let headers: [&[u8]; 3] = [
        b"NATS/1.0 503\r\n\r\n",
        b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
        b"NATS/1.0 409 Consumer Deleted\r\nA: b\r\n\r\n",
    ];
    for (n, headers) in headers.into_iter().enumerate() {
        let subject = b"records.0".to_vec();
        let odd = Odd { subject, headers };
        publish_odd(broker.server.url(), &odd, &n.to_string()).await?;
    }
    let mut puller = broker.puller("RECORDS", "recorder", 100);
    for expected in 0..3 {
        let incoming = next(&mut puller).await?;
        assert_eq!((number(&incoming), incoming.delivered), (expected, 1));
        incoming.token.ack_confirmed().await?;
    }
    settled(&broker).await
}
