//! An endpoint's settings in the `ROUTES` bucket, as JSON.
//!
//! Secrets and custom header values stay sealed: whoever reads the bucket learns neither.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::EndpointId;
use crate::token::ConsumerId;

/// What a lane needs to know of its endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Whose it is.
    pub consumer: ConsumerId,
    /// Grows with every change; a lower one never replaces a higher one.
    pub version: i64,
    /// Whether it takes deliveries.
    pub state: State,
    /// Where attempts go.
    pub url: String,
    /// Attempts a second, resolved from endpoint, consumer and default; `None` is no limit.
    pub rate: Option<u32>,
    /// The token bucket's size.
    pub burst: u32,
    /// Attempts in flight, 1 to 256.
    pub concurrency: u32,
    /// An attempt's total time, in milliseconds, 1,000 to 60,000.
    pub timeout_ms: u32,
    /// Signing secrets, newest first, each sealed and in base64.
    pub secrets: Vec<String>,
    /// Custom headers: a JSON object of names and values, sealed and in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    /// The endpoint asked for a pause until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<DateTime<Utc>>,
}

/// An endpoint's state as its lane sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Takes deliveries.
    Active,
    /// Takes deliveries, and has been failing.
    Failing,
    /// Takes none until somebody resumes it.
    Paused,
    /// Takes none until somebody resumes it; the endpoint asked for it, or failed for too long.
    Disabled,
    /// Gone for good; kept so that a stale writer can't bring it back.
    Deleted,
}

impl State {
    /// The name in the ledger and in output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Failing => "failing",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
            Self::Deleted => "deleted",
        }
    }

    /// Whether lanes attempt deliveries in this state.
    #[must_use]
    pub const fn takes_deliveries(self) -> bool {
        matches!(self, Self::Active | Self::Failing)
    }
}
