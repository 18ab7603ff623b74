//! The worker's step: takes what is due, reads it, decides, and writes all of it in one transaction.
//!
//! A step that is cut off did nothing. Several may run at once: each takes other events, and they wait
//! for each other where they are about the same entity.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use sqlx::PgConnection;
use uuid::Uuid;

use super::claim::{Due, EntityKey, Taken, bodies, due, due_one, lock_entities, present};
use super::decide::{Known, MAX_FAULTS, back_off, decide, entity_of, waited_for};
use super::reader::{Reader, know};
use super::{Reason, Stage, write};
use crate::{Error, Store};

/// How much one step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Events at most.
    pub events: u32,
    /// Bytes of bodies at most; one event is always taken.
    pub bytes: u32,
}

impl Default for StepLimits {
    fn default() -> Self {
        Self {
            events: 100,
            bytes: 8 << 20,
        }
    }
}

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stepped {
    /// Events that it looked at.
    pub claimed: u32,
    /// Those that took effect.
    pub applied: u32,
    /// Those that wait for what comes before them.
    pub deferred: u32,
    /// Those whose entity had moved on.
    pub superseded: u32,
    /// Those that need a person.
    pub quarantined: Vec<(Partner, Reason)>,
    /// Those that were split into items.
    pub split: u32,
    /// The items, those that were there already included.
    pub items: u32,
    /// Those whose reading panicked.
    pub panicked: u32,
    /// Sources that this process does not know and that have events due, which are left to others.
    pub unknown: u32,
    /// Events that waited for what took effect, and are due now.
    pub woken: u32,
    /// Events for the publisher.
    pub handed: u32,
    /// Whether something due was left for the next step.
    pub cut: bool,
}

impl Stepped {
    /// Whether the next step may find something to do at once.
    #[must_use]
    pub fn more(&self) -> bool {
        self.cut || self.woken > 0 || self.items > 0
    }
}

/// A step that failed, and what it had taken.
struct Failed {
    error: Error,
    taken: Vec<Uuid>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self {
            error,
            taken: Vec::new(),
        }
    }
}

impl Store {
    /// Decides about events that are due, at most `limits` of them. Several processes may do so at
    /// once.
    ///
    /// Cancel-safe: a dropped step did nothing. Where the database refuses what one of the events
    /// brings, each is looked at by itself, and what is refused three times is quarantined.
    ///
    /// # Errors
    /// Where the database fails: nothing was done then, save where the answer to the commit was lost.
    pub async fn inbox_step(
        &self,
        now: DateTime<Utc>,
        limits: &StepLimits,
        reader: &impl Reader,
    ) -> Result<Stepped, Error> {
        let failed = match self.step_over(now, limits, None, reader).await {
            Ok(stepped) => return Ok(stepped),
            Err(failed) if !failed.error.is_data_fault() => return Err(failed.error),
            Err(failed) => failed,
        };
        let mut all = Stepped {
            cut: true,
            ..Stepped::default()
        };
        for id in failed.taken {
            match self.step_over(now, limits, Some(id), reader).await {
                Ok(stepped) => all.add(stepped),
                Err(failed) if failed.error.is_data_fault() => {
                    let error = failed.error;
                    tracing::error!(event = %InboxId::from_uuid(id), %error, "an inbox event can't be decided");
                    all.panicked += 1;
                    all.quarantined
                        .extend(self.note_fault(now, id, &error).await?);
                }
                Err(failed) => return Err(failed.error),
            }
        }
        Ok(all)
    }

    async fn step_over(
        &self,
        now: DateTime<Utc>,
        limits: &StepLimits,
        only: Option<Uuid>,
        reader: &impl Reader,
    ) -> Result<Stepped, Failed> {
        let mut tx = self.begin_probing().await?;
        let found = match only {
            None => due(&mut tx, now, limits, reader).await?,
            Some(id) => Due {
                taken: due_one(&mut tx, now, id).await?.into_iter().collect(),
                ..Due::default()
            },
        };
        let Due {
            taken,
            cut,
            unknown,
        } = found;
        if taken.is_empty() {
            return Ok(Stepped {
                unknown,
                ..Stepped::default()
            });
        }
        let done = work(&mut tx, now, &taken, reader).await;
        let done = match done {
            Ok(stepped) => tx
                .commit()
                .await
                .map(|()| stepped)
                .map_err(Error::doing("committing a step of the inbox")),
            Err(error) => {
                // Dropped without waiting, it would hold the rows for a moment more.
                let _ = tx.rollback().await;
                Err(error)
            }
        };
        match done {
            Ok((stepped, locked)) => Ok(Stepped {
                cut,
                unknown: unknown + stepped.unknown,
                woken: stepped.woken + self.wake_locked(now, &locked).await,
                ..stepped
            }),
            Err(error) => Err(Failed {
                error,
                taken: taken.iter().map(|one| one.id).collect(),
            }),
        }
    }

