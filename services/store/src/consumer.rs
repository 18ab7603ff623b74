//! The adopter's customers.
//!
//! Owns adding, reading and rating them. A consumer is never removed: its messages and deleted
//! endpoints refer to it.

use chrono::{DateTime, Utc};
use hooklane_proto::token::ConsumerId;

use crate::manage::{Error, Kind, Page};
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
    /// Its endpoints that are not deleted.
    pub endpoints: u64,
}

struct Row {
    id: String,
    name: String,
    default_rate: Option<i32>,
    created_at: DateTime<Utc>,
    endpoints: i64,
}

impl Row {
    fn consumer(self) -> Result<Consumer, Fault> {
        let Self {
            id,
            name,
            default_rate,
            created_at,
            endpoints,
        } = self;
        Ok(Consumer {
            id: ConsumerId::new(&id).map_err(Fault::unreadable("reading a consumer"))?,
            name,
            default_rate: default_rate.and_then(|rate| u16::try_from(rate).ok()),
            created_at,
            endpoints: u64::try_from(endpoints).unwrap_or(0),
        })
    }
}

fn check_rate(rate: Option<u16>) -> Result<Option<i32>, Error> {
    match rate {
        Some(rate) if !(1..=1000).contains(&rate) => Err(Error::Invalid(format!(
            "a default rate of {rate} a second is out of range; give 1 to 1000"
        ))),
        rate => Ok(rate.map(i32::from)),
    }
}

/// Adds a consumer.
///
/// # Errors
/// [`Error::Exists`], [`Error::Invalid`] for its name or rate, or a fault of the database.
pub async fn add(
    store: &Store,
    id: &ConsumerId,
    name: &str,
    default_rate: Option<u16>,
) -> Result<Consumer, Error> {
    if name.chars().count() > MAX_NAME || name.contains('\0') {
        return Err(Error::Invalid(format!(
            "the name is too long or not text; give at most {MAX_NAME} characters"
        )));
    }
    let default_rate = check_rate(default_rate)?;
    let added = sqlx::query_as!(
        Row,
        r#"INSERT INTO hooklane.consumers (id, name, default_rate) VALUES ($1, $2, $3)
           ON CONFLICT (id) DO NOTHING
           RETURNING id, name, default_rate, created_at, 0::bigint AS "endpoints!""#,
        id.as_str(),
        name,
        default_rate,
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing("adding a consumer"))?;
    match added {
        Some(row) => Ok(row.consumer()?),
        None => Err(Error::Exists {
            kind: Kind::Consumer,
            id: id.to_string(),
        }),
    }
}

/// The consumer with this id.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn show(store: &Store, id: &ConsumerId) -> Result<Consumer, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, name, default_rate, created_at,
                  (SELECT count(*) FROM hooklane.endpoints e
                    WHERE e.consumer_id = c.id AND e.state <> 'deleted') AS "endpoints!"
             FROM hooklane.consumers c WHERE id = $1"#,
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
        r#"SELECT id, name, default_rate, created_at,
                  (SELECT count(*) FROM hooklane.endpoints e
                    WHERE e.consumer_id = c.id AND e.state <> 'deleted') AS "endpoints!"
             FROM hooklane.consumers c WHERE id > $1 ORDER BY id LIMIT $2"#,
        after.map_or("", ConsumerId::as_str),
        i64::from(limit) + 1,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing consumers"))?;
    let consumers: Result<Vec<Consumer>, Fault> = rows.into_iter().map(Row::consumer).collect();
    Ok(Page::cut(consumers?, limit, |consumer| consumer.id.clone()))
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
    let rate = check_rate(rate)?;
    let fault = || Fault::doing("setting a consumer's rate");
    let mut tx = store.pool().begin().await.map_err(fault())?;
    let changed = sqlx::query!(
        "UPDATE hooklane.consumers SET default_rate = $2 WHERE id = $1",
        id.as_str(),
        rate,
    )
    .execute(&mut *tx)
    .await
    .map_err(fault())?;
    if changed.rows_affected() == 0 {
        return Err(Error::not_found(Kind::Consumer, id));
    }
    // A statement of its own: it sees the endpoints that were being added while the one above
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
    tx.commit().await.map_err(fault())?;
    show(store, id).await
}
