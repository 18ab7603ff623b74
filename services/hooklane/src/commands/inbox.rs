//! `hooklane inbox`: partners' events, and the service that receives them.

mod act;
mod cursor;
mod dry_run;
mod entity;
mod list;
mod rejects;
mod show;
mod sources;
mod view;

use std::str::FromStr;

use chrono::{DateTime, Utc};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use hooklane_core::error::ErrorCode;
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use hooklane_store::inbox::{Filter, Place, Reason, Status};

use super::{serve, when};
use crate::context::Context;
use crate::failure::Failure;
use act::Action;

/// Partners' events.
#[derive(Debug, Subcommand)]
pub(crate) enum Inbox {
    /// Run the inbox: receives partners' webhooks, decides about them, hands them on.
    Run,
    /// List events, the last received first.
    List {
        #[command(flatten)]
        which: Which,
        /// Those with one status.
        #[arg(long, value_parser = status())]
        status: Option<Status>,
        /// Start behind this one, as the listing before names it.
        #[arg(long, value_name = "CURSOR", value_parser = cursor::parse)]
        after: Option<Place>,
        /// How many at the most.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Show one event: how it was decided about, its conflicts, headers and body.
    Show {
        /// The event.
        id: InboxId,
        /// Print the body alone, byte for byte as it was received.
        #[arg(long)]
        body: bool,
    },
    /// Take events out of quarantine: they are decided about, or handed on, once more.
    Replay(Act),
    /// Want no more of events in quarantine. They stay in the ledger, and are handed on no more.
    Discard(Act),
    /// Say what would happen with an event now, and do nothing.
    DryRun {
        /// The event.
        id: InboxId,
    },
    /// List requests that were refused, the last first; or show one.
    Rejects {
        /// Only this one, with its headers and the beginning of its body.
        #[arg(value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..), conflicts_with_all = ["partner", "after"])]
        number: Option<i64>,
        /// Those sent to one partner's source.
        #[arg(long)]
        partner: Option<Partner>,
        /// Start behind this number.
        #[arg(long)]
        after: Option<i64>,
        /// How many at the most.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// List the configured sources, and what each one's signature covers.
    Sources,
    /// Show where an entity stands.
    Entity {
        /// Whose.
        partner: Partner,
        /// Which: its type and its key, such as order/6f1e.
        #[arg(value_name = "TYPE/KEY", value_parser = entity_name)]
        entity: (String, String),
    },
}

/// Which events are meant; every option narrows.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Those of one partner.
    #[arg(long)]
    partner: Option<Partner>,
    /// The one with this id of the partner's.
    #[arg(long, value_name = "ID THERE")]
    partner_event: Option<String>,
    /// Those in quarantine for one reason.
    #[arg(long, value_parser = reason())]
    reason: Option<Reason>,
    /// Those of one event type.
    #[arg(long)]
    event_type: Option<String>,
    /// Those about one entity: its type and its key, such as order/6f1e.
    #[arg(long, value_name = "TYPE/KEY", value_parser = entity_name)]
    entity: Option<(String, String)>,
    /// Those received since then: a time such as 2026-05-01T12:00:00Z, or an age such as 2h.
    #[arg(long, value_parser = when::at, allow_hyphen_values = true)]
    since: Option<DateTime<Utc>>,
    /// Those received until then.
    #[arg(long, value_parser = when::at, allow_hyphen_values = true)]
    until: Option<DateTime<Utc>>,
}

/// What to act on.
#[derive(Debug, Args)]
pub(crate) struct Act {
    /// The events.
    #[arg(value_name = "ID")]
    ids: Vec<InboxId>,
    #[command(flatten)]
    which: Which,
    /// All that are in quarantine, where nothing narrows them.
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Don't ask.
    #[arg(long)]
    yes: bool,
    /// How many a second at the most, 1 to 10,000.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
}

/// Values that have names, as a command line takes them.
fn named<T>(names: Vec<&'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

fn status() -> impl TypedValueParser<Value = Status> {
    named(Status::ALL.iter().map(|status| status.as_str()).collect())
}

fn reason() -> impl TypedValueParser<Value = Reason> {
    named(Reason::ALL.iter().map(|reason| reason.as_str()).collect())
}

/// `type/key`; the key may have further slashes.
fn entity_name(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((kind, key)) if !kind.is_empty() && !key.is_empty() => {
            Ok((kind.to_owned(), key.to_owned()))
        }
        _ => Err("give its type and its key, such as order/6f1e".to_owned()),
    }
}

impl Which {
    fn filter(self, status: Option<Status>) -> Result<Filter, Failure> {
        when::inside(self.since, self.until)?;
        Ok(Filter {
            partner: self.partner,
            partner_event: self.partner_event,
            status,
            reason: self.reason,
            event_type: self.event_type,
            entity: self.entity,
            since: self.since,
            until: self.until,
        })
    }
}

impl Inbox {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Run => serve::one(context, serve::Role::Inbox).await,
            Self::List {
                which,
                status,
                after,
                limit,
            } => list::run(context, &which.filter(status)?, after, limit).await,
            Self::Show { id, body } => show::run(context, id, body).await,
            Self::Replay(args) => act::run(context, args, Action::Replay).await,
            Self::Discard(args) => act::run(context, args, Action::Discard).await,
            Self::DryRun { id } => dry_run::run(context, id).await,
            Self::Rejects {
                number: Some(number),
                ..
            } => rejects::show(context, number).await,
            Self::Rejects {
                number: None,
                partner,
                after,
                limit,
            } => rejects::list(context, partner.as_ref(), after, limit).await,
            Self::Sources => sources::run(context),
            Self::Entity { partner, entity } => entity::run(context, &partner, &entity).await,
        }
    }
}

/// Tells a slip of the hand from a search that finds nothing: events may be there of a source that
/// is configured no more, but none will come.
fn unless_configured(context: &Context, partner: Option<&Partner>) -> Result<(), Failure> {
    let Some(partner) = partner else {
        return Ok(());
    };
    let sources = context.config(&[])?.inbox.sources;
    if sources.contains_key(partner.as_str()) {
        return Ok(());
    }
    let names: Vec<&str> = sources.keys().map(String::as_str).collect();
    let known = match names.as_slice() {
        [] => "none at all; name its file with --config".to_owned(),
        names => names.join(", "),
    };
    Err(Failure::new(
        ErrorCode::NotFound,
        format!(
            "there is nothing of the partner `{partner}`, and no such source; the configuration \
             has {known}"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_is_a_type_and_a_key() {
        let read = |text| entity_name(text).ok();
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(read("order/6f1e"), pair("order", "6f1e"));
        assert_eq!(read("order/a/b"), pair("order", "a/b"));
        for wrong in ["order", "/6f1e", "order/", ""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
