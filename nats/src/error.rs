//! What can go wrong between us and the broker.

use std::path::PathBuf;
use std::time::Duration;

/// Stream not found.
pub(crate) const STREAM_NOT_FOUND: u64 = 10_059;
/// Consumer not found.
pub(crate) const CONSUMER_NOT_FOUND: u64 = 10_014;
/// No message at that place.
pub(crate) const MESSAGE_NOT_FOUND: u64 = 10_037;
/// Another entry is the subject's last.
pub(crate) const WRONG_LAST_SEQUENCE: u64 = 10_071;
/// Another entry is the subject's last; the number is not told.
pub(crate) const WRONG_LAST_SEQUENCE_CONSTANT: u64 = 10_164;

/// A fault of the connection, the broker, or what we asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody answers.
    #[error(
        "no nats-server reachable at {servers} ({reason}): start one with `nats-server -js`, or set `url` in [nats] or NATS_URL"
    )]
    Unreachable {
        /// Where we tried, without credentials.
        servers: String,
        /// The last attempt's end.
        reason: String,
    },
    /// The server refuses us.
    #[error(
        "nats-server at {servers} refuses the credentials: check the user in `url` or `credentials_file` in [nats]"
    )]
    Unauthorized {
        /// Where we tried, without credentials.
        servers: String,
    },
    /// The server is older than this needs.
    #[error("nats-server {version} is too old: Hooklane needs 2.12 or later")]
    TooOld {
        /// What it says it is.
        version: String,
    },
    /// A configured value can't be used.
    #[error("[nats] {key}: {problem}; {fix}")]
    Config {
        /// The key within `[nats]`.
        key: &'static str,
        /// What is wrong with its value.
        problem: String,
        /// What would be right.
        fix: &'static str,
    },
    /// The credentials file can't be read.
    #[error("[nats] credentials_file {path} can't be read: {source}")]
    CredentialsFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nobody serves the subject: no service, no stream, or JetStream is off.
    #[error("nobody answers on {subject}")]
    NoResponders {
        /// Whom we asked.
        subject: String,
    },
    /// No answer in time.
    #[error("no answer on {subject} within {after:?}")]
    TimedOut {
        /// Whom we asked.
        subject: String,
        /// How long we waited.
        after: Duration,
    },
    /// The connection broke before the answer.
    #[error("the connection to nats-server broke")]
    Disconnected,
    /// The message is larger than the server takes.
    #[error("message of {size} bytes is over the server's limit of {limit}")]
    TooLarge {
        /// Headers and payload, in bytes.
        size: usize,
        /// The server's `max_payload`, in bytes.
        limit: usize,
    },
    /// Text that can't be a subject.
    #[error("`{0}` is not a subject that can be used")]
    InvalidSubject(String),
    /// A header value that would break the protocol.
    #[error("header {name} has a line break in it")]
    InvalidHeader {
        /// The header's name.
        name: &'static str,
    },
    /// JetStream says no.
    #[error("JetStream refused {request}: {description} (error {code})")]
    Api {
        /// The API request.
        request: String,
        /// HTTP-like status.
        status: u16,
        /// JetStream's own error code.
        code: u64,
        /// Its words.
        description: String,
    },
    /// An answer of another shape than documented.
    #[error("answer to {request} can't be read: {source}")]
    Malformed {
        /// The request.
        request: String,
        /// Where it stopped.
        source: serde_json::Error,
    },
    /// What is on the server contradicts the definitions.
    #[error(
        "the server's streams conflict with this configuration:\n{0}\nstop Hooklane, delete what is named, and start it again: the ledger drives everything anew"
    )]
    Conflict(String),
    /// What is on the server is another ledger's.
    #[error(
        "{streams} on this NATS: another ledger's ({theirs}), and the configured database is the ledger {ours}. Each ledger needs a nats-server or an account of its own: check `url` in [database] and in [nats]. Only where this ledger was moved or restored, and no Hooklane runs on the other one any more: hooklane nats apply --adopt"
    )]
    OtherLedger {
        /// The streams, by name.
        streams: String,
        /// The ledger's id that they carry.
        theirs: String,
        /// Our ledger's id.
        ours: String,
    },
}

impl Error {
    /// Whether the same request may well succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::NoResponders { .. }
            | Self::TimedOut { .. }
            | Self::Disconnected => true,
            Self::Api { status, .. } => *status >= 500,
            Self::Unauthorized { .. }
            | Self::TooOld { .. }
            | Self::Config { .. }
            | Self::CredentialsFile { .. }
            | Self::TooLarge { .. }
            | Self::InvalidSubject(_)
            | Self::InvalidHeader { .. }
            | Self::Malformed { .. }
            | Self::Conflict(_)
            | Self::OtherLedger { .. } => false,
        }
    }

    /// Whether the stream, JetStream consumer or message that was asked for does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.code(),
            Some(STREAM_NOT_FOUND | CONSUMER_NOT_FOUND | MESSAGE_NOT_FOUND)
        )
    }

    /// JetStream's error code, where it is JetStream's error.
    pub(crate) fn code(&self) -> Option<u64> {
        match self {
            Self::Api { code, .. } => Some(*code),
            _ => None,
        }
    }
}
