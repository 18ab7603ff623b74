//! What a person sees and does.

use hooklane_proto::id::InboxId;
use hooklane_store::audit_log::By;
use hooklane_store::inbox::{Done, Filter, Mode, Outcome, Place, Reason, Reject, Status};
use hooklane_store::manage::Error;

use super::{Shop, incoming, order, shop};
use crate::ledger::{Ledger, at};

/// An event that is illegal, and one that can't be read.
async fn quarantined(reader: &Shop) -> Ledger {
    let ledger = Ledger::new().await;
    for (id, name) in [
        ("1", "created"),
        ("2", "paid"),
        ("3", "refunded"),
        ("4", "closed"),
    ] {
        ledger
            .received(0, order(id, &format!("order.{name}"), "A"))
            .await;
    }
    ledger.received(0, incoming("5", "no json")).await;
    ledger.settled(0, reader).await;
    ledger
}

#[tokio::test]
async fn replay_decides_anew_and_is_audited() {
    let reader = Shop::new(Mode::Stream);
    let ledger = quarantined(&reader).await;
    let ids = [
        ledger.id_of("4").await,
        ledger.id_of("1").await,
        InboxId::for_test(9),
    ];
    let store = ledger.store.acting(By::cli());
    let done = store.inbox_replay(at(1), &ids).await.unwrap();
    let became: Vec<Done> = done.into_iter().map(|(_, became)| became).collect();
    assert_eq!(
        became,
        [Done::Done, Done::Not(Status::Processed), Done::NotThere]
    );
    // Somebody mended the order by hand.
    ledger
        .sql("UPDATE hooklane.inbox_entities SET state = 'delivered'")
        .await;
    assert_eq!(ledger.stepped(1, &reader).await.applied, 1);
    assert_eq!(ledger.state("A").await, "closed:4:0");
    let audited = "SELECT action, subject, detail->>'events' FROM hooklane.audit_log";
    assert_eq!(
        ledger.sql(audited).await,
        format!("inbox.replay|{}|1", ids[0])
    );
}

#[tokio::test]
async fn discarded_events_are_closed() {
    let reader = Shop::new(Mode::Stream);
    let ledger = quarantined(&reader).await;
    let ids = [ledger.id_of("4").await, ledger.id_of("5").await];
    let store = ledger.store.acting(By::cli());
    store.inbox_discard(at(1), &ids).await.unwrap();
    let again = store.inbox_discard(at(1), &ids[..1]).await.unwrap();
    assert_eq!(again, [(ids[0], Done::Not(Status::Discarded))]);
    let filter = Filter {
        status: Some(Status::Discarded),
        ..Filter::default()
    };
    let page = ledger.store.inbox_events(&filter, None, 10).await.unwrap();
    assert_eq!(page.items.len(), 2);
    assert_eq!(page.items[0].processed_at, Some(at(1)));
    let audited = "SELECT action, subject, detail->>'events' FROM hooklane.audit_log";
    assert_eq!(ledger.sql(audited).await, "inbox.discard|many|2");
}

