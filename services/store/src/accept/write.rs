//! The statements of an acceptance, each for a whole batch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_proto::event::Target;
use hooklane_proto::id::{EndpointId, MessageId};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::NewMessage;
use super::plan::effective_key;
use crate::Error;

/// An endpoint that wants an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Its id and version.
    pub(super) target: Target,
    /// Why it gets nothing now.
    pub(super) skipped: Option<&'static str>,
}

/// The endpoints of a batch's consumers.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    known: HashMap<String, Vec<(Endpoint, Vec<String>)>>,
    /// Consumers that don't exist.
    unknown: HashSet<String>,
    /// The consumer at which reading stopped, and everyone behind it.
    unread: HashSet<String>,
}

impl Subscribers {
    /// Whether all of the consumer's endpoints were read that may be meant.
    pub(super) fn complete(&self, consumer: &str) -> bool {
        !self.unread.contains(consumer)
    }

    /// Whether the consumer exists.
    pub(super) fn knows(&self, consumer: &str) -> bool {
        self.known.contains_key(consumer)
    }

    /// The consumer's endpoints whose filter holds one of these patterns.
    pub(super) fn matching(&self, consumer: &str, wanted: &[String]) -> Arc<[Endpoint]> {
        let all = self.known.get(consumer).map_or(&[][..], Vec::as_slice);
        all.iter()
            .filter(|(_, filters)| filters.iter().any(|filter| wanted.contains(filter)))
            .map(|(endpoint, _)| *endpoint)
            .collect()
    }
}

/// A key to take.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyRow<'a> {
    pub(super) consumer: &'a str,
    pub(super) key: &'a str,
    pub(super) digest: &'a [u8],
    pub(super) message: MessageId,
}

/// What a key stands for.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) digest: Vec<u8>,
    pub(super) message: MessageId,
    pub(super) accepted_at: DateTime<Utc>,
}

/// The database's clock, and which of these event types exist.
pub(super) async fn clock_and_event_types(
    conn: &mut PgConnection,
    event_types: &[&str],
) -> Result<(DateTime<Utc>, HashSet<String>), Error> {
    let row = sqlx::query!(
        r#"SELECT clock_timestamp() AS "now!",
                  ARRAY(SELECT name FROM hooklane.event_types WHERE name = ANY($1)) AS "names!""#,
        event_types as &[&str],
    )
    .fetch_one(conn)
    .await
    .map_err(Error::doing("reading event types"))?;
    Ok((row.now, row.names.into_iter().collect()))
}

/// The endpoints of these consumers that hold one of these patterns, in the consumers' order, until
/// about twice `enough` are read. The first consumer is always read to its end.
pub(super) async fn subscribers(
    conn: &mut PgConnection,
    consumers: &[&str],
    patterns: &[String],
    enough: usize,
) -> Result<Subscribers, Error> {
    let limit = i64::try_from(enough.saturating_mul(2))
        .unwrap_or(i64::MAX)
        .max(1);
    let (subscribers, complete) = read_subscribers(&mut *conn, consumers, patterns, limit).await?;
    if complete || subscribers.unread.len() < consumers.len() {
        return Ok(subscribers);
    }
    // The first one alone has more than that.
    let (mut subscribers, _) = read_subscribers(conn, &consumers[..1], patterns, i64::MAX).await?;
    subscribers.unread = consumers[1..].iter().map(|&id| id.to_owned()).collect();
    Ok(subscribers)
}

async fn read_subscribers(
    conn: &mut PgConnection,
    consumers: &[&str],
    patterns: &[String],
    limit: i64,
) -> Result<(Subscribers, bool), Error> {
    let rows = sqlx::query!(
        r#"SELECT w.at AS "at!", c.id IS NOT NULL AS "known!",
                  e.id AS "endpoint?", e.version AS "version?", e.state::text AS "state?",
                  e.filters AS "filters?"
           FROM unnest($1::text[]) WITH ORDINALITY AS w (id, at)
           LEFT JOIN hooklane.consumers c ON c.id = w.id AND c.deleted_at IS NULL
           LEFT JOIN hooklane.endpoints e
                  ON e.consumer_id = c.id AND e.state <> 'deleted' AND e.filters && $3
           ORDER BY w.at
           LIMIT $2"#,
        consumers as &[&str],
        limit,
        patterns,
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("reading endpoints"))?;
    let complete = i64::try_from(rows.len()).is_ok_and(|read| read < limit);
    // Everyone has a row, so whoever stands before the last one read has all of them.
    let last = rows.last().map_or(0, |row| row.at);
    let mut subscribers = Subscribers::default();
    for row in rows {
        let consumer = usize::try_from(row.at - 1)
            .ok()
            .and_then(|at| consumers.get(at));
        let Some(&consumer) = consumer else { continue };
        if !complete && row.at == last {
            continue;
        }
        if !row.known {
            subscribers.unknown.insert(consumer.to_owned());
            continue;
        }
        let endpoints = subscribers.known.entry(consumer.to_owned()).or_default();
        if let (Some(id), Some(version), Some(filters)) = (row.endpoint, row.version, row.filters) {
            let target = Target {
                endpoint: EndpointId::from_uuid(id),
                version,
            };
            let skipped = row.state.as_deref().and_then(skipped);
            endpoints.push((Endpoint { target, skipped }, filters));
        }
    }
    subscribers.unread = consumers
        .iter()
        .filter(|&&id| !subscribers.known.contains_key(id) && !subscribers.unknown.contains(id))
        .map(|&id| id.to_owned())
        .collect();
    Ok((subscribers, complete))
}

