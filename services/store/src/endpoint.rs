//! Customers' endpoints: their settings, their state and their signing secrets.
//!
//! Owns adding, reading and changing them by hand ([`add`], [`update`]), the transitions that a
//! person makes ([`pause`], [`resume`], [`delete`]) with what these mean for open deliveries
//! ([`Settle`]), and secrets ([`rotate`], [`reveal`]). Health, that is what attempts do to an
//! endpoint, belongs to the recorder.
//!
//! Every change takes a new version, and whoever publishes settings to the lanes goes by that.

mod filters;
mod read;
mod secret;
mod settle;
mod state;
mod write;

use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::rules::headers::CustomHeaders;
use hooklane_core::rules::signing::Secret;
use hooklane_core::rules::subscription::Filter;
use hooklane_proto::id::EndpointId;
use hooklane_proto::route::State;
use hooklane_proto::token::ConsumerId;

pub(crate) use read::state_of;
pub use read::{Failing, Listing, failing, list, not_of, show};
pub use secret::{MAX_GRACE, Rotated, Standing, reveal, rotate};
pub use settle::{Settle, settle_stalled};
pub use state::{Changed, delete, delete_at, pause, resume};
pub use write::{Added, Changes, New, Updated, add, update};

/// Most endpoints of one consumer, not counting deleted ones.
pub const MAX_PER_CONSUMER: i64 = 10_000;

/// An endpoint as its owner knows it. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Whose it is.
    pub consumer: ConsumerId,
    /// Where attempts go.
    pub url: String,
    /// For people.
    pub description: String,
    /// Which event types it wants.
    pub filter: Filter,
    /// Attempts a second.
    pub rate: Rate,
    /// Attempts at once after a pause, 1 to 1,000; `None` is the rate.
    pub burst: Option<u16>,
    /// Attempts in flight, 1 to 256.
    pub concurrency: u16,
    /// An attempt's total time, 1 to 60 s.
    pub timeout: Duration,
    /// Whether it has custom headers. Names and values are sealed.
    pub has_headers: bool,
    /// Whether it takes deliveries.
    pub state: State,
    /// Whether it is disabled once it has failed for long; `None` takes the deployment's setting.
    pub auto_disable: Option<bool>,
    /// Failures since the last success.
    pub consecutive_failures: u32,
    /// When the first of these started.
    pub failing_since: Option<DateTime<Utc>>,
    /// Failures of this hour and the 23 before it.
    pub failures_24h: u64,
    /// The endpoint asked for a pause until then.
    pub held_until: Option<DateTime<Utc>>,
    /// Grows with every change.
    pub version: i64,
    /// Whether the lanes know this version.
    pub routed: bool,
    /// When it was added.
    pub created_at: DateTime<Utc>,
    /// When it was changed last.
    pub updated_at: DateTime<Utc>,
}

/// Attempts a second that an endpoint takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// The consumer's default, or else the deployment's.
    Inherited,
    /// So many, 1 to 1,000.
    PerSecond(u16),
    /// As many as come.
    Unlimited,
}

impl Rate {
    fn column(self) -> Option<i32> {
        match self {
            Self::Inherited => None,
            Self::PerSecond(rate) => Some(i32::from(rate)),
            Self::Unlimited => Some(0),
        }
    }

    fn from_column(column: Option<i32>) -> Self {
        match column.map(u16::try_from) {
            None | Some(Err(_)) => Self::Inherited,
            Some(Ok(0)) => Self::Unlimited,
            Some(Ok(rate)) => Self::PerSecond(rate),
        }
    }
}

/// Headers as they are kept: a sealed JSON object. `None` where there are none.
fn seal_headers(
    headers: &CustomHeaders,
    id: EndpointId,
    keys: &hooklane_core::secrets::MasterKeys,
) -> Result<Option<Vec<u8>>, hooklane_core::secrets::Error> {
    if headers.is_empty() {
        return Ok(None);
    }
    let object: serde_json::Map<String, serde_json::Value> = headers
        .expose()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    let text = serde_json::Value::Object(object).to_string();
    keys.encrypt(text.as_bytes(), id.to_string().as_bytes())
        .map(Some)
}

fn seal_secret(
    secret: &Secret,
    id: EndpointId,
    keys: &hooklane_core::secrets::MasterKeys,
) -> Result<Vec<u8>, hooklane_core::secrets::Error> {
    keys.encrypt(secret.reveal().as_bytes(), id.to_string().as_bytes())
}
