//! What a batch says about endpoints, in rows: their health, their state, their holds, and the news
//! of it.
//!
//! Only attempts that were not in the ledger yet count, so a record that comes again changes
//! nothing. An endpoint that is well has no row of health, and its successes touch nothing: one
//! look at the rows that are there is all that a batch of successes costs.
//!
//! A row of health is locked before the endpoint's state is read or changed, here and where a
//! person changes it, so that nobody decides on a state that is no more. The endpoint itself is
//! written only where its state or its hold changes; and it takes a new version, which brings it to
//! the lanes, only where that is something to them: `active` and `failing` are the same there.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Utc};
use hooklane_core::rules::health::{Health, Hours, Kind, Outcome, Run, Settings, Transition};
use hooklane_proto::id::EndpointId;
use hooklane_proto::route::State;
use sqlx::PgConnection;
use uuid::Uuid;

use super::Applied;
use super::reduce::Reduced;
use super::write::column;
use crate::operational::{self, Change, Event};
use crate::{Error, endpoint};

/// Which attempts of a batch were not known before; `None` says all of them.
pub(super) type News = Option<HashSet<Uuid>>;

/// An endpoint that may have to change.
struct Subject {
    endpoint: Uuid,
    consumer: String,
    settings: Settings,
    now: DateTime<Utc>,
    health: Health,
}

/// Takes the new attempts of a batch into account.
pub(super) async fn take(
    tx: &mut PgConnection,
    reduced: &Reduced,
    news: &News,
    settings: &Settings,
    applied: &mut Applied,
) -> Result<(), Error> {
    let is_new = |id: Uuid| news.as_ref().is_none_or(|news| news.contains(&id));
    let mut outcomes: BTreeMap<Uuid, Vec<Outcome>> = BTreeMap::new();
    for (endpoint, outcome) in &reduced.outcomes {
        if is_new(outcome.id.uuid()) {
            outcomes.entry(endpoint.uuid()).or_default().push(*outcome);
        }
    }
    let subjects = subjects(tx, &outcomes, settings).await?;
    let mut changed = Vec::new();
    let mut transitions = Vec::new();
    for mut subject in subjects {
        let before = subject.health.clone();
        let outcomes = outcomes
            .get(&subject.endpoint)
            .map_or(&[][..], Vec::as_slice);
        let transition = subject
            .health
            .observe(outcomes, subject.now, &subject.settings);
        let rest = Health {
            state: before.state,
            ..subject.health.clone()
        };
        if let Some(transition) = transition {
            transitions.push((subject.endpoint, subject.consumer, subject.now, transition));
        }
        if rest != before {
            changed.push((subject.endpoint, rest));
        }
    }
    update(tx, &changed).await?;
    let holds: Vec<(Uuid, DateTime<Utc>)> = reduced
        .holds
        .iter()
        .filter(|(id, _, _)| is_new(id.uuid()))
        .map(|(_, endpoint, until)| (endpoint.uuid(), *until))
        .collect();
    if transitions.is_empty() && holds.is_empty() {
        return Ok(());
    }
    let moved = endpoints(tx, &transitions, &holds, applied).await?;
    tell(tx, &transitions, &moved, applied).await
}

