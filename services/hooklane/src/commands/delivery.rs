//! `hooklane delivery`: messages on their way to endpoints.

mod cursor;
mod view;

use chrono::{DateTime, Utc};
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::ConsumerId;
use hooklane_store::delivery::{self, DeliveryStatus, Listing};
use hooklane_store::manage;
use hooklane_store::task::Work;
use serde::Serialize;

use super::task::Start;
use super::{known, when};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{short, table};
pub(super) use view::View;

/// Messages on their way to endpoints.
#[derive(Debug, Subcommand)]
pub(crate) enum Delivery {
    /// List deliveries, the last accepted first.
    List {
        /// Those of one consumer.
        #[arg(long)]
        consumer: Option<ConsumerId>,
        /// Those to one endpoint.
        #[arg(long)]
        endpoint: Option<EndpointId>,
        /// Those with one status.
        #[arg(long, value_parser = status())]
        status: Option<DeliveryStatus>,
        /// Those accepted since then: a time such as 2026-05-01T12:00:00Z, or an age such as 2h.
        #[arg(long, value_parser = when::at, allow_hyphen_values = true)]
        since: Option<DateTime<Utc>>,
        /// Start behind this one, as the listing before names it.
        #[arg(long, value_name = "CURSOR", value_parser = cursor::parse)]
        after: Option<hooklane_proto::delivery::DeliveryKey>,
        /// How many at the most.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Attempt a delivery again in the background: at once where it waits for its next attempt, in a
    /// new series where it has ended, however it did.
    Retry {
        /// The message.
        message: MessageId,
        /// The endpoint.
        endpoint: EndpointId,
        #[command(flatten)]
        start: Start,
    },
    /// Cancel a message's open deliveries. An attempt under way may still succeed.
    Cancel {
        /// The message.
        message: MessageId,
        /// Only the one to this endpoint.
        #[arg(long)]
        endpoint: Option<EndpointId>,
    },
}

/// A status, by name.
fn status() -> impl TypedValueParser<Value = DeliveryStatus> {
    PossibleValuesParser::new(DeliveryStatus::ALL.map(DeliveryStatus::as_str))
        .try_map(|name| name.parse())
}

#[derive(Debug, Serialize)]
struct List {
    deliveries: Vec<View>,
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct Cancelled {
    message: String,
    cancelled: Vec<String>,
}

impl Delivery {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::List {
                consumer,
                endpoint,
                status,
                since,
                after,
                limit,
            } => {
                let listing = Listing {
                    consumer,
                    endpoint,
                    status,
                    since,
                    after,
                    ..Listing::default()
                };
                list(context, &listing, limit).await
            }
            Self::Retry {
                message,
                endpoint,
                start,
            } => start.run(context, Work::Retry { message, endpoint }).await,
            Self::Cancel { message, endpoint } => {
                let store = context.store().await?;
                let keys = delivery::cancel(&store, message, endpoint).await?;
                let answer = Cancelled {
                    message: message.to_string(),
                    cancelled: keys.iter().map(|key| key.endpoint.to_string()).collect(),
                };
                context.output.print(&answer, || {
                    format!("cancelled {message} to {}", answer.cancelled.join(", "))
                })
            }
        }
    }
}

async fn list(context: &Context, listing: &Listing, limit: u32) -> Result<(), Failure> {
    when::inside(listing.since, None)?;
    let store = context.store().await?;
    known::all(&store, listing.consumer.as_ref(), listing.endpoint, None).await?;
    let page = delivery::list(&store, listing, limit)
        .await
        .map_err(|error| match error {
            manage::Error::Store(error) if error.is_timeout() => Failure::new(
                error.code(),
                format!("{error}; look at fewer days with --since"),
            ),
            error => error.into(),
        })?;
    let rows = page
        .items
        .iter()
        .map(|delivery| {
            let last = match (delivery.last_status, &delivery.last_error) {
                (Some(status), _) => status.to_string(),
                (None, Some(error)) => error.clone(),
                (None, None) => String::new(),
            };
            [
                short(Some(delivery.key.accepted_at)),
                delivery.key.message.to_string(),
                delivery.key.endpoint.to_string(),
                delivery.status.as_str().to_owned(),
                delivery.attempts.to_string(),
                last,
                short(delivery.next_attempt_at),
            ]
        })
        .collect();
    let head = [
        "ACCEPTED", "MESSAGE", "ENDPOINT", "STATUS", "ATTEMPTS", "LAST", "NEXT",
    ];
    let human = table(head, rows);
    let short_of = usize::try_from(limit).is_ok_and(|limit| page.items.len() < limit);
    let looked_back_to = page.next.filter(|_| short_of);
    let looked_back_to = looked_back_to.map(|key| short(Some(key.accepted_at)));
    let answer = List {
        deliveries: page.items.into_iter().map(View::from).collect(),
        next: page.next.map(cursor::text),
    };
    context.output.print(&answer, || human)?;
    match (&answer.next, looked_back_to) {
        (Some(next), Some(then)) => context.output.note(&format!(
            "looked back to {then} and found no more; look further with --after {next}"
        )),
        (next, _) => context.output.more(next.as_deref()),
    }
    Ok(())
}
