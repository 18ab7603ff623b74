//! Making and revoking keys, and noting their use.

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_core::secrets::generate_api_key;
use hooklane_proto::id::ApiKeyId;
use hooklane_proto::token::ConsumerId;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use uuid::Uuid;

use super::{ApiKey, Scope, digest, keys, show};
use crate::audit_log::{self, Action, Change};
use crate::manage::{Error, Kind};
use crate::{Error as Fault, Store};

/// Longest name, in characters.
pub const MAX_NAME: usize = 100;
/// The longest that a key may be good for: ten years.
pub const MAX_LIFETIME: TimeDelta = TimeDelta::days(3653);
/// Characters of a key's end that people know it by.
const HINT: usize = 4;

/// What a new key says.
#[derive(Debug, Clone)]
pub struct New {
    /// For people, 1 to 100 characters.
    pub name: String,
    /// What it is good for.
    pub scope: Scope,
    /// The one consumer that it is good for: has to be named with [`Scope::Consumer`], may be with
    /// [`Scope::Publish`].
    pub consumer: Option<ConsumerId>,
    /// When it expires, ten years from now at the most; `None` is never.
    pub expires_at: Option<DateTime<Utc>>,
    /// Requests a second, 1 to 10,000; `None` takes the deployment's.
    pub rate_limit: Option<u16>,
}

impl New {
    fn check(&self, now: DateTime<Utc>) -> Result<(), Error> {
        let invalid = |text: &str| Err(Error::Invalid(text.to_owned()));
        let name = &self.name;
        if name.trim().is_empty()
            || name.chars().count() > MAX_NAME
            || name.chars().any(char::is_control)
        {
            return invalid("a key's name is 1 to 100 characters without control characters");
        }
        match (self.scope, &self.consumer) {
            (Scope::Consumer, None) => {
                return invalid("a key with the scope consumer is one consumer's: name it");
            }
            (Scope::Read | Scope::Admin, Some(_)) => {
                return invalid(
                    "a key with the scope read or admin is good for every consumer; name none, or \
                     give it the scope consumer",
                );
            }
            _ => {}
        }
        if self.expires_at.is_some_and(|at| at <= now) {
            return invalid("a key can't have expired already; name a time in the future");
        }
        if self.expires_at.is_some_and(|at| at - now > MAX_LIFETIME) {
            return invalid("a key may be good for ten years at the most");
        }
        if self
            .rate_limit
            .is_some_and(|rate| !(1..=10_000).contains(&rate))
        {
            return invalid("a key's rate limit is 1 to 10000 requests a second");
        }
        Ok(())
    }
}

/// A key that was made.
#[derive(Debug)]
pub struct Created {
    /// The key.
    pub key: ApiKey,
    /// Its text, to be told once.
    pub secret: SecretString,
}

