//! Each request is kept once, whoever else is at it.

use std::time::Duration;

use hooklane_store::inbox::{Incoming, Mode, Receipt, SameBody};

use super::{Shop, incoming, order};
use crate::ledger::{Ledger, at};

#[tokio::test]
async fn one_id_sent_by_many_at_once_is_kept_once() {
    let ledger = Ledger::new().await;
    let mut stores = Vec::new();
    for _ in 0..6 {
        stores.push(ledger.another_store().await);
    }
    // Each sends it twice in one batch, beside others in another order.
    let batch = |n: usize| {
        let mut items = vec![
            order("a", "order.created", "1"),
            order("a", "order.created", "1"),
        ];
        items.extend((0..20).map(|other| order(&format!("o{other}"), "order.created", "1")));
        if n.is_multiple_of(2) {
            items.reverse();
        }
        items
    };
    let batches: Vec<Vec<Incoming>> = (0..stores.len()).map(batch).collect();
    let calls = stores
        .iter()
        .zip(&batches)
        .map(|(store, items)| store.inbox_receive(at(0), items));
    let receipts = futures::future::join_all(calls).await;
    let receipts: Vec<Receipt> = receipts.into_iter().flat_map(Result::unwrap).collect();
    let new = receipts.iter().filter(|one| **one == Receipt::New).count();
    let again = receipts
        .iter()
        .filter(|one| matches!(one, Receipt::Duplicate(_)))
        .count();
    assert_eq!((new, again), (21, 6 * 22 - 21));
    let rows = "SELECT count(*) FROM hooklane.webhook_inbox w
                  JOIN hooklane.inbox_bodies b ON b.id = w.id AND b.received_at = w.received_at";
    assert_eq!(ledger.sql(rows).await, "21");
    assert_eq!(
        ledger
            .sql("SELECT count(*) FROM hooklane.inbox_bodies")
            .await,
        "21"
    );
}

#[tokio::test]
async fn the_bytes_and_the_headers_are_kept_as_they_came() {
    let ledger = Ledger::new().await;
    let mut odd = incoming("odd", "");
    odd.body = bytes::Bytes::from_static(b"\xef\xbb\xbf{\"a\":1,\"a\":2,\"n\":1e131071}\0\xff\r\n");
    odd.headers.0.push(("x-odd".to_owned(), "a\0b".to_owned()));
    let body = odd.body.clone();
    assert_eq!(ledger.received(0, odd).await, Receipt::New);
    let shown = ledger
        .store
        .inbox_event(ledger.id_of("odd").await)
        .await
        .unwrap();
    assert_eq!(shown.body, Some(body));
    assert_eq!(shown.headers.0[1].1, "a\u{fffd}b");
    assert_eq!(shown.row.key_label.as_deref(), Some("secrets.0"));
}

#[tokio::test]
async fn the_view_shows_json_letter_by_letter_and_null_for_what_is_none() {
    let ledger = Ledger::new().await;
    let bomb = r#"{"b": 1e131071,  "a":1, "a":2}"#;
    let deep = "[".repeat(100_000);
    for (id, body) in [
        ("bomb", bomb),
        ("text", "hello"),
        ("deep", &deep),
        ("none", ""),
    ] {
        ledger.received(0, incoming(id, body)).await;
    }
    let mut latin = incoming("latin", "");
    latin.body = bytes::Bytes::from_static(b"\"\xe9\"");
    ledger.received(0, latin).await;
    let shown = ledger
        .sql(
            "SELECT string_agg(concat(partner_event_id, '=', payload), ' ' ORDER BY partner_event_id)
               FROM hooklane.webhook_inbox_events",
        )
        .await;
    assert_eq!(shown, format!("bomb={bomb} deep= latin= none= text="));
}

#[tokio::test]
async fn another_body_under_the_same_id_is_a_conflict_and_kept_beside_the_first() {
    let ledger = Ledger::new().await;
    ledger.received(0, incoming("a", "{}")).await;
    let id = ledger.id_of("a").await;
    assert_eq!(
        ledger.received(1, incoming("a", "{}")).await,
        Receipt::Duplicate(id)
    );
    for n in 0..30 {
        let receipt = ledger
            .received(2, incoming("a", &format!("{{\"n\":{}}}", n % 15)))
            .await;
        assert_eq!(receipt, Receipt::Conflict(id));
    }
    let shown = ledger.store.inbox_event(id).await.unwrap();
    assert_eq!(shown.body.as_deref(), Some(b"{}".as_slice()));
    assert_eq!(shown.conflicts.len(), 10);
    assert_eq!(shown.conflicts[0].at, at(2));
}

