//! The statements that write a reduced batch.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use hooklane_proto::delivery::DeliveryKey;
use sqlx::PgConnection;
use uuid::Uuid;

use super::change::Change;
use super::reduce::{Reduced, Row};
use super::{Applied, MAX_FAULTS};
use crate::Error;

/// Writes everything, in lock order.
pub(super) async fn all(tx: &mut PgConnection, reduced: &Reduced) -> Result<Applied, Error> {
    let mut applied = Applied::default();
    let mut news = Vec::new();
    if !reduced.attempts.is_empty() {
        // Only a record that was not known yet acts on its endpoint: one that comes again after the
        // operator resumed the endpoint must not disable it again.
        let mut acting: Vec<Uuid> = reduced.gone.iter().map(|(id, _)| id.uuid()).collect();
        acting.extend(reduced.holds.iter().map(|(id, _, _)| id.uuid()));
        (applied.attempts, news) = attempts(tx, &reduced.attempts, &acting).await?;
    }
    deliveries(tx, &reduced.changes, &mut applied).await?;
    if !news.is_empty() {
        let news: HashSet<Uuid> = news.into_iter().collect();
        let gone: Vec<Uuid> = reduced
            .gone
            .iter()
            .filter(|(id, _)| news.contains(&id.uuid()))
            .map(|(_, endpoint)| endpoint.uuid())
            .collect();
        let (held, until): (Vec<Uuid>, Vec<DateTime<Utc>>) = reduced
            .holds
            .iter()
            .filter(|(id, _, _)| news.contains(&id.uuid()))
            .map(|(_, endpoint, until)| (endpoint.uuid(), *until))
            .unzip();
        endpoints(tx, &gone, &held, &until, &mut applied).await?;
    }
    Ok(applied)
}

/// Inserts what is new; answers how many were, and which of `acting` were.
async fn attempts(
    tx: &mut PgConnection,
    rows: &[Row],
    acting: &[Uuid],
) -> Result<(u64, Vec<Uuid>), Error> {
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
        acting,
    )
    .fetch_one(tx)
    .await
    .map_err(Error::doing("writing attempts"))?;
    Ok((row.inserted.unsigned_abs(), row.news))
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

/// Disables what answered 410 and holds what asked for it. Each change takes a new version, which
/// brings it to the lanes.
async fn endpoints(
    tx: &mut PgConnection,
    gone: &[Uuid],
    held: &[Uuid],
    until: &[DateTime<Utc>],
    applied: &mut Applied,
) -> Result<(), Error> {
    let row = sqlx::query_file!("src/record/endpoints.sql", gone, held, until)
        .fetch_one(tx)
        .await
        .map_err(Error::doing("disabling and holding endpoints"))?;
    applied.disabled = row.disabled.unsigned_abs();
    applied.held = row.held.unsigned_abs();
    Ok(())
}

fn last_status(change: &Change) -> Option<i16> {
    change
        .state
        .last_status
        .map(|status| i16::try_from(status).unwrap_or(i16::MAX))
}

/// One column of a list of rows, for `unnest`.
fn column<'a, T, U>(rows: &'a [T], field: impl Fn(&'a T) -> U) -> Vec<U> {
    rows.iter().map(field).collect()
}
