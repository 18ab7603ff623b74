//! Rows that can't be accepted: set aside, tried again, requeued, and in nobody's way.

use std::time::Duration;

use hooklane_proto::token::ConsumerId;
use hooklane_store::accept::Reason;
use hooklane_store::consumer;
use hooklane_store::outbox::Source;
use hooklane_store::rejected::{Filter, Standing};

use super::{drain, lead, ledger};
use crate::accept::settings;
use crate::ledger::Ledger;

async fn standing(ledger: &Ledger) -> Vec<(String, Standing)> {
    let filter = Filter {
        waiting: true,
        ..Filter::default()
    };
    let rejected = ledger.store.rejected(&filter, 0, 100).await.unwrap();
    rejected
        .into_iter()
        .map(|r| (r.reason, r.standing))
        .collect()
}

#[tokio::test]
async fn each_row_that_cant_be_accepted_is_set_aside_with_its_reason() {
    let ledger = ledger().await;
    ledger
        .sql(
            "ALTER TABLE hooklane.outbox_events ALTER payload DROP NOT NULL,
                                                 ALTER consumer_id DROP NOT NULL",
        )
        .await;
    for values in [
        "('acme', 'invoice.paid', NULL, NULL)",
        "('acme', 'invoice.paid', to_json(repeat('x', 262143)), NULL)",
        "('not a consumer', 'invoice.paid', '1', NULL)",
        "(NULL, 'invoice.paid', '1', NULL)",
        "('acme', 'invoice..paid', '1', NULL)",
        "('acme', 'invoice.paid', '1', repeat('k', 256))",
        "('acme', 'invoice.paid', '1', 'k1')",
        "('acme', 'invoice.paid', '2', 'k1')",
        "('acme', 'invoice.paid', to_json(repeat('x', 262142)), NULL)",
    ] {
        ledger
            .sql(&format!(
                "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload, idempotency_key)
                 VALUES {values}"
            ))
            .await;
    }
    let mut reader = lead(&ledger, &Source::default()).await;
    assert_eq!(drain(&mut reader).await.len(), 2);
    let expected = [
        Reason::PayloadMissing,
        Reason::PayloadTooLarge,
        Reason::BadConsumer,
        Reason::BadConsumer,
        Reason::BadEventType,
        Reason::BadKey,
        Reason::Conflict,
    ];
    let mut expected: Vec<_> = expected
        .map(|reason| (reason.as_str().to_owned(), Standing::Rejected))
        .into();
    let mut seen = standing(&ledger).await;
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(seen, expected);
    let pending = "SELECT count(*) FROM hooklane.outbox_events WHERE processed_at IS NULL";
    assert_eq!(ledger.sql(pending).await, "0");
}

#[tokio::test]
async fn an_unknown_name_is_rejected_after_its_time_only_and_blocks_nothing() {
    let ledger = ledger().await;
    super::row(&ledger, "newcomer", "invoice.paid", "1").await;
    super::row(&ledger, "acme", "brand.new", "2").await;
    super::row(&ledger, "acme", "invoice.paid", "3").await;
    let mut reader = lead(&ledger, &Source::default()).await;
    let events = drain(&mut reader).await;
    assert_eq!(events.len(), 1, "the known one is not held back");

    let rejected = ledger
        .store
        .rejected(&Filter::default(), 0, 10)
        .await
        .unwrap();
    assert!(rejected.is_empty(), "nobody is rejected yet: {rejected:?}");
    let until = ledger
        .sql("SELECT bool_and(waiting_until - rejected_at BETWEEN '299 s' AND '301 s') FROM hooklane.rejected_events")
        .await;
    assert_eq!(until, "t");
    let tried = ledger.store.try_again(&settings()).await.unwrap();
    assert_eq!((tried.accepted.events.len(), tried.given_up), (0, 0));

    // One of the names comes to be known in time.
    ledger
        .sql("INSERT INTO hooklane.consumers (id) VALUES ('newcomer')")
        .await;
    let tried = ledger.store.try_again(&settings()).await.unwrap();
    assert_eq!(&*tried.accepted.events[0].payload, b"1");
    assert_eq!(tried.accepted.events.len(), 1);

    // The other does not.
    ledger
        .sql("UPDATE hooklane.rejected_events SET waiting_until = now() - interval '1 ms'")
        .await;
    let tried = ledger.store.try_again(&settings()).await.unwrap();
    assert_eq!((tried.accepted.events.len(), tried.given_up), (0, 1));
    let rejected = ledger
        .store
        .rejected(&Filter::default(), 0, 10)
        .await
        .unwrap();
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0].reason, "unknown_event_type");
    assert_eq!(rejected[0].standing, Standing::Rejected);
    let payload = ledger.store.rejected_payload(rejected[0].id).await.unwrap();
    assert_eq!(payload.as_deref(), Some(&b"2"[..]));
}

