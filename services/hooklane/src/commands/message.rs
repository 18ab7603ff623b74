//! `hooklane message`: what became of an event, as a tree of deliveries and attempts.

mod tree;
mod view;

use clap::{Args, Subcommand};
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::ConsumerId;
use hooklane_store::message::{self, Found};
use hooklane_store::task::Work;
use serde::Serialize;

use super::task::Start;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{bytes, time};
use view::View;

/// Accepted events.
#[derive(Debug, Subcommand)]
pub(crate) enum Message {
    /// Show what became of an event: its deliveries and their attempts.
    Show(Show),
    /// Deliver a message again in the background, to every endpoint that it was for when it was
    /// accepted. What is still open is left.
    Replay {
        /// The message.
        message: MessageId,
        #[command(flatten)]
        start: Start,
    },
}

/// Show what became of an event.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The message's id, the outbox row's id, or the idempotency key.
    id: String,
    /// The consumer whose idempotency key it is.
    #[arg(long)]
    consumer: Option<ConsumerId>,
    /// Only the delivery to this endpoint.
    #[arg(long)]
    endpoint: Option<EndpointId>,
    /// How many deliveries at the most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print the payload's bytes as they are, and nothing else.
    #[arg(long, conflicts_with = "json")]
    payload: bool,
}

/// What an id stands for, as JSON has it.
#[derive(Debug, Serialize)]
#[serde(tag = "found", rename_all = "snake_case")]
enum Answer {
    /// Accepted: one message, or several where one key stands for one at several consumers.
    Accepted { messages: Vec<View> },
    /// Written to the outbox and not taken yet.
    Pending {
        consumer: String,
        event_type: String,
        created_at: String,
    },
    /// Could not be accepted.
    Rejected {
        number: i64,
        source: String,
        reason: String,
        detail: String,
    },
}

impl Message {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Show(show) => show.run(context).await,
            Self::Replay { message, start } => start.run(context, Work::Replay { message }).await,
        }
    }
}

impl Show {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let store = context.store().await?;
        let (answer, human) = match message::find(&store, &self.id, self.consumer.as_ref()).await? {
            Found::Pending {
                consumer,
                event_type,
                created_at,
            } => {
                let created_at = time(created_at);
                let human = format!(
                    "{} is in the outbox since {created_at} ({event_type} for {consumer}) and not \
                     accepted yet; is the relay running? See: hooklane outbox status",
                    self.id
                );
                let answer = Answer::Pending {
                    consumer,
                    event_type,
                    created_at,
                };
                (answer, human)
            }
            Found::Rejected {
                number,
                source,
                reason,
                detail,
            } => {
                let human = format!(
                    "{} of {source} could not be accepted ({reason}): {detail}\n\
                     once that is mended: hooklane outbox requeue {number}",
                    self.id
                );
                let answer = Answer::Rejected {
                    number,
                    source,
                    reason,
                    detail,
                };
                (answer, human)
            }
            Found::Accepted(found) => {
                let mut messages = Vec::new();
                let mut human = Vec::new();
                for (accepted_at, id) in found {
                    let tree =
                        message::tree(&store, accepted_at, id, self.endpoint, self.limit).await?;
                    if self.payload {
                        return bytes(&tree.message.payload);
                    }
                    human.push(tree::text(&tree));
                    messages.push(View::from(tree));
                }
                (Answer::Accepted { messages }, human.join("\n\n"))
            }
        };
        if self.payload {
            return Err(Failure::data(human));
        }
        context.output.print(&answer, || human)
    }
}
