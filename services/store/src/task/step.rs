//! Taking a task one step further.
//!
//! The task whose turn it is begins by counting what there is to do. From then on a step locks its
//! row, passing over one that somebody else is at; looks at a page of deliveries; opens a new series
//! for those that may have one; and writes the place and the counts into the row: all of it in one
//! transaction. Cut off anywhere, either all of it happened or nothing.
//!
//! Locks the task, then what a replay locks.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::rules::merge::DeliveryStatus;
use hooklane_proto::delivery::DeliveryKey;
use sqlx::PgConnection;
use uuid::Uuid;

use super::page::Place;
use super::read::{tasks, write_refused};
use super::{Status, Task, Work, count, page};
use crate::dead_letter::{self, Filed, Outcome, Refusal, Series, Terms};
use crate::{Error, Store};

/// The longest pause before a task that failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stepped {
    /// The task as it is now.
    pub task: Task,
    /// Deliveries that this step made due.
    pub due: u64,
    /// Those that it looked at and refused.
    pub refused: u64,
    /// Where dead letters of what is due now stand in `DLQ`.
    pub gone: Vec<(Series, Filed)>,
}

impl Store {
    /// Takes the task that has waited longest one step further, over at most `limit` deliveries;
    /// `None` where none waits. Several processes may do so at once: each takes another task.
    ///
    /// A step that fails changed nothing, and its task waits a while, or has failed where no further
    /// try can mend it.
    ///
    /// # Errors
    /// Where the database fails, or holds something that this release can't read.
    pub async fn step_task(&self, terms: Terms, limit: u32) -> Result<Option<Stepped>, Error> {
        let mut tx = self.begin_probing().await?;
        let taken = tasks!(
            "WHERE status IN ('waiting', 'running') AND turn_at <= clock_timestamp()
             ORDER BY turn_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"
        )
        .fetch_optional(&mut *tx)
        .await
        .map_err(Error::doing("taking a task"))?;
        let Some(row) = taken else {
            return Ok(None);
        };
        let id = row.id;
        let place = row.at_time.zip(row.at_id);
        let place = place.map(|(time, id)| Place { time, id });
        let stepped = match row.task() {
            Ok(task) if task.status == Status::Waiting => {
                // Counting may take a while, and whoever cancels is not to wait for it.
                let given_back = tx.rollback().await.map_err(Error::doing("taking a task"));
                match given_back {
                    Ok(()) => self.begin_task(task, terms).await,
                    Err(fault) => Err(fault),
                }
            }
            Ok(task) => {
                let stepped = advance(&mut tx, task, place, terms, limit).await;
                match stepped {
                    Ok(stepped) => tx
                        .commit()
                        .await
                        .map(|()| stepped)
                        .map_err(Error::doing("committing a step of a task")),
                    Err(fault) => {
                        // Dropped without waiting, it would hold the row's lock for a moment more.
                        let _ = tx.rollback().await;
                        Err(fault)
                    }
                }
            }
            Err(fault) => {
                let _ = tx.rollback().await;
                Err(fault)
            }
        };
        match stepped {
            Ok(stepped) => Ok(Some(stepped)),
            Err(fault) => {
                self.note_failure(id, &fault).await?;
                Err(fault)
            }
        }
    }

    /// Counts what there is to do and lets the task run.
    async fn begin_task(&self, task: Task, terms: Terms) -> Result<Stepped, Error> {
        let total = match count::tally(self, &task.work, terms).await {
            Ok(counted) => Some(counted.found),
            // It runs without knowing how long.
            Err(fault) if fault.is_timeout() => None,
            Err(fault) => return Err(fault),
        };
        // Not where somebody else began it meanwhile, or cancelled it.
        sqlx::query!(
            "UPDATE hooklane.tasks
                SET status = 'running', started_at = clock_timestamp(), turn_at = clock_timestamp(),
                    total = $2, failures = 0, error = NULL
              WHERE id = $1 AND status = 'waiting'",
            task.id.uuid(),
            total.map(signed)
        )
        .execute(self.pool())
        .await
        .map_err(Error::doing("beginning a task"))?;
        let row = tasks!("WHERE id = $1", task.id.uuid())
            .fetch_one(self.pool())
            .await
            .map_err(Error::doing("reading a task"))?;
        Ok(Stepped {
            task: row.task()?,
            due: 0,
            refused: 0,
            gone: Vec::new(),
        })
    }

    /// Lets a task wait whose step failed, the longer the more often it did; or gives it up.
    async fn note_failure(&self, id: Uuid, fault: &Error) -> Result<(), Error> {
        let hopeless = fault.is_data_fault() || matches!(fault, Error::Unreadable { .. });
        sqlx::query!(
            "UPDATE hooklane.tasks
                SET failures = failures + 1, error = $2,
                    status = CASE WHEN $3 THEN 'failed' ELSE status END,
                    ended_at = CASE WHEN $3 THEN clock_timestamp() END,
                    turn_at = clock_timestamp()
                              + make_interval(secs => least($4, power(2, least(failures, 10))))
              WHERE id = $1 AND status IN ('waiting', 'running')",
            id,
            fault.to_string(),
            hopeless,
            LONGEST_PAUSE.as_secs_f64()
        )
        .execute(self.pool())
        .await
        .map(|_done| ())
        .map_err(Error::doing("noting that a task failed"))
    }
}

