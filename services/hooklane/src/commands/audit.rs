//! `hooklane audit`: who changed what by hand.

mod cursor;

use chrono::{DateTime, Utc};
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hooklane_proto::token::ConsumerId;
use hooklane_store::audit_log::{self, Action, Entry, Listing, Place};
use serde::Serialize;
use serde_json::Value;

use super::{known, when};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{or_dash, short, table, time};

/// Who changed what by hand.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// List changes, the last first.
    List {
        /// Those about one consumer.
        #[arg(long)]
        consumer: Option<ConsumerId>,
        /// Those that one actor made: `cli`, or an API key's id.
        #[arg(long, value_parser = actor)]
        actor: Option<String>,
        /// Those of one kind.
        #[arg(long, value_parser = action())]
        action: Option<Action>,
        /// Those made since then: a time such as 2026-05-01T12:00:00Z, or an age such as 2h.
        #[arg(long, value_parser = when::at, allow_hyphen_values = true)]
        since: Option<DateTime<Utc>>,
        /// Those made before then.
        #[arg(long, value_parser = when::at, allow_hyphen_values = true)]
        until: Option<DateTime<Utc>>,
        /// Start behind this one, as the listing before names it.
        #[arg(long, value_name = "CURSOR", value_parser = cursor::parse)]
        after: Option<Place>,
        /// How many at the most.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
}

/// An actor, as the ledger has it.
fn actor(text: &str) -> Result<String, String> {
    audit_log::Actor::named(text).ok_or_else(|| "give cli, or an API key's id".to_owned())
}

/// An action, by name.
fn action() -> impl TypedValueParser<Value = Action> {
    let names = Action::ALL.iter().map(|action| action.as_str());
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| name.parse())
}

/// An entry, as JSON has it.
#[derive(Debug, Serialize)]
struct View {
    id: String,
    at: String,
    actor: String,
    actor_name: String,
    request_id: Option<String>,
    action: String,
    consumer: Option<String>,
    subject: String,
    detail: Value,
}

#[derive(Debug, Serialize)]
struct List {
    entries: Vec<View>,
    next: Option<String>,
}

impl From<Entry> for View {
    fn from(entry: Entry) -> Self {
        let Entry {
            id,
            at,
            actor,
            request_id,
            action,
            consumer,
            subject,
            detail,
        } = entry;
        Self {
            id: id.to_string(),
            at: time(at),
            actor: actor.id(),
            actor_name: actor.name().to_owned(),
            request_id,
            action,
            consumer: consumer.map(|id| id.to_string()),
            subject,
            detail,
        }
    }
}

impl Audit {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Self::List {
            consumer,
            actor,
            action,
            since,
            until,
            after,
            limit,
        } = self;
        when::inside(since, until)?;
        let listing = Listing {
            consumer,
            actor,
            action,
            since,
            until,
            after,
        };
        let store = context.store().await?;
        known::all(&store, listing.consumer.as_ref(), None, None).await?;
        let page = audit_log::list(&store, &listing, limit).await?;
        let rows = page
            .items
            .iter()
            .map(|entry| {
                [
                    short(Some(entry.at)),
                    entry.actor.name().to_owned(),
                    entry.action.clone(),
                    entry.subject.clone(),
                    or_dash(entry.consumer.as_ref()),
                    entry.detail.to_string(),
                ]
            })
            .collect();
        let human = table(["AT", "WHO", "DID", "TO", "CONSUMER", "DETAIL"], rows);
        let answer = List {
            entries: page.items.into_iter().map(View::from).collect(),
            next: page.next.map(cursor::text),
        };
        context.output.print(&answer, || human)?;
        context.output.more(answer.next.as_deref());
        Ok(())
    }
}
