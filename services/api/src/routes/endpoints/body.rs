//! Endpoints as requests and answers have them.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::rules::headers::CustomHeaders;
use hooklane_core::rules::signing::Secret;
use hooklane_core::rules::subscription::Filter;
use hooklane_proto::token::ConsumerId;
use hooklane_store::endpoint::{self, Rate};
use hooklane_store::manage;
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::extract::nullable;
use crate::problem::Problem;

/// Custom headers, by name. Their values may be credentials: they have no `Debug`. One that is given
/// twice is kept twice, and refused with the others' rules.
#[derive(Default)]
pub(super) struct Headers(Vec<(String, SecretString)>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeadersVisitor)
    }
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of header names and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut headers = Vec::new();
        while let Some(header) = map.next_entry()? {
            headers.push(header);
        }
        Ok(Headers(headers))
    }
}

/// A new endpoint.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewEndpoint {
    /// Where attempts go.
    #[schema(example = "https://example.com/webhooks", max_length = 2048)]
    url: String,
    /// For people.
    #[serde(default)]
    #[schema(max_length = 1024)]
    description: String,
    /// Which event types it wants: exact names, prefixes such as `invoice.*`, or `*` for all.
    #[serde(default = "everything")]
    #[schema(min_items = 1, example = json!(["invoice.*"]))]
    event_types: Vec<String>,
    /// Attempts a second; null takes the consumer's default.
    #[schema(minimum = 1, maximum = 1000)]
    rate: Option<u16>,
    /// Whether it has no rate at all.
    #[serde(default)]
    unlimited: bool,
    /// Attempts at once after a pause; null is the rate.
    #[schema(minimum = 1, maximum = 1000)]
    burst: Option<u16>,
    /// Attempts in flight.
    #[serde(default = "concurrency")]
    #[schema(minimum = 1, maximum = 256, default = 16)]
    concurrency: u16,
    /// An attempt's total time, in milliseconds.
    #[serde(default = "timeout_ms")]
    #[schema(minimum = 1000, maximum = 60000, default = 15000)]
    timeout_ms: u32,
    /// Whether it is disabled once it has failed for long; null takes the deployment's setting.
    auto_disable: Option<bool>,
    /// Headers to put on every attempt. They are kept sealed and shown never.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>, example = json!({"x-tenant": "42"}))]
    headers: Headers,
    /// The signing secret, `whsec_` and base64 of 24 to 64 bytes; without one, one is made.
    #[schema(value_type = Option<String>, write_only)]
    secret: Option<SecretString>,
}

fn everything() -> Vec<String> {
    vec!["*".to_owned()]
}

const fn concurrency() -> u16 {
    16
}

const fn timeout_ms() -> u32 {
    15_000
}

impl NewEndpoint {
    /// What the ledger is asked to add.
    pub(super) fn into_new(self, consumer: ConsumerId) -> Result<endpoint::New, Problem> {
        let Self {
            url,
            description,
            event_types,
            rate,
            unlimited,
            burst,
            concurrency,
            timeout_ms,
            auto_disable,
            headers,
            secret,
        } = self;
        Ok(endpoint::New {
            consumer,
            url,
            description,
            filter: filter(&event_types)?,
            rate: rate_of(rate, unlimited)?,
            burst,
            concurrency,
            timeout: Duration::from_millis(timeout_ms.into()),
            auto_disable,
            headers: custom(&headers)?,
            secret: secret.as_ref().map(parse_secret).transpose()?,
        })
    }
}

/// Changes of an endpoint; what is absent stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EndpointChanges {
    /// Where attempts go.
    #[schema(max_length = 2048)]
    url: Option<String>,
    /// For people.
    #[schema(max_length = 1024)]
    description: Option<String>,
    /// Which event types it wants, for events accepted from now on.
    #[schema(min_items = 1)]
    event_types: Option<Vec<String>>,
    /// Attempts a second; null takes the consumer's default.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 1000)]
    rate: Option<Option<u16>>,
    /// Whether it has no rate at all.
    unlimited: Option<bool>,
    /// Attempts at once after a pause; null is the rate.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 1000)]
    burst: Option<Option<u16>>,
    /// Attempts in flight.
    #[schema(minimum = 1, maximum = 256)]
    concurrency: Option<u16>,
    /// An attempt's total time, in milliseconds.
    #[schema(minimum = 1000, maximum = 60000)]
    timeout_ms: Option<u32>,
    /// Whether it is disabled once it has failed for long; null takes the deployment's setting.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<bool>)]
    auto_disable: Option<Option<bool>>,
    /// All custom headers anew.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    headers: Option<Headers>,
}

impl EndpointChanges {
    /// What the ledger is asked to change of an endpoint that has this rate.
    pub(super) fn into_changes(self, now: Rate) -> Result<endpoint::Changes, Problem> {
        let Self {
            url,
            description,
            event_types,
            rate,
            unlimited,
            burst,
            concurrency,
            timeout_ms,
            auto_disable,
            headers,
        } = self;
        let rate = match (rate, unlimited) {
            (None, None) => None,
            // It has one already.
            (None, Some(false)) if now != Rate::Unlimited => None,
            (rate, unlimited) => Some(rate_of(rate.flatten(), unlimited.unwrap_or(false))?),
        };
        Ok(endpoint::Changes {
            url,
            description,
            filter: event_types.map(|names| filter(&names)).transpose()?,
            rate,
            burst,
            concurrency,
            timeout: timeout_ms.map(|ms| Duration::from_millis(ms.into())),
            auto_disable,
            headers: headers.map(|headers| custom(&headers)).transpose()?,
        })
    }
}

