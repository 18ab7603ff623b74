//! `hooklane endpoint`: the customers' endpoints, their state and their secrets.

mod settings;
mod view;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use hooklane_proto::id::EndpointId;
use hooklane_proto::route::State;
use hooklane_proto::token::ConsumerId;
use hooklane_store::consumer;
use hooklane_store::endpoint::{self, Listing, Settle};
use hooklane_store::task::Work;

use super::input;
use super::task::{Start, When};
use crate::config::Section;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{fields, or_dash, short, table, time};
use crate::progress;
use settings::{Settings, headers};
use view::{Added, List, Rotated, Secret, Secrets, Settled, Updated, View};

/// Deliveries settled in one transaction.
const BATCH: u32 = 1_000;

/// The customers' endpoints.
#[derive(Debug, Subcommand)]
pub(crate) enum Endpoint {
    /// Add an endpoint, and print its signing secret.
    Add(Box<Add>),
    /// List endpoints, the oldest first.
    List {
        /// Those of one consumer.
        #[arg(long)]
        consumer: Option<ConsumerId>,
        /// Those in one state; deleted ones are listed only when asked for.
        #[arg(long)]
        state: Option<StateName>,
        /// Start behind this one.
        #[arg(long)]
        after: Option<EndpointId>,
        /// How many at the most.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Show one endpoint.
    Show {
        /// The endpoint.
        id: EndpointId,
    },
    /// Change an endpoint's settings.
    Update(Box<Update>),
    /// Stop deliveries to an endpoint; what waits for it becomes skipped.
    Pause {
        /// The endpoint.
        id: EndpointId,
    },
    /// Make a paused or disabled endpoint take deliveries again.
    Resume {
        /// The endpoint.
        id: EndpointId,
    },
    /// Deliver again, in the background, what an endpoint failed for good and nobody discarded.
    Recover {
        /// The endpoint.
        id: EndpointId,
        #[command(flatten)]
        when: When,
        #[command(flatten)]
        start: Start,
    },
    /// Deliver, in the background, what an endpoint missed while it was paused or disabled.
    ReplayMissing {
        /// The endpoint.
        id: EndpointId,
        #[command(flatten)]
        when: When,
        #[command(flatten)]
        start: Start,
    },
    /// Give an endpoint a new signing secret, and print it.
    Rotate {
        /// The endpoint.
        id: EndpointId,
        /// How long the old secret signs along, up to 30 days; 0s ends it at once. [default: the
        /// configured one]
        #[arg(long, value_parser = input::duration)]
        grace: Option<Duration>,
        /// A file with the new secret (- for standard input), instead of a random one.
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
    },
    /// Print the secrets that sign for an endpoint at present.
    Reveal {
        /// The endpoint.
        id: EndpointId,
    },
    /// Delete an endpoint for good; its open deliveries become cancelled.
    Delete {
        /// The endpoint.
        id: EndpointId,
    },
}

/// Add an endpoint.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The consumer whose endpoint it is.
    consumer: ConsumerId,
    /// Where to POST to.
    url: String,
    #[command(flatten)]
    settings: Settings,
    /// A file with the signing secret (- for standard input), instead of a random one.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// Change an endpoint's settings.
#[derive(Debug, Args)]
pub(crate) struct Update {
    /// The endpoint.
    id: EndpointId,
    /// Where to POST to.
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    settings: Settings,
    /// Remove all custom headers.
    #[arg(long, conflicts_with_all = ["header", "header_file"])]
    no_headers: bool,
}

/// A state, by name.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum StateName {
    Active,
    Failing,
    Paused,
    Disabled,
    Deleted,
}

impl From<StateName> for State {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Active => Self::Active,
            StateName::Failing => Self::Failing,
            StateName::Paused => Self::Paused,
            StateName::Disabled => Self::Disabled,
            StateName::Deleted => Self::Deleted,
        }
    }
}