    /// Wakes what somebody had locked when its entity was moved; answers how many.
    async fn wake_locked(&self, now: DateTime<Utc>, keys: &[EntityKey]) -> u32 {
        if keys.is_empty() {
            return 0;
        }
        let waking = async {
            let mut tx = self.begin_probing().await?;
            let woken = write::wake_after(&mut tx, now, keys).await?;
            tx.commit()
                .await
                .map_err(Error::doing("waking deferred inbox events"))?;
            Ok::<u32, Error>(woken)
        };
        match waking.await {
            Ok(woken) => woken,
            Err(error) => {
                // The step itself is done.
                tracing::warn!(%error, "deferred inbox events wait until they are due anyhow");
                0
            }
        }
    }

    /// Counts that an event could not be decided, in a statement of its own.
    async fn note_fault(
        &self,
        now: DateTime<Utc>,
        id: Uuid,
        error: &Error,
    ) -> Result<Option<(Partner, Reason)>, Error> {
        let state = error.sqlstate().unwrap_or_default();
        let why = format!("the ledger refuses what it brings (SQLSTATE {state})");
        let row = sqlx::query!(
            r#"WITH before AS (
                   SELECT id, status, partner_name, entity_type, entity_key
                     FROM hooklane.webhook_inbox
                    WHERE id = $1 AND status IN ('PENDING', 'DEFERRED') FOR UPDATE
               ), noted AS (
                   UPDATE hooklane.webhook_inbox w
                      SET faults = w.faults + 1, detail = $3,
                          next_at = $2::timestamptz + make_interval(secs => $4),
                          status = CASE WHEN w.faults + 1 >= $5 THEN 'QUARANTINED' ELSE w.status END,
                          reason = CASE WHEN w.faults + 1 >= $5 THEN 'poison' END
                     FROM before WHERE w.id = before.id
                RETURNING w.id, w.partner_name, w.status
               ), waits_no_more AS (
                   UPDATE hooklane.inbox_entities e SET deferred = greatest(e.deferred - 1, 0)
                     FROM before, noted
                    WHERE before.status = 'DEFERRED' AND noted.status = 'QUARANTINED'
                      AND e.partner_name = before.partner_name
                      AND e.entity_type = before.entity_type AND e.entity_key = before.entity_key
               ), trail AS (
                   INSERT INTO hooklane.inbox_trail (event_id, at, action, reason, detail)
                   SELECT id, $2, CASE status WHEN 'QUARANTINED' THEN 'quarantined' ELSE 'failed' END,
                          'poison', $3
                     FROM noted
               )
               SELECT partner_name AS "partner_name!", status AS "status!" FROM noted"#,
            id,
            now,
            why,
            back_off(1).as_secs_f64(),
            i32::from(MAX_FAULTS),
        )
        .fetch_optional(self.pool())
        .await
        .map_err(Error::doing("counting a fault of an inbox event"))?;
        let quarantined = row.filter(|row| row.status == "QUARANTINED");
        quarantined
            .map(|row| Ok((super::partner(&row.partner_name)?, Reason::Poison)))
            .transpose()
    }
}

impl Stepped {
    fn add(&mut self, other: Self) {
        let Self {
            claimed,
            applied,
            deferred,
            superseded,
            quarantined,
            split,
            items,
            panicked,
            unknown,
            woken,
            handed,
            cut: _,
        } = other;
        self.claimed += claimed;
        self.applied += applied;
        self.deferred += deferred;
        self.superseded += superseded;
        self.quarantined.extend(quarantined);
        self.split += split;
        self.items += items;
        self.panicked += panicked;
        self.unknown += unknown;
        self.woken += woken;
        self.handed += handed;
    }
}

/// Everything between the claim and the commit. The second part is the entities of which something is to
/// be woken after it.
async fn work(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    taken: &[Taken],
    reader: &impl Reader,
) -> Result<(Stepped, Vec<EntityKey>), Error> {
    let undecided = taken.iter().filter(|one| one.stage == Stage::Decide);
    let mut bodies = bodies(conn, undecided.map(Taken::body_place)).await?;
    // Failures may be told long after an event was published, when its body is gone.
    let again = taken.iter().filter(|one| one.stage == Stage::HandOff);
    let there = present(conn, again.map(Taken::body_place)).await?;
    let known: Vec<Known> = taken
        .iter()
        .map(|one| match one.stage {
            Stage::Decide => know(reader, one, bodies.remove(&one.id)),
            Stage::HandOff if there.contains(&one.id) => Known::Again,
            Stage::HandOff => Known::Bodiless,
        })
        .collect();
    let keys: BTreeSet<EntityKey> = taken
        .iter()
        .zip(&known)
        .flat_map(|(one, known)| [entity_of(one, known), waited_for(one)])
        .flatten()
        .collect();
    let keys: Vec<EntityKey> = keys.into_iter().collect();
    let standings = lock_entities(conn, now, &keys).await?;
    let plan = decide(now, taken, &known, standings.clone(), reader);
    write::all(conn, now, taken, &standings, plan).await
}