fn filter(names: &[String]) -> Result<Filter, Problem> {
    Filter::parse(names).map_err(|error| manage::Error::from(error).into())
}

fn rate_of(rate: Option<u16>, unlimited: bool) -> Result<Rate, Problem> {
    match (rate, unlimited) {
        (None, false) => Ok(Rate::Inherited),
        (Some(rate), false) => Ok(Rate::PerSecond(rate)),
        (None, true) => Ok(Rate::Unlimited),
        (Some(_), true) => Err(Problem::unprocessable(
            "`rate` and `unlimited` contradict each other; give one of them",
        )),
    }
}

fn custom(headers: &Headers) -> Result<CustomHeaders, Problem> {
    let pairs = headers
        .0
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose_secret()));
    CustomHeaders::parse(pairs).map_err(|error| manage::Error::from(error).into())
}

pub(super) fn parse_secret(text: &SecretString) -> Result<Secret, Problem> {
    Secret::parse(text.expose_secret()).map_err(|error| Problem::unprocessable(error.to_string()))
}

/// A customer's endpoint. Holds no secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Endpoint {
    /// Its id.
    #[schema(example = "ep_01987c3e-9d6a-7000-8000-000000000001")]
    id: String,
    /// Whose it is.
    consumer: String,
    /// Where attempts go.
    url: String,
    /// For people.
    description: String,
    /// Which event types it wants.
    event_types: Vec<String>,
    /// Attempts a second; null where it has no rate of its own.
    rate: Option<u16>,
    /// Whether it has no rate at all.
    unlimited: bool,
    /// Attempts at once after a pause; null is the rate.
    burst: Option<u16>,
    /// Attempts in flight.
    concurrency: u16,
    /// An attempt's total time, in milliseconds.
    timeout_ms: u64,
    /// Whether it has custom headers.
    has_headers: bool,
    /// `active`, `failing`, `paused` or `disabled`.
    state: String,
    /// Whether it is disabled once it has failed for long; null takes the deployment's setting.
    auto_disable: Option<bool>,
    /// Failures since the last success.
    consecutive_failures: u32,
    /// When the first of these started.
    failing_since: Option<DateTime<Utc>>,
    /// Failures of this hour and the 23 before it.
    failures_24h: u64,
    /// It asked for a pause until then.
    held_until: Option<DateTime<Utc>>,
    /// Grows with every change; the `etag` in quotes.
    version: i64,
    /// Whether the lanes know this version.
    routed: bool,
    /// When it was added.
    created_at: DateTime<Utc>,
    /// When it was changed last.
    updated_at: DateTime<Utc>,
}

impl From<endpoint::Endpoint> for Endpoint {
    fn from(endpoint: endpoint::Endpoint) -> Self {
        let endpoint::Endpoint {
            id,
            consumer,
            url,
            description,
            filter,
            rate,
            burst,
            concurrency,
            timeout,
            has_headers,
            state,
            auto_disable,
            consecutive_failures,
            failing_since,
            failures_24h,
            held_until,
            version,
            routed,
            created_at,
            updated_at,
        } = endpoint;
        Self {
            id: id.to_string(),
            consumer: consumer.to_string(),
            url,
            description,
            event_types: filter.to_strings(),
            rate: match rate {
                Rate::PerSecond(rate) => Some(rate),
                Rate::Inherited | Rate::Unlimited => None,
            },
            unlimited: rate == Rate::Unlimited,
            burst,
            concurrency,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            has_headers,
            state: state.as_str().to_owned(),
            auto_disable,
            consecutive_failures,
            failing_since,
            failures_24h,
            held_until,
            version,
            routed,
            created_at,
            updated_at,
        }
    }
}

/// An endpoint after it was added or changed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Written {
    /// The endpoint.
    #[serde(flatten)]
    pub(super) endpoint: Endpoint,
    /// What whoever asked for it should know.
    pub(super) warnings: Vec<String>,
}

/// An endpoint that was added, with its secret.
#[derive(Serialize, ToSchema)]
pub(super) struct Added {
    /// The endpoint.
    #[serde(flatten)]
    pub(super) endpoint: Written,
    /// The signing secret. Shown here and to admins only.
    pub(super) secret: String,
}

/// How a secret is rotated.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rotation {
    /// How long the old secret signs along, in seconds, up to 30 days; 0 ends it at once; null takes
    /// the deployment's setting (24 hours unless changed).
    #[schema(maximum = 2592000)]
    pub(super) grace_seconds: Option<u32>,
    /// The new secret; without one, one is made.
    #[schema(value_type = Option<String>, write_only)]
    pub(super) secret: Option<SecretString>,
}

/// A secret after a rotation.
#[derive(Serialize, ToSchema)]
pub(super) struct Rotated {
    /// The new secret.
    pub(super) secret: String,
    /// Until when the one before signs along; null where it stopped at once.
    pub(super) old_until: Option<DateTime<Utc>>,
}

/// The secrets that sign at present, the newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Secrets {
    /// The secrets.
    pub(super) data: Vec<Standing>,
}

/// A secret that signs at present.
#[derive(Serialize, ToSchema)]
pub(super) struct Standing {
    /// The secret.
    secret: String,
    /// When it was made.
    created_at: DateTime<Utc>,
    /// When it stops signing; null for the current one.
    expires_at: Option<DateTime<Utc>>,
}

impl From<endpoint::Standing> for Standing {
    fn from(standing: endpoint::Standing) -> Self {
        let endpoint::Standing {
            secret,
            created_at,
            expires_at,
        } = standing;
        Self {
            secret: secret.reveal().to_string(),
            created_at,
            expires_at,
        }
    }
}