/// Why an endpoint in this state gets nothing.
fn skipped(state: &str) -> Option<&'static str> {
    match state {
        "paused" => Some("paused"),
        "disabled" => Some("disabled"),
        _ => None,
    }
}

/// Those of these endpoints that there are, each with its consumer.
pub(super) async fn named(
    conn: &mut PgConnection,
    ids: &[EndpointId],
) -> Result<HashMap<EndpointId, (String, Endpoint)>, Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let rows = sqlx::query!(
        r#"SELECT id, consumer_id, version, state::text AS "state!"
             FROM hooklane.endpoints WHERE id = ANY($1) AND state <> 'deleted'"#,
        &ids,
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("reading endpoints"))?;
    let endpoints = rows.into_iter().map(|row| {
        let target = Target {
            endpoint: EndpointId::from_uuid(row.id),
            version: row.version,
        };
        let skipped = skipped(&row.state);
        (
            target.endpoint,
            (row.consumer_id, Endpoint { target, skipped }),
        )
    });
    Ok(endpoints.collect())
}

/// Takes the keys that are free, in the given order; returns these.
pub(super) async fn claim_keys(
    conn: &mut PgConnection,
    accepted_at: DateTime<Utc>,
    rows: &[KeyRow<'_>],
) -> Result<HashSet<(String, String)>, Error> {
    if rows.is_empty() {
        return Ok(HashSet::new());
    }
    let consumers: Vec<&str> = rows.iter().map(|row| row.consumer).collect();
    let keys: Vec<&str> = rows.iter().map(|row| row.key).collect();
    let digests: Vec<&[u8]> = rows.iter().map(|row| row.digest).collect();
    let messages: Vec<Uuid> = rows.iter().map(|row| row.message.uuid()).collect();
    let taken = sqlx::query!(
        r#"INSERT INTO hooklane.idempotency_keys (consumer_id, key, digest, message_id, accepted_at)
           SELECT consumer, key, digest, message, $5
           FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[])
                AS keys (consumer, key, digest, message)
           ON CONFLICT (consumer_id, key) DO NOTHING
           RETURNING consumer_id, key"#,
        consumers as Vec<&str>,
        keys as Vec<&str>,
        digests as Vec<&[u8]>,
        &messages,
        accepted_at,
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("claiming idempotency keys"))?;
    Ok(taken
        .into_iter()
        .map(|row| (row.consumer_id, row.key))
        .collect())
}

