//! Endpoint settings on their way to the dispatchers' bucket.
//!
//! Owns which endpoints' settings are not published yet, and what a route says. Does not own the
//! bucket: the relay puts routes there and reports back. A version that is published twice is
//! harmless, one that is published never is not, so a row is marked only afterwards, and only if
//! it still has that version.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use hooklane_proto::id::EndpointId;
use hooklane_proto::route::{Route, State};
use hooklane_proto::token::ConsumerId;
use uuid::Uuid;

use crate::{Error, Store};

impl Store {
    /// Routes that are not published, oldest change first, at most `limit`. `default_rate` is for
    /// endpoints without a rate whose consumer has none either; 0 is no limit. Waits while a
    /// consumer's rate is being set: a route with the old one could be the last that is published.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn unrouted(&self, default_rate: u32, limit: i64) -> Result<Vec<Route>, Error> {
        let rows = sqlx::query!(
            r#"SELECT e.id, e.consumer_id, e.version, e.state::text AS "state!", e.url,
                      coalesce(e.rate, c.default_rate, $1) AS "rate!", e.burst, e.concurrency,
                      e.timeout_ms, e.headers, e.held_until,
                      ARRAY(SELECT s.sealed FROM hooklane.endpoint_secrets s
                            WHERE s.endpoint_id = e.id
                              AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
                            ORDER BY s.expires_at IS NULL DESC, s.created_at DESC) AS "secrets!"
               FROM hooklane.endpoints e JOIN hooklane.consumers c ON c.id = e.consumer_id
               WHERE e.routed_version IS DISTINCT FROM e.version
               ORDER BY e.version LIMIT $2
               FOR SHARE OF c"#,
            i32::try_from(default_rate).unwrap_or(i32::MAX),
            limit,
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::doing("reading unpublished routes"))?;
        rows.into_iter()
            .map(|row| {
                let endpoint = EndpointId::from_uuid(row.id);
                let unreadable = |problem: String| Error::Unreadable {
                    doing: "reading unpublished routes",
                    problem: format!("endpoint {endpoint}: {problem}"),
                };
                let rate = unsigned(row.rate);
                Ok(Route {
                    endpoint,
                    consumer: ConsumerId::new(&row.consumer_id)
                        .map_err(|error| unreadable(error.to_string()))?,
                    version: row.version,
                    state: state(&row.state)
                        .ok_or_else(|| unreadable(format!("state `{}`", row.state)))?,
                    url: row.url,
                    rate: (rate > 0).then_some(rate),
                    burst: row.burst.map_or(rate, unsigned).max(1),
                    concurrency: unsigned(row.concurrency),
                    timeout_ms: unsigned(row.timeout_ms),
                    secrets: row.secrets.iter().map(|s| STANDARD.encode(s)).collect(),
                    headers: row.headers.map(|sealed| STANDARD.encode(sealed)),
                    held_until: row.held_until,
                })
            })
            .collect()
    }

    /// Notes that these versions are published. An endpoint that changed meanwhile stays unpublished.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn mark_routed(&self, published: &[(EndpointId, i64)]) -> Result<(), Error> {
        let ids: Vec<Uuid> = published.iter().map(|(id, _)| id.uuid()).collect();
        let versions: Vec<i64> = published.iter().map(|(_, version)| *version).collect();
        sqlx::query!(
            "UPDATE hooklane.endpoints e SET routed_version = p.version
             FROM unnest($1::uuid[], $2::bigint[]) AS p (id, version)
             WHERE e.id = p.id AND e.version = p.version",
            &ids,
            &versions,
        )
        .execute(self.pool())
        .await
        .map_err(Error::doing("marking routes as published"))?;
        Ok(())
    }

    /// Takes note of the bucket in use, by when it was made. Where that is another one than the
    /// published versions speak of, everything counts as unpublished; answers whether it is.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn adopt_route_bucket(&self, created: DateTime<Utc>) -> Result<bool, Error> {
        let anew = sqlx::query_scalar!(
            r#"WITH adopted AS (
                   INSERT INTO hooklane.route_bucket AS b (created_at) VALUES ($1)
                   ON CONFLICT (singleton) DO UPDATE SET created_at = excluded.created_at
                   WHERE b.created_at <> excluded.created_at
                   RETURNING created_at),
               forgotten AS (
                   UPDATE hooklane.endpoints SET routed_version = NULL
                   WHERE routed_version IS NOT NULL AND EXISTS (SELECT FROM adopted))
               SELECT EXISTS (SELECT FROM adopted) AS "anew!""#,
            created,
        )
        .fetch_one(self.pool())
        .await
        .map_err(Error::doing("adopting the routes' bucket"))?;
        Ok(anew)
    }

    /// Removes signing secrets that have expired and has their endpoints' routes published anew,
    /// without them; answers how many endpoints.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn retire_secrets(&self) -> Result<u64, Error> {
        let done = sqlx::query!(
            "WITH gone AS (
                 DELETE FROM hooklane.endpoint_secrets WHERE expires_at <= clock_timestamp()
                 RETURNING endpoint_id)
             UPDATE hooklane.endpoints
             SET version = nextval('hooklane.endpoint_version'), updated_at = clock_timestamp()
             WHERE id IN (SELECT endpoint_id FROM gone)"
        )
        .execute(self.pool())
        .await
        .map_err(Error::doing("retiring expired signing secrets"))?;
        Ok(done.rows_affected())
    }
}

fn state(text: &str) -> Option<State> {
    let all = [
        State::Active,
        State::Failing,
        State::Paused,
        State::Disabled,
        State::Deleted,
    ];
    all.into_iter().find(|state| state.as_str() == text)
}

/// The columns' checks keep these from being negative.
fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_reads_back() {
        for text in ["active", "failing", "paused", "disabled", "deleted"] {
            assert_eq!(state(text).map(State::as_str), Some(text));
        }
        assert_eq!(state("unheard of"), None);
    }
}
