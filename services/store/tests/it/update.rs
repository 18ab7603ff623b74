//! Changes of consumers, event types and endpoints, and two people who make one at the same time.

use hooklane_core::rules::address::Policy;
use hooklane_core::rules::subscription::Filter;
use hooklane_core::secrets::{MasterKeyConfig, MasterKeys, generate_master_key};
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_store::manage::{Error, Kind};
use hooklane_store::{consumer, endpoint, event_type};
use serde_json::value::RawValue;

use crate::ledger::Ledger;

fn acme() -> ConsumerId {
    ConsumerId::new("acme").unwrap()
}

fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn stale(error: Error) -> (Kind, i64) {
    let told = error.to_string();
    assert_eq!(error.code().as_str(), "precondition_failed");
    match error {
        Error::Stale { kind, current, .. } => (kind, current),
        _ => panic!("{told}"),
    }
}

#[tokio::test]
async fn a_consumers_second_writer_is_told_and_changes_nothing() {
    let ledger = Ledger::new().await;
    let store = &ledger.store;
    let added = consumer::add(store, &acme(), "Acme", Some(7))
        .await
        .unwrap();
    assert_eq!(added.version, 1);
    let named = |name: &str| consumer::Changes {
        name: Some(name.to_owned()),
        ..consumer::Changes::default()
    };
    let first = consumer::update(store, &acme(), &named("One"), Some(1))
        .await
        .unwrap();
    assert_eq!((first.name.as_str(), first.version), ("One", 2));
    assert_eq!(first.default_rate, Some(7));
    let second = consumer::update(store, &acme(), &named("Two"), Some(1)).await;
    assert_eq!(stale(second.unwrap_err()), (Kind::Consumer, 2));
    assert_eq!(consumer::show(store, &acme()).await.unwrap(), first);

    let none = consumer::Changes::default();
    let same = consumer::update(store, &acme(), &none, Some(2))
        .await
        .unwrap();
    assert_eq!(same, first);
    let bare = consumer::Changes {
        default_rate: Some(None),
        ..named("Three")
    };
    let third = consumer::update(store, &acme(), &bare, None).await.unwrap();
    assert_eq!((third.default_rate, third.version), (None, 3));
    assert_eq!(consumer::list(store, None, 1).await.unwrap().items, [third]);
    let refused = consumer::update(store, &acme(), &named("\0"), None).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let nobody = ConsumerId::new("nobody").unwrap();
    let missing = consumer::update(store, &nobody, &none, Some(1)).await;
    assert!(
        matches!(missing, Err(Error::NotFound { .. })),
        "{missing:?}"
    );
}

#[tokio::test]
async fn of_two_writers_at_once_one_is_stale() {
    let ledger = Ledger::new().await;
    consumer::add(&ledger.store, &acme(), "", None)
        .await
        .unwrap();
    let other = ledger.another_store().await;
    let changes = |n: u16| consumer::Changes {
        default_rate: Some(Some(n)),
        ..consumer::Changes::default()
    };
    let acme = acme();
    let (one, two) = (changes(1), changes(2));
    let (one, two) = tokio::join!(
        consumer::update(&ledger.store, &acme, &one, Some(1)),
        consumer::update(&other, &acme, &two, Some(1)),
    );
    let (won, lost) = match (one, two) {
        (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
        both => panic!("{both:?}"),
    };
    assert_eq!(stale(lost), (Kind::Consumer, 2));
    assert_eq!(consumer::show(&other, &acme).await.unwrap(), won);
}

#[tokio::test]
async fn an_event_type_changes_in_what_is_named_alone() {
    let ledger = Ledger::new().await;
    let store = &ledger.store;
    let name = EventType::new("invoice.paid").unwrap();
    let new = event_type::New {
        description: "Paid".to_owned(),
        schema: Some(json(r#"{"type":  "object"}"#)),
        example: Some(json("{}")),
    };
    let added = event_type::add(store, &name, &new).await.unwrap();
    assert_eq!(added.version, 1);
    let changes = event_type::Changes {
        example: Some(None),
        deprecated: Some(true),
        ..event_type::Changes::default()
    };
    let changed = event_type::update(store, &name, &changes, Some(1))
        .await
        .unwrap();
    assert_eq!(changed.description, "Paid");
    assert_eq!(changed.schema.unwrap().get(), r#"{"type":  "object"}"#);
    assert!(changed.example.is_none() && changed.deprecated);
    assert_eq!(changed.version, 2);

    let again = event_type::update(store, &name, &changes, Some(1)).await;
    assert_eq!(stale(again.unwrap_err()), (Kind::EventType, 2));
    let other = event_type::Changes {
        schema: Some(Some(json(r#"{"a":1}"#))),
        ..event_type::Changes::default()
    };
    let changed = event_type::update(store, &name, &other, None)
        .await
        .unwrap();
    assert_eq!(changed.schema.unwrap().get(), r#"{"a":1}"#);
    assert!(changed.deprecated);
    let none = event_type::Changes::default();
    let same = event_type::update(store, &name, &none, Some(3))
        .await
        .unwrap();
    assert_eq!(same.version, 3);
    let nul = event_type::Changes {
        example: Some(Some(json(r#""\u0000""#))),
        ..event_type::Changes::default()
    };
    let refused = event_type::update(store, &name, &nul, None).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

#[tokio::test]
async fn hooklanes_own_event_types_can_be_deprecated_alone() {
    let ledger = Ledger::new().await;
    let store = &ledger.store;
    let own = EventType::new("hooklane.endpoint.failing").unwrap();
    let marked = event_type::set_deprecated(store, &own, true).await.unwrap();
    assert_eq!((marked.deprecated, marked.version), (true, 2));
    let changes = event_type::Changes {
        description: Some("Mine".to_owned()),
        ..event_type::Changes::default()
    };
    let refused = event_type::update(store, &own, &changes, None).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

#[tokio::test]
async fn an_endpoints_second_writer_is_told_and_changes_nothing() {
    let ledger = Ledger::new().await;
    let store = &ledger.store;
    let keys = MasterKeys::new(&[MasterKeyConfig {
        id: "one".to_owned(),
        key: generate_master_key(),
    }])
    .unwrap();
    let policy = Policy::default();
    consumer::add(store, &acme(), "", None).await.unwrap();
    let new = endpoint::New::to(acme(), "https://example.com/", Filter::all());
    let added = endpoint::add(store, &new, &policy, &keys)
        .await
        .unwrap()
        .endpoint;
    let described = |text: &str| endpoint::Changes {
        description: Some(text.to_owned()),
        ..endpoint::Changes::default()
    };
    let update = async |text: &str, expected| {
        let changes = described(text);
        endpoint::update(store, added.id, &changes, expected, &policy, &keys).await
    };
    let first = update("one", Some(added.version)).await.unwrap().endpoint;
    assert!(first.version > added.version);
    let second = update("two", Some(added.version)).await;
    assert_eq!(stale(second.unwrap_err()), (Kind::Endpoint, first.version));
    let shown = endpoint::show(store, added.id).await.unwrap();
    assert_eq!(shown, first);
    let third = update("three", None).await.unwrap().endpoint;
    assert_eq!(third.description, "three");
}
