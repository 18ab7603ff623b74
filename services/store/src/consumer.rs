//! The adopter's customers.
//!
//! Owns adding, reading, changing and deleting them.
//!
//! A deleted consumer's row stays, since its messages and deleted endpoints refer to it; whoever reads
//! consumers passes it over, so that it is nobody to everybody. It is deleted only once its endpoints
//! are. Whoever adds an endpoint or makes a key holds the consumer's row, so neither comes to one that
//! is deleted. Acceptance holds no row: that a delivery is made takes an endpoint that is not deleted
//! when the endpoints are read, and when the last one was deleted the consumer still was there. So no
//! delivery is accepted after its consumer was deleted.

use chrono::{DateTime, Utc};
use hooklane_proto::id::ApiKeyId;
use hooklane_proto::token::ConsumerId;
use serde_json::json;
use sqlx::PgConnection;

use crate::audit_log::{self, Action, Change};
use crate::manage::{Error, Kind, Page};
use crate::operational;
use crate::{Error as Fault, Store};

/// Longest name, in characters.
const MAX_NAME: usize = 200;

/// One of the adopter's customers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// The adopter's own id.
    pub id: ConsumerId,
    /// For people.
    pub name: String,
    /// Attempts a second to each endpoint that has no rate of its own, 1 to 1,000; `None` takes
    /// the deployment's.
    pub default_rate: Option<u16>,
    /// When it was added.
    pub created_at: DateTime<Utc>,
    /// Grows with every change of the above.
    pub version: i64,
    /// Its endpoints that are not deleted.
    pub endpoints: u64,
}

struct Row {
    id: String,
    name: String,
    default_rate: Option<i32>,
    created_at: DateTime<Utc>,
    version: i64,
    endpoints: i64,
}

impl Row {
    fn consumer(self) -> Result<Consumer, Fault> {
        let Self {
            id,
            name,
            default_rate,
            created_at,
            version,
            endpoints,
        } = self;
        Ok(Consumer {
            id: ConsumerId::new(&id).map_err(Fault::unreadable("reading a consumer"))?,
            name,
            default_rate: default_rate.and_then(|rate| u16::try_from(rate).ok()),
            created_at,
            version,
            endpoints: u64::try_from(endpoints).unwrap_or(0),
        })
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    if name.chars().count() > MAX_NAME || name.contains('\0') {
        return Err(Error::Invalid(format!(
            "the name is too long or not text; give at most {MAX_NAME} characters"
        )));
    }
    Ok(())
}

fn check_rate(rate: Option<u16>) -> Result<Option<i32>, Error> {
    match rate {
        Some(rate) if !(1..=1000).contains(&rate) => Err(Error::Invalid(format!(
            "a default rate of {rate} a second is out of range; give 1 to 1000"
        ))),
        rate => Ok(rate.map(i32::from)),
    }
}

/// Adds a consumer. One that was deleted comes back with its id, its messages and the idempotency keys
/// that are still kept, and without its endpoints, keys and settings.
///
/// # Errors
/// [`Error::Exists`], [`Error::Invalid`] for its name or rate, or a fault of the database.
pub async fn add(
    store: &Store,
    id: &ConsumerId,
    name: &str,
    default_rate: Option<u16>,
) -> Result<Consumer, Error> {
    check_name(name)?;
    let fault = || Fault::doing("adding a consumer");
    let default_rate = check_rate(default_rate)?;
    let mut tx = store.pool().begin().await.map_err(fault())?;
    let added = sqlx::query_as!(
        Row,
        r#"INSERT INTO hooklane.consumers AS c (id, name, default_rate) VALUES ($1, $2, $3)
           ON CONFLICT (id) DO UPDATE
              SET name = excluded.name, default_rate = excluded.default_rate,
                  created_at = excluded.created_at, version = c.version + 1, deleted_at = NULL
            WHERE c.deleted_at IS NOT NULL
           RETURNING id, name, default_rate, created_at, version, 0::bigint AS "endpoints!""#,
        id.as_str(),
        name,
        default_rate,
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(fault())?;
    let Some(row) = added else {
        return Err(Error::Exists {
            kind: Kind::Consumer,
            id: id.to_string(),
        });
    };
    let change = Change::of(Action::ConsumerCreate, Some(id.as_str()), id);
    audit_log::note(&mut tx, store, change).await?;
    tx.commit().await.map_err(fault())?;
    Ok(row.consumer()?)
}

/// The consumer with this id.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn show(store: &Store, id: &ConsumerId) -> Result<Consumer, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, name, default_rate, created_at, version,
                  (SELECT count(*) FROM hooklane.endpoints e
                    WHERE e.consumer_id = c.id AND e.state <> 'deleted') AS "endpoints!"
             FROM hooklane.consumers c WHERE id = $1 AND deleted_at IS NULL"#,
        id.as_str(),
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing("reading a consumer"))?;
    let row = row.ok_or_else(|| Error::not_found(Kind::Consumer, id))?;
    Ok(row.consumer()?)
}