impl Endpoint {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Add(add) => add.run(context).await,
            Self::Update(update) => update.run(context).await,
            Self::List {
                consumer,
                state,
                after,
                limit,
            } => {
                let state = state.map(State::from);
                let listing = Listing {
                    consumer,
                    state,
                    after,
                };
                list(context, &listing, limit).await
            }
            Self::Show { id } => {
                let view = View::from(endpoint::show(&context.store().await?, id).await?);
                context.output.print(&view, || view.human())
            }
            Self::Pause { id } => {
                let store = context.store().await?;
                let changed = endpoint::pause(&store, id).await?;
                settle(context, &store, changed, Stop::Pause).await
            }
            Self::Delete { id } => {
                let store = context.store().await?;
                let changed = endpoint::delete(&store, id).await?;
                settle(context, &store, changed, Stop::Delete).await
            }
            Self::Resume { id } => {
                let changed = endpoint::resume(&context.store().await?, id).await?;
                let view = View::from(changed.endpoint);
                context.output.print(&view, || view.human())
            }
            Self::Recover { id, when, start } => {
                let (endpoint, span) = (id, when.span()?);
                start.run(context, Work::Recover { endpoint, span }).await
            }
            Self::ReplayMissing { id, when, start } => {
                let (endpoint, span) = (id, when.span()?);
                let work = Work::ReplayMissing { endpoint, span };
                start.run(context, work).await
            }
            Self::Rotate {
                id,
                grace,
                secret_file,
            } => rotate(context, id, grace, secret_file).await,
            Self::Reveal { id } => reveal(context, id).await,
        }
    }
}

impl Add {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let secret = self
            .secret_file
            .as_deref()
            .map(input::secret_file)
            .transpose()?;
        let headers = headers(&self.settings)?;
        let filter = self.settings.filter()?.unwrap_or_else(settings::everything);
        let sealed = context.sealed(&[Section::Addresses]).await?;
        let mut new = endpoint::New::to(self.consumer, self.url, filter);
        let settings = self.settings;
        new.description = settings.description.unwrap_or_default();
        new.rate = settings.rate.unwrap_or(new.rate);
        new.burst = settings.burst.unwrap_or(new.burst);
        new.concurrency = settings.concurrency.unwrap_or(new.concurrency);
        new.timeout = settings.timeout.unwrap_or(new.timeout);
        new.auto_disable = settings.auto_disable.unwrap_or(new.auto_disable);
        new.headers = headers.unwrap_or_default();
        new.secret = secret;
        let policy = &sealed.config.addresses;
        let added = endpoint::add(&sealed.store, &new, policy, &sealed.keys).await?;
        warn(context, &added.warnings);
        let answer = Added {
            endpoint: added.endpoint.into(),
            secret: added.secret.reveal(),
            warnings: added.warnings,
        };
        context.output.print(&answer, || answer.human())
    }
}

impl Update {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let mut headers = headers(&self.settings)?;
        if self.no_headers {
            headers = Some(settings::no_headers());
        }
        let changes = endpoint::Changes {
            url: self.url,
            filter: self.settings.filter()?,
            description: self.settings.description,
            rate: self.settings.rate,
            burst: self.settings.burst,
            concurrency: self.settings.concurrency,
            timeout: self.settings.timeout,
            auto_disable: self.settings.auto_disable,
            headers,
        };
        if changes.is_empty() {
            return Err(Failure::usage(
                "there is nothing to change: name a setting, such as --url or --rate; \
                 hooklane endpoint update --help lists them",
            ));
        }
        let sealed = context.sealed(&[Section::Addresses]).await?;
        let policy = &sealed.config.addresses;
        let updated =
            endpoint::update(&sealed.store, self.id, &changes, None, policy, &sealed.keys).await?;
        warn(context, &updated.warnings);
        let answer = Updated {
            endpoint: updated.endpoint.into(),
            warnings: updated.warnings,
        };
        context.output.print(&answer, || answer.endpoint.human())
    }
}

fn warn(context: &Context, warnings: &[String]) {
    for warning in warnings {
        context.output.note(&format!("warning: {warning}"));
    }
}

