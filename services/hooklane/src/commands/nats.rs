//! `hooklane nats`: streams and JetStream consumers on the server.

use std::io::{IsTerminal as _, Write as _};

use clap::Subcommand;
use hooklane_core::error::ErrorCode;
use hooklane_nats::topology::{self, Change, Kind};
use serde::Serialize;

use crate::config::Section;
use crate::context::{Context, connect_nats};
use crate::failure::Failure;

/// Streams and JetStream consumers.
#[derive(Debug, Subcommand)]
pub(crate) enum Nats {
    /// Show how the server differs from the definitions, and make it as they say.
    Apply {
        /// Don't ask.
        #[arg(long)]
        yes: bool,
        /// Change nothing, and fail where something would have to be changed.
        #[arg(long, conflicts_with_all = ["yes", "adopt"])]
        check: bool,
        /// Take over streams of another ledger: after this one was moved or restored, and while no
        /// Hooklane runs on the other one.
        #[arg(long)]
        adopt: bool,
    },
}

#[derive(Debug, Serialize)]
struct Answer {
    changes: Vec<View>,
    applied: bool,
}

#[derive(Debug, Serialize)]
struct View {
    name: String,
    kind: &'static str,
    diff: Vec<String>,
}

impl From<&Change> for View {
    fn from(change: &Change) -> Self {
        let (kind, diff) = match &change.kind {
            Kind::Create => ("create", [].as_slice()),
            Kind::Update { diff } => ("update", diff.as_slice()),
            Kind::Conflict { diff } => ("conflict", diff.as_slice()),
            Kind::Foreign { diff } => ("foreign", diff.as_slice()),
        };
        Self {
            name: change.name.clone(),
            kind,
            diff: diff.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Nats {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Self::Apply { yes, check, adopt } = self;
        let config = context.config(&[Section::Database, Section::Nats])?;
        let store = context.connect(&config).await?;
        let client = connect_nats(&config, &store).await?;
        let changes = match adopt {
            true => topology::plan_adopting(&client).await?,
            false => topology::plan(&client).await?,
        };
        topology::refuse_foreign(&changes)?;
        let plan: Vec<String> = changes.iter().map(ToString::to_string).collect();
        let conflicts = changes
            .iter()
            .filter(|change| matches!(change.kind, Kind::Conflict { .. }))
            .count();
        if conflicts > 0 {
            return Err(Failure::new(
                ErrorCode::TopologyConflict,
                format!(
                    "{}\n{conflicts} of these can't be changed: stop Hooklane, delete what is \
                     marked with !, and apply again; the ledger drives everything anew",
                    plan.join("\n")
                ),
            ));
        }
        for change in &plan {
            context.output.note(change);
        }
        let apply = !changes.is_empty() && !check && (yes || confirmed(context));
        if apply {
            topology::apply(&client, &changes).await?;
        }
        let answer = Answer {
            changes: changes.iter().map(View::from).collect(),
            applied: apply,
        };
        context
            .output
            .print(&answer, || match (changes.len(), apply) {
                (0, _) => "everything is as it should be".to_owned(),
                (count, true) => format!("{count} changes applied"),
                (count, false) => format!("{count} changes not applied; to apply them: --yes"),
            })?;
        match changes.len() {
            1.. if check => Err(Failure::new(
                ErrorCode::TopologyDrift,
                "the server's streams are not as their definitions say; to change that: hooklane \
                 nats apply",
            )),
            _ => Ok(()),
        }
    }
}

/// Asks a person; where there is none, the answer is no.
fn confirmed(context: &Context) -> bool {
    if context.output.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    let mut stderr = std::io::stderr().lock();
    let asked = write!(stderr, "apply these? [y/N] ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    asked.is_ok()
        && std::io::stdin().read_line(&mut answer).is_ok()
        && matches!(answer.trim(), "y" | "Y" | "yes")
}
