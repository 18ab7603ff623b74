//! A consumer that is deleted: who gets nothing more, what stays, and how it comes back.

use std::sync::atomic::{AtomicBool, Ordering};

use hooklane_core::rules::address::Policy;
use hooklane_core::rules::subscription::Filter;
use hooklane_core::secrets::{MasterKeyConfig, MasterKeys, generate_master_key};
use hooklane_proto::id::EndpointId;
use hooklane_proto::token::ConsumerId;
use hooklane_store::accept::{NewMessage, Outcome, Reason};
use hooklane_store::api_key::{self, New, Scope};
use hooklane_store::audit_log::By;
use hooklane_store::manage::Error;
use hooklane_store::{Store, consumer, endpoint};
use secrecy::ExposeSecret as _;
use tokio::task::JoinSet;

use super::acme;
use crate::accept::{message, names, settings};
use crate::ledger::Ledger;

fn keys() -> MasterKeys {
    let key = generate_master_key();
    let id = "one".to_owned();
    MasterKeys::new(&[MasterKeyConfig { id, key }]).unwrap()
}

async fn add_endpoint(
    store: &Store,
    to: &ConsumerId,
    keys: &MasterKeys,
) -> Result<EndpointId, Error> {
    let everything = Filter::parse(&["*"]).unwrap();
    let new = endpoint::New::to(to.clone(), "https://127.0.0.1/", everything);
    let added = endpoint::add(store, &new, &Policy::loopback(), keys).await?;
    Ok(added.endpoint.id)
}

async fn make_key(store: &Store, scope: Scope) -> Result<api_key::Created, Error> {
    let new = New {
        name: scope.as_str().to_owned(),
        scope,
        consumer: Some(acme()),
        expires_at: None,
        rate_limit: None,
    };
    api_key::create(store, &new).await
}

async fn sent(store: &Store, message: NewMessage) -> Outcome {
    let accepted = store.accept(&settings(), &[message]).await.unwrap();
    accepted.outcomes.into_iter().next().unwrap()
}

fn is_unknown(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Rejected(why) if why.reason == Reason::UnknownConsumer)
}

fn not_found(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. })
}

#[tokio::test]
async fn a_deleted_consumer_is_nobody_to_everybody_and_what_it_got_stays() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let store = ledger.store.acting(By::cli());
    let keys = keys();
    let endpoint = add_endpoint(&store, &acme(), &keys).await.unwrap();
    assert!(matches!(
        sent(&store, message("acme", "invoice.paid", "1")).await,
        Outcome::Accepted(_)
    ));
    let made = [
        make_key(&store, Scope::Consumer).await.unwrap(),
        make_key(&store, Scope::Publish).await.unwrap(),
    ];

    let refused = consumer::delete(&store, &acme(), None).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Conflict(text) if text.contains("1 endpoint")),
        "{refused}"
    );
    endpoint::delete(&store, endpoint).await.unwrap();
    let version = consumer::show(&store, &acme()).await.unwrap().version;
    let stale = consumer::delete(&store, &acme(), Some(version + 1))
        .await
        .unwrap_err();
    assert!(matches!(stale, Error::Stale { .. }), "{stale}");
    let deleted = consumer::delete(&store, &acme(), Some(version))
        .await
        .unwrap();
    assert_eq!(deleted.revoked.len(), 2);

    for key in &made {
        let presented = key.secret.expose_secret();
        assert_eq!(
            api_key::authenticate(&store, presented).await.unwrap(),
            None
        );
    }
    assert!(not_found(
        &consumer::show(&store, &acme()).await.unwrap_err()
    ));
    assert!(not_found(
        &consumer::set_rate(&store, &acme(), Some(9))
            .await
            .unwrap_err()
    ));
    assert!(not_found(
        &consumer::delete(&store, &acme(), None).await.unwrap_err()
    ));
    assert!(not_found(
        &add_endpoint(&store, &acme(), &keys).await.unwrap_err()
    ));
    assert!(not_found(
        &make_key(&store, Scope::Consumer).await.unwrap_err()
    ));
    let listed = consumer::list(&store, None, 10).await.unwrap().items;
    let listed: Vec<&str> = listed.iter().map(|consumer| consumer.id.as_str()).collect();
    assert_eq!(listed, ["hooklane", "other"]);
    assert!(is_unknown(
        &sent(&store, message("acme", "invoice.paid", "2")).await
    ));
    let left = "SELECT (SELECT count(*) FROM hooklane.messages), (SELECT count(*) FROM hooklane.deliveries)";
    assert_eq!(ledger.sql(left).await, "1|1");
    let log = ledger
        .sql("SELECT action, detail FROM hooklane.audit_log ORDER BY at DESC, id DESC LIMIT 3")
        .await;
    let expected = "consumer.delete|{\"revoked_keys\": 2}\napi_key.revoke|{}\napi_key.revoke|{}";
    assert_eq!(log, expected);
    // The lanes are told that the endpoint is gone, whoever's it was.
    let routes = store.unrouted(50, 10).await.unwrap();
    assert_eq!(routes.len(), 1, "{routes:?}");
}