/// Makes a key.
///
/// # Errors
/// [`Error::Invalid`] for its name, times, rate limit, or a consumer that does not go with its scope,
/// [`Error::NotFound`] for the consumer, or a fault of the database.
pub async fn create(store: &Store, new: &New) -> Result<Created, Error> {
    new.check(clock::now())?;
    let doing = "making an API key";
    let secret = generate_api_key();
    let text = secret.expose_secret();
    let hint = text.get(text.len() - HINT..).unwrap_or_default();
    let id = ApiKeyId::generate();
    let by = store.by().map(|by| by.actor.id());
    let digest = digest(text);
    let mut tx = store.pool().begin().await.map_err(Fault::doing(doing))?;
    if let Some(consumer) = &new.consumer {
        let known = sqlx::query_scalar!(
            // Held, so that it is not deleted meanwhile and its keys with it, all but this one.
            "SELECT id FROM hooklane.consumers WHERE id = $1 AND deleted_at IS NULL FOR SHARE",
            consumer.as_str()
        )
        .fetch_optional(&mut *tx)
        .await
        .map_err(Fault::doing(doing))?;
        if known.is_none() {
            return Err(Error::not_found(Kind::Consumer, consumer));
        }
    }
    sqlx::query!(
        "INSERT INTO hooklane.api_keys
             (id, name, scope, consumer_id, digest, hint, rate_limit, created_by, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        id.uuid(),
        new.name,
        new.scope.as_str(),
        new.consumer.as_ref().map(ConsumerId::as_str),
        digest.as_slice(),
        hint,
        new.rate_limit.map(i32::from),
        by.as_deref().unwrap_or("hooklane"),
        new.expires_at,
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    let consumer = new.consumer.as_ref().map(ConsumerId::as_str);
    let detail =
        json!({ "name": new.name, "scope": new.scope.as_str(), "expires_at": new.expires_at });
    let change = Change::of(Action::ApiKeyCreate, consumer, id).with(detail);
    audit_log::note(&mut tx, store, change).await?;
    let row = keys!("WHERE id = $1", id.uuid())
        .fetch_one(&mut *tx)
        .await
        .map_err(Fault::doing(doing))?;
    tx.commit().await.map_err(Fault::doing(doing))?;
    Ok(Created {
        key: row.key()?,
        secret,
    })
}

/// Revokes a key for good. One that is revoked already stays as it is, which is no fault, so that
/// this can be repeated after an answer was lost.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn revoke(store: &Store, id: ApiKeyId) -> Result<ApiKey, Error> {
    let doing = "revoking an API key";
    let mut tx = store.pool().begin().await.map_err(Fault::doing(doing))?;
    let revoked = sqlx::query!(
        "UPDATE hooklane.api_keys SET revoked_at = clock_timestamp()
          WHERE id = $1 AND revoked_at IS NULL RETURNING consumer_id",
        id.uuid(),
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    if let Some(row) = revoked {
        let change = Change::of(Action::ApiKeyRevoke, row.consumer_id.as_deref(), id);
        audit_log::note(&mut tx, store, change).await?;
    }
    tx.commit().await.map_err(Fault::doing(doing))?;
    show(store, id).await
}

/// Notes when keys were used. A key's row is written at most once a minute, however often this is
/// called; a key may stand here more than once, and one that is not there is left out.
///
/// # Errors
/// A fault of the database.
pub async fn touch(store: &Store, uses: &[(ApiKeyId, DateTime<Utc>)]) -> Result<(), Fault> {
    if uses.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = uses.iter().map(|(id, _)| id.uuid()).collect();
    let times: Vec<DateTime<Utc>> = uses.iter().map(|(_, at)| *at).collect();
    // Everybody locks in the order of ids, so nobody waits in a circle.
    sqlx::query!(
        "WITH used AS MATERIALIZED (
             SELECT id, max(at) AS at FROM unnest($1::uuid[], $2::timestamptz[]) AS u (id, at)
              GROUP BY id),
         stale AS MATERIALIZED (
             SELECT k.id, u.at FROM used u JOIN hooklane.api_keys k ON k.id = u.id
              WHERE k.last_used_at IS NULL OR k.last_used_at <= u.at - interval '1 minute'
              ORDER BY k.id FOR NO KEY UPDATE OF k)
         UPDATE hooklane.api_keys k SET last_used_at = greatest(k.last_used_at, s.at)
           FROM stale s WHERE k.id = s.id",
        &ids,
        &times,
    )
    .execute(store.pool())
    .await
    .map_err(Fault::doing("noting the use of API keys"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> New {
        New {
            name: "billing".to_owned(),
            scope: Scope::Publish,
            consumer: None,
            expires_at: None,
            rate_limit: None,
        }
    }

    fn acme() -> Option<ConsumerId> {
        Some(ConsumerId::new("acme").unwrap())
    }

    #[test]
    fn a_consumer_goes_with_the_scopes_that_are_about_one() {
        let of = |scope, consumer| {
            let key = New {
                scope,
                consumer,
                ..new()
            };
            key.check(clock::now()).is_ok()
        };
        assert!(of(Scope::Consumer, acme()) && !of(Scope::Consumer, None));
        assert!(of(Scope::Publish, acme()) && of(Scope::Publish, None));
        for scope in [Scope::Read, Scope::Admin] {
            assert!(!of(scope, acme()) && of(scope, None), "{scope}");
        }
    }

    #[test]
    fn names_times_and_rates_have_their_bounds() {
        let now = clock::now();
        let checked = |key: New| key.check(now).is_ok();
        for (name, good) in [
            ("x", true),
            (&"é".repeat(100), true),
            (&"x".repeat(101), false),
            ("", false),
            ("  ", false),
            ("a\nb", false),
            ("a\0b", false),
        ] {
            let name = name.to_owned();
            assert_eq!(checked(New { name, ..new() }), good);
        }
        for (from_now, good) in [
            (TimeDelta::seconds(1), true),
            (MAX_LIFETIME, true),
            (TimeDelta::zero(), false),
            (TimeDelta::seconds(-1), false),
            (MAX_LIFETIME + TimeDelta::seconds(1), false),
        ] {
            let expires_at = Some(now + from_now);
            assert_eq!(
                checked(New {
                    expires_at,
                    ..new()
                }),
                good,
                "{from_now}"
            );
        }
        let far = Some(DateTime::<Utc>::MAX_UTC);
        assert!(!checked(New {
            expires_at: far,
            ..new()
        }));
        for (rate, good) in [(1, true), (10_000, true), (0, false), (10_001, false)] {
            let rate_limit = Some(rate);
            assert_eq!(
                checked(New {
                    rate_limit,
                    ..new()
                }),
                good,
                "{rate}"
            );
        }
    }
}
