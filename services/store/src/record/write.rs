//! The statements that write a reduced batch.

use chrono::{DateTime, Utc};
use hooklane_core::clock;
use hooklane_core::rules::health::Settings;
use hooklane_core::rules::merge::{DeliveryStatus, State};
use hooklane_proto::delivery::DeliveryKey;
use sqlx::PgConnection;
use uuid::Uuid;

use super::change::Change;
use super::health::{self, News};
use super::reduce::{Reduced, Row};
use super::{Applied, MAX_FAULTS};
use crate::Error;
use crate::operational::{self, Event, Failed};

/// Writes everything, in lock order.
pub(super) async fn all(
    tx: &mut PgConnection,
    reduced: &Reduced,
    settings: &Settings,
) -> Result<Applied, Error> {
    let mut applied = Applied::default();
    let mut news = None;
    if !reduced.attempts.is_empty() {
        (applied.attempts, news) = attempts(tx, &reduced.attempts).await?;
    }
    deliveries(tx, &reduced.changes, &mut applied).await?;
    if applied.attempts > 0 {
        health::take(tx, reduced, &news, settings, &mut applied).await?;
    }
    Ok(applied)
}

/// Inserts what is new; answers how many were, and which.
async fn attempts(tx: &mut PgConnection, rows: &[Row]) -> Result<(u64, News), Error> {
    let row = sqlx::query_file!(
        "src/record/attempts.sql",
        &column(rows, |row| row.started_at) as &[DateTime<Utc>],
        &column(rows, |row| row.id.uuid()) as &[Uuid],
        &column(rows, |row| row.key.accepted_at) as &[DateTime<Utc>],
        &column(rows, |row| row.key.message.uuid()) as &[Uuid],
        &column(rows, |row| row.key.endpoint.uuid()) as &[Uuid],
        &column(rows, |row| row.series) as &[i32],
        &column(rows, |row| row.drive) as &[i32],
        &column(rows, |row| row.number) as &[i32],
        &column(rows, |row| row.duration_us) as &[i64],
        &column(rows, |row| row.status) as &[Option<i16>],
        &column(rows, |row| row.headers.as_deref()) as &[Option<&str>],
        &column(rows, |row| row.body.as_deref()) as &[Option<&[u8]>],
        &column(rows, |row| row.error.as_deref()) as &[Option<&str>],
        &column(rows, |row| row.detail.as_deref()) as &[Option<&str>],
        &column(rows, |row| row.verdict) as &[&str],
        &column(rows, |row| row.traceparent.as_deref()) as &[Option<&str>],
    )
    .fetch_one(tx)
    .await
    .map_err(Error::doing("writing attempts"))?;
    let news = row.news.map(|ids| ids.into_iter().collect());
    Ok((row.inserted.unsigned_abs(), news))
}

async fn deliveries(
    tx: &mut PgConnection,
    changes: &[(DeliveryKey, Change)],
    applied: &mut Applied,
) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let row = sqlx::query_file!(
        "src/record/merge.sql",
        &column(changes, |(key, _)| key.accepted_at) as &[DateTime<Utc>],
        &column(changes, |(key, _)| key.message.uuid()) as &[Uuid],
        &column(changes, |(key, _)| key.endpoint.uuid()) as &[Uuid],
        &column(changes, |(_, change)| change.state.series) as &[i32],
        &column(changes, |(_, change)| change.state.status.as_str()) as &[&str],
        &column(changes, |(_, change)| change.state.drive) as &[i32],
        &column(changes, |(_, change)| change.state.settled.rank()) as &[i16],
        &column(changes, |(_, change)| change.state.next_attempt_at) as &[Option<DateTime<Utc>>],
        &column(changes, |(_, change)| change.state.attempt_count) as &[i32],
        &column(changes, |(_, change)| change.counted) as &[i32],
        &column(changes, |(_, change)| last_status(change)) as &[Option<i16>],
        &column(changes, |(_, change)| change.last_error.as_deref()) as &[Option<&str>],
        &column(changes, |(_, change)| change
            .state
            .failure_reason
            .as_deref()) as &[Option<&str>],
        &column(changes, |(_, change)| change.fault) as &[bool],
        &column(changes, |(_, change)| change.settled_at) as &[Option<DateTime<Utc>>],
        MAX_FAULTS,
    )
    .fetch_one(&mut *tx)
    .await
    .map_err(Error::doing("merging records into deliveries"))?;
    applied.changed = row.changed.unsigned_abs();
    applied.poisoned = row.poisoned.unsigned_abs();
    let named = row.accepted.into_iter().zip(row.messages);
    let named = named.zip(row.endpoints).zip(row.consumers);
    let exhausted: Vec<Event> = named
        .filter_map(|(((accepted_at, message), endpoint), consumer)| {
            let key = DeliveryKey::from_uuids(accepted_at, message, endpoint);
            exhausted(changes, key, consumer)
        })
        .collect();
    operational::write(&mut *tx, &exhausted).await?;
    let rest = changes.len() as u64 - applied.changed;
    if rest > 0 {
        applied.missing = missing(tx, changes).await?;
        applied.outranked = rest.saturating_sub(applied.missing);
    }
    Ok(())
}

/// How many of these deliveries are not in the ledger. Asked only where some did not change.
async fn missing(tx: &mut PgConnection, changes: &[(DeliveryKey, Change)]) -> Result<u64, Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "missing!" FROM unnest($1::timestamptz[], $2::uuid[], $3::uuid[])
                  AS r (accepted_at, message_id, endpoint_id)
            WHERE NOT EXISTS (SELECT FROM hooklane.deliveries d
                               WHERE d.accepted_at = r.accepted_at AND d.message_id = r.message_id
                                 AND d.endpoint_id = r.endpoint_id)"#,
        &column(changes, |(key, _)| key.accepted_at) as &[DateTime<Utc>],
        &column(changes, |(key, _)| key.message.uuid()) as &[Uuid],
        &column(changes, |(key, _)| key.endpoint.uuid()) as &[Uuid],
    )
    .fetch_one(tx)
    .await
    .map(i64::unsigned_abs)
    .map_err(Error::doing("counting records of unknown deliveries"))
}

/// The news of a delivery that failed for good, where it is this batch that says so.
fn exhausted(
    changes: &[(DeliveryKey, Change)],
    key: DeliveryKey,
    consumer: String,
) -> Option<Event> {
    let at = changes.binary_search_by_key(&key, |(key, _)| *key).ok()?;
    let (_, change) = &changes[at];
    let State {
        series,
        status,
        attempt_count,
        failure_reason,
        ..
    } = &change.state;
    let reason = failure_reason.clone()?;
    (*status == DeliveryStatus::Failed).then(|| {
        Event::exhausted(&Failed {
            key,
            consumer,
            series: *series,
            attempts: *attempt_count,
            reason,
            last_status: last_status(change),
            last_error: change.last_error.clone(),
            at: change.settled_at.unwrap_or_else(clock::now),
        })
    })
}

fn last_status(change: &Change) -> Option<i16> {
    change
        .state
        .last_status
        .map(|status| i16::try_from(status).unwrap_or(i16::MAX))
}

/// One column of a list of rows, for `unnest`.
pub(super) fn column<'a, T, U>(rows: &'a [T], field: impl Fn(&'a T) -> U) -> Vec<U> {
    rows.iter().map(field).collect()
}
