//! Endpoints as rows, and reading them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::rules::health::Hours;
use hooklane_core::rules::subscription::Filter;
use hooklane_proto::id::EndpointId;
use hooklane_proto::route::State;
use hooklane_proto::token::ConsumerId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Endpoint, Rate};
use crate::manage::{Error, Kind, Page};
use crate::{Error as Fault, Store};

/// One row, without what is sealed.
pub(super) struct Row {
    id: Uuid,
    consumer_id: String,
    url: String,
    description: String,
    filters: Vec<String>,
    rate: Option<i32>,
    burst: Option<i32>,
    concurrency: i32,
    timeout_ms: i32,
    has_headers: bool,
    state: String,
    auto_disable: Option<bool>,
    consecutive_failures: i32,
    failing_since: Option<DateTime<Utc>>,
    hour: Option<DateTime<Utc>>,
    hourly: Vec<i32>,
    now: DateTime<Utc>,
    held_until: Option<DateTime<Utc>>,
    version: i64,
    routed: bool,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl Row {
    pub(super) fn endpoint(self) -> Result<Endpoint, Fault> {
        let Self {
            id,
            consumer_id,
            url,
            description,
            filters,
            rate,
            burst,
            concurrency,
            timeout_ms,
            has_headers,
            state,
            auto_disable,
            consecutive_failures,
            failing_since,
            hour,
            hourly,
            now,
            held_until,
            version,
            routed,
            created_at,
            updated_at,
        } = self;
        Ok(Endpoint {
            id: EndpointId::from_uuid(id),
            consumer: ConsumerId::new(&consumer_id).map_err(unreadable)?,
            url,
            description,
            filter: Filter::parse(&filters).map_err(unreadable)?,
            rate: Rate::from_column(rate),
            burst: burst.map(u16::try_from).transpose().map_err(unreadable)?,
            concurrency: u16::try_from(concurrency).map_err(unreadable)?,
            timeout: Duration::from_millis(u64::try_from(timeout_ms).map_err(unreadable)?),
            has_headers,
            state: state_of(&state)?,
            auto_disable,
            consecutive_failures: u32::try_from(consecutive_failures).unwrap_or(0),
            failing_since,
            failures_24h: Hours::from_parts(hour, &hourly).total(now),
            held_until,
            version,
            routed,
            created_at,
            updated_at,
        })
    }
}

fn unreadable(problem: impl std::fmt::Display) -> Fault {
    Fault::unreadable("reading an endpoint")(problem)
}

pub(crate) fn state_of(text: &str) -> Result<State, Fault> {
    [
        State::Active,
        State::Failing,
        State::Paused,
        State::Disabled,
        State::Deleted,
    ]
    .into_iter()
    .find(|state| state.as_str() == text)
    .ok_or_else(|| unreadable(format_args!("`{text}` is no state")))
}

/// Endpoints with their health: those that the rest of the statement names.
macro_rules! rows {
    ($rest:literal, $($arg:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT e.id, consumer_id, url, description, filters, rate, burst, concurrency, timeout_ms,
                      headers IS NOT NULL AS "has_headers!", state::text AS "state!", auto_disable,
                      coalesce(h.consecutive_failures, 0) AS "consecutive_failures!",
                      h.failing_since AS "failing_since?", h.hour AS "hour?",
                      coalesce(h.hourly, '{}') AS "hourly!", clock_timestamp() AS "now!",
                      held_until, version, coalesce(routed_version = version, false) AS "routed!",
                      created_at, updated_at
                 FROM hooklane.endpoints e LEFT JOIN hooklane.endpoint_health h ON h.endpoint_id = e.id "#
                + $rest,
            $($arg),+
        )
    };
}

/// The endpoint, locked against other changes until the transaction ends.
pub(super) async fn lock(conn: &mut PgConnection, id: EndpointId) -> Result<Endpoint, Error> {
    let row = rows!("WHERE e.id = $1 FOR NO KEY UPDATE OF e", id.uuid())
        .fetch_optional(conn)
        .await
        .map_err(Fault::doing("reading an endpoint"))?;
    let row = row.ok_or_else(|| Error::not_found(Kind::Endpoint, id))?;
    Ok(row.endpoint()?)
}

/// The endpoint with this id, a deleted one too.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn show(store: &Store, id: EndpointId) -> Result<Endpoint, Error> {
    let row = rows!("WHERE e.id = $1", id.uuid())
        .fetch_optional(store.pool())
        .await
        .map_err(Fault::doing("reading an endpoint"))?;
    let row = row.ok_or_else(|| Error::not_found(Kind::Endpoint, id))?;
    Ok(row.endpoint()?)
}

