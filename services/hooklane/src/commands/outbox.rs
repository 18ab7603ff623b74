//! `hooklane outbox`: the outboxes, and what could not be taken from them (or from `INTAKE`).

mod status;

use clap::{Args, Subcommand};
use hooklane_store::accept::Reason;
use hooklane_store::outbox::Source;
use hooklane_store::rejected::{Filter, Rejected};
use serde::Serialize;

use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{or_dash, short, table, time};

/// The outboxes, and what could not be taken from them.
#[derive(Debug, Subcommand)]
pub(crate) enum Outbox {
    /// Say how each outbox stands, and how much is set aside.
    Status {
        /// Only this source.
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
    },
    /// List events that could not be accepted, from outboxes and from INTAKE.
    Rejected {
        #[command(flatten)]
        which: Which,
        /// Start behind this number.
        #[arg(long, default_value_t = 0)]
        after: i64,
        /// How many at the most.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
    },
    /// Have rejected events tried again, once what was wrong is mended.
    Requeue {
        /// Their numbers, as `outbox rejected` lists them.
        #[arg(value_name = "NUMBER", required_unless_present = "all", value_parser = clap::value_parser!(i64).range(1..))]
        numbers: Vec<i64>,
        /// All that the options leave.
        #[arg(long, conflicts_with = "numbers")]
        all: bool,
        #[command(flatten)]
        which: Which,
    },
}

/// Which rejected events.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Those of one source: the name of an outbox, or `intake`.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Those of one consumer.
    #[arg(long)]
    consumer: Option<String>,
    /// Those rejected for one reason.
    #[arg(long, value_parser = reason)]
    reason: Option<Reason>,
    /// Also those that are still tried again by themselves.
    #[arg(long)]
    waiting: bool,
}

fn reason(text: &str) -> Result<Reason, String> {
    let known = Reason::ALL
        .into_iter()
        .find(|reason| reason.as_str() == text);
    known.ok_or_else(|| {
        let names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        format!("give one of {}", names.join(", "))
    })
}

impl Which {
    fn filter(self, ids: Vec<i64>) -> Filter {
        Filter {
            ids,
            source: self.source.map(|name| match name.as_str() {
                "intake" => name,
                _ if name.starts_with("outbox:") => name,
                _ => format!("outbox:{name}"),
            }),
            consumer: self.consumer,
            reason: self.reason,
            waiting: self.waiting,
        }
    }
}

/// The source with this name.
pub(super) fn source<'c>(config: &'c Config, name: &str) -> Result<&'c Source, Failure> {
    let sources = &config.relay.sources;
    sources
        .iter()
        .find(|source| source.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
            Failure::data(format!(
                "there is no outbox source `{name}`; the configuration has {}",
                names.join(", ")
            ))
        })
}

#[derive(Debug, Serialize)]
struct List {
    rejected: Vec<RejectedView>,
    next: Option<i64>,
}

#[derive(Debug, Serialize)]
struct RejectedView {
    number: i64,
    source: String,
    source_id: String,
    consumer: Option<String>,
    event_type: Option<String>,
    idempotency_key: Option<String>,
    payload_bytes: Option<i32>,
    reason: String,
    detail: String,
    standing: &'static str,
    rejected_at: String,
    waiting_until: Option<String>,
}

impl From<Rejected> for RejectedView {
    fn from(rejected: Rejected) -> Self {
        let Rejected {
            id,
            source,
            source_id,
            consumer,
            event_type,
            key,
            bytes,
            reason,
            detail,
            rejected_at,
            waiting_until,
            standing,
        } = rejected;
        Self {
            number: id,
            source,
            source_id,
            consumer,
            event_type,
            idempotency_key: key,
            payload_bytes: bytes,
            reason,
            detail,
            standing: standing.as_str(),
            rejected_at: time(rejected_at),
            waiting_until: waiting_until.map(time),
        }
    }
}

#[derive(Debug, Serialize)]
struct Requeued {
    requeued: u64,
    without_payload: Vec<i64>,
}

impl Outbox {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Status { source } => status::run(context, source.as_deref()).await,
            Self::Rejected {
                which,
                after,
                limit,
            } => rejected(context, &which.filter(Vec::new()), after, limit).await,
            Self::Requeue { numbers, which, .. } => {
                let store = context.store().await?;
                let done = store.requeue(&which.filter(numbers)).await?;
                let answer = Requeued {
                    requeued: done.requeued,
                    without_payload: done.without_payload,
                };
                if !answer.without_payload.is_empty() {
                    let numbers: Vec<String> = answer
                        .without_payload
                        .iter()
                        .map(ToString::to_string)
                        .collect();
                    context.output.note(&format!(
                        "not requeued, since their payload was not kept: {}; write them to the \
                         outbox anew",
                        numbers.join(", ")
                    ));
                }
                context
                    .output
                    .print(&answer, || format!("{} requeued", answer.requeued))
            }
        }
    }
}

async fn rejected(
    context: &Context,
    filter: &Filter,
    after: i64,
    limit: i64,
) -> Result<(), Failure> {
    let store = context.store().await?;
    let mut found = store.rejected(filter, after, limit + 1).await?;
    let keep = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = found.len() > keep;
    found.truncate(keep);
    let next = found.last().filter(|_| more).map(|rejected| rejected.id);
    let rows = found
        .iter()
        .map(|rejected| {
            [
                rejected.id.to_string(),
                rejected.source.clone(),
                rejected.source_id.clone(),
                or_dash(rejected.consumer.clone()),
                or_dash(rejected.event_type.clone()),
                rejected.standing.as_str().to_owned(),
                short(Some(rejected.rejected_at)),
                format!("{}: {}", rejected.reason, rejected.detail),
            ]
        })
        .collect();
    let head = [
        "NUMBER",
        "SOURCE",
        "ID THERE",
        "CONSUMER",
        "EVENT TYPE",
        "STANDING",
        "REJECTED",
        "REASON",
    ];
    let human = table(head, rows);
    let answer = List {
        rejected: found.into_iter().map(RejectedView::from).collect(),
        next,
    };
    context.output.print(&answer, || human)?;
    context.output.more(next);
    Ok(())
}
