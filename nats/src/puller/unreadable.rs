//! Messages that async-nats can't read. Its parser ends the whole connection at them, so they never
//! arrive, and come again after each ack wait.
//!
//! Owns finding them after such a cut, among what a durable has outstanding and what it gives out
//! next, and taking them off the stream. They are read by the JetStream API, whose answers carry
//! headers in base64, so that the bytes never pass the parser. Does not own when to look: the feed
//! tells a cut that may be theirs ([`Cuts`]).

use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::{HeaderName, StatusCode};
use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::Pauses;
use crate::api;
use crate::client::Client;
use crate::error::Error;
use crate::inspect;
use crate::stored::{self, Stored};

/// Requests under way at the most, each with one message in its answer.
const WALKERS: u64 = 16;
/// How far to look past what was given out: what comes next must not end the connection again.
const AHEAD: u64 = 1024;
/// Messages looked at after one cut at the most.
const MOST: usize = 65_536;
/// Messages handed over and deleted at a time.
const AT_ONCE: usize = 16;
/// Faults of the broker in a row, after which the pull goes on all the same: the next cut brings
/// the next look.
const TRIES: u32 = 5;
/// Two cuts within this time are not by chance, even where the server is another one.
const AGAIN: Duration = Duration::from_secs(30);

/// A message that can't be delivered: one of its headers or its subject is malformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The message, as far as it can be read: what is not UTF-8 is replaced by U+FFFD.
    pub message: Stored,
    /// What is wrong with it, for a person.
    pub reason: &'static str,
}

/// Takes messages over, before they are deleted; `false` where it can't now and has to be asked
/// again. The same message may come more than once.
pub(crate) type Keep = Arc<dyn Fn(Vec<Unreadable>) -> BoxFuture<'static, bool> + Send + Sync>;

/// Tells losses of the connection that a message may have caused from those of its server's.
#[derive(Debug)]
pub(super) struct Cuts {
    server: String,
    last: Option<Instant>,
}

impl Cuts {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            server: client.server_id(),
            last: None,
        }
    }

    /// Notes a loss, once there is a connection again; whether a message may have caused it. A
    /// server that was started anew calls itself otherwise.
    pub(super) fn note(&mut self, client: &Client) -> bool {
        self.noted(client.server_id(), Instant::now())
    }

    fn noted(&mut self, server: String, now: Instant) -> bool {
        let again = self.last.replace(now);
        let again = again.is_some_and(|last| now.duration_since(last) < AGAIN);
        let same = self.server == server;
        self.server = server;
        same || again
    }
}

/// One look for unreadable messages.
pub(super) struct Look {
    pub(super) client: Client,
    pub(super) stream: String,
    pub(super) durable: String,
    pub(super) keep: Option<Keep>,
}

impl Look {
    /// Takes every unreadable message off, once it is kept. Gives up after some faults of the
    /// broker, never while only the keeping fails.
    pub(super) async fn run(self) {
        let (stream, durable) = (&self.stream, &self.durable);
        debug!(
            stream,
            durable, "the connection was cut, looking for messages that can't be read"
        );
        let mut pauses = Pauses::new();
        let mut faults = 0;
        loop {
            let until = Instant::now() + api::TIMEOUT;
            self.client.connected(until).await;
            match self.round().await {
                Ok(true) => return,
                Ok(false) => faults = 0,
                Err(error) if error.is_transient() && faults < TRIES => {
                    faults += 1;
                    debug!(stream, durable, %error, "looking for unreadable messages again");
                }
                Err(error) if error.is_not_found() => return,
                Err(error) => {
                    warn!(stream, durable, %error, "can't look for unreadable messages");
                    return;
                }
            }
            tokio::time::sleep_until(pauses.next()).await;
        }
    }

    /// Whether all that were found are off.
    async fn round(&self) -> Result<bool, Error> {
        let found = self.find().await?;
        for some in found.chunks(AT_ONCE) {
            let mut unreadable = Vec::with_capacity(some.len());
            for &(sequence, reason) in some {
                // Another process may have been faster.
                if let Some(message) = stored::get(&self.client, &self.stream, sequence).await? {
                    unreadable.push(Unreadable { message, reason });
                }
            }
            for Unreadable { message, reason } in &unreadable {
                let (sequence, subject) = (message.sequence, message.subject.escape_debug());
                warn!(stream = %self.stream, sequence, %subject, reason, "a message can't be read, it is taken off");
            }
            if let Some(keep) = &self.keep
                && !unreadable.is_empty()
                && !keep(unreadable).await
            {
                return Ok(false);
            }
            for &(sequence, _) in some {
                stored::delete(&self.client, &self.stream, sequence).await?;
            }
        }
        Ok(true)
    }

