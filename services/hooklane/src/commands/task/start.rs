//! Starting a task: the options that all such commands share, and what they do.

use chrono::{DateTime, Utc};
use clap::Args;
use hooklane_store::task::{self, Span, Work};

use super::view::{Count, View};
use super::watch;
use crate::commands::when;
use crate::config::Section;
use crate::context::Context;
use crate::failure::Failure;

/// How a task is started.
#[derive(Debug, Args)]
pub(crate) struct Start {
    /// Count what would be delivered again, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Wait until everything is due, and show the progress. Interrupted, the task goes on.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
}

/// The time that a task is about.
#[derive(Debug, Args)]
pub(crate) struct When {
    /// From then on: a time such as 2026-05-01T12:00:00Z, or an age such as 2h.
    #[arg(long, value_parser = when::at, allow_hyphen_values = true)]
    since: DateTime<Utc>,
    /// Until then. [default: now]
    #[arg(long, value_parser = when::at, allow_hyphen_values = true)]
    until: Option<DateTime<Utc>>,
}

impl When {
    /// As tasks have it.
    pub(in crate::commands) fn span(&self) -> Result<Span, Failure> {
        when::inside(Some(self.since), self.until)?;
        Ok(Span {
            since: self.since,
            until: self.until,
        })
    }
}

impl Start {
    /// Counts, or makes the task and waits for its end where that is wanted.
    pub(in crate::commands) async fn run(
        self,
        context: &Context,
        work: Work,
    ) -> Result<(), Failure> {
        let config = context.config(&[Section::Database, Section::Retry, Section::Recorder])?;
        let store = context.connect(&config).await?;
        if self.dry_run {
            let count = Count::of(&work, task::count(&store, &work, config.terms()).await?);
            return context.output.print(&count, || count.human());
        }
        let task = task::create(&store, work, config.terms()).await?;
        if self.wait {
            return watch::run(context, &store, task.id).await;
        }
        let id = task.id;
        let view = View::from(task);
        context.output.print(&view, || view.human())?;
        context
            .output
            .note(&format!("how far it is: hooklane task watch {id}"));
        Ok(())
    }
}
