//! Hooklane's own events on their way to the operators.

use hooklane_store::accept::{NewMessage, Origin, Outcome, Reason};
use hooklane_store::outbox::Scan;
use hooklane_store::{endpoint, operational};

use super::*;
use crate::accept::message;

#[tokio::test]
async fn an_operators_endpoint_gets_what_it_subscribed_to() {
    let ledger = ledger().await;
    let watched = crate::accept::endpoint(&ledger, 1, "acme", "*", "active").await;
    let all =
        crate::accept::endpoint(&ledger, 2, "hooklane", "hooklane.endpoint.*", "active").await;
    crate::accept::endpoint(&ledger, 3, "hooklane", "hooklane.delivery.*", "active").await;
    endpoint::pause(&ledger.store, watched).await.unwrap();
    let mut reader = lead(&ledger, &operational::source()).await;
    assert_eq!(reader.scan(), Scan::Horizon, "{:?}", reader.why_plain());
    let events = drain(&mut reader).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].consumer.as_str(), "hooklane");
    assert_eq!(events[0].event_type.as_str(), "hooklane.endpoint.paused");
    let targets: Vec<_> = events[0].targets.iter().map(|t| t.endpoint).collect();
    assert_eq!(targets, [all]);
    let body: serde_json::Value = serde_json::from_slice(&events[0].payload).unwrap();
    assert_eq!(body["type"], "hooklane.endpoint.paused");
    assert_eq!(body["data"]["endpoint"], watched.to_string());
    assert_eq!(body["data"]["state"], "paused");
    assert_eq!(body["data"]["previous_state"], "active");
}

#[tokio::test]
async fn producers_cannot_pass_for_hooklane() {
    let ledger = ledger().await;
    row(&ledger, "hooklane", "invoice.paid", "{}").await;
    row(&ledger, "acme", "hooklane.endpoint.failing", "{}").await;
    let mut reader = lead(&ledger, &Source::default()).await;
    assert!(drain(&mut reader).await.is_empty());
    let reasons = "SELECT string_agg(reason, ',' ORDER BY reason) FROM hooklane.rejected_events";
    assert_eq!(ledger.sql(reasons).await, "bad_consumer,bad_event_type");
    // Nor by any other way, whatever name they give for it.
    for origin in [Origin::Api, Origin::Intake, Origin::Outbox("main".into())] {
        let event = NewMessage {
            origin,
            ..message("hooklane", "hooklane.endpoint.failing", "{}")
        };
        let accepted = ledger.store.accept(&settings(), &[event]).await.unwrap();
        let Outcome::Rejected(rejection) = &accepted.outcomes[0] else {
            panic!("{accepted:?}");
        };
        assert_eq!(rejection.reason, Reason::BadConsumer);
    }
    let into = "INSERT INTO hooklane.operational_events (id, consumer_id, event_type, payload)
                VALUES (gen_random_uuid(), 'acme', 'invoice.paid', '{}')";
    ledger.database.psql(into).await.unwrap_err();
}
