//! The inbox's own outbox, and hand-offs that fail behind the stream.

use hooklane_store::inbox::{Mode, Reason};

use super::{Shop, order, shop};
use crate::ledger::{Ledger, at};

#[tokio::test]
async fn publications_come_in_order_and_go_once_the_stream_has_them() {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Stream);
    for (n, name) in ["created", "paid", "shipped"].iter().enumerate() {
        ledger
            .received(0, order(&n.to_string(), &format!("order.{name}"), "A"))
            .await;
    }
    ledger.settled(1, &reader).await;
    let page = ledger.store.inbox_publications(2, 1 << 20).await.unwrap();
    let first = &page[0].hand_off;
    assert_eq!(page.len(), 2);
    assert_eq!(
        (first.event_type.as_str(), first.sequence, first.attempt),
        ("order.created", Some(1), 1)
    );
    assert_eq!(first.entity, Some(("order".to_owned(), "A".to_owned())));
    assert_eq!(
        (first.partner.clone(), first.integrity.as_str()),
        (shop(), "full")
    );
    assert_eq!(
        first.body.as_ref(),
        br#"{"id":"0","type":"order.created","key":"A"}"#
    );
    // One at least, whatever its size.
    assert_eq!(
        ledger.store.inbox_publications(9, 1).await.unwrap().len(),
        1
    );
    let positions: Vec<i64> = page.iter().map(|one| one.position).collect();
    assert_eq!(ledger.store.inbox_published(&positions).await.unwrap(), 2);
    assert_eq!(ledger.store.inbox_published(&positions).await.unwrap(), 0);
    let left: Vec<String> = ledger
        .published()
        .await
        .into_iter()
        .map(|one| one.1)
        .collect();
    assert_eq!(left, ["2"]);
}

#[tokio::test]
async fn a_hand_off_that_fails_comes_again_after_1_5_and_15_minutes_and_is_quarantined_then() {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Stream);
    ledger.received(0, order("1", "order.created", "A")).await;
    ledger.settled(0, &reader).await;
    let id = ledger.id_of("1").await;
    let mut now = 0;
    for (attempt, minutes) in [(1, 1), (2, 5), (3, 15)] {
        let (position, _, published) = ledger.published().await[0].clone();
        assert_eq!(published, attempt);
        ledger.store.inbox_published(&[position]).await.unwrap();
        let failed = [(id, attempt, "max deliveries".to_owned())];
        let failures = ledger.store.inbox_failed(at(now), &failed).await.unwrap();
        assert_eq!((failures.again, failures.stale), (1, 0));
        // A second consumer gave the same attempt up: that is no second failure.
        let failures = ledger.store.inbox_failed(at(now), &failed).await.unwrap();
        assert_eq!((failures.again, failures.stale), (0, 1));
        assert_eq!(
            ledger
                .stepped(now + 60 * minutes - 1, &reader)
                .await
                .claimed,
            0
        );
        now += 60 * minutes;
        // It blocks nobody meanwhile.
        ledger.received(now, order("2", "order.paid", "A")).await;
        let stepped = ledger.stepped(now, &reader).await;
        assert_eq!(stepped.handed, if attempt == 1 { 2 } else { 1 });
        if attempt == 1 {
            let (position, event, _) = ledger
                .published()
                .await
                .into_iter()
                .find(|one| one.1 == "2")
                .unwrap();
            assert_eq!(event, "2");
            ledger.store.inbox_published(&[position]).await.unwrap();
        }
    }
    let last = [(id, 4, "max deliveries".to_owned())];
    let failures = ledger.store.inbox_failed(at(now), &last).await.unwrap();
    assert_eq!(failures.quarantined, [(shop(), Reason::HandlerFailed)]);
    assert_eq!(ledger.inbox().await, "1:QUARANTINED:1 2:PROCESSED:2");
    assert_eq!(ledger.why("1").await, "handler_failed: max deliveries");
    // After the fix it is handed off again, and its order stays where it is.
    ledger.sql("DELETE FROM hooklane.inbox_handoffs").await;
    ledger.store.inbox_replay(at(now), &[id]).await.unwrap();
    ledger.settled(now, &reader).await;
    assert_eq!(ledger.inbox().await, "1:PROCESSED:1 2:PROCESSED:2");
    assert_eq!(ledger.state("A").await, "paid:2:0");
    let published: Vec<_> = ledger
        .published()
        .await
        .into_iter()
        .map(|one| (one.1, one.2))
        .collect();
    assert_eq!(published, [("1".to_owned(), 5)]);
    let shown = ledger.store.inbox_event(id).await.unwrap();
    let actions: Vec<&str> = shown.trail.iter().map(|one| one.action.as_str()).collect();
    let expected = [
        "applied",
        "failed",
        "published_again",
        "failed",
        "published_again",
        "failed",
        "published_again",
        "quarantined",
        "replayed",
        "published_again",
    ];
    assert_eq!(actions, expected);
}

#[tokio::test]
async fn what_the_stream_refuses_counts_as_a_failure() {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Stream);
    ledger.received(0, order("1", "order.created", "A")).await;
    ledger.settled(0, &reader).await;
    let position = ledger.published().await[0].0;
    let refused = [(position, "too large".to_owned())];
    let failures = ledger
        .store
        .inbox_unpublishable(at(0), &refused)
        .await
        .unwrap();
    assert_eq!(failures.again, 1);
    assert_eq!(ledger.published().await.len(), 0);
    assert_eq!(ledger.inbox().await, "1:PENDING:1");
    assert_eq!(ledger.stepped(60, &reader).await.handed, 1);
    assert_eq!(ledger.published().await[0].2, 2);
}
