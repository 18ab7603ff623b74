//! Why a URL or an address is refused, with the fix.

use std::net::IpAddr;

use ipnet::IpNet;

/// Why a URL or an address is refused. The message says the fix and is fit for the endpoint's
/// owner; settings it names are those of [`super::Policy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Beyond [`super::MAX_URL`].
    #[error("the URL has {0} bytes; give at most 2048")]
    TooLong(usize),
    /// White space or a control character anywhere.
    #[error(
        "the URL has white space or control characters; remove them, or percent-encode those in the path"
    )]
    Blank,
    /// A backslash anywhere.
    #[error("the URL has a backslash; write `/`, or `%5C` in the path")]
    Backslash,
    /// Not an absolute URL, or its host or port can't be read.
    #[error("the URL can't be read ({0}); give an absolute one such as https://example.com/hook")]
    Malformed(url::ParseError),
    /// Neither `https` nor `http`.
    #[error("the URL's scheme is `{0}`; only https is accepted")]
    Scheme(String),
    /// `http` where it is not allowed.
    #[error("the URL is plain http; use https (an operator can permit http with allow_http)")]
    PlainHttp,
    /// Not exactly two slashes behind the scheme.
    #[error("the URL's scheme must be followed by exactly two slashes, as in https://example.com/")]
    Slashes,
    /// A user name or password.
    #[error(
        "the URL has a user name or password; remove it, and send credentials in a custom header such as Authorization"
    )]
    Userinfo,
    /// A fragment, which is never sent.
    #[error("the URL has a fragment; remove `#` and what follows, or write `%23`")]
    Fragment,
    /// A port of another protocol.
    #[error(
        "port {port} belongs to {protocol}; use another port (an operator can permit it with allow_ports)"
    )]
    Port {
        /// The port.
        port: u16,
        /// Whose it is.
        protocol: &'static str,
    },
    /// No host.
    #[error("the URL has no host; give one such as https://example.com/hook")]
    NoHost,
    /// A host that can't be a DNS name.
    #[error(
        "`{0}` is not a host name; give dot-separated labels of 1 to 63 letters, digits, `-` and `_`"
    )]
    NotAName(String),
    /// A name that belongs to an internal network.
    #[error(
        "`{name}` is {why}; use a public host name (an operator can permit it with allow_names)"
    )]
    Name {
        /// The name, in lower case.
        name: String,
        /// What it is.
        why: &'static str,
    },
    /// An address that is not public.
    #[error(
        "{ip} is {why}; use a public address (an operator can permit its range with allow_cidrs)"
    )]
    Address {
        /// The address.
        ip: IpAddr,
        /// What it is.
        why: &'static str,
    },
    /// An address that the operator denies.
    #[error(
        "{ip} is in {range}, which this deployment does not deliver to (deny_cidrs); use another address"
    )]
    Denied {
        /// The address.
        ip: IpAddr,
        /// The range it is in.
        range: IpNet,
    },
}

impl Refusal {
    /// A stable short name, for machine-readable output.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLong(_) => "url_too_long",
            Self::Blank => "url_blank",
            Self::Backslash => "url_backslash",
            Self::Malformed(_) => "url_malformed",
            Self::Scheme(_) => "url_scheme",
            Self::PlainHttp => "url_plain_http",
            Self::Slashes => "url_slashes",
            Self::Userinfo => "url_userinfo",
            Self::Fragment => "url_fragment",
            Self::Port { .. } => "port_refused",
            Self::NoHost => "host_missing",
            Self::NotAName(_) => "host_malformed",
            Self::Name { .. } => "host_refused",
            Self::Address { .. } => "address_refused",
            Self::Denied { .. } => "address_denied",
        }
    }
}
