//! Who changed what: every change has its entry, and nothing else has one.

use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_core::rules::address::Policy;
use hooklane_core::rules::headers::CustomHeaders;
use hooklane_core::rules::signing::Secret;
use hooklane_core::rules::subscription::Filter;
use hooklane_core::secrets::{MasterKeyConfig, MasterKeys, generate_master_key};
use hooklane_proto::id::{ApiKeyId, EndpointId};
use hooklane_proto::record::FailureReason;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_store::audit_log::{self, Action, Actor, By, Entry, Listing};
use hooklane_store::dead_letter::{Series, Terms};
use hooklane_store::manage::Page;
use hooklane_store::task::{self, Work};
use hooklane_store::{Store, api_key, consumer, delivery, endpoint, event_type};
use serde_json::json;

use crate::ledger::{Ledger, drive, failed, sent};

fn acme() -> ConsumerId {
    ConsumerId::new("acme").unwrap()
}

fn keys() -> MasterKeys {
    MasterKeys::new(&[MasterKeyConfig {
        id: "one".to_owned(),
        key: generate_master_key(),
    }])
    .unwrap()
}

fn by(n: u64, name: &str, request: &str) -> By {
    By {
        actor: Actor::Key {
            id: ApiKeyId::for_test(n),
            name: name.to_owned(),
        },
        request_id: Some(request.to_owned()),
    }
}

async fn entries(store: &Store, listing: &Listing) -> Vec<Entry> {
    audit_log::list(store, listing, 100).await.unwrap().items
}

/// What was done, the first first.
async fn actions(store: &Store) -> Vec<String> {
    let all = entries(store, &Listing::default()).await;
    all.into_iter().rev().map(|entry| entry.action).collect()
}

const CANARY: &str = "canary-d41d8cd98f00";

#[tokio::test]
async fn every_change_of_an_endpoint_is_told_without_what_it_holds() {
    let ledger = Ledger::new().await;
    let (keys, policy) = (keys(), Policy::default());
    let store = ledger.store.acting(by(1, "portal", "req-7"));
    consumer::add(&store, &acme(), CANARY, None).await.unwrap();
    let url = format!("https://example.com/{CANARY}");
    let mut new = endpoint::New::to(acme(), url.as_str(), Filter::parse(&["*"]).unwrap());
    let secret = Secret::from_key([7; 32]);
    new.secret = Some(secret.clone());
    let pairs = [("x-token", CANARY)];
    new.headers = CustomHeaders::parse(pairs).unwrap();
    let id = endpoint::add(&store, &new, &policy, &keys).await.unwrap();
    let id = id.endpoint.id;
    let changes = endpoint::Changes {
        url: Some(format!("{url}/2")),
        headers: Some(CustomHeaders::parse(pairs).unwrap()),
        ..endpoint::Changes::default()
    };
    let updated = endpoint::update(&store, id, &changes, None, &policy, &keys).await;
    updated.unwrap();
    let grace = std::time::Duration::from_secs(60);
    endpoint::rotate(&store, id, None, grace, &keys)
        .await
        .unwrap();
    endpoint::reveal(&store, id, &keys).await.unwrap();
    endpoint::pause(&store, id).await.unwrap();
    endpoint::pause(&store, id).await.unwrap();
    endpoint::resume(&store, id).await.unwrap();
    endpoint::delete(&store, id).await.unwrap();

    let expected = [
        "consumer.create",
        "endpoint.create",
        "endpoint.update",
        "endpoint.rotate_secret",
        "endpoint.reveal_secret",
        "endpoint.pause",
        "endpoint.resume",
        "endpoint.delete",
    ];
    assert_eq!(actions(&store).await, expected);
    let all = entries(&store, &Listing::default()).await;
    for entry in &all {
        assert_eq!(entry.actor, by(1, "portal", "").actor);
        assert_eq!(entry.request_id.as_deref(), Some("req-7"));
        assert_eq!(entry.consumer, Some(acme()));
    }
    let update = &all[5];
    assert_eq!(update.subject, id.to_string());
    assert_eq!(update.detail, json!({ "changed": ["url", "headers"] }));

    let kept = "SELECT string_agg(a::text, ' ') FROM hooklane.audit_log a";
    let kept = ledger.sql(kept).await;
    assert!(!kept.contains(CANARY), "{kept}");
    assert!(!kept.contains(&secret.reveal()[6..]), "{kept}");
}