    /// The sequences of the unreadable messages and their faults, lowest first.
    async fn find(&self) -> Result<Vec<(u64, &'static str)>, Error> {
        let info = inspect::consumer_info(&self.client, &self.stream, &self.durable).await?;
        let first = info.ack_floor.stream_seq + 1;
        let last = info.delivered.stream_seq + AHEAD.min(info.num_pending);
        let filter = match info.config.filter_subject.as_str() {
            "" => ">",
            filter => filter,
        };
        let left = AtomicUsize::new(MOST);
        // The messages between may be few: each walker goes from one to the next.
        let step = last.saturating_sub(first) / WALKERS + 1;
        let starts = (0..WALKERS)
            .map(|n| first + n * step)
            .filter(|&start| start <= last);
        let walks: Vec<_> = starts
            .map(|start| self.walk(filter, start, last.min(start + step - 1), &left))
            .collect();
        let mut walks = stream::iter(walks).buffered(WALKERS as usize);
        let mut found = Vec::new();
        while let Some(mut some) = walks.try_next().await? {
            found.append(&mut some);
        }
        Ok(found)
    }

    async fn walk(
        &self,
        filter: &str,
        mut from: u64,
        last: u64,
        left: &AtomicUsize,
    ) -> Result<Vec<(u64, &'static str)>, Error> {
        let mut found = Vec::new();
        let take = |left: usize| left.checked_sub(1);
        while from <= last
            && left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
        {
            let raw = stored::next_raw(&self.client, &self.stream, from, filter).await?;
            let Some(raw) = raw.filter(|raw| raw.message.sequence <= last) else {
                break;
            };
            if let Some(reason) = fault(&raw.message.subject, &raw.headers) {
                found.push((raw.message.sequence, reason));
            }
            from = raw.message.sequence + 1;
        }
        Ok(found)
    }
}

/// What async-nats stumbles over, as it reads a subject and a header block (empty for none).
fn fault(subject: &str, block: &[u8]) -> Option<&'static str> {
    // The server replaces what is not UTF-8, and separates a delivery's parts by white space.
    if subject.contains(|c: char| c == char::REPLACEMENT_CHARACTER || c.is_whitespace()) {
        return Some("its subject is not UTF-8 or has white space in it");
    }
    if block.is_empty() {
        return None;
    }
    let Ok(text) = std::str::from_utf8(block) else {
        return Some("its headers are not UTF-8");
    };
    let mut lines = text.lines().peekable();
    let Some(status) = lines.next().and_then(|line| line.strip_prefix("NATS/1.0")) else {
        return Some("its headers do not begin with NATS/1.0");
    };
    let status = status.trim();
    let status = status
        .split_once(' ')
        .map_or(status, |(code, _)| code.trim());
    if !status.is_empty() && StatusCode::from_str(status).is_err() {
        return Some("its headers' first line has something behind NATS/1.0");
    }
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let Some((name, _)) = line.split_once(':') else {
            return Some("a line of its headers has no colon");
        };
        if HeaderName::from_str(name).is_err() {
            return Some("the name of one of its headers can't be one");
        }
        while lines
            .next_if(|line| line.starts_with(char::is_whitespace))
            .is_some()
        {}
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_has_no_fault() {
        for block in [
            "",
            "NATS/1.0\r\n\r\n",
            "NATS/1.0\r\nA: b\r\nEmpty:\r\n\r\n",
            "NATS/1.0\r\nA: b\r\n folded without a colon\r\n\r\n",
            "NATS/1.0 503\r\n\r\n",
            "NATS/1.0 408 Request Timeout\r\nA: café\r\n\r\n",
        ] {
            assert_eq!(fault("intake.acme.é", block.as_bytes()), None, "{block}");
        }
    }

    #[test]
    fn each_malformed_part_is_found() {
        let blocks: [&[u8]; 8] = [
            b"NATS/1.0\r\nX-Name: caf\xe9\r\n\r\n",
            b"NATS/1.0\r\nno colon\r\n\r\n",
            b"NATS/1.0\r\nA: b\r\nno colon\r\n\r\n",
            b"NATS/1.0\r\nA name: b\r\n\r\n",
            b"NATS/1.0\r\n folded: first\r\n\r\n",
            b"NATS/2.0\r\nA: b\r\n\r\n",
            b"NATS/1.0 what\r\n\r\n",
            b"\r\n\r\n",
        ];
        for block in blocks {
            assert!(fault("a.b", block).is_some(), "{}", block.escape_ascii());
        }
        for subject in ["a.\u{fffd}", "a.b\u{a0}c"] {
            assert!(fault(subject, b"").is_some(), "{subject}");
        }
    }

    #[test]
    fn a_server_started_anew_is_no_cut_unless_it_goes_on() {
        let (start, mut cuts) = (
            Instant::now(),
            Cuts {
                server: "A".to_owned(),
                last: None,
            },
        );
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!cuts.noted("B".to_owned(), at(0)));
        assert!(cuts.noted("C".to_owned(), at(10)));
        assert!(!cuts.noted("A".to_owned(), at(60)));
        assert!(cuts.noted("A".to_owned(), at(600)));
    }
}
