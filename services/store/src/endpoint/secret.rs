//! Signing secrets: making new ones, and showing them to their owner.
//!
//! While a secret is being replaced, the old one signs along for a grace time, so that a receiver
//! can take the new one when it likes.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::rules::signing::{MAX_KEYS, Secret};
use hooklane_core::secrets::{self, MasterKeys, generate_signing_secret};
use hooklane_proto::id::EndpointId;
use hooklane_proto::route::State;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{read, seal_secret};
use crate::audit_log::{self, Action, Change};
use crate::manage::{Error, Kind};
use crate::{Error as Fault, Store};

/// The longest that an old secret may sign along: 30 days.
pub const MAX_GRACE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The outcome of a rotation.
#[derive(Debug)]
pub struct Rotated {
    /// The new secret, to be shown once.
    pub secret: Secret,
    /// Until when the one before signs along; `None` where it stopped at once.
    pub old_until: Option<DateTime<Utc>>,
}

/// A secret that signs at present.
#[derive(Debug)]
pub struct Standing {
    /// The secret.
    pub secret: Secret,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it stops signing; `None` for the current one.
    pub expires_at: Option<DateTime<Utc>>,
}

/// Gives an endpoint a new secret. The old one signs along for `grace`, up to [`MAX_GRACE`]; zero
/// ends it at once, for a secret that leaked.
///
/// # Errors
/// [`Error::Invalid`] where `grace` is longer, [`Error::NotFound`], [`Error::Conflict`] where it is
/// deleted, [`Error::Limit`] where too many old ones still sign along, or a fault of the database.
pub async fn rotate(
    store: &Store,
    id: EndpointId,
    new: Option<Secret>,
    grace: Duration,
    keys: &MasterKeys,
) -> Result<Rotated, Error> {
    let doing = "rotating an endpoint's secret";
    if grace > MAX_GRACE {
        return Err(Error::Invalid(
            "an old secret can sign along for 30 days at the most".to_owned(),
        ));
    }
    let secret = new.unwrap_or_else(generate_signing_secret);
    let sealed = seal_secret(&secret, id, keys)?;
    let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX / 1000);
    let mut tx = store.pool().begin().await.map_err(Fault::doing(doing))?;
    let endpoint = read::lock(&mut tx, id).await?;
    if endpoint.state == State::Deleted {
        return Err(Error::Conflict(format!(
            "the endpoint `{id}` is deleted; add a new one"
        )));
    }
    // Zero ends the ones before it, too: whoever leaks one may have leaked them all.
    sqlx::query!(
        "DELETE FROM hooklane.endpoint_secrets
          WHERE endpoint_id = $1 AND (expires_at <= clock_timestamp() OR $2)",
        id.uuid(),
        grace.is_zero(),
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    let old_until = sqlx::query_scalar!(
        r#"UPDATE hooklane.endpoint_secrets
              SET expires_at = clock_timestamp() + $2 * interval '1 millisecond'
            WHERE endpoint_id = $1 AND expires_at IS NULL
        RETURNING expires_at AS "expires_at!""#,
        id.uuid(),
        grace_ms as f64,
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    let standing = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM hooklane.endpoint_secrets WHERE endpoint_id = $1"#,
        id.uuid(),
    )
    .fetch_one(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    if usize::try_from(standing).unwrap_or(usize::MAX) >= MAX_KEYS {
        return Err(Error::Limit(format!(
            "{standing} secrets sign for the endpoint `{id}`, and at most {MAX_KEYS} can at once; \
             wait until one expires, or end them all with: hooklane endpoint rotate {id} --grace 0s"
        )));
    }
    sqlx::query!(
        "INSERT INTO hooklane.endpoint_secrets (endpoint_id, sealed) VALUES ($1, $2)",
        id.uuid(),
        sealed,
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    sqlx::query!(
        "UPDATE hooklane.endpoints
            SET version = nextval('hooklane.endpoint_version'), updated_at = clock_timestamp()
          WHERE id = $1",
        id.uuid(),
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    let consumer = Some(endpoint.consumer.as_str());
    let change = Change::of(Action::EndpointRotateSecret, consumer, id);
    let change = change.with(json!({ "grace_s": grace.as_secs() }));
    audit_log::note(&mut tx, store, change).await?;
    tx.commit().await.map_err(Fault::doing(doing))?;
    Ok(Rotated { secret, old_until })
}

/// The secrets that sign for an endpoint at present, the newest first. That somebody was shown them
/// goes into the audit log.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Conflict`] where it is deleted, [`Error::Secrets`] where one does
/// not open, or a fault of the database.
pub async fn reveal(
    store: &Store,
    id: EndpointId,
    keys: &MasterKeys,
) -> Result<Vec<Standing>, Error> {
    let doing = "reading an endpoint's secrets";
    let mut tx = store.pool().begin().await.map_err(Fault::doing(doing))?;
    let endpoint = sqlx::query!(
        r#"SELECT consumer_id, state::text AS "state!" FROM hooklane.endpoints WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    let endpoint = endpoint.ok_or_else(|| Error::not_found(Kind::Endpoint, id))?;
    if endpoint.state == State::Deleted.as_str() {
        return Err(Error::Conflict(format!(
            "the endpoint `{id}` is deleted, and its secrets with it"
        )));
    }
    let rows = sqlx::query!(
        "SELECT sealed, created_at, expires_at FROM hooklane.endpoint_secrets
          WHERE endpoint_id = $1 AND (expires_at IS NULL OR expires_at > clock_timestamp())
          ORDER BY expires_at DESC NULLS FIRST, created_at DESC",
        id.uuid(),
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    let consumer = Some(endpoint.consumer_id.as_str());
    let change = Change::of(Action::EndpointRevealSecret, consumer, id);
    audit_log::note(&mut tx, store, change).await?;
    tx.commit().await.map_err(Fault::doing(doing))?;
    let aad = id.to_string();
    rows.into_iter()
        .map(|row| {
            let opened = keys.decrypt(&row.sealed, aad.as_bytes())?;
            let secret = std::str::from_utf8(opened.expose_secret())
                .ok()
                .and_then(|text| Secret::parse(text).ok())
                .ok_or(secrets::Error::Malformed("it holds no signing secret"))?;
            Ok(Standing {
                secret,
                created_at: row.created_at,
                expires_at: row.expires_at,
            })
        })
        .collect()
}
