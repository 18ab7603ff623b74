//! Header names on NATS messages, and the list that carries them.
//!
//! Own names start with `Hooklane-`; deduplication uses `Nats-Msg-Id`, traces `traceparent`.

use crate::token::ConsumerId;
use crate::trace::TraceContext;

/// The broker's deduplication id.
pub const MSG_ID: &str = "Nats-Msg-Id";
/// W3C trace context.
pub const TRACEPARENT: &str = "traceparent";
/// W3C trace state.
pub const TRACESTATE: &str = "tracestate";
/// The payload's media type.
pub const CONTENT_TYPE: &str = "Content-Type";

/// A producer's idempotency key, on `INTAKE`.
pub const IDEMPOTENCY_KEY: &str = "Hooklane-Idempotency-Key";
/// A subject that gets the receipt of an `INTAKE` message.
pub const RECEIPT_TO: &str = "Hooklane-Receipt-To";

/// The message's id.
pub const MESSAGE: &str = "Hooklane-Message";
/// The endpoint's id.
pub const ENDPOINT: &str = "Hooklane-Endpoint";
/// The endpoints of an event: `<id>@<version>`, comma-separated.
pub const ENDPOINTS: &str = "Hooklane-Endpoints";
/// Which part of an event with more than [`crate::event::MAX_TARGETS`] endpoints.
pub const PART: &str = "Hooklane-Part";
/// What happened, such as `invoice.paid`.
pub const EVENT_TYPE: &str = "Hooklane-Event-Type";
/// When the message was accepted.
pub const ACCEPTED_AT: &str = "Hooklane-Accepted-At";
/// No attempt after this.
pub const DEADLINE: &str = "Hooklane-Deadline";
/// A copy that reaches the broker after this is dropped: the ledger drives it again.
pub const NOT_AFTER: &str = "Hooklane-Not-After";
/// When the attempt was due.
pub const DUE_AT: &str = "Hooklane-Due-At";
/// The series of attempts, from 1.
pub const SERIES: &str = "Hooklane-Series";
/// The trip through the broker, from 1.
pub const DRIVE: &str = "Hooklane-Drive";
/// Attempts made before, in all series.
pub const ATTEMPTS: &str = "Hooklane-Attempts";
/// Attempts counted before, in this series.
pub const COUNTED: &str = "Hooklane-Counted";
/// The endpoint's version that the delivery was made for.
pub const ENDPOINT_VERSION: &str = "Hooklane-Endpoint-Version";

/// Why a delivery is a dead letter.
pub const REASON: &str = "Hooklane-Reason";
/// The last answer's status code.
pub const LAST_STATUS: &str = "Hooklane-Last-Status";
/// The last attempt's error class.
pub const LAST_ERROR: &str = "Hooklane-Last-Error";
/// When the delivery failed for good.
pub const FAILED_AT: &str = "Hooklane-Failed-At";
/// What exactly is wrong with an unreadable message.
pub const DETAIL: &str = "Hooklane-Detail";
/// Where an unreadable message was: `<stream> <sequence> <subject>`.
pub const ORIGIN: &str = "Hooklane-Origin";
/// Bytes of a payload that is too large to be kept with its dead letter.
pub const LEFT_OUT: &str = "Hooklane-Left-Out";

/// The inbox's own id of a partner's event.
pub const INBOX_EVENT: &str = "Hooklane-Inbox-Event";
/// The partner that an inbox event came from.
pub const PARTNER: &str = "Hooklane-Partner";
/// The partner's id of its event.
pub const PARTNER_EVENT: &str = "Hooklane-Partner-Event";
/// What an inbox event is about: `<kind>/<key>`.
pub const ENTITY: &str = "Hooklane-Entity";
/// Which event of its entity it is, from 1 without a gap.
pub const ENTITY_SEQUENCE: &str = "Hooklane-Entity-Sequence";
/// What the partner's signature covers: `full`, or `partial: ` and what it does not.
pub const INTEGRITY: &str = "Hooklane-Integrity";
/// The how-many-eth time an inbox event is handed on, from 1.
pub const INBOX_ATTEMPT: &str = "Hooklane-Inbox-Attempt";

/// Headers to put on a message, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(&'static str, String)>);

impl Headers {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one header.
    pub fn push(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.push((name, value.into()));
    }

    /// Adds the headers of a trace context.
    pub fn push_trace(&mut self, trace: Option<&TraceContext>) {
        if let Some(trace) = trace {
            self.push(TRACEPARENT, trace.traceparent.as_str());
            if !trace.tracestate.is_empty() {
                self.push(TRACESTATE, trace.tracestate.as_str());
            }
        }
    }

    /// The headers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// The first value of a header.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A header that is missing or can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The header is absent.
    #[error("header {0} is missing")]
    Missing(&'static str),
    /// The header's value is not of its form.
    #[error("header {name} has the value `{value}`, which can't be read")]
    Invalid {
        /// The header's name.
        name: &'static str,
        /// Its value, cut to 100 characters.
        value: String,
    },
}

/// Reads typed values out of any bag of headers.
pub(crate) struct Reader<F>(pub(crate) F);

impl<'a, F: Fn(&str) -> Option<&'a str>> Reader<F> {
    pub(crate) fn text(&self, name: &'static str) -> Result<&'a str, HeaderError> {
        (self.0)(name).ok_or(HeaderError::Missing(name))
    }

    pub(crate) fn parsed<T: std::str::FromStr>(
        &self,
        name: &'static str,
    ) -> Result<T, HeaderError> {
        let text = self.text(name)?;
        text.parse().map_err(|_| invalid(name, text))
    }

    /// `None` where the header is absent.
    pub(crate) fn optional<T: std::str::FromStr>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, HeaderError> {
        (self.0)(name)
            .map(|text| text.parse().map_err(|_| invalid(name, text)))
            .transpose()
    }

    pub(crate) fn time(
        &self,
        name: &'static str,
    ) -> Result<chrono::DateTime<chrono::Utc>, HeaderError> {
        let text = self.text(name)?;
        crate::micros::parse(text).ok_or_else(|| invalid(name, text))
    }

    pub(crate) fn trace(&self) -> Option<TraceContext> {
        TraceContext::parse((self.0)(TRACEPARENT)?, (self.0)(TRACESTATE))
    }
}

/// The consumer that a subject names in its `at`-th token, from 0.
pub(crate) fn consumer(subject: &str, at: usize) -> Result<ConsumerId, HeaderError> {
    let token = subject.split('.').nth(at).unwrap_or_default();
    ConsumerId::new(token).map_err(|_| invalid("subject", subject))
}

pub(crate) fn invalid(name: &'static str, value: &str) -> HeaderError {
    HeaderError::Invalid {
        name,
        value: value.chars().take(100).collect(),
    }
}
