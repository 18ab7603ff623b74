//! Endpoints as JSON has them.

use hooklane_store::endpoint::{Endpoint, Rate};
use serde::Serialize;

use crate::output::{fields, or_dash, time};

/// An endpoint.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) id: String,
    pub(super) consumer: String,
    pub(super) url: String,
    description: String,
    pub(super) event_types: Vec<String>,
    /// Null where the consumer's or the deployment's holds, or where there is no limit.
    rate: Option<u16>,
    unlimited: bool,
    burst: Option<u16>,
    concurrency: u16,
    timeout_ms: u64,
    custom_headers: bool,
    pub(super) state: String,
    /// Null where the deployment's setting holds.
    auto_disable: Option<bool>,
    consecutive_failures: u32,
    failing_since: Option<String>,
    failures_24h: u64,
    held_until: Option<String>,
    version: i64,
    /// Whether the lanes know this version.
    routed: bool,
    created_at: String,
    updated_at: String,
}

impl From<Endpoint> for View {
    fn from(endpoint: Endpoint) -> Self {
        let Endpoint {
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
            custom_headers: has_headers,
            state: state.as_str().to_owned(),
            auto_disable,
            consecutive_failures,
            failing_since: failing_since.map(time),
            failures_24h,
            held_until: held_until.map(time),
            version,
            routed,
            created_at: time(created_at),
            updated_at: time(updated_at),
        }
    }
}

impl View {
    pub(super) fn rate_text(&self) -> String {
        match (self.rate, self.unlimited) {
            (Some(rate), _) => format!("{rate}/s"),
            (None, true) => "none".to_owned(),
            (None, false) => "default".to_owned(),
        }
    }

    /// Failures in a row, and those of a day.
    pub(super) fn failures_text(&self) -> String {
        match (self.consecutive_failures, self.failures_24h) {
            (0, 0) => "-".to_owned(),
            (row, day) => format!("{row} ({day})"),
        }
    }

    /// Since when it has been failing, to the second.
    pub(super) fn failing_text(&self) -> String {
        let since = self.failing_since.as_deref();
        // The time as JSON has it, without its fraction.
        or_dash(since.map(|since| since.get(..19).unwrap_or(since).to_owned() + "Z"))
    }

    pub(super) fn human(&self) -> String {
        let headers = if self.custom_headers {
            "yes (sealed)"
        } else {
            ""
        };
        let auto_disable = match self.auto_disable {
            None => "default",
            Some(true) => "on",
            Some(false) => "off",
        };
        let lanes = if self.routed {
            "know it"
        } else {
            "are being told"
        };
        fields(vec![
            ("endpoint", self.id.clone()),
            ("consumer", self.consumer.clone()),
            ("url", self.url.clone()),
            ("description", self.description.clone()),
            ("event types", self.event_types.join(", ")),
            ("state", self.state.clone()),
            ("rate", self.rate_text()),
            ("burst", or_dash(self.burst)),
            ("concurrency", self.concurrency.to_string()),
            ("timeout", format!("{} ms", self.timeout_ms)),
            ("custom headers", headers.to_owned()),
            ("auto-disable", auto_disable.to_owned()),
            ("failures in a row", self.consecutive_failures.to_string()),
            (
                "failing since",
                self.failing_since.clone().unwrap_or_default(),
            ),
            ("failures in 24 hours", self.failures_24h.to_string()),
            ("held until", self.held_until.clone().unwrap_or_default()),
            ("version", format!("{} (the lanes {lanes})", self.version)),
            ("created", self.created_at.clone()),
            ("updated", self.updated_at.clone()),
        ])
    }
}

#[derive(Debug, Serialize)]
pub(super) struct List {
    pub(super) endpoints: Vec<View>,
    pub(super) next: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Added {
    pub(super) endpoint: View,
    pub(super) secret: String,
    pub(super) warnings: Vec<String>,
}

impl Added {
    pub(super) fn human(&self) -> String {
        let secret = fields(vec![("secret", self.secret.clone())]);
        format!("{}\n{secret}", self.endpoint.human())
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Updated {
    pub(super) endpoint: View,
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Settled {
    pub(super) endpoint: View,
    /// Whether this command changed the endpoint's state.
    pub(super) changed: bool,
    /// Open deliveries that were skipped or cancelled.
    pub(super) deliveries: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Rotated {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) old_secret_until: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Secrets {
    pub(super) id: String,
    pub(super) secrets: Vec<Secret>,
}

#[derive(Debug, Serialize)]
pub(super) struct Secret {
    pub(super) secret: String,
    pub(super) created_at: String,
    pub(super) expires_at: Option<String>,
}
