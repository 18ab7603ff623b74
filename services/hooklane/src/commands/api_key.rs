//! `hooklane api-key`: the keys for the HTTP API, and the first of them.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use hooklane_core::clock;
use hooklane_proto::id::ApiKeyId;
use hooklane_proto::token::ConsumerId;
use hooklane_store::api_key::{self, Listing, Scope};
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::{input, known};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{fields, or_dash, short, table, time};

/// The keys for the HTTP API.
#[derive(Debug, Subcommand)]
pub(crate) enum ApiKey {
    /// Make a key, and print it: it is not shown again.
    Create(Create),
    /// List keys, the oldest first; expired and revoked ones too.
    List {
        /// Those that are good for one consumer alone.
        #[arg(long)]
        consumer: Option<ConsumerId>,
        /// Start behind this one.
        #[arg(long)]
        after: Option<ApiKeyId>,
        /// How many at the most.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Revoke a key for good.
    Revoke {
        /// The key's id.
        id: ApiKeyId,
    },
}

/// Make a key.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// For people: who uses it, or what for.
    #[arg(long)]
    name: String,
    /// What it is good for: publish (messages alone), consumer (one consumer's endpoints and log),
    /// read (everything but secrets), or admin (everything).
    #[arg(long, value_parser = scope())]
    scope: Scope,
    /// The one consumer that it is good for, with the scope consumer, and if you like with publish.
    #[arg(long)]
    consumer: Option<ConsumerId>,
    /// How long it is good for, such as 90d, up to ten years. [default: until it is revoked]
    #[arg(long, value_parser = input::duration)]
    expires_in: Option<Duration>,
    /// Requests a second, 1 to 10000. [default: the configured ones]
    #[arg(long)]
    rate_limit: Option<u16>,
}

/// A scope, by name.
fn scope() -> impl TypedValueParser<Value = Scope> {
    PossibleValuesParser::new(Scope::ALL.map(Scope::as_str)).try_map(|name| name.parse())
}

/// A key, as JSON has it.
#[derive(Debug, Serialize)]
struct View {
    id: String,
    name: String,
    scope: &'static str,
    consumer: Option<String>,
    hint: String,
    status: &'static str,
    rate_limit: Option<u16>,
    created_at: String,
    created_by: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    last_used_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct List {
    api_keys: Vec<View>,
    next: Option<String>,
}

/// Not `Debug`: it holds the key.
#[derive(Serialize)]
struct Created {
    api_key: View,
    key: String,
}

impl From<api_key::ApiKey> for View {
    fn from(key: api_key::ApiKey) -> Self {
        let status = key.standing(clock::now()).as_str();
        let api_key::ApiKey {
            id,
            name,
            scope,
            consumer,
            hint,
            rate_limit,
            created_at,
            created_by,
            expires_at,
            revoked_at,
            last_used_at,
        } = key;
        Self {
            id: id.to_string(),
            name,
            scope: scope.as_str(),
            consumer: consumer.map(|id| id.to_string()),
            hint,
            status,
            rate_limit,
            created_at: time(created_at),
            created_by,
            expires_at: expires_at.map(time),
            revoked_at: revoked_at.map(time),
            last_used_at: last_used_at.map(time),
        }
    }
}

impl View {
    fn human(&self) -> String {
        fields(vec![
            ("api key", self.id.clone()),
            ("name", self.name.clone()),
            ("scope", self.scope.to_owned()),
            ("consumer", or_dash(self.consumer.as_ref())),
            ("ends in", self.hint.clone()),
            ("status", self.status.to_owned()),
            ("rate limit", or_dash(self.rate_limit)),
            ("created", self.created_at.clone()),
            ("created by", self.created_by.clone()),
            ("expires", or_dash(self.expires_at.as_ref())),
            ("revoked", self.revoked_at.clone().unwrap_or_default()),
            ("last used", or_dash(self.last_used_at.as_ref())),
        ])
    }
}

impl ApiKey {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(context).await,
            Self::Revoke { id } => {
                let view = View::from(api_key::revoke(&context.store().await?, id).await?);
                context.output.print(&view, || view.human())
            }
            Self::List {
                consumer,
                after,
                limit,
            } => list(context, &Listing { consumer, after }, limit).await,
        }
    }
}

impl Create {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let new = api_key::New {
            name: self.name,
            scope: self.scope,
            consumer: self.consumer,
            expires_at: self.expires_in.map(expiry).transpose()?,
            rate_limit: self.rate_limit,
        };
        let created = api_key::create(&context.store().await?, &new).await?;
        let answer = Created {
            api_key: created.key.into(),
            key: created.secret.expose_secret().to_owned(),
        };
        context.output.print(&answer, || {
            let key = fields(vec![("key", answer.key.clone())]);
            format!("{}\n{key}", answer.api_key.human())
        })
    }
}

/// The time when a key expires that is good for so long.
fn expiry(lifetime: Duration) -> Result<DateTime<Utc>, Failure> {
    TimeDelta::from_std(lifetime)
        .ok()
        .and_then(|lifetime| clock::now().checked_add_signed(lifetime))
        .ok_or_else(|| Failure::data("a key may be good for ten years at the most"))
}

async fn list(context: &Context, listing: &Listing, limit: u32) -> Result<(), Failure> {
    let store = context.store().await?;
    known::all(&store, listing.consumer.as_ref(), None, None).await?;
    let page = api_key::list(&store, listing, limit).await?;
    let now = clock::now();
    let rows = page
        .items
        .iter()
        .map(|key| {
            [
                key.id.to_string(),
                key.scope.as_str().to_owned(),
                or_dash(key.consumer.as_ref()),
                key.standing(now).as_str().to_owned(),
                format!("…{}", key.hint),
                short(Some(key.created_at)),
                or_dash(key.expires_at.map(|at| short(Some(at)))),
                or_dash(key.last_used_at.map(|at| short(Some(at)))),
                key.name.clone(),
            ]
        })
        .collect();
    let head = [
        "API KEY",
        "SCOPE",
        "CONSUMER",
        "STATUS",
        "KEY",
        "CREATED",
        "EXPIRES",
        "LAST USED",
        "NAME",
    ];
    let human = table(head, rows);
    let answer = List {
        api_keys: page.items.into_iter().map(View::from).collect(),
        next: page.next.map(|id| id.to_string()),
    };
    context.output.print(&answer, || human)?;
    context.output.more(answer.next.as_deref());
    Ok(())
}
