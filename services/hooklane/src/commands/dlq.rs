//! `hooklane dlq`: deliveries that failed for good, and what becomes of them; and the service that
//! moves them.

mod act;
mod cursor;
mod export;
mod stream;
mod view;

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand, ValueEnum};
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_store::Store;
use hooklane_store::dead_letter::{Filter, Listed, Order, Place};
use serde::Serialize;

use super::{known, serve, when};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{short, table};
use act::Action;
use view::{Letter, View};

/// Deliveries that failed for good.
#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// Run the dead-letter mover: puts into the stream DLQ what failed, and takes off what the broker
    /// gave up.
    Run,
    /// List dead letters, the last that failed first.
    List {
        #[command(flatten)]
        which: Which,
        /// Start behind this one, as the listing before names it.
        #[arg(long, value_name = "CURSOR", value_parser = cursor::parse)]
        after: Option<Place>,
        /// How many at the most.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Show a message's dead letters with their payload.
    Show {
        /// The message.
        message: MessageId,
        /// Only the one for this endpoint.
        #[arg(long)]
        endpoint: Option<EndpointId>,
    },
    /// Deliver again: a new series of attempts, under the same webhook-id, at the endpoint's rate.
    Replay(Act),
    /// Want no more of them: the deliveries stay failed, their dead letters go.
    Discard(Act),
    /// Write dead letters with their payloads as JSON lines, the first that failed first.
    Export {
        #[command(flatten)]
        which: Which,
        /// Where to; standard output where it is not given. The file is the owner's alone, and
        /// is there only once everything is in it.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace a file that is there.
        #[arg(long, requires = "output")]
        force: bool,
    },
}

/// Which dead letters are meant; every option narrows.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Those of one consumer.
    #[arg(long)]
    consumer: Option<ConsumerId>,
    /// Those for one endpoint.
    #[arg(long)]
    endpoint: Option<EndpointId>,
    /// Those of one event type.
    #[arg(long)]
    event_type: Option<EventType>,
    /// Those that failed for one reason.
    #[arg(long)]
    reason: Option<ReasonName>,
    /// Those that failed since then: a time such as 2026-05-01T12:00:00Z, or an age such as 2h.
    #[arg(long, value_parser = when::at, allow_hyphen_values = true)]
    since: Option<DateTime<Utc>>,
    /// Those that failed until then.
    #[arg(long, value_parser = when::at, allow_hyphen_values = true)]
    until: Option<DateTime<Utc>>,
}

/// What to act on.
#[derive(Debug, Args)]
pub(crate) struct Act {
    /// A message, all of whose dead letters are meant.
    message: Option<MessageId>,
    #[command(flatten)]
    which: Which,
    /// All that there are, where nothing narrows them.
    #[arg(long)]
    all: bool,
    /// Count only, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Why a delivery failed, by name.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ReasonName {
    /// The last attempt failed.
    Exhausted,
    /// The next attempt would have been later than the deadline.
    Deadline,
    /// The endpoint answered 410.
    Gone,
    /// Hooklane itself could not handle it.
    Poison,
}

impl ReasonName {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Deadline => "deadline",
            Self::Gone => "gone",
            Self::Poison => "poison",
        }
    }
}

impl Which {
    fn filter(self, message: Option<MessageId>) -> Result<Filter, Failure> {
        when::inside(self.since, self.until)?;
        Ok(Filter {
            message,
            consumer: self.consumer,
            endpoint: self.endpoint,
            event_type: self.event_type,
            reason: self.reason.map(|reason| reason.as_str().to_owned()),
            since: self.since,
            until: self.until,
        })
    }
}

impl Act {
    /// What is meant, which a slip of the hand must not make everything.
    fn filter(self) -> Result<(Filter, bool), Failure> {
        let Self {
            message,
            which,
            all,
            dry_run,
        } = self;
        let filter = which.filter(message)?;
        if !all && filter == Filter::default() {
            return Err(Failure::usage(
                "name a message, narrow what is meant (see --help), or give --all",
            ));
        }
        Ok((filter, dry_run))
    }
}

