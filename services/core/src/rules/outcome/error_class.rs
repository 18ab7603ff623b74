//! Why an attempt got no answer: a closed set, used in records, in the ledger and as a label.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! error_classes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// Why an attempt got no answer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ErrorClass {
            $($(#[$doc])* $name,)+
        }

        impl ErrorClass {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name in records, in the ledger and in metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

error_classes! {
    /// The name doesn't resolve: unknown, without addresses, or the zone's servers fail.
    Dns = "dns",
    /// The guard refuses the address; no connection was opened.
    AddressRefused = "address_refused",
    /// Nothing listens there.
    ConnectRefused = "connect_refused",
    /// No connection within the connect timeout.
    ConnectTimeout = "connect_timeout",
    /// No route to the host or its network.
    Unreachable = "unreachable",
    /// The TLS handshake failed: certificate, name, protocol or alert.
    Tls = "tls",
    /// Connected, but no head of an answer within the total timeout.
    Timeout = "timeout",
    /// The receiver closed or reset the connection before an answer.
    Reset = "reset",
    /// What came is not an answer that the HTTP client accepts.
    BadResponse = "bad_response",
    /// Any other failure on the connection.
    Io = "io",
    /// We failed: no file descriptors, no resolver, no proxy, a secret that can't be read.
    OwnFault = "own_fault",
    /// We cut the attempt, at shutdown or on losing the partition.
    Interrupted = "interrupted",
}

impl ErrorClass {
    /// Whether we failed and not the receiver: such an attempt counts for nothing.
    #[must_use]
    pub const fn is_own_fault(self) -> bool {
        match self {
            Self::OwnFault | Self::Interrupted => true,
            Self::Dns
            | Self::AddressRefused
            | Self::ConnectRefused
            | Self::ConnectTimeout
            | Self::Unreachable
            | Self::Tls
            | Self::Timeout
            | Self::Reset
            | Self::BadResponse
            | Self::Io => false,
        }
    }

    /// Whether the attempt ran out of time, which a lane takes as a sign to open fewer at once.
    #[must_use]
    pub const fn is_timeout(self) -> bool {
        matches!(self, Self::Timeout | Self::ConnectTimeout)
    }
}

/// A name outside the set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an error class")]
pub struct UnknownErrorClass(String);

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ErrorClass {
    type Err = UnknownErrorClass;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|class| class.as_str() == text)
            .ok_or_else(|| UnknownErrorClass(text.chars().take(64).collect()))
    }
}

impl Serialize for ErrorClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ErrorClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