#[tokio::test]
async fn what_comes_for_a_deleted_consumer_waits_until_it_is_added_again() {
    let ledger = ledger().await;
    let acme = ConsumerId::new("acme").unwrap();
    consumer::delete(&ledger.store, &acme, None).await.unwrap();
    super::row(&ledger, "acme", "invoice.paid", "1").await;
    let mut reader = lead(&ledger, &Source::default()).await;
    assert_eq!(drain(&mut reader).await.len(), 0);
    let waits = [("unknown_consumer".to_owned(), Standing::Waiting)];
    assert_eq!(standing(&ledger).await, waits);
    let tried = ledger.store.try_again(&settings()).await.unwrap();
    assert!(
        !tried.more && tried.accepted.outcomes.is_empty(),
        "{tried:?}"
    );
    consumer::add(&ledger.store, &acme, "", None).await.unwrap();
    let tried = ledger.store.try_again(&settings()).await.unwrap();
    assert_eq!(&*tried.accepted.events[0].payload, b"1");
}

#[tokio::test]
async fn a_requeued_row_keeps_its_id_and_its_bytes() {
    let ledger = ledger().await;
    let id = super::row(&ledger, "acme", "brand.new", r#"{"a":1, "a":2}"#).await;
    let source = Source {
        on_published: hooklane_store::outbox::OnPublished::Delete,
        ..Source::default()
    };
    let mut reader = lead(&ledger, &source).await;
    drain(&mut reader).await;
    ledger
        .sql("UPDATE hooklane.rejected_events SET waiting_until = NULL")
        .await;

    // Too early: it stays, and says so again.
    let requeued = ledger.store.requeue(&Filter::default()).await.unwrap();
    assert_eq!(requeued.requeued, 1);
    let _ = ledger.store.try_again(&settings()).await.unwrap();
    let expected = [("unknown_event_type".to_owned(), Standing::Rejected)];
    assert_eq!(standing(&ledger).await, expected);

    ledger
        .sql("INSERT INTO hooklane.event_types (name) VALUES ('brand.new')")
        .await;
    let filter = Filter {
        source: Some("outbox:main".to_owned()),
        reason: Some(Reason::UnknownEventType),
        ..Filter::default()
    };
    assert_eq!(ledger.store.requeue(&filter).await.unwrap().requeued, 1);
    let tried = ledger.store.try_again(&settings()).await.unwrap();
    let event = &tried.accepted.events[0];
    assert_eq!(event.message.uuid().to_string(), id);
    assert_eq!(&*event.payload, br#"{"a":1, "a":2}"#);
    assert!(standing(&ledger).await.is_empty());
}

#[tokio::test]
async fn what_was_too_large_cant_be_requeued() {
    let ledger = ledger().await;
    ledger
        .sql(
            "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             VALUES ('acme', 'invoice.paid', to_json(repeat('x', 300000)))",
        )
        .await;
    let mut reader = lead(&ledger, &Source::default()).await;
    drain(&mut reader).await;
    let requeued = ledger.store.requeue(&Filter::default()).await.unwrap();
    assert_eq!((requeued.requeued, requeued.without_payload.len()), (0, 1));
}

#[tokio::test]
async fn a_row_fixed_by_its_producer_is_read_again_by_the_next_leader() {
    let ledger = ledger().await;
    super::row(&ledger, "acme", "invoice..paid", "1").await;
    let mut reader = lead(&ledger, &Source::default()).await;
    assert!(drain(&mut reader).await.is_empty());
    ledger
        .sql("UPDATE hooklane.outbox_events SET event_type = 'invoice.paid', processed_at = NULL")
        .await;
    drop(reader);
    let source = Source::default();
    let mut reader =
        hooklane_testkit::wait::until_some("the lock", Duration::from_secs(5), async || {
            hooklane_store::outbox::Reader::lead(&ledger.store, &source)
                .await
                .unwrap()
        })
        .await
        .unwrap();
    assert_eq!(drain(&mut reader).await.len(), 1);
}

#[tokio::test]
async fn rejected_events_are_purged_after_35_days() {
    let ledger = ledger().await;
    super::row(&ledger, "acme", "invoice..paid", "1").await;
    super::row(&ledger, "acme", "invoice..paid", "2").await;
    let mut reader = lead(&ledger, &Source::default()).await;
    drain(&mut reader).await;
    ledger
        .sql(
            "UPDATE hooklane.rejected_events SET rejected_at = now() - interval '35 days 1 s'
             WHERE payload = '1'",
        )
        .await;
    assert_eq!(ledger.store.purge_rejected(100).await.unwrap(), 1);
    assert_eq!(standing(&ledger).await.len(), 1);
}
