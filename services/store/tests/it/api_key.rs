//! Keys for the HTTP API: who gets in, and what is kept of a key.

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_proto::id::ApiKeyId;
use hooklane_proto::token::ConsumerId;
use hooklane_store::api_key::{self, Created, Listing, New, Scope, Standing};
use hooklane_store::audit_log::{Actor, By};
use hooklane_store::consumer;
use hooklane_store::manage::Error;
use secrecy::ExposeSecret as _;

use crate::ledger::Ledger;

fn new(name: &str, scope: Scope) -> New {
    New {
        name: name.to_owned(),
        scope,
        consumer: None,
        expires_at: None,
        rate_limit: None,
    }
}

fn acme() -> ConsumerId {
    ConsumerId::new("acme").unwrap()
}

async fn made(ledger: &Ledger, new: &New) -> Created {
    api_key::create(&ledger.store, new).await.unwrap()
}

async fn lets_in(ledger: &Ledger, created: &Created) -> Option<ApiKeyId> {
    let presented = created.secret.expose_secret();
    let key = api_key::authenticate(&ledger.store, presented).await;
    key.unwrap().map(|key| key.id)
}

#[tokio::test]
async fn a_key_lets_in_until_it_is_revoked_or_has_expired() {
    let ledger = Ledger::new().await;
    let (one, two) = (
        made(&ledger, &new("one", Scope::Admin)).await,
        made(&ledger, &new("two", Scope::Read)).await,
    );
    assert_eq!(lets_in(&ledger, &one).await, Some(one.key.id));
    assert_eq!(lets_in(&ledger, &two).await, Some(two.key.id));

    let revoked = api_key::revoke(&ledger.store, one.key.id).await.unwrap();
    assert_eq!(revoked.standing(clock::now()), Standing::Revoked);
    assert_eq!(lets_in(&ledger, &one).await, None);
    let again = api_key::revoke(&ledger.store, one.key.id).await.unwrap();
    assert_eq!(again, revoked);

    ledger
        .sql("UPDATE hooklane.api_keys SET expires_at = now() WHERE name = 'two'")
        .await;
    assert_eq!(lets_in(&ledger, &two).await, None);
    let shown = api_key::show(&ledger.store, two.key.id).await.unwrap();
    assert_eq!(shown.standing(clock::now()), Standing::Expired);
}

#[tokio::test]
async fn what_is_no_key_lets_nobody_in() {
    let ledger = Ledger::new().await;
    let created = made(&ledger, &new("one", Scope::Admin)).await;
    let text = created.secret.expose_secret();
    assert_eq!(text.len(), 47);
    let other = format!(
        "{}{}",
        &text[..46],
        if text.ends_with('A') { 'E' } else { 'A' }
    );
    let longer = format!("{text}A");
    let wrong_prefix = text.replacen("hlk_", "hlx_", 1);
    for wrong in ["", "hlk_", &text[..46], &other, &longer, &wrong_prefix] {
        let key = api_key::authenticate(&ledger.store, wrong).await.unwrap();
        assert_eq!(key, None);
    }
    // What can't be a key is turned away without the database.
    ledger.store.close().await;
    let key = api_key::authenticate(&ledger.store, "hlk_canary").await;
    assert_eq!(key.unwrap(), None);
    assert!(api_key::authenticate(&ledger.store, text).await.is_err());
}

#[tokio::test]
async fn nothing_of_a_key_but_its_end_is_kept_or_shown() {
    let ledger = Ledger::new().await;
    let store = ledger.store.acting(By::cli());
    let created = api_key::create(&store, &new("one", Scope::Admin))
        .await
        .unwrap();
    let text = created.secret.expose_secret();
    let (body, hint) = (&text[4..43], &text[43..]);
    assert_eq!(created.key.hint, hint);
    assert!(!format!("{created:?}").contains(body));
    let tables = "SELECT coalesce(string_agg(k::text, ' '), '') FROM hooklane.api_keys k";
    let audit = "SELECT coalesce(string_agg(a::text, ' '), '') FROM hooklane.audit_log a";
    for sql in [tables, audit] {
        let kept = ledger.sql(sql).await;
        assert!(kept.contains("one"), "{kept}");
        assert!(!kept.contains(body) && !kept.contains("hlk_"), "{kept}");
    }
    ledger.store.close().await;
    let error = api_key::authenticate(&ledger.store, text)
        .await
        .unwrap_err();
    assert!(!format!("{error} {error:?}").contains(body), "{error:?}");
}