#[derive(Debug, Serialize)]
struct List {
    dead_letters: Vec<View>,
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct Shown {
    dead_letters: Vec<Letter>,
}

impl Dlq {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Run => serve::one(context, serve::Role::Dlq).await,
            Self::List {
                which,
                after,
                limit,
            } => list(context, &which.filter(None)?, after, limit).await,
            Self::Show { message, endpoint } => show(context, message, endpoint).await,
            Self::Replay(args) => {
                let (filter, dry_run) = args.filter()?;
                act::run(context, filter, Action::Replay, dry_run).await
            }
            Self::Discard(args) => {
                let (filter, dry_run) = args.filter()?;
                act::run(context, filter, Action::Discard, dry_run).await
            }
            Self::Export {
                which,
                output,
                force,
            } => export::run(context, &which.filter(None)?, output, force).await,
        }
    }
}

/// Refuses a filter by what is not there.
async fn known(store: &Store, filter: &Filter) -> Result<(), Failure> {
    let (consumer, event_type) = (filter.consumer.as_ref(), filter.event_type.as_ref());
    known::all(store, consumer, filter.endpoint, event_type).await
}

async fn list(
    context: &Context,
    filter: &Filter,
    after: Option<Place>,
    limit: u32,
) -> Result<(), Failure> {
    let store = context.store().await?;
    known(&store, filter).await?;
    let page = store
        .dead_letters(filter, Order::NewestFirst, after, limit)
        .await?;
    let rows = page
        .items
        .iter()
        .map(|letter| {
            [
                short(Some(letter.failed_at)),
                letter.series.key.message.to_string(),
                letter.series.key.endpoint.to_string(),
                letter.event_type.clone(),
                letter.reason.clone(),
                letter.attempts.to_string(),
                view::last(letter.last_status, letter.last_error.as_deref()),
            ]
        })
        .collect();
    let head = [
        "FAILED",
        "MESSAGE",
        "ENDPOINT",
        "EVENT TYPE",
        "REASON",
        "ATTEMPTS",
        "LAST",
    ];
    let human = table(head, rows);
    let answer = List {
        dead_letters: page.items.into_iter().map(View::from).collect(),
        next: page.next.map(cursor::text),
    };
    context.output.print(&answer, || human)?;
    context.output.more(answer.next.as_deref());
    Ok(())
}

async fn show(
    context: &Context,
    message: MessageId,
    endpoint: Option<EndpointId>,
) -> Result<(), Failure> {
    let store = context.store().await?;
    let filter = Filter {
        message: Some(message),
        endpoint,
        ..Filter::default()
    };
    let page = store
        .dead_letters(&filter, Order::OldestFirst, None, 1_000)
        .await?;
    if page.items.is_empty() {
        return Err(none_of(&filter));
    }
    let letters = whole(&store, &page.items).await?;
    let answer = Shown {
        dead_letters: letters,
    };
    context.output.print(&answer, || {
        let letters = answer.dead_letters.iter().map(Letter::human);
        let mut text = letters.collect::<Vec<_>>().join("\n\n");
        text.push_str(&format!(
            "\n\nits attempts: hooklane message show {message}\n\
             deliver it again: hooklane dlq replay {message}"
        ));
        text
    })
}

/// Listed dead letters with their payloads.
async fn whole(store: &Store, listed: &[Listed]) -> Result<Vec<Letter>, Failure> {
    let series: Vec<_> = listed.iter().map(|letter| letter.series).collect();
    let letters = store.whole_dead_letters(&series).await?;
    Ok(letters
        .into_iter()
        .map(|letter| {
            let listed = listed.iter().find(|of| of.series.key == letter.key);
            Letter::new(letter, listed.and_then(|of| of.dead_lettered_at))
        })
        .collect())
}

/// Nothing is there that was meant.
fn none_of(filter: &Filter) -> Failure {
    use hooklane_core::error::ErrorCode;
    let text = match filter.message {
        Some(message) => format!(
            "{message} has no such dead letter; what became of it: hooklane message show {message}"
        ),
        None => "there is no such dead letter; list them with: hooklane dlq list".to_owned(),
    };
    Failure::new(ErrorCode::NotFound, text)
}
