//! What a person does about events in quarantine: try them again, give them up, or ask first.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hooklane_proto::id::InboxId;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::claim::{bodies, peek, standing};
use super::decide::{Known, decide, entity_of};
use super::insert::rearm;
use super::reader::{Reader, Reading, know};
use super::{Reason, Stage, Status, word};
use crate::audit_log::{self, Action, Change};
use crate::manage::{Error, Kind};
use crate::{Error as Fault, Store};

/// What became of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It is done.
    Done,
    /// There is no such event.
    NotThere,
    /// It is not in quarantine, but has this status.
    Not(Status),
}

/// What a step would do with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// What would become of it.
    pub outcome: Outcome,
    /// The state in which its entity is now.
    pub state: Option<String>,
    /// What it says has happened.
    pub event_type: Option<String>,
    /// To what: a type and a key.
    pub entity: Option<(String, String)>,
}

/// What would become of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It would take effect.
    Apply {
        /// The entity's state before.
        from: Option<String>,
        /// The entity's state afterwards.
        to: Option<String>,
    },
    /// It took effect before, and would be handed off again.
    HandOffAgain,
    /// It would wait.
    Defer {
        /// For what.
        missing: String,
    },
    /// It would have no effect.
    Superseded {
        /// Why.
        why: String,
    },
    /// It would need a person.
    Quarantine {
        /// Why.
        reason: Reason,
        /// What there is to say.
        detail: String,
    },
    /// It would be split into items.
    Split {
        /// How many.
        items: u32,
    },
    /// Nothing: it is closed, with this status.
    Closed(Status),
    /// Nothing: its source is not configured here.
    UnknownSource,
    /// Reading it panics.
    Panic,
}

impl Store {
    /// Takes events out of quarantine, to be tried again: one that took effect before it came there is
    /// handed off again, another is decided anew. Signatures are not verified again.
    ///
    /// # Errors
    /// Where the database fails: nothing was changed then.
    pub async fn inbox_replay(
        &self,
        now: DateTime<Utc>,
        ids: &[InboxId],
    ) -> Result<Vec<(InboxId, Done)>, Fault> {
        let doing = "replaying inbox events";
        let uuids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        let mut tx = self.pool().begin().await.map_err(Fault::doing(doing))?;
        let armed = rearm(&mut tx, now, &uuids, "replayed").await?;
        let done: Vec<Uuid> = armed.into_iter().collect();
        self.finish(tx, Action::InboxReplay, ids, &done).await
    }