#[tokio::test]
async fn what_was_not_done_and_what_nobody_did_have_no_entry() {
    let ledger = Ledger::new().await;
    let store = ledger.store.acting(By::cli());
    consumer::add(&ledger.store, &acme(), "", None)
        .await
        .unwrap();
    consumer::add(&store, &acme(), "", None).await.unwrap_err();
    consumer::set_rate(&store, &acme(), Some(0))
        .await
        .unwrap_err();
    let nothing = consumer::Changes::default();
    consumer::update(&store, &acme(), &nothing, None)
        .await
        .unwrap();
    let missing = EndpointId::for_test(1);
    endpoint::pause(&store, missing).await.unwrap_err();
    endpoint::reveal(&store, missing, &keys())
        .await
        .unwrap_err();
    assert_eq!(actions(&store).await, [""; 0]);
}

#[tokio::test]
async fn an_entry_is_gone_where_the_change_could_not_be_made() {
    let ledger = Ledger::new().await;
    let store = ledger.store.acting(By::cli());
    // The entry can't be written, so that there must be no consumer either.
    ledger
        .sql("ALTER TABLE hooklane.audit_log ADD CHECK (action <> 'consumer.create')")
        .await;
    consumer::add(&store, &acme(), "", None).await.unwrap_err();
    consumer::show(&store, &acme()).await.unwrap_err();
}

#[tokio::test]
async fn the_log_is_narrowed_by_whom_what_and_when() {
    let ledger = Ledger::new().await;
    let cli = ledger.store.acting(By::cli());
    let key = ledger.store.acting(by(1, "billing", "r\u{1b}\n1"));
    consumer::add(&cli, &acme(), "", None).await.unwrap();
    consumer::set_rate(&key, &acme(), Some(9)).await.unwrap();
    let name = EventType::new("invoice.paid").unwrap();
    event_type::add(&key, &name, &event_type::New::default())
        .await
        .unwrap();
    event_type::set_deprecated(&cli, &name, true).await.unwrap();
    let admin = api_key::New {
        name: "a".to_owned(),
        scope: api_key::Scope::Admin,
        consumer: None,
        expires_at: None,
        rate_limit: None,
    };
    let admin = api_key::create(&cli, &admin).await.unwrap().key.id;
    api_key::revoke(&cli, admin).await.unwrap();
    api_key::revoke(&cli, admin).await.unwrap();

    let all = entries(&cli, &Listing::default()).await;
    let of = async |listing: Listing| {
        let found = entries(&cli, &listing).await;
        found
            .into_iter()
            .map(|entry| entry.action)
            .collect::<Vec<_>>()
    };
    let none = Listing::default;
    let consumer = Some(acme());
    assert_eq!(
        of(Listing { consumer, ..none() }).await,
        ["consumer.update", "consumer.create"]
    );
    let actor = Some(ApiKeyId::for_test(1).to_string());
    assert_eq!(
        of(Listing { actor, ..none() }).await,
        ["event_type.create", "consumer.update"]
    );
    let action = Some(Action::ApiKeyRevoke);
    assert_eq!(of(Listing { action, ..none() }).await, ["api_key.revoke"]);
    let (since, until) = (Some(all[3].at), Some(all[1].at));
    let between = of(Listing {
        since,
        until,
        ..none()
    })
    .await;
    assert_eq!(between, ["event_type.update", "event_type.create"][..]);
    // A request id may be anything that somebody sent.
    assert_eq!(all[4].request_id.as_deref(), Some("r1"));

    let mut paged = Vec::new();
    let mut listing = none();
    loop {
        let Page { items, next } = audit_log::list(&cli, &listing, 4).await.unwrap();
        paged.extend(items);
        match next {
            Some(next) => listing.after = Some(next),
            None => break,
        }
    }
    assert_eq!(paged, all);
}

