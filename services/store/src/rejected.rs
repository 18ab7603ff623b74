//! Events set aside: what could not be accepted from an outbox or from `INTAKE`.
//!
//! Owns `hooklane.rejected_events`: an event there is *waiting* (its consumer or event type is not
//! known yet, and it is tried again until a time), *rejected* (somebody has to do something), or
//! *requeued* (somebody asked for another try). A row goes when its event is accepted after all.
//! Its payload is kept with it, so that it blocks nothing where it came from; one that is over the
//! limit is not, and such an event has to be written anew by its producer.

/// Events set aside, without their payloads.
macro_rules! rows {
    ($rest:literal, $($arg:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT id, source, source_id, consumer_id, event_type, idempotency_key,
                      octet_length(payload) AS bytes, reason, detail, rejected_at, requeued_at,
                      waiting_until
                 FROM hooklane.rejected_events "#
                + $rest,
            $($arg),+
        )
    };
}

mod find;
mod open;

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;

use crate::accept::{Outcome, Reason, Rejection};
use crate::audit_log::{self, Action, Change};
use crate::intake::{Offer, Payload};
use crate::{Error, Store};

pub use open::Tried;

/// How long a rejected event is kept.
pub const KEPT: Duration = Duration::from_secs(35 * 24 * 60 * 60);

/// Longest text kept of a part that may be anything.
const TEXT: usize = 300;

/// Where an event set aside stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Tried again by itself until a time.
    Waiting,
    /// Somebody has to do something.
    Rejected,
    /// Somebody asked for another try, which is about to be made.
    Requeued,
}

impl Standing {
    /// The name in output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Rejected => "rejected",
            Self::Requeued => "requeued",
        }
    }
}

/// An event set aside, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its number here.
    pub id: i64,
    /// Where it came from: `outbox:<source>` or `intake`.
    pub source: String,
    /// What finds it there: the outbox row's id, or the message's time and sequence.
    pub source_id: String,
    /// Its consumer id, as it came.
    pub consumer: Option<String>,
    /// Its event type, as it came.
    pub event_type: Option<String>,
    /// Its idempotency key.
    pub key: Option<String>,
    /// The size of its payload, where that is kept.
    pub bytes: Option<i32>,
    /// Why, as [`Reason::as_str`].
    pub reason: String,
    /// What exactly, for a person.
    pub detail: String,
    /// When it was last refused.
    pub rejected_at: DateTime<Utc>,
    /// Until when it is tried again by itself.
    pub waiting_until: Option<DateTime<Utc>>,
    /// Where it stands.
    pub standing: Standing,
}

/// Which events set aside are meant; every field narrows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// These numbers; empty is all.
    pub ids: Vec<i64>,
    /// `outbox:<source>` or `intake`.
    pub source: Option<String>,
    /// This consumer id.
    pub consumer: Option<String>,
    /// This reason.
    pub reason: Option<Reason>,
    /// The ones that wait, too.
    pub waiting: bool,
}

/// What became of a request to requeue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requeued {
    /// How many are about to be tried again.
    pub requeued: u64,
    /// These can't be: their payload was over the limit, or null, and is not here.
    pub without_payload: Vec<i64>,
}

/// A row of the table, without its payload.
struct Row {
    id: i64,
    source: String,
    source_id: String,
    consumer_id: Option<String>,
    event_type: Option<String>,
    idempotency_key: Option<String>,
    bytes: Option<i32>,
    reason: String,
    detail: String,
    rejected_at: DateTime<Utc>,
    requeued_at: Option<DateTime<Utc>>,
    waiting_until: Option<DateTime<Utc>>,
}

impl Row {
    fn rejected(self) -> Rejected {
        Rejected {
            id: self.id,
            source: self.source,
            source_id: self.source_id,
            consumer: self.consumer_id,
            event_type: self.event_type,
            key: self.idempotency_key,
            bytes: self.bytes,
            reason: self.reason,
            detail: self.detail,
            rejected_at: self.rejected_at,
            waiting_until: self.waiting_until,
            standing: match (self.requeued_at, self.waiting_until) {
                (Some(_), _) => Standing::Requeued,
                (None, Some(_)) => Standing::Waiting,
                (None, None) => Standing::Rejected,
            },
        }
    }
}

