//! `hooklane task`: what is delivered again in the background. The commands that start such tasks
//! stand with what they are about: `delivery retry`, `message replay`, `endpoint recover` and
//! `endpoint replay-missing`.

mod start;
mod view;
mod watch;

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hooklane_proto::id::TaskId;
use hooklane_store::task::{self, Listing, Status};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{short, table};
pub(super) use start::{Start, When};
use view::{List, View};

/// What is delivered again in the background.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// List tasks, the last made first.
    List {
        /// Those with one status.
        #[arg(long, value_parser = status())]
        status: Option<Status>,
        /// Start behind this one.
        #[arg(long)]
        after: Option<TaskId>,
        /// How many at the most.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Show one task and how far it has come.
    Show {
        /// The task.
        id: TaskId,
    },
    /// Cancel a task. What it made due until then is still delivered.
    Cancel {
        /// The task.
        id: TaskId,
    },
    /// Wait until a task has ended, and show its progress.
    Watch {
        /// The task.
        id: TaskId,
    },
}

/// A status, by name.
fn status() -> impl TypedValueParser<Value = Status> {
    PossibleValuesParser::new(Status::ALL.map(Status::as_str)).try_map(|name| name.parse())
}

impl Task {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let store = context.store().await?;
        match self {
            Self::List {
                status,
                after,
                limit,
            } => {
                let listing = Listing {
                    status,
                    after,
                    ..Listing::default()
                };
                let page = task::list(&store, &listing, limit).await?;
                print_list(context, page)
            }
            Self::Show { id } => print(context, task::show(&store, id).await?),
            Self::Cancel { id } => print(context, task::cancel(&store, id).await?),
            Self::Watch { id } => watch::run(context, &store, id).await,
        }
    }
}

fn print(context: &Context, task: task::Task) -> Result<(), Failure> {
    let view = View::from(task);
    context.output.print(&view, || view.human())
}

fn print_list(
    context: &Context,
    page: hooklane_store::manage::Page<task::Task, TaskId>,
) -> Result<(), Failure> {
    let rows = page
        .items
        .iter()
        .map(|task| {
            let refused: u64 = task.refused.values().sum();
            let message = task.work.message().map(|id| id.to_string());
            let endpoint = task.work.endpoint().map(|id| id.to_string());
            let about: Vec<String> = message.into_iter().chain(endpoint).collect();
            [
                short(Some(task.created_at)),
                task.id.to_string(),
                task.work.kind().to_owned(),
                about.join(" "),
                task.status.as_str().to_owned(),
                view::progress(task.found, task.total),
                task.due.to_string(),
                refused.to_string(),
            ]
        })
        .collect();
    let head = [
        "CREATED",
        "TASK",
        "KIND",
        "ABOUT",
        "STATUS",
        "LOOKED AT",
        "DUE",
        "REFUSED",
    ];
    let human = table(head, rows);
    let answer = List {
        next: page.next.map(|id| id.to_string()),
        tasks: page.items.into_iter().map(View::from).collect(),
    };
    context.output.print(&answer, || human)?;
    context.output.more(answer.next.as_deref());
    Ok(())
}