#[tokio::test]
async fn cancelling_is_told_with_how_many_were_open() {
    let ledger = Ledger::new().await;
    let store = ledger.store.acting(By::cli());
    let now = clock::now();
    let one = ledger.delivery(1, ledger.endpoint(1).await, now).await;
    ledger.delivery(1, ledger.endpoint(2).await, now).await;
    delivery::cancel(&store, one.message, None).await.unwrap();
    delivery::cancel(&store, one.message, None)
        .await
        .unwrap_err();
    let all = entries(&store, &Listing::default()).await;
    let [entry] = all.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!(entry.action, Action::DeliveryCancel.as_str());
    assert_eq!(entry.subject, one.message.to_string());
    assert_eq!(entry.consumer, Some(acme()));
    assert_eq!(entry.detail, json!({ "endpoint": null, "deliveries": 2 }));
}

#[tokio::test]
async fn delivering_again_is_told() {
    let ledger = Ledger::new().await;
    let store = ledger.store.acting(By::cli());
    let terms = Terms {
        deadline: std::time::Duration::from_secs(48 * 3600),
        retention_days: 35,
    };
    let endpoint = ledger.endpoint(1).await;
    let keys = ledger.deliveries(1..4, endpoint, clock::now()).await;
    let records = [
        failed(drive(keys[0], 1), 1, 1, FailureReason::Exhausted),
        failed(drive(keys[1], 1), 2, 1, FailureReason::Exhausted),
        sent(drive(keys[2], 1), 3, 1),
    ];
    store.apply(&records).await.unwrap();
    let series = [keys[0], keys[1]].map(|key| Series { key, series: 1 });
    store.discard(&series).await.unwrap();
    store.discard(&series).await.unwrap();
    store.replay(&series[..1], terms).await.unwrap();
    // It is open by now.
    store.replay(&series[..1], terms).await.unwrap();
    let work = Work::Retry {
        message: keys[2].message,
        endpoint,
    };
    let id = task::create(&store, work, terms).await.unwrap().id;
    task::cancel(&store, id).await.unwrap();
    task::cancel(&store, id).await.unwrap_err();

    let all = entries(&store, &Listing::default()).await;
    let told: Vec<(&str, &str)> = all
        .iter()
        .rev()
        .map(|entry| (entry.action.as_str(), entry.subject.as_str()))
        .collect();
    let (endpoint, message, id) = (
        endpoint.to_string(),
        keys[0].message.to_string(),
        id.to_string(),
    );
    let expected = [
        ("dead_letter.discard", endpoint.as_str()),
        ("dead_letter.replay", &message),
        ("task.create", &id),
        ("task.cancel", &id),
    ];
    assert_eq!(told, expected);
    assert_eq!(all[3].detail, json!({ "deliveries": 2 }));
    assert_eq!(all[1].detail["kind"], "retry");
}

#[tokio::test]
async fn old_entries_go_in_batches() {
    let ledger = Ledger::new().await;
    ledger
        .sql(
            "INSERT INTO hooklane.audit_log (id, at, actor, actor_name, action, subject)
             SELECT gen_random_uuid(), now() - n * '1 day'::interval, 'cli', 'cli', 'task.create', n::text
               FROM generate_series(1, 10) n",
        )
        .await;
    let before = clock::now() - TimeDelta::hours(7 * 24 + 12);
    let forget = async || ledger.store.forget_audit_log(before, 2).await.unwrap();
    assert_eq!((forget().await, forget().await), (2, 1));
    let left = "SELECT count(*), max(subject::int) FROM hooklane.audit_log";
    assert_eq!(ledger.sql(left).await, "7|7");
}