/// Consumers in the order of their ids, `limit` of them, behind `after`.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    after: Option<&ConsumerId>,
    limit: u32,
) -> Result<Page<Consumer, ConsumerId>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, name, default_rate, created_at, version,
                  (SELECT count(*) FROM hooklane.endpoints e
                    WHERE e.consumer_id = c.id AND e.state <> 'deleted') AS "endpoints!"
             FROM hooklane.consumers c WHERE id > $1 AND deleted_at IS NULL ORDER BY id LIMIT $2"#,
        after.map_or("", ConsumerId::as_str),
        i64::from(limit) + 1,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing consumers"))?;
    let consumers: Result<Vec<Consumer>, Fault> = rows.into_iter().map(Row::consumer).collect();
    Ok(Page::cut(consumers?, limit, |consumer| consumer.id.clone()))
}

/// What to change; `None` leaves it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// For people, at most 200 characters.
    pub name: Option<String>,
    /// Attempts a second to each endpoint that has no rate of its own, 1 to 1,000; `Some(None)` takes
    /// the deployment's.
    pub default_rate: Option<Option<u16>>,
}

impl Changes {
    /// The names of the settings that are changed.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let Self { name, default_rate } = self;
        audit_log::named([
            ("name", name.is_some()),
            ("default_rate", default_rate.is_some()),
        ])
    }
}

/// Sets the rate of the consumer's endpoints that have none of their own, and tells the lanes.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Invalid`] outside 1 to 1,000, or a fault of the database.
pub async fn set_rate(
    store: &Store,
    id: &ConsumerId,
    rate: Option<u16>,
) -> Result<Consumer, Error> {
    let changes = Changes {
        default_rate: Some(rate),
        ..Changes::default()
    };
    update(store, id, &changes, None).await
}

/// Changes a consumer that is at the version `expected`, or at any, and tells the lanes where its
/// default rate is named. Without a change, its version stays.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Stale`], [`Error::Invalid`] for its name or rate, or a fault of the
/// database.
pub async fn update(
    store: &Store,
    id: &ConsumerId,
    changes: &Changes,
    expected: Option<i64>,
) -> Result<Consumer, Error> {
    if let Some(name) = &changes.name {
        check_name(name)?;
    }
    let rate = changes.default_rate.map(check_rate).transpose()?;
    let fault = || Fault::doing("changing a consumer");
    let mut tx = store.pool().begin().await.map_err(fault())?;
    lock(&mut tx, id, expected).await?;
    let names = changes.names();
    if !names.is_empty() {
        sqlx::query!(
            "UPDATE hooklane.consumers
                SET name = coalesce($2, name),
                    default_rate = CASE WHEN $3 THEN $4 ELSE default_rate END,
                    version = version + 1
              WHERE id = $1",
            id.as_str(),
            changes.name.as_deref(),
            rate.is_some(),
            rate.flatten(),
        )
        .execute(&mut *tx)
        .await
        .map_err(fault())?;
    }
    if rate.is_some() {
        // A statement of its own: it sees the endpoints that were being added while the ones above
        // waited for the consumer's row. Whoever reads routes waits for that row as well, so an
        // endpoint that even this does not see is published with the new rate.
        sqlx::query!(
            "UPDATE hooklane.endpoints
                SET version = nextval('hooklane.endpoint_version'), updated_at = clock_timestamp()
              WHERE consumer_id = $1 AND rate IS NULL AND state <> 'deleted'",
            id.as_str(),
        )
        .execute(&mut *tx)
        .await
        .map_err(fault())?;
    }
    if !names.is_empty() {
        let change = Change::of(Action::ConsumerUpdate, Some(id.as_str()), id);
        let change = change.with(json!({ "changed": names }));
        audit_log::note(&mut tx, store, change).await?;
    }
    tx.commit().await.map_err(fault())?;
    show(store, id).await
}

