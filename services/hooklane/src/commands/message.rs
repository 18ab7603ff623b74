//! `hooklane message`: what became of an event, as a tree of deliveries and attempts.

mod tree;
mod unsettled;
mod view;

use clap::{Args, Subcommand};
use hooklane_core::error::ErrorCode;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::ConsumerId;
use hooklane_store::message::{self, Found};
use hooklane_store::outbox::{self, Pending, Source};
use hooklane_store::task::Work;
use hooklane_store::{Store, operational};

use super::task::Start;
use crate::config::Section;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::bytes;
use unsettled::Answer;
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
    /// The message's id, the outbox row's id, the idempotency key, or the place in INTAKE.
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
        let config = context.config(&[Section::Database])?;
        let store = context.connect(&config).await?;
        let sources = config.relay.sources;
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        let consumer = self.consumer.as_ref();
        let found = match message::find(&store, &self.id, consumer, &names).await? {
            Some(found) => found,
            None => {
                let mut outboxes = sources.clone();
                outboxes.push(operational::source());
                match self.pending(context, &store, &outboxes).await {
                    Some(row) => Found::Pending(row),
                    // Taken between the two looks, it was in neither.
                    None => message::find(&store, &self.id, consumer, &names)
                        .await?
                        .ok_or_else(|| self.nowhere())?,
                }
            }
        };
        let (answer, human) = match found {
            Found::Pending(row) => unsettled::pending(&self.id, row),
            Found::SetAside(event) => unsettled::set_aside(&self.id, *event),
            Found::Accepted(found) => {
                let mut messages = Vec::new();
                let mut human = Vec::new();
                for (accepted_at, id) in found {
                    let tree =
                        message::tree(&store, accepted_at, id, self.endpoint, self.limit).await?;
                    if self.payload {
                        return bytes(&tree.message.payload);
                    }
                    human.push(tree::text(&tree, self.endpoint));
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

    /// The row of an outbox that nobody took yet. A source that can't be read hides none of another.
    async fn pending(
        &self,
        context: &Context,
        store: &Store,
        sources: &[Source],
    ) -> Option<Pending> {
        for source in sources {
            match outbox::pending(store, source, &self.id, self.consumer.as_ref()).await {
                Ok(Some(row)) => return Some(row),
                Ok(None) => {}
                Err(error) => context
                    .output
                    .note(&format!("not looked for in `{}`: {error}", source.name)),
            }
        }
        None
    }

    fn nowhere(&self) -> Failure {
        Failure::new(
            ErrorCode::NotFound,
            format!(
                "there is no message `{}`, and no outbox that can be read has it; list messages' \
                 deliveries with: hooklane delivery list. What was published to NATS and not taken \
                 yet is in the stream INTAKE: nats stream view INTAKE",
                self.id
            ),
        )
    }
}