impl Store {
    /// The events set aside, oldest first, after `after`, at most `limit`.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn rejected(
        &self,
        filter: &Filter,
        after: i64,
        limit: i64,
    ) -> Result<Vec<Rejected>, Error> {
        let rows = rows!(
            "WHERE id > $1
               AND (cardinality($2::bigint[]) = 0 OR id = ANY($2))
               AND ($3::text IS NULL OR source = $3)
               AND ($4::text IS NULL OR consumer_id = $4)
               AND ($5::text IS NULL OR reason = $5)
               AND ($6 OR waiting_until IS NULL)
             ORDER BY id LIMIT $7",
            after,
            &filter.ids,
            filter.source.as_deref(),
            filter.consumer.as_deref(),
            filter.reason.map(Reason::as_str),
            filter.waiting,
            limit,
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::doing("listing rejected events"))?;
        Ok(rows.into_iter().map(Row::rejected).collect())
    }

    /// The payload kept with an event set aside.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn rejected_payload(&self, id: i64) -> Result<Option<Bytes>, Error> {
        let payload = sqlx::query_scalar!(
            "SELECT payload FROM hooklane.rejected_events WHERE id = $1",
            id
        )
        .fetch_optional(self.pool())
        .await
        .map_err(Error::doing("reading a rejected event"))?;
        Ok(payload.flatten().map(Bytes::from))
    }

    /// How many events are set aside, by source, standing and reason.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn rejected_counts(&self) -> Result<Vec<(String, Standing, String, i64)>, Error> {
        let rows = sqlx::query!(
            r#"SELECT source, requeued_at IS NOT NULL AS "requeued!",
                      waiting_until IS NOT NULL AS "waiting!", reason, count(*) AS "count!"
               FROM hooklane.rejected_events GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"#
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::doing("counting rejected events"))?;
        let counts = rows.into_iter().map(|row| {
            let standing = match (row.requeued, row.waiting) {
                (true, _) => Standing::Requeued,
                (false, true) => Standing::Waiting,
                (false, false) => Standing::Rejected,
            };
            (row.source, standing, row.reason, row.count)
        });
        Ok(counts.collect())
    }

    /// Sets aside events that can't even be offered, in one transaction. One that is there already
    /// is written over, so trying again is harmless.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn refuse(&self, refused: &[(Offer, Rejection)]) -> Result<(), Error> {
        let mut rows = Rows::default();
        for (offer, rejection) in refused {
            rows.push(offer, rejection.reason, &rejection.detail);
        }
        let conn = self.pool().acquire().await;
        let mut conn = conn.map_err(Error::doing("setting events aside"))?;
        rows.insert(&mut conn, Duration::ZERO).await
    }

    /// Asks for another try of the events meant, which the relay makes at once.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn requeue(&self, filter: &Filter) -> Result<Requeued, Error> {
        let doing = "requeueing rejected events";
        let mut tx = self.pool().begin().await.map_err(Error::doing(doing))?;
        let rows = sqlx::query!(
            r#"WITH meant AS (
                   SELECT id, payload IS NOT NULL AS kept FROM hooklane.rejected_events
                   WHERE (cardinality($1::bigint[]) = 0 OR id = ANY($1))
                     AND ($2::text IS NULL OR source = $2)
                     AND ($3::text IS NULL OR consumer_id = $3)
                     AND ($4::text IS NULL OR reason = $4)
                     AND ($5 OR waiting_until IS NULL)
                   FOR UPDATE),
               asked AS (
                   UPDATE hooklane.rejected_events r SET requeued_at = clock_timestamp()
                   FROM meant WHERE r.id = meant.id AND meant.kept)
               SELECT id, kept AS "kept!" FROM meant ORDER BY id"#,
            &filter.ids,
            filter.source.as_deref(),
            filter.consumer.as_deref(),
            filter.reason.map(Reason::as_str),
            filter.waiting,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
        let mut requeued = Requeued::default();
        for row in rows {
            if row.kept {
                requeued.requeued += 1;
            } else {
                requeued.without_payload.push(row.id);
            }
        }
        if requeued.requeued > 0 {
            let subject = match filter.ids.as_slice() {
                [one] => one.to_string(),
                _ => "many".to_owned(),
            };
            let consumer = filter.consumer.as_deref();
            let change = Change::of(Action::OutboxRequeue, consumer, subject);
            let change = change.with(json!({ "events": requeued.requeued }));
            audit_log::note(&mut tx, self, change).await?;
        }
        tx.commit().await.map_err(Error::doing(doing))?;
        Ok(requeued)
    }

    /// Removes rejected events older than [`KEPT`], at most `limit`; returns how many.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn purge_rejected(&self, limit: i64) -> Result<u64, Error> {
        let done = sqlx::query!(
            r#"DELETE FROM hooklane.rejected_events WHERE id = ANY(ARRAY(
                   SELECT id FROM hooklane.rejected_events
                   WHERE rejected_at < clock_timestamp() - make_interval(secs => $1)
                     AND waiting_until IS NULL AND requeued_at IS NULL
                   ORDER BY rejected_at LIMIT $2))"#,
            KEPT.as_secs_f64(),
            limit,
        )
        .execute(self.pool())
        .await
        .map_err(Error::doing("purging rejected events"))?;
        Ok(done.rows_affected())
    }
}

