//! Trying again what waits and what was requeued.

use std::sync::Arc;

use bytes::Bytes;
use hooklane_proto::trace::TraceContext;
use sqlx::PgConnection;

use super::kept;
use crate::accept::{self, Accepted, Alongside, Origin, Outcome, Settings, Via};
use crate::intake::{self, Offer, Payload};
use crate::{Error, Store};

/// Events tried in one transaction at the most: with the largest payloads, 16 MiB.
const AT_ONCE: i64 = 64;

/// What one round of trying again did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "the events are to be published"]
pub struct Tried {
    /// What was accepted, to publish.
    pub accepted: Accepted,
    /// Events whose time of waiting ended: they count as rejected now.
    pub given_up: u64,
    /// Whether there may be more to try at once.
    pub more: bool,
}

impl Store {
    /// Tries again what was requeued, and what waits and whose names are known by now. Several
    /// processes may do so at once: everything set aside goes by a key.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub async fn try_again(&self, settings: &Settings) -> Result<Tried, Error> {
        let given_up = sqlx::query!(
            "UPDATE hooklane.rejected_events SET waiting_until = NULL
             WHERE waiting_until < clock_timestamp()"
        )
        .execute(self.pool())
        .await
        .map_err(Error::doing("giving up on waiting events"))?
        .rows_affected();
        let (ids, offers) = self.open().await?;
        let items = intake::items(&offers);
        let again = Again { ids: &ids };
        let accepted = accept::accept(self, Via::Pool, settings, &items, &again).await?;
        Ok(Tried {
            more: !ids.is_empty(),
            accepted,
            given_up,
        })
    }

    async fn open(&self) -> Result<(Vec<i64>, Vec<Offer>), Error> {
        let rows = sqlx::query!(
            r#"SELECT id, source, source_id, consumer_id, event_type, idempotency_key,
                      content_type, payload, traceparent, tracestate
               FROM hooklane.rejected_events r
               WHERE (waiting_until IS NOT NULL OR requeued_at IS NOT NULL)
                 AND (requeued_at IS NOT NULL
                      OR (EXISTS (SELECT FROM hooklane.consumers c
                                  WHERE c.id = r.consumer_id AND c.deleted_at IS NULL)
                          AND EXISTS (SELECT FROM hooklane.event_types t
                                      WHERE t.name = r.event_type)))
               ORDER BY id LIMIT $1"#,
            AT_ONCE,
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::doing("reading waiting events"))?;
        let mut ids = Vec::with_capacity(rows.len());
        let mut offers = Vec::with_capacity(rows.len());
        for row in rows {
            let origin = Origin::parse(&row.source)
                .unwrap_or_else(|| Origin::Outbox(Arc::from(row.source.as_str())));
            let trace = row.traceparent.as_deref();
            let trace = trace.and_then(|p| TraceContext::parse(p, row.tracestate.as_deref()));
            ids.push(row.id);
            offers.push(Offer {
                origin,
                source_id: row.source_id,
                consumer: row.consumer_id,
                event_type: row.event_type,
                content_type: row.content_type.unwrap_or_default(),
                payload: row
                    .payload
                    .map_or(Payload::Missing, |p| Payload::Bytes(Bytes::from(p))),
                key: row.idempotency_key,
                fallback_key: None,
                trace,
            });
        }
        Ok((ids, offers))
    }
}

/// Removes what is accepted now, and notes why the rest is not.
struct Again<'a> {
    ids: &'a [i64],
}

impl Alongside for Again<'_> {
    async fn write(&self, conn: &mut PgConnection, outcomes: &[Outcome]) -> Result<(), Error> {
        let mut gone = Vec::new();
        let (mut ids, mut reasons, mut details, mut may_pass) = (vec![], vec![], vec![], vec![]);
        for (&id, outcome) in self.ids.iter().zip(outcomes) {
            match outcome {
                Outcome::Accepted(_) | Outcome::Repeat(_) => gone.push(id),
                Outcome::Rejected(rejection) => {
                    ids.push(id);
                    reasons.push(rejection.reason.as_str());
                    details.push(kept(&rejection.detail));
                    may_pass.push(rejection.reason.may_pass());
                }
            }
        }
        sqlx::query!(
            r#"WITH gone AS (DELETE FROM hooklane.rejected_events WHERE id = ANY($1))
               UPDATE hooklane.rejected_events r
               SET reason = n.reason, detail = n.detail, requeued_at = NULL,
                   rejected_at = clock_timestamp(),
                   waiting_until = CASE WHEN n.may_pass THEN r.waiting_until END
               FROM unnest($2::bigint[], $3::text[], $4::text[], $5::boolean[])
                    AS n (id, reason, detail, may_pass)
               WHERE r.id = n.id"#,
            &gone,
            &ids,
            &reasons as &[&str],
            &details,
            &may_pass,
        )
        .execute(conn)
        .await
        .map_err(Error::doing("settling waiting events"))?;
        Ok(())
    }
}
