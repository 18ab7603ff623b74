//! Waiting for a task's end. The task goes on without whoever watches it.

use std::time::Duration;

use hooklane_core::error::ErrorCode;
use hooklane_proto::id::TaskId;
use hooklane_store::Store;
use hooklane_store::task::{self, Status};
use indicatif::ProgressBar;
use tokio::time::{Instant, sleep};

use super::view::View;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress;

/// How often the ledger is asked.
const EVERY: Duration = Duration::from_millis(200);
/// A task that nobody takes for so long lacks a scheduler.
const UNUSUAL: Duration = Duration::from_secs(10);

/// Watches until the end, and prints the task then.
pub(super) async fn run(context: &Context, store: &Store, id: TaskId) -> Result<(), Failure> {
    let ended = until_ended(context, store, id).await;
    let task = ended.map_err(|failure| {
        failure.while_doing(&format!("watching {id}, which goes on by itself"))
    })?;
    let (status, error) = (task.status, task.error.clone());
    let view = View::from(task);
    context.output.print(&view, || view.human())?;
    match status {
        Status::Cancelled => Err(Failure::new(
            ErrorCode::Conflict,
            format!("{id} was cancelled"),
        )),
        Status::Failed => Err(Failure::internal(format!(
            "{id} failed: {}",
            error.unwrap_or_default()
        ))),
        Status::Waiting | Status::Running | Status::Done => Ok(()),
    }
}

async fn until_ended(context: &Context, store: &Store, id: TaskId) -> Result<task::Task, Failure> {
    let begun = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    let mut told = false;
    loop {
        let task = task::show(store, id).await?;
        if task.started_at.is_some() {
            let json = context.output.json;
            let bar =
                bar.get_or_insert_with(|| progress::bar("looking at deliveries", task.total, json));
            bar.set_position(task.found);
        } else if !told && !task.status.has_ended() && begun.elapsed() > UNUSUAL {
            told = true;
            context.output.note(
                "no scheduler has taken it yet: run one with `hooklane up` or `hooklane schedule`",
            );
        }
        if task.status.has_ended() {
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
            return Ok(task);
        }
        sleep(EVERY).await;
    }
}