/// Sets aside the offers whose outcome is a rejection, within a transaction.
pub(crate) async fn set_aside(
    conn: &mut PgConnection,
    offers: &[Offer],
    outcomes: &[Outcome],
    patience: Duration,
) -> Result<(), Error> {
    let mut rows = Rows::default();
    for (offer, outcome) in offers.iter().zip(outcomes) {
        if let Outcome::Rejected(rejection) = outcome {
            tracing::debug!(
                source = %offer.origin, source_id = offer.source_id,
                reason = rejection.reason.as_str(), detail = rejection.detail,
                "event set aside"
            );
            rows.push(offer, rejection.reason, &rejection.detail);
        }
    }
    rows.insert(conn, patience).await
}

/// Rows to write, column by column.
#[derive(Default)]
struct Rows<'a> {
    sources: Vec<String>,
    source_ids: Vec<String>,
    consumers: Vec<Option<String>>,
    event_types: Vec<Option<String>>,
    keys: Vec<Option<String>>,
    content_types: Vec<String>,
    payloads: Vec<Option<&'a [u8]>>,
    parents: Vec<Option<&'a str>>,
    states: Vec<Option<&'a str>>,
    reasons: Vec<&'static str>,
    details: Vec<String>,
    waiting: Vec<bool>,
}

impl<'a> Rows<'a> {
    fn push(&mut self, offer: &'a Offer, reason: Reason, detail: &str) {
        self.sources.push(offer.origin.to_string());
        self.source_ids.push(kept(&offer.source_id));
        self.consumers.push(offer.consumer.as_deref().map(kept));
        self.event_types.push(offer.event_type.as_deref().map(kept));
        self.keys.push(offer.effective_key().map(kept));
        self.content_types.push(kept(&offer.content_type));
        self.payloads.push(match &offer.payload {
            Payload::Bytes(bytes) if reason != Reason::PayloadTooLarge => Some(&**bytes),
            _ => None,
        });
        self.parents
            .push(offer.trace.as_ref().map(|t| t.traceparent.as_str()));
        self.states
            .push(offer.trace.as_ref().map(|t| t.tracestate.as_str()));
        self.reasons.push(reason.as_str());
        self.details.push(kept(detail));
        self.waiting.push(reason.may_pass());
    }

    async fn insert(self, conn: &mut PgConnection, patience: Duration) -> Result<(), Error> {
        if self.sources.is_empty() {
            return Ok(());
        }
        // The same event may stand twice in a batch; ordinality lets the later one win.
        sqlx::query!(
            r#"INSERT INTO hooklane.rejected_events AS r
                   (source, source_id, consumer_id, event_type, idempotency_key, content_type,
                    payload, traceparent, tracestate, reason, detail, waiting_until)
               SELECT DISTINCT ON (source, source_id)
                      source, source_id, consumer, event_type, key, content_type,
                      payload, parent, nullif(state, ''), reason, detail,
                      CASE WHEN waiting THEN clock_timestamp() + make_interval(secs => $13) END
               FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                           $7::bytea[], $8::text[], $9::text[], $10::text[], $11::text[],
                           $12::boolean[])
                    WITH ORDINALITY
                    AS o (source, source_id, consumer, event_type, key, content_type,
                          payload, parent, state, reason, detail, waiting, at)
               ORDER BY source, source_id, at DESC
               ON CONFLICT (source, source_id) DO UPDATE
               SET consumer_id = excluded.consumer_id, event_type = excluded.event_type,
                   idempotency_key = excluded.idempotency_key,
                   content_type = excluded.content_type, payload = excluded.payload,
                   traceparent = excluded.traceparent, tracestate = excluded.tracestate,
                   reason = excluded.reason, detail = excluded.detail,
                   rejected_at = clock_timestamp(), requeued_at = NULL,
                   waiting_until = CASE WHEN excluded.waiting_until IS NOT NULL
                       THEN least(r.waiting_until, excluded.waiting_until) END"#,
            &self.sources,
            &self.source_ids,
            &self.consumers as &[Option<String>],
            &self.event_types as &[Option<String>],
            &self.keys as &[Option<String>],
            &self.content_types,
            &self.payloads as &[Option<&[u8]>],
            &self.parents as &[Option<&str>],
            &self.states as &[Option<&str>],
            &self.reasons as &[&str],
            &self.details,
            &self.waiting,
            patience.as_secs_f64(),
        )
        .execute(conn)
        .await
        .map_err(Error::doing("setting events aside"))?;
        Ok(())
    }
}

/// Text that may be anything, as it can be kept: without NUL, and not endless.
fn kept(text: &str) -> String {
    text.chars().filter(|&c| c != '\0').take(TEXT).collect()
}
