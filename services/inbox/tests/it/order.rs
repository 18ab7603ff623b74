//! Events in the order in which they are legal, whatever the order in which they come.

use std::time::Duration;

use hooklane_nats::stored::Stored;
use hooklane_proto::header;

use crate::bench::{Bench, config};
use crate::client::Event;

const HOUR: Duration = Duration::from_secs(3_600);

fn told(message: &Stored) -> (String, String, String) {
    let header = |name: &str| message.header(name).unwrap_or_default().to_owned();
    (
        message.subject.clone(),
        header(header::ENTITY_SEQUENCE),
        header(header::PARTNER_EVENT),
    )
}

#[tokio::test]
async fn what_came_too_early_follows_what_it_waited_for_and_nobody_waits_for_a_timer() {
    let bench = Bench::new().await;
    // The clock stands, so that no deferral ends by itself, and nobody polls.
    let mut config = config("");
    config.worker.poll = HOUR;
    config.hand_off.poll = HOUR;
    let served = bench.serve(config).await;
    let now = bench.clock.now();
    let mut partner = served.connect().await;
    partner
        .send(&Event::order("evt_1", "order.shipped", "o1", now))
        .await;
    bench.until_statuses("evt_1=DEFERRED").await;
    let waits = "SELECT next_at > received_at FROM hooklane.webhook_inbox";
    bench.until_sql(waits, "t").await;

    let paid = Event::order("evt_2", "order.paid", "o1", now);
    partner.send(&paid).await;
    let published = bench.published(2).await;
    let order: Vec<_> = published.iter().map(told).collect();
    let expected = [
        ("inbox.shop.order.paid", "1", "evt_2"),
        ("inbox.shop.order.shipped", "2", "evt_1"),
    ]
    .map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(order, expected);
    assert_eq!(published[0].payload, paid.body);
    assert_eq!(published[0].header(header::ENTITY), Some("order/o1"));
    assert_eq!(published[0].header(header::INTEGRITY), Some("full"));
    assert_eq!(
        published[0].header(header::CONTENT_TYPE),
        Some("application/json")
    );
    bench
        .until_statuses("evt_1=PROCESSED evt_2=PROCESSED")
        .await;
    bench
        .until_sql("SELECT count(*) FROM hooklane.inbox_handoffs", "0")
        .await;
    served.running.stop().await;
}

#[tokio::test]
async fn many_events_of_one_order_are_published_in_its_order_by_whoever_leads() {
    let bench = Bench::new().await;
    let mut config = config("");
    config.sources.get_mut("shop").unwrap().entities[0].machine = None;
    let (one, two) = (bench.serve(config.clone()).await, bench.serve(config).await);
    let now = bench.clock.now();
    let (mut first, mut second) = (one.connect().await, two.connect().await);
    for n in 0..40 {
        let event = Event::order(&format!("evt_{n:02}"), "order.changed", "o1", now);
        let partner = if n % 2 == 0 { &mut first } else { &mut second };
        partner.send(&event).await;
        if n == 20 {
            // Whichever led, the other goes on.
            one.running.shutdown.cancel();
            first = two.connect().await;
        }
    }
    let published = bench.published(40).await;
    let sequences: Vec<String> = published.iter().map(|message| told(message).1).collect();
    let expected: Vec<String> = (1..=40).map(|n| n.to_string()).collect();
    assert_eq!(sequences, expected);
    for served in [one, two] {
        served.running.stop().await;
    }
}
