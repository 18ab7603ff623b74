//! What is too old goes, unless something is to be done with it.

use std::time::Duration;

use chrono::TimeDelta;
use hooklane_store::day::Drop;
use hooklane_store::inbox::Mode;

use super::{Shop, incoming, order};
use crate::ledger::{Ledger, at, noon};

const TIMEOUT: Duration = Duration::from_millis(500);

#[tokio::test]
async fn closed_events_go_with_their_trail_and_open_ones_keep_their_day() {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Stream);
    ledger.received(0, order("1", "order.created", "A")).await;
    ledger.received(0, order("2", "order.created", "A")).await;
    ledger.received(0, order("3", "order.shipped", "A")).await;
    ledger.received(0, incoming("4", "no json")).await;
    ledger.settled(0, &reader).await;
    let (store, day) = (&ledger.store, noon().date_naive());
    let before = noon() + TimeDelta::days(31);
    let forget = async || store.inbox_forget(before, 100).await.unwrap();
    // One is not published yet, one waits, one is in quarantine.
    assert_eq!(forget().await, 1);
    assert_eq!(
        ledger.inbox().await,
        "1:PROCESSED:1 3:DEFERRED 4:QUARANTINED"
    );
    let position = ledger.published().await[0].0;
    store.inbox_published(&[position]).await.unwrap();
    assert_eq!(forget().await, 1);
    assert_eq!(store.drop_day(day, TIMEOUT).await.unwrap(), Drop::Open);
    assert_eq!(
        ledger
            .sql("SELECT count(*) FROM hooklane.inbox_bodies")
            .await,
        "4"
    );
    let left = "SELECT count(*) FROM hooklane.inbox_trail t
                 WHERE NOT EXISTS (SELECT FROM hooklane.webhook_inbox w WHERE w.id = t.event_id)";
    assert_eq!(ledger.sql(left).await, "0");
    // A day later the deferred one gives up, and somebody both.
    ledger.stepped(24 * 60 * 60, &reader).await;
    let ids = [ledger.id_of("3").await, ledger.id_of("4").await];
    store.inbox_discard(at(9), &ids).await.unwrap();
    assert_eq!(forget().await, 2);
    assert_eq!(store.drop_day(day, TIMEOUT).await.unwrap(), Drop::Dropped);
    assert!(!store.days().await.unwrap().contains(&day));
    assert_eq!(
        ledger
            .sql("SELECT count(*) FROM hooklane.inbox_bodies")
            .await,
        "0"
    );
    // And what comes late makes the day anew.
    ledger.received(1, order("5", "order.created", "A")).await;
    assert_eq!(ledger.inbox().await, "5:PENDING");
}

#[tokio::test]
async fn a_day_with_something_to_publish_stays() {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Stream);
    ledger.received(0, order("1", "order.created", "A")).await;
    ledger.settled(0, &reader).await;
    let day = noon().date_naive();
    assert_eq!(
        ledger.store.drop_day(day, TIMEOUT).await.unwrap(),
        Drop::Open
    );
    let position = ledger.published().await[0].0;
    ledger.store.inbox_published(&[position]).await.unwrap();
    assert_eq!(
        ledger.store.drop_day(day, TIMEOUT).await.unwrap(),
        Drop::Dropped
    );
}

#[tokio::test]
async fn a_failure_of_an_event_whose_body_is_gone_needs_a_person_and_holds_up_nobody() {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Stream);
    ledger.received(0, order("1", "order.created", "A")).await;
    ledger.settled(0, &reader).await;
    let position = ledger.published().await[0].0;
    ledger.store.inbox_published(&[position]).await.unwrap();
    let day = noon().date_naive();
    ledger.store.drop_day(day, TIMEOUT).await.unwrap();
    let failed = [(ledger.id_of("1").await, 1, "gave it up".to_owned())];
    let failures = ledger.store.inbox_failed(at(0), &failed).await.unwrap();
    assert_eq!(failures.again, 1);
    assert_eq!(ledger.stepped(60, &reader).await.handed, 0);
    assert_eq!(ledger.inbox().await, "1:QUARANTINED:1");
    assert_eq!(
        ledger.why("1").await,
        "unparseable: its body is past the retention"
    );
    assert_eq!(
        ledger
            .sql("SELECT count(*) FROM hooklane.inbox_handoffs")
            .await,
        "0"
    );
}
