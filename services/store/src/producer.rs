//! Writes outbox rows the way an adopter's own code does: in a transaction of its own database.
//!
//! Owns the one statement a producer needs, set-based, so that load generators, the demo and tests
//! write what a real producer would. Hooklane itself never calls it: whoever commits an outbox row
//! is the adopter.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgPool, Postgres, Transaction};
use uuid::Uuid;

use crate::Error;

/// One event that a producer wants delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The event's id, which becomes the message's.
    pub id: Uuid,
    /// Whose endpoints get it.
    pub consumer: String,
    /// What happened.
    pub event_type: String,
    /// A JSON text; it is delivered as it is written here.
    pub payload: String,
    /// W3C trace context, where the producer has one.
    pub traceparent: Option<String>,
    /// What makes it the same event as another row of the consumer; without one it is its id.
    pub idempotency_key: Option<String>,
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The business change is made, and its events with it.
    Commit,
    /// Neither is.
    RollBack,
}

/// A producer's connections to its own database.
#[derive(Debug, Clone)]
pub struct Producer {
    pool: PgPool,
}

impl Producer {
    /// Opens `connections` connections, all of them at once, so that the first transactions don't
    /// pay for it.
    ///
    /// # Errors
    /// [`Error::Url`], or [`Error::Connect`] where the database does not answer.
    pub async fn connect(url: &str, connections: u32) -> Result<Self, Error> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| Error::Url)?
            .application_name("producer");
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .min_connections(connections)
            .connect_with(options)
            .await
            .map_err(Error::Connect)?;
        Ok(Self { pool })
    }

    /// Writes `rows` in one transaction and ends it; rows that are there already are left alone, so
    /// that a transaction whose end is not known can be written again. `before_end` is called once everything is
    /// written and only the end is outstanding: what it notes is the time the commit began.
    ///
    /// # Errors
    /// Where a statement fails; then nothing is committed, save where the failing one is the
    /// commit itself and its answer was lost.
    pub async fn write(
        &self,
        rows: &[Row],
        end: End,
        before_end: impl FnOnce(),
    ) -> Result<(), Error> {
        let mut transaction = self
            .pool
            .begin()
            .await
            .map_err(Error::doing("beginning a producer's transaction"))?;
        insert(&mut transaction, rows).await?;
        before_end();
        match end {
            End::Commit => transaction
                .commit()
                .await
                .map_err(Error::doing("committing outbox rows")),
            End::RollBack => transaction
                .rollback()
                .await
                .map_err(Error::doing("rolling outbox rows back")),
        }
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

async fn insert(transaction: &mut Transaction<'_, Postgres>, rows: &[Row]) -> Result<(), Error> {
    let mut ids = Vec::with_capacity(rows.len());
    let mut consumers = Vec::with_capacity(rows.len());
    let mut event_types = Vec::with_capacity(rows.len());
    let mut payloads = Vec::with_capacity(rows.len());
    let mut traceparents = Vec::with_capacity(rows.len());
    let mut keys = Vec::with_capacity(rows.len());
    for row in rows {
        ids.push(row.id);
        consumers.push(row.consumer.as_str());
        event_types.push(row.event_type.as_str());
        payloads.push(row.payload.as_str());
        traceparents.push(row.traceparent.as_deref());
        keys.push(row.idempotency_key.as_deref());
    }
    sqlx::query(
        "INSERT INTO hooklane.outbox_events
                (id, consumer_id, event_type, payload, headers, idempotency_key)
         SELECT id, consumer, event_type, payload::json,
                CASE WHEN traceparent IS NOT NULL
                     THEN json_build_object('traceparent', traceparent) END, key
         FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
              AS rows (id, consumer, event_type, payload, traceparent, key)
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(ids)
    .bind(consumers)
    .bind(event_types)
    .bind(payloads)
    .bind(traceparents)
    .bind(keys)
    .execute(&mut **transaction)
    .await
    .map_err(Error::doing("writing outbox rows"))?;
    Ok(())
}