#[tokio::test]
async fn a_key_says_whose_it_is_and_who_made_it() {
    let ledger = Ledger::new().await;
    consumer::add(&ledger.store, &acme(), "", None)
        .await
        .unwrap();
    let maker = made(&ledger, &new("maker", Scope::Admin)).await;
    assert_eq!(maker.key.created_by, "hooklane");
    let by = By {
        actor: Actor::Key {
            id: maker.key.id,
            name: "maker".to_owned(),
        },
        request_id: None,
    };
    let expires_at = Some(clock::now() + TimeDelta::days(90));
    let portal = New {
        consumer: Some(acme()),
        expires_at,
        rate_limit: Some(20),
        ..new("portal", Scope::Consumer)
    };
    let store = ledger.store.acting(by);
    let created = api_key::create(&store, &portal).await.unwrap();
    let key = created.key;
    assert_eq!(key.created_by, maker.key.id.to_string());
    assert_eq!((key.scope, key.rate_limit), (Scope::Consumer, Some(20)));
    assert_eq!(
        (key.consumer.clone(), key.expires_at),
        (Some(acme()), expires_at)
    );
    let presented = created.secret.expose_secret();
    let known = api_key::authenticate(&store, presented).await.unwrap();
    assert_eq!(known, Some(key.clone()));
    assert_eq!(api_key::show(&store, key.id).await.unwrap(), key);

    let listing = Listing::default();
    let page = api_key::list(&store, &listing, 1).await.unwrap();
    assert_eq!(
        (page.items, page.next),
        (vec![maker.key.clone()], Some(maker.key.id))
    );
    let after = Listing {
        after: page.next,
        ..Listing::default()
    };
    let page = api_key::list(&store, &after, 1).await.unwrap();
    assert_eq!((page.items, page.next), (vec![key.clone()], None));
    let of_acme = Listing {
        consumer: Some(acme()),
        ..Listing::default()
    };
    let page = api_key::list(&store, &of_acme, 10).await.unwrap();
    assert_eq!(page.items, [key]);
}

#[tokio::test]
async fn a_key_for_nobody_or_nothing_is_refused() {
    let ledger = Ledger::new().await;
    let unknown = New {
        consumer: Some(acme()),
        ..new("portal", Scope::Publish)
    };
    let refused = api_key::create(&ledger.store, &unknown).await.unwrap_err();
    assert!(matches!(refused, Error::NotFound { .. }), "{refused}");
    let nobodys = new("portal", Scope::Consumer);
    let refused = api_key::create(&ledger.store, &nobodys).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    let id = ApiKeyId::for_test(1);
    for refused in [
        api_key::show(&ledger.store, id).await.unwrap_err(),
        api_key::revoke(&ledger.store, id).await.unwrap_err(),
    ] {
        assert!(
            refused.to_string().contains("hooklane api-key list"),
            "{refused}"
        );
    }
    let count = "SELECT count(*) FROM hooklane.api_keys";
    assert_eq!(ledger.sql(count).await, "0");
}

#[tokio::test]
async fn a_keys_use_is_written_down_once_a_minute() {
    let ledger = Ledger::new().await;
    let one = made(&ledger, &new("one", Scope::Admin)).await.key.id;
    let two = made(&ledger, &new("two", Scope::Admin)).await.key.id;
    let now = clock::now();
    let at = |seconds| now + TimeDelta::seconds(seconds);
    let used = async |uses: &[(ApiKeyId, DateTime<Utc>)]| {
        api_key::touch(&ledger.store, uses).await.unwrap();
        let of = async |id| api_key::show(&ledger.store, id).await.unwrap().last_used_at;
        (of(one).await, of(two).await)
    };
    let stranger = ApiKeyId::for_test(1);
    let first = used(&[(one, at(0)), (stranger, at(0)), (one, at(5))]).await;
    assert_eq!(first, (Some(at(5)), None));
    assert_eq!(
        used(&[(one, at(64)), (two, at(64))]).await,
        (Some(at(5)), Some(at(64)))
    );
    assert_eq!(
        used(&[(one, at(65)), (two, at(1))]).await,
        (Some(at(65)), Some(at(64)))
    );
    assert_eq!(used(&[]).await, (Some(at(65)), Some(at(64))));
}