#[tokio::test]
async fn a_quarantined_event_that_comes_again_is_looked_at_again() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    ledger.received(0, incoming("a", "no json")).await;
    ledger.stepped(1, &shop).await;
    assert_eq!(ledger.inbox().await, "a:QUARANTINED");
    let id = ledger.id_of("a").await;
    // Another body is no repetition of it.
    let other = ledger.received(2, incoming("a", "other")).await;
    assert_eq!(other, Receipt::Conflict(id));
    assert_eq!(
        ledger.received(3, incoming("a", "no json")).await,
        Receipt::ReArmed(id)
    );
    assert_eq!(ledger.inbox().await, "a:PENDING");
    assert_eq!(
        ledger.received(4, incoming("a", "no json")).await,
        Receipt::Duplicate(id)
    );
    let stepped = ledger.stepped(5, &shop).await;
    assert_eq!(stepped.quarantined.len(), 1);
    let shown = ledger.store.inbox_event(id).await.unwrap();
    let actions: Vec<&str> = shown
        .trail
        .iter()
        .map(|entry| entry.action.as_str())
        .collect();
    assert_eq!(actions, ["quarantined", "re_armed", "quarantined"]);
}

#[tokio::test]
async fn the_same_body_under_an_unsigned_id_is_flagged_or_dropped_within_the_window() {
    let ledger = Ledger::new().await;
    let unsigned = |id: &str, body: &str, drop: bool| Incoming {
        id_signed: false,
        same_body: Some(SameBody {
            within: Duration::from_secs(60),
            drop,
        }),
        ..incoming(id, body)
    };
    assert_eq!(
        ledger.received(0, unsigned("a", "{}", false)).await,
        Receipt::New
    );
    let first = ledger.id_of("a").await;
    let seen = ledger.received(59, unsigned("b", "{}", false)).await;
    assert_eq!(seen, Receipt::Flagged(first));
    let dropped = ledger.received(59, unsigned("c", "{}", true)).await;
    assert_eq!(dropped, Receipt::BodySeen(first));
    // Its own repetition is no replay, another body neither, and a signed id can't be made up.
    assert_eq!(
        ledger.received(59, unsigned("a", "{}", true)).await,
        Receipt::Duplicate(first)
    );
    assert_eq!(
        ledger.received(59, unsigned("d", "{ }", true)).await,
        Receipt::New
    );
    assert_eq!(ledger.received(59, incoming("e", "{}")).await, Receipt::New);
    assert_eq!(
        ledger.received(200, unsigned("f", "{}", true)).await,
        Receipt::New
    );
    // Within one batch, too.
    let batch: Vec<Incoming> = (0..4)
        .map(|n| unsigned(&format!("g{n}"), "[]", true))
        .collect();
    let receipts = ledger.store.inbox_receive(at(300), &batch).await.unwrap();
    let first = ledger.id_of("g0").await;
    assert_eq!(receipts[0], Receipt::New);
    assert!(
        receipts[1..]
            .iter()
            .all(|one| *one == Receipt::BodySeen(first)),
        "{receipts:?}"
    );
    let row = ledger
        .store
        .inbox_event(ledger.id_of("b").await)
        .await
        .unwrap()
        .row;
    assert!(row.same_body_as.is_some() && !row.id_signed);
}

#[tokio::test]
async fn what_the_database_refuses_harms_no_neighbour() {
    let ledger = Ledger::new().await;
    let items = [
        incoming("a", "{}"),
        incoming(&"x".repeat(101), "{}"),
        incoming("nul\0", "{}"),
        incoming("b", "{}"),
    ];
    let receipts = ledger.store.inbox_receive(at(0), &items).await.unwrap();
    let words: Vec<&str> = receipts.iter().map(Receipt::as_str).collect();
    assert_eq!(words, ["new", "refused", "refused", "new"]);
    assert!(!receipts[1].is_stored() && receipts[3].is_stored());
    assert_eq!(ledger.inbox().await, "a:PENDING b:PENDING");
}

#[tokio::test]
async fn a_day_that_is_dropped_meanwhile_is_made_again() {
    let ledger = Ledger::new().await;
    ledger.received(0, incoming("a", "{}")).await;
    ledger
        .sql(
            "DELETE FROM hooklane.webhook_inbox;
             DO $$ DECLARE child text; BEGIN
                 FOR child IN SELECT inhrelid::regclass::text FROM pg_inherits
                               WHERE inhparent = 'hooklane.inbox_bodies'::regclass
                 LOOP EXECUTE 'DROP TABLE ' || child; END LOOP; END $$",
        )
        .await;
    assert_eq!(ledger.received(1, incoming("a", "{}")).await, Receipt::New);
}
