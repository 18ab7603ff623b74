//! Rows as they are read, and what accept is offered of them.

use std::sync::Arc;

use bytes::Bytes;
use hooklane_proto::trace::TraceContext;
use serde::Deserialize;
use sqlx::{AssertSqlSafe, PgConnection};

use super::source::Source;
use super::table::Table;
use super::turns::{Bound, Key};
use crate::Error;
use crate::accept::{MAX_PAYLOAD, Origin};
use crate::intake::{Offer, Payload};

/// A pending row.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Row {
    key: String,
    id: String,
    consumer: Option<String>,
    event_type: Option<String>,
    content_type: Option<String>,
    idempotency: Option<String>,
    headers: Option<String>,
    missing: bool,
    size: i64,
    /// Whether it is within the batch's bytes; otherwise its payload was not read.
    pub(super) included: bool,
    payload: Option<Vec<u8>>,
}

impl Row {
    pub(super) fn key(&self, table: &Table) -> Key {
        Key::read(&self.key, table.numeric)
    }

    /// The consumer that takes turns; rows without one share a turn.
    pub(super) fn consumer(&self) -> &str {
        self.consumer.as_deref().unwrap_or_default()
    }

    /// The row's id, and what accept is offered of it.
    pub(super) fn offer(self, source: &Source, name: &Arc<str>) -> (String, Offer) {
        let size = usize::try_from(self.size).unwrap_or_default();
        let offer = Offer {
            origin: Origin::Outbox(Arc::clone(name)),
            fallback_key: Some(format!("{name}:{}", self.id)),
            source_id: self.id.clone(),
            consumer: self.consumer,
            event_type: self.event_type,
            content_type: self
                .content_type
                .unwrap_or_else(|| source.content_type.clone()),
            payload: match self.payload {
                _ if self.missing => Payload::Missing,
                Some(bytes) if bytes.len() <= MAX_PAYLOAD => Payload::Bytes(Bytes::from(bytes)),
                _ => Payload::TooLarge(size),
            },
            key: self.idempotency,
            trace: self.headers.as_deref().and_then(trace),
        };
        (self.id, offer)
    }
}

/// The trace context of a row's headers. Headers that can't be read are no reason to refuse an
/// event.
fn trace(headers: &str) -> Option<TraceContext> {
    #[derive(Deserialize)]
    struct Headers {
        traceparent: String,
        #[serde(default)]
        tracestate: Option<String>,
    }
    let headers: Headers = serde_json::from_str(headers).ok()?;
    TraceContext::parse(&headers.traceparent, headers.tracestate.as_deref())
}

/// Pending rows above a key, at most `limit`, with payloads as far as `budget` bytes go.
pub(super) async fn page(
    conn: &mut PgConnection,
    table: &Table,
    above: &Bound,
    limit: usize,
    budget: usize,
) -> Result<Vec<Row>, Error> {
    sqlx::query_as(AssertSqlSafe(table.page.as_str()))
        .bind(above.as_ref().map(Key::text))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind(i64::try_from(budget).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await
        .map_err(Error::doing("reading an outbox"))
}

/// The rows with these keys that are still pending, in this order.
pub(super) async fn by_keys(
    conn: &mut PgConnection,
    table: &Table,
    keys: &[Key],
    budget: usize,
) -> Result<Vec<Row>, Error> {
    let keys: Vec<String> = keys.iter().map(Key::text).collect();
    sqlx::query_as(AssertSqlSafe(table.by_keys.as_str()))
        .bind(keys)
        .bind(i64::try_from(budget).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await
        .map_err(Error::doing("reading outbox rows by key"))
}

/// Keys and consumers of pending rows above a key: of `only` these consumers where given, of none
/// of `except`.
pub(super) async fn keys(
    conn: &mut PgConnection,
    table: &Table,
    above: &Bound,
    only: Option<&[Arc<str>]>,
    except: &[Arc<str>],
    limit: usize,
) -> Result<Vec<(Key, String)>, Error> {
    let texts = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let rows: Vec<(String, String)> = sqlx::query_as(AssertSqlSafe(table.keys.as_str()))
        .bind(above.as_ref().map(Key::text))
        .bind(only.map(texts))
        .bind(texts(except))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await
        .map_err(Error::doing("reading an outbox's keys"))?;
    let key = |(key, consumer): (String, String)| (Key::read(&key, table.numeric), consumer);
    Ok(rows.into_iter().map(key).collect())
}

/// Marks or deletes the rows with these ids.
pub(super) async fn settle(
    conn: &mut PgConnection,
    table: &Table,
    ids: &[String],
) -> Result<(), Error> {
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query(AssertSqlSafe(table.settle.as_str()))
        .bind(ids)
        .execute(conn)
        .await
        .map_err(Error::doing("settling outbox rows"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_no_trace_context_are_ignored() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let good = format!(r#"{{"traceparent":"{parent}","tracestate":null,"x":[1]}}"#);
        assert_eq!(trace(&good).unwrap().traceparent, parent);
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"traceparent":5}"#,
            r#"{"traceparent":"x"}"#,
        ] {
            assert_eq!(trace(bad), None, "{bad}");
        }
    }
}
