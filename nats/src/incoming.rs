//! A message pulled from a stream, with the right to settle it.

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use chrono::{DateTime, Utc};

use crate::ack::AckToken;
use crate::client::Client;

/// One message of a stream, delivered by a durable JetStream consumer.
pub struct Incoming {
    /// The stored subject, with the partition where the stream has a transform.
    pub subject: String,
    /// The exact bytes.
    pub payload: Bytes,
    /// Its place in the stream.
    pub stream_sequence: u64,
    /// When the stream's leader stored it, by the leader's clock.
    pub published: DateTime<Utc>,
    /// The how-many-eth delivery this is, from 1.
    pub delivered: u64,
    /// The right to settle it, once.
    pub token: AckToken,
    headers: Option<HeaderMap>,
}

impl Incoming {
    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.as_ref()?.get(name).map(|value| value.as_str())
    }

    /// Bytes that it occupies: subject, headers (roughly) and payload.
    #[must_use]
    pub fn size(&self) -> usize {
        let headers = self.headers.iter().flat_map(|headers| headers.iter());
        let headers: usize = headers
            .flat_map(|(_, values)| values)
            .map(|value| value.as_str().len() + 24)
            .sum();
        self.subject.len() + headers + self.payload.len()
    }

    /// `None` where the message is not a JetStream delivery.
    pub(crate) fn read(message: Message, client: &Client) -> Option<Self> {
        let reply = message.reply.clone()?;
        let place = Place::parse(&reply)?;
        Some(Self {
            subject: message.subject.into_string(),
            payload: message.payload,
            stream_sequence: place.stream_sequence,
            published: place.published,
            delivered: place.delivered,
            token: AckToken::new(reply, client.clone()),
            headers: message.headers,
        })
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming")
            .field("subject", &self.subject)
            .field("bytes", &self.payload.len())
            .field("stream_sequence", &self.stream_sequence)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}

/// What a delivery's reply subject tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) delivered: u64,
    pub(crate) stream_sequence: u64,
    pub(crate) consumer_sequence: u64,
    pub(crate) published: DateTime<Utc>,
    pub(crate) pending: u64,
}

impl Place {
    /// `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ns>.<pending>`, or the
    /// form with domain and account hash in front, and perhaps a token behind.
    pub(crate) fn parse(reply: &str) -> Option<Self> {
        let rest = reply.strip_prefix("$JS.ACK.")?;
        let skip = match rest.split('.').count() {
            7 => 2,
            9.. => 4,
            _ => return None,
        };
        let mut numbers = rest.split('.').skip(skip);
        let mut number = || numbers.next()?.parse::<u64>().ok();
        let (delivered, stream_sequence, consumer_sequence) = (number()?, number()?, number()?);
        let published = i64::try_from(number()?).ok()?;
        Some(Self {
            delivered,
            stream_sequence,
            consumer_sequence,
            published: DateTime::from_timestamp_nanos(published),
            pending: number()?,
        })
    }
}

/// The status of a message that the server sends about a pull, `None` for a stream's message: that
/// has a place, whatever status its publisher wrote into its headers.
pub(crate) fn status(message: &Message) -> Option<u16> {
    let code = message.status?.as_u16();
    let place = message.reply.as_deref().and_then(Place::parse);
    (code != 200 && place.is_none()).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_reply_subject_tell_the_same() {
        let short = Place::parse("$JS.ACK.S.c.3.100.7.1790230470084404000.42").unwrap();
        assert_eq!((short.delivered, short.stream_sequence), (3, 100));
        assert_eq!((short.consumer_sequence, short.pending), (7, 42));
        assert_eq!(short.published.timestamp_micros(), 1_790_230_470_084_404);
        for long in [
            "$JS.ACK._.hash.S.c.3.100.7.1790230470084404000.42",
            "$JS.ACK.hub.hash.S.c.3.100.7.1790230470084404000.42.token",
        ] {
            assert_eq!(Place::parse(long).as_ref(), Some(&short), "{long}");
        }
        for bad in [
            "",
            "$JS.ACK.S.c.3.100.7.1",
            "$JS.ACK.S.c.3.x.7.1.1",
            "a.b.c.d.e.f.g.h.i",
        ] {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
    }
}
