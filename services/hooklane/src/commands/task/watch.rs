//! Waiting for a task's end. The task goes on without whoever watches it.

use std::time::Duration;

use hooklane_core::error::ErrorCode;
use hooklane_proto::id::TaskId;
use hooklane_store::task::{self, Status, Task};
use hooklane_store::{Store, manage};
use indicatif::ProgressBar;
use tokio::time::{Instant, sleep};

use super::view::{self, View};
use crate::context::Context;
use crate::failure::Failure;
use crate::progress;

/// How often the ledger is asked.
const EVERY: Duration = Duration::from_millis(200);
/// A task with which nothing happens for so long may lack a scheduler.
const UNUSUAL: Duration = Duration::from_secs(10);
/// A ledger that does not answer is asked again for so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before it is.
const AGAIN: Duration = Duration::from_secs(1);

/// Watches until the end, and prints the task then.
pub(super) async fn run(context: &Context, store: &Store, id: TaskId) -> Result<(), Failure> {
    let mut watched = Watched::new(context, id);
    let task = loop {
        let task = watched.ask(store).await?;
        watched.tell(&task);
        if task.status.has_ended() {
            break task;
        }
        sleep(EVERY).await;
    };
    watched.finish();
    let view = View::from(task.clone());
    context.output.print(&view, || view.human())?;
    ending(&task)
}

/// A task that ended without doing what it was made for is a failure of whoever waited for it.
fn ending(task: &Task) -> Result<(), Failure> {
    let id = task.id;
    match task.status {
        Status::Cancelled => Err(Failure::new(
            ErrorCode::Conflict,
            format!("{id} was cancelled"),
        )),
        Status::Failed => Err(Failure::internal(format!(
            "{id} failed: {}",
            task.error.as_deref().unwrap_or_default()
        ))),
        Status::Done if task.was_refused() => Err(Failure::new(
            ErrorCode::Conflict,
            task::reasons(&task.refused, task.work.endpoint()),
        )),
        Status::Waiting | Status::Running | Status::Done => Ok(()),
    }
}

/// What is known of a task that somebody waits for, and what he was told.
struct Watched<'a> {
    context: &'a Context,
    id: TaskId,
    bar: Option<ProgressBar>,
    seen: Option<Seen>,
}

/// What changes as long as somebody works on a task.
struct Seen {
    status: Status,
    found: u64,
    error: Option<String>,
    since: Instant,
    told: bool,
}

impl<'a> Watched<'a> {
    fn new(context: &'a Context, id: TaskId) -> Self {
        Self {
            context,
            id,
            bar: None,
            seen: None,
        }
    }

    /// Reads the task; a ledger that is away is waited for.
    async fn ask(&self, store: &Store) -> Result<Task, Failure> {
        let (id, output) = (self.id, self.context.output);
        let begun = Instant::now();
        let mut told = false;
        loop {
            let fault = match task::show(store, id).await {
                Ok(task) => {
                    if told {
                        output.remark("PostgreSQL answers again");
                    }
                    return Ok(task);
                }
                Err(manage::Error::Store(fault)) if fault.is_transient() => fault,
                Err(error) => return Err(error.into()),
            };
            if begun.elapsed() >= PATIENCE {
                let text = format!(
                    "PostgreSQL has not answered for {} s ({fault}). {id} is not lost: it goes on by \
                     itself where it was, once PostgreSQL and a scheduler run. Watch it again with: \
                     hooklane task watch {id}",
                    begun.elapsed().as_secs()
                );
                return Err(Failure::new(fault.code(), text));
            }
            if !told {
                told = true;
                output.remark(&format!(
                    "PostgreSQL does not answer ({fault}); asking again for {} s",
                    PATIENCE.as_secs()
                ));
            }
            sleep(AGAIN).await;
        }
    }

    /// Says how the task stands: at first, and where something is out of the ordinary.
    fn tell(&mut self, task: &Task) {
        let output = self.context.output;
        let seen = self.seen.get_or_insert_with(|| {
            output.progress(&View::from(task.clone()), || {
                format!(
                    "{} is {}, {} looked at; interrupted, it goes on by itself",
                    task.id,
                    task.status,
                    view::progress(task.found, task.total)
                )
            });
            Seen {
                status: task.status,
                found: task.found,
                error: None,
                since: Instant::now(),
                told: false,
            }
        });
        if let Some(error) = task.error.as_ref().filter(|_| task.error != seen.error)
            && !task.status.has_ended()
        {
            output.remark(&format!(
                "its last step failed and is taken again by itself: {error}"
            ));
        }
        if (task.status, task.found, &task.error) != (seen.status, seen.found, &seen.error) {
            *seen = Seen {
                status: task.status,
                found: task.found,
                error: task.error.clone(),
                since: Instant::now(),
                told: false,
            };
        } else if !seen.told && !task.status.has_ended() && seen.since.elapsed() > UNUSUAL {
            seen.told = true;
            output.remark(&format!(
                "nothing has happened with it for {} s: no scheduler works on it, or all are at \
                 others. Run one with `hooklane up` or `hooklane schedule`",
                UNUSUAL.as_secs()
            ));
        }
        if task.started_at.is_some() {
            let bar = self.bar.get_or_insert_with(|| {
                progress::bar("looking at deliveries", task.total, output.json)
            });
            bar.set_position(task.found);
        }
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