async fn list(context: &Context, listing: &Listing, limit: u32) -> Result<(), Failure> {
    let store = context.store().await?;
    if let Some(consumer) = &listing.consumer {
        consumer::show(&store, consumer).await?;
    }
    let page = endpoint::list(&store, listing, limit).await?;
    let views: Vec<View> = page.items.into_iter().map(View::from).collect();
    let rows = views
        .iter()
        .map(|view| {
            [
                view.id.clone(),
                view.consumer.clone(),
                view.state.clone(),
                view.failures_text(),
                view.failing_text(),
                view.rate_text(),
                view.event_types.join(","),
                view.url.clone(),
            ]
        })
        .collect();
    let human = table(
        [
            "ENDPOINT",
            "CONSUMER",
            "STATE",
            "FAILURES (24H)",
            "FAILING SINCE",
            "RATE",
            "EVENT TYPES",
            "URL",
        ],
        rows,
    );
    let answer = List {
        endpoints: views,
        next: page.next.map(|id| id.to_string()),
    };
    context.output.print(&answer, || human)?;
    context.output.more(answer.next.as_deref());
    Ok(())
}

/// How an endpoint was stopped.
#[derive(Debug, Clone, Copy)]
enum Stop {
    Pause,
    Delete,
}

/// Settles what is open for an endpoint that was stopped, however much it is.
async fn settle(
    context: &Context,
    store: &hooklane_store::Store,
    changed: endpoint::Changed,
    stop: Stop,
) -> Result<(), Failure> {
    let doing = match stop {
        Stop::Pause => "skipping",
        Stop::Delete => "cancelling",
    };
    let bar = progress::bar(doing, None, context.output.json);
    let mut pass = Settle::new(changed.endpoint.id);
    let mut settled = 0;
    while let Some(step) = pass.step(store, BATCH).await? {
        settled += step;
        bar.set_position(settled);
    }
    bar.finish_and_clear();
    let answer = Settled {
        endpoint: changed.endpoint.into(),
        changed: changed.changed,
        deliveries: settled,
    };
    context.output.print(&answer, || {
        let mut text = answer.endpoint.human();
        text.push_str(&match stop {
            Stop::Pause => format!(
                "\n{settled} deliveries that waited in the ledger are skipped; what is in the broker \
                 is not among them: its lane skips it as it comes"
            ),
            Stop::Delete => format!("\n{settled} open deliveries are cancelled"),
        });
        text
    })
}

async fn rotate(
    context: &Context,
    id: EndpointId,
    grace: Option<Duration>,
    secret_file: Option<PathBuf>,
) -> Result<(), Failure> {
    if grace.is_some_and(|grace| grace > endpoint::MAX_GRACE) {
        return Err(Failure::usage(
            "an old secret signs along for 30 days at the most: give --grace 30days or less",
        ));
    }
    let secret = secret_file.as_deref().map(input::secret_file).transpose()?;
    let sealed = context.sealed(&[Section::Endpoints]).await?;
    let grace = grace.unwrap_or(sealed.config.endpoints.rotation_grace);
    let rotated = endpoint::rotate(&sealed.store, id, secret, grace, &sealed.keys).await?;
    let answer = Rotated {
        id: id.to_string(),
        secret: rotated.secret.reveal(),
        old_secret_until: rotated.old_until.filter(|_| !grace.is_zero()).map(time),
    };
    context.output.print(&answer, || {
        let until = answer.old_secret_until.clone();
        fields(vec![
            ("endpoint", answer.id.clone()),
            ("secret", answer.secret.clone()),
            ("old secret until", or_dash(until)),
        ])
    })
}

async fn reveal(context: &Context, id: EndpointId) -> Result<(), Failure> {
    let sealed = context.sealed(&[]).await?;
    let standing = endpoint::reveal(&sealed.store, id, &sealed.keys).await?;
    let rows = standing
        .iter()
        .map(|standing| {
            [
                standing.secret.reveal(),
                short(Some(standing.created_at)),
                or_dash(standing.expires_at.map(time)),
            ]
        })
        .collect();
    let human = table(["SECRET", "CREATED", "SIGNS UNTIL"], rows);
    let answer = Secrets {
        id: id.to_string(),
        secrets: standing
            .into_iter()
            .map(|standing| Secret {
                secret: standing.secret.reveal(),
                created_at: time(standing.created_at),
                expires_at: standing.expires_at.map(time),
            })
            .collect(),
    };
    context.output.print(&answer, || human)
}