/// Who holds these keys.
pub(super) async fn held_keys(
    conn: &mut PgConnection,
    rows: &[KeyRow<'_>],
) -> Result<HashMap<(String, String), Held>, Error> {
    let consumers: Vec<&str> = rows.iter().map(|row| row.consumer).collect();
    let keys: Vec<&str> = rows.iter().map(|row| row.key).collect();
    let rows = sqlx::query!(
        r#"SELECT k.consumer_id, k.key, k.digest, k.message_id, k.accepted_at
           FROM unnest($1::text[], $2::text[]) AS w (consumer, key)
           JOIN hooklane.idempotency_keys k ON k.consumer_id = w.consumer AND k.key = w.key"#,
        consumers as Vec<&str>,
        keys as Vec<&str>,
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("reading idempotency keys"))?;
    let held = rows.into_iter().map(|row| {
        let held = Held {
            digest: row.digest,
            message: MessageId::from_uuid(row.message_id),
            accepted_at: row.accepted_at,
        };
        ((row.consumer_id, row.key), held)
    });
    Ok(held.collect())
}

/// The messages.
pub(super) async fn messages(
    conn: &mut PgConnection,
    accepted_at: DateTime<Utc>,
    rows: &[(MessageId, &NewMessage)],
) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = rows.iter().map(|(id, _)| id.uuid()).collect();
    let of = |field: for<'m> fn(&'m NewMessage) -> Option<&'m str>| -> Vec<Option<&str>> {
        rows.iter().map(|(_, message)| field(message)).collect()
    };
    let payloads: Vec<&[u8]> = rows.iter().map(|(_, message)| &*message.payload).collect();
    let sources: Vec<String> = rows.iter().map(|(_, m)| m.origin.to_string()).collect();
    let keys: Vec<Option<String>> = rows.iter().map(|(_, m)| effective_key(m)).collect();
    sqlx::query!(
        r#"INSERT INTO hooklane.messages
               (accepted_at, id, consumer_id, event_type, payload, content_type, source,
                idempotency_key, traceparent, tracestate)
           SELECT $1, id, consumer, event_type, payload, content_type, source, key, parent, state
           FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::text[],
                       $8::text[], $9::text[], $10::text[])
                AS m (id, consumer, event_type, payload, content_type, source, key, parent, state)"#,
        accepted_at,
        &ids,
        of(|m| Some(m.consumer.as_str())) as Vec<Option<&str>>,
        of(|m| Some(m.event_type.as_str())) as Vec<Option<&str>>,
        payloads as Vec<&[u8]>,
        of(|m| Some(&m.content_type)) as Vec<Option<&str>>,
        &sources,
        keys as Vec<Option<String>>,
        of(|m| m.trace.as_ref().map(|t| t.traceparent.as_str())) as Vec<Option<&str>>,
        of(|m| m.trace.as_ref().map(|t| t.tracestate.as_str()).filter(|s| !s.is_empty()))
            as Vec<Option<&str>>,
    )
    .execute(conn)
    .await
    .map_err(Error::doing("writing messages"))?;
    Ok(())
}

/// Deliveries to write, column by column.
#[derive(Debug, Default)]
pub(super) struct DeliveryRows<'a> {
    messages: Vec<Uuid>,
    endpoints: Vec<Uuid>,
    consumers: Vec<&'a str>,
    partitions: Vec<i16>,
    skipped: Vec<Option<&'static str>>,
}

impl<'a> DeliveryRows<'a> {
    pub(super) fn push(
        &mut self,
        message: MessageId,
        endpoint: &Endpoint,
        consumer: &'a str,
        partition: u16,
    ) {
        self.messages.push(message.uuid());
        self.endpoints.push(endpoint.target.endpoint.uuid());
        self.consumers.push(consumer);
        // Partitions are far fewer than 32,768.
        self.partitions
            .push(i16::try_from(partition).unwrap_or(i16::MAX));
        self.skipped.push(endpoint.skipped);
    }
}

/// The deliveries; returns the clock that starts their first drives.
pub(super) async fn deliveries(
    conn: &mut PgConnection,
    accepted_at: DateTime<Utc>,
    deadline: DateTime<Utc>,
    publish_within: Duration,
    rows: &DeliveryRows<'_>,
) -> Result<DateTime<Utc>, Error> {
    sqlx::query_scalar!(
        r#"WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
                made AS (
                    INSERT INTO hooklane.deliveries
                        (accepted_at, message_id, endpoint_id, consumer_id, partition, status,
                         settled, driven_at, not_after, next_attempt_at, deadline,
                         failure_reason, settled_at)
                    SELECT $1, d.message, d.endpoint, d.consumer, d.partition,
                           CASE WHEN d.skipped IS NULL THEN 'received' ELSE 'skipped' END
                               ::hooklane.delivery_status,
                           CASE WHEN d.skipped IS NULL THEN 0 ELSE 1 END,
                           clock.at, clock.at + make_interval(secs => $3), $1, $2,
                           d.skipped, CASE WHEN d.skipped IS NOT NULL THEN clock.at END
                    FROM unnest($4::uuid[], $5::uuid[], $6::text[], $7::smallint[], $8::text[])
                             AS d (message, endpoint, consumer, partition, skipped)
                         CROSS JOIN clock
                )
           SELECT at AS "at!" FROM clock"#,
        accepted_at,
        deadline,
        publish_within.as_secs_f64(),
        &rows.messages,
        &rows.endpoints,
        &rows.consumers as &[&str],
        &rows.partitions,
        &rows.skipped as &[Option<&str>],
    )
    .fetch_one(conn)
    .await
    .map_err(Error::doing("writing deliveries"))
}

/// The database's clock.
pub(super) async fn clock(pool: &PgPool) -> Result<DateTime<Utc>, Error> {
    sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#)
        .fetch_one(pool)
        .await
        .map_err(Error::doing("reading the database's clock"))
}