/// Which endpoints to list.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Those of one consumer.
    pub consumer: Option<ConsumerId>,
    /// Those in one state. `None`: all but deleted ones.
    pub state: Option<State>,
    /// Those behind this one.
    pub after: Option<EndpointId>,
}

/// Endpoints in the order of their ids, which is that of their creation.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    listing: &Listing,
    limit: u32,
) -> Result<Page<Endpoint, EndpointId>, Error> {
    let rows = rows!(
        "WHERE ($1::text IS NULL OR consumer_id = $1)
           AND CASE WHEN $2::text IS NULL THEN state <> 'deleted' ELSE state::text = $2 END
           AND ($3::uuid IS NULL OR e.id > $3)
         ORDER BY e.id LIMIT $4",
        listing.consumer.as_ref().map(ConsumerId::as_str),
        listing.state.map(State::as_str),
        listing.after.map(EndpointId::uuid),
        i64::from(limit) + 1,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing endpoints"))?;
    let endpoints: Result<Vec<Endpoint>, Fault> = rows.into_iter().map(Row::endpoint).collect();
    Ok(Page::cut(endpoints?, limit, |endpoint| endpoint.id))
}

/// Which of these are not endpoints of this consumer; a deleted one still is.
///
/// # Errors
/// A fault of the database.
pub async fn not_of(
    store: &Store,
    consumer: &ConsumerId,
    endpoints: &[EndpointId],
) -> Result<Vec<EndpointId>, Error> {
    let ids: Vec<Uuid> = endpoints.iter().map(|id| id.uuid()).collect();
    let foreign = sqlx::query_scalar!(
        r#"SELECT named.id AS "id!" FROM unnest($1::uuid[]) AS named (id)
            WHERE NOT EXISTS (SELECT FROM hooklane.endpoints e
                               WHERE e.id = named.id AND e.consumer_id = $2)"#,
        &ids,
        consumer.as_str(),
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("looking for endpoints"))?;
    Ok(foreign.into_iter().map(EndpointId::from_uuid).collect())
}

/// Where a failing endpoint stands among all: since when it fails, where that is known, and its id.
pub type Failing = (Option<DateTime<Utc>>, EndpointId);

/// The endpoints that are failing, of one consumer or of all, the longest first; `limit` of them,
/// behind `after`.
///
/// # Errors
/// A fault of the database.
pub async fn failing(
    store: &Store,
    consumer: Option<&ConsumerId>,
    after: Option<Failing>,
    limit: u32,
) -> Result<Page<Endpoint, Failing>, Error> {
    let rows = rows!(
        "WHERE e.state = 'failing' AND ($1::text IS NULL OR consumer_id = $1)
           AND ($3::uuid IS NULL OR (coalesce(h.failing_since, 'infinity'), e.id)
                                    > (coalesce($2::timestamptz, 'infinity'), $3))
         ORDER BY coalesce(h.failing_since, 'infinity'), e.id LIMIT $4",
        consumer.map(ConsumerId::as_str),
        after.and_then(|(since, _)| since),
        after.map(|(_, id)| id.uuid()),
        i64::from(limit) + 1,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing failing endpoints"))?;
    let endpoints: Result<Vec<Endpoint>, Fault> = rows.into_iter().map(Row::endpoint).collect();
    Ok(Page::cut(endpoints?, limit, |endpoint| {
        (endpoint.failing_since, endpoint.id)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_back() {
        for state in [
            State::Active,
            State::Failing,
            State::Paused,
            State::Disabled,
            State::Deleted,
        ] {
            assert_eq!(state_of(state.as_str()).unwrap(), state);
        }
        assert!(state_of("asleep").is_err());
    }
}