/// The endpoints that these outcomes may change, their rows of health locked.
async fn subjects(
    tx: &mut PgConnection,
    outcomes: &BTreeMap<Uuid, Vec<Outcome>>,
    settings: &Settings,
) -> Result<Vec<Subject>, Error> {
    if outcomes.is_empty() {
        return Ok(Vec::new());
    }
    let doing = "reading endpoints' health";
    let ids: Vec<Uuid> = outcomes.keys().copied().collect();
    let fails: Vec<bool> = outcomes
        .values()
        .map(|list| list.iter().any(|outcome| outcome.kind != Kind::Success))
        .collect();
    let failing: Vec<Uuid> = ids
        .iter()
        .zip(&fails)
        .filter(|(_, fails)| **fails)
        .map(|(id, _)| *id)
        .collect();
    if !failing.is_empty() {
        sqlx::query!(
            "INSERT INTO hooklane.endpoint_health (endpoint_id)
             SELECT e.id FROM hooklane.endpoints e
              WHERE e.id = ANY($1) AND e.state <> 'deleted' ORDER BY e.id
             ON CONFLICT DO NOTHING",
            &failing,
        )
        .execute(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
    }
    let rows = sqlx::query!(
        "SELECT h.endpoint_id, h.consecutive_failures, h.failing_since, h.last_failure_at,
                h.forgotten_until, h.hour, h.hourly
           FROM unnest($1::uuid[], $2::bool[]) AS u (id, fails)
           JOIN hooklane.endpoint_health h ON h.endpoint_id = u.id
          WHERE u.fails OR h.consecutive_failures > 0
          ORDER BY h.endpoint_id FOR UPDATE OF h",
        &ids,
        &fails,
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(Error::doing(doing))?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    // Not in the statement before: what it waits for may change the state.
    let locked: Vec<Uuid> = rows.iter().map(|row| row.endpoint_id).collect();
    let endpoints = sqlx::query!(
        r#"SELECT id, consumer_id, state::text AS "state!", auto_disable, clock_timestamp() AS "now!"
             FROM hooklane.endpoints WHERE id = ANY($1)"#,
        &locked,
    )
    .fetch_all(tx)
    .await
    .map_err(Error::doing(doing))?;
    let mut endpoints: HashMap<Uuid, _> = endpoints.into_iter().map(|row| (row.id, row)).collect();
    let mut subjects = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(endpoint) = endpoints.remove(&row.endpoint_id) else {
            continue;
        };
        let run = row
            .failing_since
            .zip(row.last_failure_at)
            .map(|(since, last)| Run {
                failures: row.consecutive_failures.unsigned_abs(),
                since,
                last,
            });
        subjects.push(Subject {
            endpoint: row.endpoint_id,
            consumer: endpoint.consumer_id,
            settings: settings.of_endpoint(endpoint.auto_disable),
            now: endpoint.now,
            health: Health {
                state: endpoint::state_of(&endpoint.state)?,
                run,
                forgotten_until: row.forgotten_until,
                hours: Hours::from_parts(row.hour, &row.hourly),
            },
        });
    }
    Ok(subjects)
}

/// Writes locked rows of health.
async fn update(tx: &mut PgConnection, rows: &[(Uuid, Health)]) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    // An array of arrays would have to be of one length.
    let hourly = |health: &Health| {
        let counts: Vec<String> = health.hours.counts().map(|n| n.to_string()).collect();
        format!("{{{}}}", counts.join(","))
    };
    sqlx::query!(
        "UPDATE hooklane.endpoint_health h
            SET consecutive_failures = u.failures, failing_since = u.since, last_failure_at = u.last,
                forgotten_until = u.forgotten, hour = u.hour, hourly = u.hourly::int[]
           FROM unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[],
                       $6::timestamptz[], $7::text[])
                AS u (id, failures, since, last, forgotten, hour, hourly)
          WHERE h.endpoint_id = u.id",
        &column(rows, |(id, _)| *id) as &[Uuid],
        &column(rows, |(_, health)| health
            .run
            .map_or(0, |run| i32::try_from(run.failures).unwrap_or(i32::MAX))) as &[i32],
        &column(rows, |(_, health)| health.run.map(|run| run.since)) as &[Option<DateTime<Utc>>],
        &column(rows, |(_, health)| health.run.map(|run| run.last)) as &[Option<DateTime<Utc>>],
        &column(rows, |(_, health)| health.forgotten_until) as &[Option<DateTime<Utc>>],
        &column(rows, |(_, health)| health.hours.last()) as &[Option<DateTime<Utc>>],
        &column(rows, |(_, health)| hourly(health)) as &[String],
    )
    .execute(tx)
    .await
    .map_err(Error::doing("writing endpoints' health"))?;
    Ok(())
}

type Moved = (Uuid, String, DateTime<Utc>, Transition);

/// Writes the endpoints whose state or hold changes; answers with those whose state did.
async fn endpoints(
    tx: &mut PgConnection,
    transitions: &[Moved],
    holds: &[(Uuid, DateTime<Utc>)],
    applied: &mut Applied,
) -> Result<HashSet<Uuid>, Error> {
    let row = sqlx::query_file!(
        "src/record/endpoints.sql",
        &column(transitions, |(id, ..)| *id) as &[Uuid],
        &column(transitions, |(.., step)| step.from.as_str()) as &[&str],
        &column(transitions, |(.., step)| step.to.as_str()) as &[&str],
        &column(transitions, |(.., step)| !(step.from.takes_deliveries()
            && step.to.takes_deliveries())) as &[bool],
        &column(holds, |(id, _)| *id) as &[Uuid],
        &column(holds, |(_, until)| *until) as &[DateTime<Utc>],
    )
    .fetch_one(tx)
    .await
    .map_err(Error::doing("changing and holding endpoints"))?;
    applied.held = row.held.unsigned_abs();
    Ok(row.moved.into_iter().collect())
}

/// Counts what changed, and writes the news of it.
async fn tell(
    tx: &mut PgConnection,
    transitions: &[Moved],
    moved: &HashSet<Uuid>,
    applied: &mut Applied,
) -> Result<(), Error> {
    let mut events = Vec::new();
    for (id, consumer, now, step) in transitions {
        if !moved.contains(id) {
            continue;
        }
        match step.to {
            State::Failing => applied.failing += 1,
            State::Active => applied.recovered += 1,
            State::Disabled => applied.disabled += 1,
            State::Paused | State::Deleted => {}
        }
        events.push(Event::changed(&Change {
            endpoint: EndpointId::from_uuid(*id),
            consumer,
            from: step.from,
            to: step.to,
            reason: step.reason.as_str(),
            run: step.run,
            at: *now,
        }));
    }
    operational::write(tx, &events).await
}
