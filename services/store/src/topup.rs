//! Taking due deliveries out of the ledger for another drive, and failing what is overdue.
//!
//! Owns the claim. Does not own how much may be claimed (the lanes say) nor the publishing. What is
//! claimed is `received` when this returns, with a not-after: if it never reaches the broker, or is
//! lost there, the sweep finds it.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use hooklane_core::clock;
use hooklane_proto::delivery::{Delivery, DeliveryKey};
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::record::FailureReason;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_proto::trace::TraceContext;
use uuid::Uuid;

use crate::operational::{self, Event, Failed};
use crate::{Error, Store, backlog};

/// What may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Of this endpoint,
    pub endpoint: EndpointId,
    /// this many deliveries, at least 1.
    pub room: u32,
}

/// How a claim is made.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// What may be claimed, each endpoint once.
    pub rooms: &'a [Room],
    /// The partition of these endpoints.
    pub partition: u16,
    /// Bytes of payload at the most; one delivery always fits.
    pub max_bytes: u64,
    /// Time from the claim to the not-after.
    pub not_after: Duration,
}

impl Store {
    /// Claims due deliveries of running endpoints, the longest due first of each, and endpoints in
    /// turns where the bytes don't suffice for all. Two claims never take the same delivery.
    ///
    /// Locks backlogs in order, then takes only deliveries that nobody holds, so it waits for
    /// nobody while it holds something that others need.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn claim(&self, claim: Claim<'_>) -> Result<Vec<Delivery>, Error> {
        let mut rooms = claim.rooms.to_vec();
        rooms.sort_unstable_by_key(|room| room.endpoint);
        rooms.dedup_by_key(|room| room.endpoint);
        let ids: Vec<Uuid> = rooms.iter().map(|room| room.endpoint.uuid()).collect();
        let sizes: Vec<i32> = rooms
            .iter()
            .map(|room| i32::try_from(room.room).unwrap_or(i32::MAX))
            .collect();
        let mut tx = self.begin_probing().await?;
        let held = backlog::lock(&mut tx, &ids).await?;
        let rows = sqlx::query_file_as!(
            Row,
            "src/topup/claim.sql",
            &ids,
            &sizes,
            i64::try_from(claim.max_bytes).unwrap_or(i64::MAX),
            i16::try_from(claim.partition).unwrap_or(i16::MAX),
            claim.not_after.as_secs_f64()
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing("claiming due deliveries"))?;
        backlog::refresh(&mut tx, held).await?;
        tx.commit()
            .await
            .map_err(Error::doing("committing a claim"))?;
        // A row that can't be read stays `received`, and the deadline ends it: it was accepted by a
        // release that allowed what this one does not.
        Ok(rows.into_iter().filter_map(Row::delivery).collect())
    }

    /// Fails what waits in the ledger past its deadline, at most `limit`; answers how many.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn fail_overdue(&self, limit: u32) -> Result<u64, Error> {
        let mut tx = self.begin_probing().await?;
        let failed = sqlx::query!(
            "WITH overdue AS MATERIALIZED (
                 SELECT accepted_at, message_id, endpoint_id FROM hooklane.deliveries
                  WHERE status = 'stalled' AND deadline <= clock_timestamp()
                  ORDER BY deadline LIMIT $1 FOR UPDATE SKIP LOCKED)
             UPDATE hooklane.deliveries d
                SET status = 'failed', failure_reason = 'deadline', settled_at = clock_timestamp()
               FROM overdue o
              WHERE d.accepted_at = o.accepted_at AND d.message_id = o.message_id
                AND d.endpoint_id = o.endpoint_id
             RETURNING d.accepted_at, d.message_id, d.endpoint_id, d.consumer_id, d.series,
                       d.attempt_count, d.last_status, d.last_error",
            i64::from(limit)
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing("failing deliveries past their deadline"))?;
        let count = failed.len() as u64;
        let mut endpoints: Vec<Uuid> = failed.iter().map(|row| row.endpoint_id).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        if count > 0 {
            let held = backlog::lock(&mut tx, &endpoints).await?;
            backlog::refresh(&mut tx, held).await?;
        }
        let at = clock::now();
        let events: Vec<Event> = failed
            .into_iter()
            .map(|row| {
                Event::exhausted(&Failed {
                    key: DeliveryKey::from_uuids(row.accepted_at, row.message_id, row.endpoint_id),
                    consumer: row.consumer_id,
                    series: row.series,
                    attempts: row.attempt_count,
                    reason: FailureReason::Deadline.as_str().to_owned(),
                    last_status: row.last_status,
                    last_error: row.last_error,
                    at,
                })
            })
            .collect();
        operational::write(&mut tx, &events).await?;
        tx.commit()
            .await
            .map_err(Error::doing("committing failed deliveries"))?;
        Ok(count)
    }
}

struct Row {
    accepted_at: DateTime<Utc>,
    message_id: Uuid,
    endpoint_id: Uuid,
    consumer_id: String,
    event_type: String,
    content_type: String,
    payload: Vec<u8>,
    traceparent: Option<String>,
    tracestate: Option<String>,
    series: i32,
    drive: i32,
    attempt_count: i32,
    counted: i32,
    next_attempt_at: DateTime<Utc>,
    deadline: DateTime<Utc>,
    not_after: DateTime<Utc>,
    endpoint_version: i64,
}

impl Row {
    fn delivery(self) -> Option<Delivery> {
        let Self {
            accepted_at,
            message_id,
            endpoint_id,
            consumer_id,
            event_type,
            content_type,
            payload,
            traceparent,
            tracestate,
            series,
            drive,
            attempt_count,
            counted,
            next_attempt_at,
            deadline,
            not_after,
            endpoint_version,
        } = self;
        let read = ConsumerId::new(&consumer_id)
            .and_then(|consumer| Ok((consumer, EventType::new(&event_type)?)));
        let (consumer, event_type) = match read {
            Ok(tokens) => tokens,
            Err(fault) => {
                let message = MessageId::from_uuid(message_id);
                tracing::error!(%message, %fault, "a delivery in the ledger can't be driven");
                return None;
            }
        };
        Some(Delivery {
            key: DeliveryKey::from_uuids(accepted_at, message_id, endpoint_id),
            consumer,
            event_type,
            content_type,
            series,
            drive,
            attempts: attempt_count,
            counted,
            endpoint_version,
            due_at: next_attempt_at,
            deadline,
            not_after,
            trace: traceparent
                .and_then(|parent| TraceContext::parse(&parent, tracestate.as_deref())),
            payload: Bytes::from(payload),
        })
    }
}