#[tokio::test]
async fn a_dry_run_says_what_would_happen_and_writes_nothing() {
    let reader = Shop::new(Mode::Stream);
    let ledger = quarantined(&reader).await;
    ledger.received(0, order("6", "order.shipped", "B")).await;
    ledger
        .received(0, incoming("7", r#"{"items":[{"id":"x"},{"id":"y"}]}"#))
        .await;
    ledger.received(0, order("8", "order.created", "B")).await;
    ledger.received(0, order("9", "order.paid", "A")).await;
    ledger.received(0, incoming("p", r#"{"panic":1}"#)).await;
    let before = ledger
        .sql("SELECT md5(string_agg(w::text, '' ORDER BY id)) FROM hooklane.webhook_inbox w")
        .await;
    let outcomes = [
        ("4", "quarantine impossible_transition"),
        ("5", "quarantine unparseable"),
        (
            "6",
            "defer order.created (to `created`), then order.paid (to `paid`)",
        ),
        ("7", "split 2"),
        ("8", "apply none created"),
        ("9", "superseded"),
        ("1", "closed PROCESSED"),
        ("p", "panic"),
    ];
    for (event, expected) in outcomes {
        let id = ledger.id_of(event).await;
        let run = ledger
            .store
            .inbox_dry_run(at(1), id, &reader)
            .await
            .unwrap();
        let said = match run.outcome {
            Outcome::Apply { from, to } => {
                format!(
                    "apply {} {}",
                    from.unwrap_or_default(),
                    to.unwrap_or_default()
                )
            }
            Outcome::HandOffAgain => "again".to_owned(),
            Outcome::Defer { missing } => {
                format!("defer {}", missing.trim_start_matches("missing: "))
            }
            Outcome::Superseded { .. } => "superseded".to_owned(),
            Outcome::Quarantine { reason, .. } => format!("quarantine {reason}"),
            Outcome::Split { items } => format!("split {items}"),
            Outcome::Closed(status) => format!("closed {status}"),
            Outcome::UnknownSource => "unknown".to_owned(),
            Outcome::Panic => "panic".to_owned(),
        };
        assert_eq!(said, expected, "{event}");
    }
    let run = ledger
        .store
        .inbox_dry_run(at(1), ledger.id_of("9").await, &reader)
        .await
        .unwrap();
    assert_eq!(run.state.as_deref(), Some("refunded"));
    reader.modes.lock().unwrap().clear();
    let id = ledger.id_of("8").await;
    let run = ledger
        .store
        .inbox_dry_run(at(1), id, &reader)
        .await
        .unwrap();
    assert_eq!(run.outcome, Outcome::UnknownSource);
    let after = ledger
        .sql("SELECT md5(string_agg(w::text, '' ORDER BY id)) FROM hooklane.webhook_inbox w")
        .await;
    assert_eq!(before, after);
    let nobody = ledger
        .store
        .inbox_dry_run(at(1), InboxId::for_test(1), &reader)
        .await;
    assert!(matches!(nobody, Err(Error::NotFound { .. })), "{nobody:?}");
}

#[tokio::test]
async fn listings_come_in_pages_newest_first_and_narrow() {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Stream);
    for n in 0..5 {
        ledger
            .received(n, order(&n.to_string(), "order.created", &n.to_string()))
            .await;
    }
    ledger.received(9, incoming("bad", "no json")).await;
    ledger.settled(9, &reader).await;
    let store = &ledger.store;
    let all = Filter::default();
    let mut seen = Vec::new();
    let mut after: Option<Place> = None;
    loop {
        let page = store.inbox_events(&all, after, 4).await.unwrap();
        seen.extend(page.items.into_iter().map(|row| row.partner_event_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["bad", "4", "3", "2", "1", "0"]);
    let count = |filter: Filter| async move {
        store
            .inbox_events(&filter, None, 10)
            .await
            .unwrap()
            .items
            .len()
    };
    let bad = Filter {
        status: Some(Status::Quarantined),
        partner: Some(shop()),
        reason: Some(Reason::Unparseable),
        ..Filter::default()
    };
    assert_eq!(count(bad).await, 1);
    let one = Filter {
        entity: Some(("order".to_owned(), "3".to_owned())),
        event_type: Some("order.created".to_owned()),
        since: Some(at(3)),
        until: Some(at(3)),
        ..Filter::default()
    };
    assert_eq!(count(one).await, 1);
    let counts = store.inbox_counts().await.unwrap();
    assert_eq!(counts.by_status, [(shop(), Status::Quarantined, 1)]);
    assert_eq!(counts.publications, 5);
}

#[tokio::test]
async fn the_last_rejects_of_each_source_are_kept() {
    let ledger = Ledger::new().await;
    let reject = |n: usize| Reject {
        partner: shop(),
        reason: format!("wrong_signature {n}"),
        remote: Some("127.0.0.1".to_owned()),
        headers: incoming("x", "").headers,
        body: vec![b'x'; 20 << 10].into(),
        bytes: 20 << 10,
    };
    for n in 0..5 {
        let both = [reject(2 * n), reject(2 * n + 1)];
        ledger.store.inbox_reject(at(0), &both, 3).await.unwrap();
    }
    let page = ledger
        .store
        .inbox_rejects(Some(&shop()), None, 2)
        .await
        .unwrap();
    let reasons: Vec<&str> = page.items.iter().map(|one| one.reason.as_str()).collect();
    assert_eq!(reasons, ["wrong_signature 9", "wrong_signature 8"]);
    assert_eq!(
        (page.items[0].body.len(), page.items[0].bytes),
        (16 << 10, 20 << 10)
    );
    let rest = ledger
        .store
        .inbox_rejects(None, page.next, 9)
        .await
        .unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));
}