    /// Gives up events in quarantine for good.
    ///
    /// # Errors
    /// Where the database fails: nothing was changed then.
    pub async fn inbox_discard(
        &self,
        now: DateTime<Utc>,
        ids: &[InboxId],
    ) -> Result<Vec<(InboxId, Done)>, Fault> {
        let doing = "discarding inbox events";
        let uuids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        let mut tx = self.pool().begin().await.map_err(Fault::doing(doing))?;
        let done = sqlx::query_scalar!(
            r#"WITH locked AS (
                   SELECT id FROM hooklane.webhook_inbox
                    WHERE id = ANY($1) AND status = 'QUARANTINED' ORDER BY id FOR UPDATE
               ), discarded AS (
                   UPDATE hooklane.webhook_inbox w SET status = 'DISCARDED', processed_at = $2
                     FROM locked WHERE w.id = locked.id
                   RETURNING w.id
               ), noted AS (
                   INSERT INTO hooklane.inbox_trail (event_id, at, action)
                   SELECT id, $2, 'discarded' FROM discarded
               )
               SELECT id AS "id!" FROM discarded"#,
            &uuids,
            now,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Fault::doing(doing))?;
        self.finish(tx, Action::InboxDiscard, ids, &done).await
    }

    /// Writes the audit entry, commits, and says what became of each.
    async fn finish(
        &self,
        mut tx: sqlx::Transaction<'static, sqlx::Postgres>,
        action: Action,
        ids: &[InboxId],
        done: &[Uuid],
    ) -> Result<Vec<(InboxId, Done)>, Fault> {
        if let [first, more @ ..] = done {
            let subject = match more {
                [] => InboxId::from_uuid(*first).to_string(),
                _ => "many".to_owned(),
            };
            let change = Change::of(action, None, subject).with(json!({ "events": done.len() }));
            audit_log::note(&mut tx, self, change).await?;
        }
        let others = statuses(&mut tx, ids, done).await?;
        tx.commit()
            .await
            .map_err(Fault::doing("committing a change of inbox events"))?;
        Ok(ids
            .iter()
            .map(|id| {
                let other = others.get(&id.uuid()).copied();
                let became = match other {
                    _ if done.contains(&id.uuid()) => Done::Done,
                    Some(status) => Done::Not(status),
                    None => Done::NotThere,
                };
                (*id, became)
            })
            .collect())
    }

    /// What a step would do with an event now, whatever it waits for. Writes nothing.
    ///
    /// # Errors
    /// [`Error::NotFound`], or a fault of the database.
    pub async fn inbox_dry_run(
        &self,
        now: DateTime<Utc>,
        id: InboxId,
        reader: &impl Reader,
    ) -> Result<DryRun, Error> {
        let doing = "trying an inbox event";
        let mut conn = self.pool().acquire().await.map_err(Fault::doing(doing))?;
        let mut taken = peek(&mut conn, id.uuid())
            .await?
            .ok_or_else(|| Error::not_found(Kind::InboxEvent, id))?;
        let mut run = DryRun {
            outcome: Outcome::Closed(taken.status),
            state: None,
            event_type: taken.event_type.clone(),
            entity: taken.entity.clone(),
        };
        match (taken.status, taken.stage) {
            (Status::Processed | Status::Superseded | Status::Discarded, _) => return Ok(run),
            (_, Stage::HandOff) => {
                run.outcome = Outcome::HandOffAgain;
                return Ok(run);
            }
            _ => {}
        }
        // As if it had just come: how long it has waited is not the question.
        (taken.status, taken.deadline_at, taken.faults) = (Status::Pending, None, 0);
        let body = bodies(&mut conn, [taken.body_place()].into_iter())
            .await?
            .remove(&taken.id);
        let known = know(reader, &taken, body);
        let mut standings = BTreeMap::new();
        if let Some(key) = entity_of(&taken, &known) {
            let stands = standing(&mut conn, &key).await?.unwrap_or_default();
            run.state.clone_from(&stands.state);
            standings.insert(key, stands);
        }
        drop(conn);
        match &known {
            Known::Unknown => run.outcome = Outcome::UnknownSource,
            Known::Panicked => run.outcome = Outcome::Panic,
            Known::Read(Reading::Items(items)) if taken.parent.is_none() => {
                run.outcome = Outcome::Split {
                    items: u32::try_from(items.len()).unwrap_or(u32::MAX),
                };
            }
            _ => {
                let mut plan = decide(now, &[taken], &[known], standings, reader);
                let (Some(after), Some(noted)) = (plan.after.pop(), plan.trail.pop()) else {
                    return Ok(run);
                };
                let said = after.detail.or(noted.detail).unwrap_or_default();
                run.event_type = after.event_type;
                run.entity = after.entity;
                run.outcome = match after.status {
                    Status::Deferred => Outcome::Defer { missing: said },
                    Status::Superseded => Outcome::Superseded { why: said },
                    Status::Quarantined => Outcome::Quarantine {
                        reason: after.reason.unwrap_or(Reason::Poison),
                        detail: said,
                    },
                    Status::Pending | Status::Processed | Status::Discarded => Outcome::Apply {
                        from: noted.from,
                        to: noted.to,
                    },
                };
            }
        }
        Ok(run)
    }
}

/// The statuses of those that nothing was done with.
async fn statuses(
    conn: &mut PgConnection,
    ids: &[InboxId],
    done: &[Uuid],
) -> Result<BTreeMap<Uuid, Status>, Fault> {
    let left: Vec<Uuid> = ids
        .iter()
        .map(|id| id.uuid())
        .filter(|id| !done.contains(id))
        .collect();
    if left.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = sqlx::query!(
        "SELECT id, status FROM hooklane.webhook_inbox WHERE id = ANY($1)",
        &left,
    )
    .fetch_all(conn)
    .await
    .map_err(Fault::doing("looking at inbox events"))?;
    rows.into_iter()
        .map(|row| Ok((row.id, word(&row.status)?)))
        .collect()
}