/// Makes a locked task's next deliveries due, and moves it on.
async fn advance(
    tx: &mut PgConnection,
    mut task: Task,
    place: Option<Place>,
    terms: Terms,
    limit: u32,
) -> Result<Stepped, Error> {
    let page = page::read(tx, &task.work, place, task.created_at, limit).await?;
    let series: Vec<Series> = page.iter().map(|(series, _)| *series).collect();
    let outcomes = match (task.work, series.as_slice()) {
        (Work::Retry { .. }, [one]) => vec![retry(tx, *one, terms).await?],
        _ => dead_letter::replay(tx, &series, terms).await?,
    };
    let (mut due, mut refused, mut gone) = (0, 0, Vec::new());
    for (series, outcome) in series.iter().zip(outcomes) {
        match outcome {
            Ok(filed) => {
                due += 1;
                gone.extend(filed.map(|filed| (*series, filed)));
            }
            Err(why) => {
                refused += 1;
                *task.refused.entry(why).or_insert(0) += 1;
            }
        }
    }
    let at = page.last().map(|(_, place)| *place).or(place);
    let last = matches!(task.work, Work::Retry { .. }) || series.len() < limit as usize;
    task.found += series.len() as u64;
    task.due += due;
    let row = sqlx::query!(
        r#"UPDATE hooklane.tasks
              SET at_time = $2, at_id = $3, found = $4, due = $5, refused = $6::text::jsonb,
                  status = CASE WHEN $7 THEN 'done' ELSE status END,
                  ended_at = CASE WHEN $7 THEN clock_timestamp() END,
                  turn_at = clock_timestamp(), failures = 0, error = NULL
            WHERE id = $1
        RETURNING status::text AS "status!", ended_at"#,
        task.id.uuid(),
        at.map(|place| place.time),
        at.map(|place| place.id),
        signed(task.found),
        signed(task.due),
        write_refused(&task.refused),
        last
    )
    .fetch_one(tx)
    .await
    .map_err(Error::doing("moving a task on"))?;
    task.status = row
        .status
        .parse()
        .map_err(Error::unreadable("reading a task"))?;
    task.ended_at = row.ended_at;
    task.error = None;
    Ok(Stepped {
        task,
        due,
        refused,
        gone,
    })
}

/// Gives one delivery a new series, or makes its next attempt due now.
async fn retry(tx: &mut PgConnection, series: Series, terms: Terms) -> Result<Outcome, Error> {
    let DeliveryKey {
        accepted_at,
        message,
        endpoint,
    } = series.key;
    let doing = "making a delivery due";
    let row = sqlx::query!(
        r#"SELECT d.status::text AS "status!", e.state::text AS "state!"
             FROM hooklane.deliveries d JOIN hooklane.endpoints e ON e.id = d.endpoint_id
            WHERE d.accepted_at = $1 AND d.message_id = $2 AND d.endpoint_id = $3
              FOR UPDATE OF d"#,
        accepted_at,
        message.uuid(),
        endpoint.uuid()
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(Error::doing(doing))?;
    let Some(row) = row else {
        return Ok(Err(Refusal::Missing));
    };
    if row.status != DeliveryStatus::Stalled.as_str() {
        let outcomes = dead_letter::replay(tx, &[series], terms).await?;
        return Ok(outcomes.first().copied().unwrap_or(Err(Refusal::Missing)));
    }
    if let Some(why) = dead_letter::stopped(&row.state) {
        return Ok(Err(why));
    }
    hurry(tx, accepted_at, message.uuid(), endpoint.uuid())
        .await
        .map_err(Error::doing(doing))?;
    Ok(Ok(None))
}

/// Makes a locked delivery that waits due now, and its backlog with it.
async fn hurry(
    tx: &mut PgConnection,
    accepted_at: DateTime<Utc>,
    message: Uuid,
    endpoint: Uuid,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH hurried AS (
             UPDATE hooklane.deliveries
                SET next_attempt_at = least(next_attempt_at, statement_timestamp())
              WHERE accepted_at = $1 AND message_id = $2 AND endpoint_id = $3 AND status = 'stalled'
          RETURNING accepted_at, endpoint_id, consumer_id, partition, next_attempt_at)
         INSERT INTO hooklane.backlogs AS b (endpoint_id, consumer_id, partition, due_at, accepted_from)
         SELECT endpoint_id, consumer_id, partition, next_attempt_at, accepted_at FROM hurried
         ON CONFLICT (endpoint_id) DO UPDATE SET due_at = least(b.due_at, excluded.due_at),
             accepted_from = least(b.accepted_from, excluded.accepted_from)
          WHERE b.due_at > excluded.due_at OR b.accepted_from > excluded.accepted_from",
        accepted_at,
        message,
        endpoint
    )
    .execute(tx)
    .await
    .map(|_done| ())
}

/// For a column of PostgreSQL, which has no unsigned ones.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