/// A consumer that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// Its id.
    pub id: ConsumerId,
    /// The keys good for this consumer alone that are revoked with it.
    pub revoked: Vec<ApiKeyId>,
}

/// Deletes a consumer that is at the version `expected`, or at any, and that has no endpoints any more,
/// and revokes its own keys. What was accepted for it stays until its retention is over; from now on
/// nothing more is.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Stale`], [`Error::Conflict`] where it has endpoints or is built in, or
/// a fault of the database.
pub async fn delete(
    store: &Store,
    id: &ConsumerId,
    expected: Option<i64>,
) -> Result<Deleted, Error> {
    if id.as_str() == operational::CONSUMER {
        return Err(Error::Conflict(format!(
            "the consumer `{id}` is built in, and can't be deleted; delete its endpoints, and nobody \
             is told of operational events"
        )));
    }
    let fault = || Fault::doing("deleting a consumer");
    let mut tx = store.pool().begin().await.map_err(fault())?;
    lock(&mut tx, id, expected).await?;
    let endpoints = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM hooklane.endpoints
            WHERE consumer_id = $1 AND state <> 'deleted'"#,
        id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await
    .map_err(fault())?;
    if endpoints > 0 {
        let noun = if endpoints == 1 {
            "endpoint"
        } else {
            "endpoints"
        };
        return Err(Error::Conflict(format!(
            "the consumer `{id}` has {endpoints} {noun}, which would get nothing any more; delete \
             them first"
        )));
    }
    sqlx::query!(
        "UPDATE hooklane.consumers SET deleted_at = clock_timestamp(), version = version + 1
          WHERE id = $1",
        id.as_str(),
    )
    .execute(&mut *tx)
    .await
    .map_err(fault())?;
    // In the order of ids, as those who note the use of keys do.
    let revoked = sqlx::query_scalar!(
        "WITH own AS MATERIALIZED (
             SELECT id FROM hooklane.api_keys WHERE consumer_id = $1 AND revoked_at IS NULL
              ORDER BY id FOR NO KEY UPDATE)
         UPDATE hooklane.api_keys k SET revoked_at = clock_timestamp() FROM own
          WHERE k.id = own.id RETURNING k.id",
        id.as_str(),
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(fault())?;
    let revoked: Vec<ApiKeyId> = revoked.into_iter().map(ApiKeyId::from_uuid).collect();
    for key in &revoked {
        let change = Change::of(Action::ApiKeyRevoke, Some(id.as_str()), key);
        audit_log::note(&mut tx, store, change).await?;
    }
    let change = Change::of(Action::ConsumerDelete, Some(id.as_str()), id);
    let change = change.with(json!({ "revoked_keys": revoked.len() }));
    audit_log::note(&mut tx, store, change).await?;
    tx.commit().await.map_err(fault())?;
    Ok(Deleted {
        id: id.clone(),
        revoked,
    })
}

/// Holds a consumer's row until the transaction ends, where it is at the version `expected`, or at any.
async fn lock(
    conn: &mut PgConnection,
    id: &ConsumerId,
    expected: Option<i64>,
) -> Result<(), Error> {
    let version = sqlx::query_scalar!(
        "SELECT version FROM hooklane.consumers WHERE id = $1 AND deleted_at IS NULL
            FOR NO KEY UPDATE",
        id.as_str(),
    )
    .fetch_optional(conn)
    .await
    .map_err(Fault::doing("reading a consumer"))?;
    let version = version.ok_or_else(|| Error::not_found(Kind::Consumer, id))?;
    Error::unless_current(Kind::Consumer, id, version, expected)
}
