//! An accepted event on `EVENTS`: the payload as body, the rest in headers.

use bytes::Bytes;
use chrono::{DateTime, Utc};

use crate::header::{self, HeaderError, Headers, Reader};
use crate::id::{EndpointId, MessageId};
use crate::micros;
use crate::subject;
use crate::token::{ConsumerId, EventType};
use crate::trace::TraceContext;

/// Endpoints that one wire message names at the most; more become several messages.
pub const MAX_TARGETS: usize = 500;

/// An endpoint that was subscribed and running at acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Its version at acceptance: a lane that knows an older one waits for this.
    pub version: i64,
}

/// An accepted event, or one part of it. Its deliveries are in series 1, drive 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The message.
    pub message: MessageId,
    /// Whose endpoints it goes to.
    pub consumer: ConsumerId,
    /// What happened.
    pub event_type: EventType,
    /// The payload's media type.
    pub content_type: String,
    /// When the ledger took it.
    pub accepted_at: DateTime<Utc>,
    /// A copy stored by the broker after this is dropped.
    pub not_after: DateTime<Utc>,
    /// No attempt after this.
    pub deadline: DateTime<Utc>,
    /// The part, from 0.
    pub part: u16,
    /// At most [`MAX_TARGETS`].
    pub targets: Vec<Target>,
    /// The producer's trace.
    pub trace: Option<TraceContext>,
    /// The exact bytes.
    pub payload: Bytes,
}

impl Event {
    /// Where it is published.
    #[must_use]
    pub fn subject(&self) -> String {
        subject::events(&self.consumer, &self.event_type)
    }

    /// Splits a list of any length into wire messages of at most [`MAX_TARGETS`] endpoints; an
    /// event without endpoints is one message all the same, for whoever else listens.
    #[must_use]
    pub fn split(self) -> Vec<Self> {
        if self.targets.len() <= MAX_TARGETS {
            return vec![self];
        }
        self.targets
            .chunks(MAX_TARGETS)
            .zip(0u16..)
            .map(|(targets, part)| Self {
                part,
                targets: targets.to_vec(),
                ..self.clone()
            })
            .collect()
    }

    /// The headers to publish it with.
    #[must_use]
    pub fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        // A message's id may be taken again, by another consumer or once its row is gone: what was
        // accepted at another time is another event, not a repetition.
        headers.push(
            header::MSG_ID,
            format!(
                "{}:{}:{}:{}",
                self.message,
                self.accepted_at.timestamp_micros(),
                self.consumer,
                self.part
            ),
        );
        headers.push(header::MESSAGE, self.message.to_string());
        headers.push(header::PART, self.part.to_string());
        headers.push(header::EVENT_TYPE, self.event_type.as_str());
        headers.push(header::CONTENT_TYPE, self.content_type.as_str());
        headers.push(header::ACCEPTED_AT, micros::text(self.accepted_at));
        headers.push(header::NOT_AFTER, micros::text(self.not_after));
        headers.push(header::DEADLINE, micros::text(self.deadline));
        headers.push(header::ENDPOINTS, targets_text(&self.targets));
        headers.push_trace(self.trace.as_ref());
        headers
    }

    /// Reads a stored message. `subject` is the stored one, `events.<partition>.<consumer>.<type>`.
    ///
    /// # Errors
    /// [`HeaderError`] where a header is missing or malformed, or the subject is not an event's.
    pub fn read<'a>(
        subject: &str,
        header: impl Fn(&str) -> Option<&'a str>,
        payload: Bytes,
    ) -> Result<Self, HeaderError> {
        let r = Reader(header);
        Ok(Self {
            message: r.parsed(header::MESSAGE)?,
            consumer: header::consumer(subject, 2)?,
            event_type: r.parsed(header::EVENT_TYPE)?,
            content_type: r.text(header::CONTENT_TYPE)?.to_owned(),
            accepted_at: r.time(header::ACCEPTED_AT)?,
            not_after: r.time(header::NOT_AFTER)?,
            deadline: r.time(header::DEADLINE)?,
            part: r.parsed(header::PART)?,
            targets: read_targets(r.text(header::ENDPOINTS)?)?,
            trace: r.trace(),
            payload,
        })
    }
}

fn targets_text(targets: &[Target]) -> String {
    let mut text = String::with_capacity(targets.len() * 44);
    for target in targets {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&format!("{}@{}", target.endpoint, target.version));
    }
    text
}

fn read_targets(text: &str) -> Result<Vec<Target>, HeaderError> {
    text.split(',')
        .filter(|item| !item.is_empty())
        .map(|item| {
            let (endpoint, version) = item.split_once('@')?;
            Some(Target {
                endpoint: endpoint.parse().ok()?,
                version: version.parse().ok()?,
            })
        })
        .collect::<Option<_>>()
        .ok_or_else(|| header::invalid(header::ENDPOINTS, text))
}