#[tokio::test]
async fn a_consumer_comes_back_without_its_keys_and_endpoints() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let store = &ledger.store;
    let key = make_key(store, Scope::Consumer).await.unwrap();
    let keyed = NewMessage {
        key: Some("order-1".to_owned()),
        ..message("acme", "invoice.paid", "1")
    };
    let Outcome::Accepted(receipt) = sent(store, keyed.clone()).await else {
        panic!("not accepted");
    };
    let changes = consumer::Changes {
        name: Some("Acme".to_owned()),
        default_rate: Some(Some(7)),
    };
    let before = consumer::update(store, &acme(), &changes, None)
        .await
        .unwrap();
    consumer::delete(store, &acme(), None).await.unwrap();
    let again = consumer::add(store, &acme(), "", None).await.unwrap();
    assert!(
        again.version > before.version,
        "an old etag is no longer good"
    );
    assert!(again.created_at > before.created_at);
    assert_eq!(
        (again.name.as_str(), again.default_rate, again.endpoints),
        ("", None, 0)
    );
    assert!(matches!(
        consumer::add(store, &acme(), "", None).await,
        Err(Error::Exists { .. })
    ));
    let presented = key.secret.expose_secret();
    assert_eq!(api_key::authenticate(store, presented).await.unwrap(), None);
    assert!(matches!(
        sent(store, message("acme", "invoice.paid", "2")).await,
        Outcome::Accepted(_)
    ));
    assert_eq!(sent(store, keyed).await, Outcome::Repeat(receipt));
}

#[tokio::test]
async fn the_built_in_consumer_stays() {
    let ledger = Ledger::new().await;
    let id = ConsumerId::new("hooklane").unwrap();
    let refused = consumer::delete(&ledger.store, &id, None)
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    consumer::show(&ledger.store, &id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_accepted_for_a_consumer_after_it_was_deleted() {
    const CONSUMERS: usize = 24;
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let keys = keys();
    let (mut kept, mut lost) = (0, 0);
    for n in 0..CONSUMERS {
        let id = ConsumerId::new(&format!("c{n}")).unwrap();
        consumer::add(&ledger.store, &id, "", None).await.unwrap();
        let endpoint = add_endpoint(&ledger.store, &id, &keys).await.unwrap();
        let gone = std::sync::Arc::new(AtomicBool::new(false));
        let mut senders = JoinSet::new();
        for _ in 0..4 {
            let (store, id, gone) = (ledger.store.clone(), id.clone(), gone.clone());
            senders.spawn(async move {
                loop {
                    let late = gone.load(Ordering::SeqCst);
                    let outcome = sent(&store, message(id.as_str(), "invoice.paid", "1")).await;
                    if late {
                        assert!(is_unknown(&outcome), "{outcome:?}");
                        return;
                    }
                }
            });
        }
        endpoint::delete(&ledger.store, endpoint).await.unwrap();
        // Somebody adds another one just then: either is too late for the other.
        let (added, deleted) = tokio::join!(
            add_endpoint(&ledger.store, &id, &keys),
            consumer::delete(&ledger.store, &id, None),
        );
        if let Ok(endpoint) = added {
            assert!(matches!(deleted, Err(Error::Conflict(_))), "{deleted:?}");
            endpoint::delete(&ledger.store, endpoint).await.unwrap();
            consumer::delete(&ledger.store, &id, None).await.unwrap();
            kept += 1;
        } else {
            assert!(deleted.is_ok(), "{deleted:?}");
            lost += 1;
        }
        gone.store(true, Ordering::SeqCst);
        while let Some(ended) = senders.join_next().await {
            ended.unwrap();
        }
    }
    assert_eq!(kept + lost, CONSUMERS);
    let late = "SELECT count(*) FROM hooklane.deliveries d JOIN hooklane.consumers c ON c.id = d.consumer_id
                 WHERE c.deleted_at <= d.accepted_at";
    assert_eq!(ledger.sql(late).await, "0");
    let some = "SELECT count(*) > 0 FROM hooklane.deliveries";
    assert_eq!(ledger.sql(some).await, "t");
}
