//! `hooklane consumer`: the customers whose endpoints get events.

use clap::Subcommand;
use hooklane_proto::token::ConsumerId;
use hooklane_store::consumer;
use serde::Serialize;

use super::input;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{fields, or_dash, short, table, time};

/// The customers whose endpoints get events.
#[derive(Debug, Subcommand)]
pub(crate) enum Consumer {
    /// Add a consumer under your own id for that customer.
    Add {
        /// 1 to 64 characters of A-Z, a-z, 0-9, `_` and `-`.
        id: ConsumerId,
        /// For people.
        #[arg(long, default_value = "")]
        name: String,
        /// Attempts a second to each endpoint that has no rate of its own, 1 to 1000.
        #[arg(long)]
        rate: Option<u16>,
    },
    /// List consumers by id.
    List {
        /// Start behind this one.
        #[arg(long)]
        after: Option<ConsumerId>,
        /// How many at the most.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Show one consumer.
    Show {
        /// The consumer.
        id: ConsumerId,
    },
    /// Set the rate of the consumer's endpoints that have none of their own.
    SetRate {
        /// The consumer.
        id: ConsumerId,
        /// 1 to 1000 a second, or `default` for the deployment's.
        #[arg(value_parser = input::number_or_default)]
        rate: std::option::Option<u16>,
    },
    /// Delete a consumer that has no endpoints any more, and revoke its own API keys.
    Delete {
        /// The consumer.
        id: ConsumerId,
    },
}

/// A consumer, as JSON has it.
#[derive(Debug, Serialize)]
struct View {
    id: String,
    name: String,
    default_rate: Option<u16>,
    endpoints: u64,
    version: i64,
    created_at: String,
}

/// A consumer that is gone.
#[derive(Debug, Serialize)]
struct Deleted {
    id: String,
    revoked_keys: Vec<String>,
}

#[derive(Debug, Serialize)]
struct List {
    consumers: Vec<View>,
    next: Option<String>,
}

impl From<consumer::Consumer> for View {
    fn from(consumer: consumer::Consumer) -> Self {
        let consumer::Consumer {
            id,
            name,
            default_rate,
            created_at,
            version,
            endpoints,
        } = consumer;
        Self {
            id: id.to_string(),
            name,
            default_rate,
            endpoints,
            version,
            created_at: time(created_at),
        }
    }
}

impl View {
    fn human(&self) -> String {
        fields(vec![
            ("consumer", self.id.clone()),
            ("name", self.name.clone()),
            ("default rate", or_dash(self.default_rate)),
            ("endpoints", self.endpoints.to_string()),
            ("created", self.created_at.clone()),
        ])
    }
}

impl Consumer {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let store = context.store().await?;
        let one = match self {
            Self::Add { id, name, rate } => consumer::add(&store, &id, &name, rate).await?,
            Self::Show { id } => consumer::show(&store, &id).await?,
            Self::SetRate { id, rate } => consumer::set_rate(&store, &id, rate).await?,
            Self::Delete { id } => {
                let consumer::Deleted { id, revoked } = consumer::delete(&store, &id, None).await?;
                let answer = Deleted {
                    id: id.to_string(),
                    revoked_keys: revoked.iter().map(ToString::to_string).collect(),
                };
                return context.output.print(&answer, || {
                    let keys = answer.revoked_keys.len();
                    format!("deleted {id}; {keys} API keys of its own are revoked")
                });
            }
            Self::List { after, limit } => {
                let page = consumer::list(&store, after.as_ref(), limit).await?;
                let rows = page
                    .items
                    .iter()
                    .map(|consumer| {
                        [
                            consumer.id.to_string(),
                            or_dash(consumer.default_rate),
                            consumer.endpoints.to_string(),
                            short(Some(consumer.created_at)),
                            consumer.name.clone(),
                        ]
                    })
                    .collect();
                let human = table(["CONSUMER", "RATE", "ENDPOINTS", "CREATED", "NAME"], rows);
                let list = List {
                    consumers: page.items.into_iter().map(View::from).collect(),
                    next: page.next.map(|id| id.to_string()),
                };
                context.output.print(&list, || human)?;
                context.output.more(list.next.as_deref());
                return Ok(());
            }
        };
        let view = View::from(one);
        context.output.print(&view, || view.human())
    }
}
