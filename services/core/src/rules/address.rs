//! Where Hooklane may connect to: the guard against requests into the deployment's own network.
//!
//! Owns two decisions. [`check_url`] judges a URL when an endpoint is registered and again when
//! its settings are read; [`check_ip`] judges an address at every connect, whether it stood in
//! the URL or a resolver gave it. Both are needed: a public name may resolve to a private
//! address, and may do so only on the second look-up. Does not own resolving, nor the rule that
//! redirects are not followed (the lanes' HTTP client's).
//!
//! Several parsers read one URL in several ways, so what they disagree on is refused instead of
//! interpreted: white space and control characters, backslashes, user names, a missing slash,
//! fragments. What is accepted is the parsed URL, and only that may be stored and used.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

mod name;
mod port;
mod range;
mod refusal;
#[cfg(test)]
mod tests;

pub use refusal::Refusal;

/// Longest URL, in bytes.
pub const MAX_URL: usize = 2048;

/// What a deployment allows beyond public `https` endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Whether plain `http` URLs are allowed.
    pub allow_http: bool,
    /// Ranges that may be connected to although they are not public, for private deployments.
    pub allow_cidrs: Vec<IpNet>,
    /// Ranges that may not be connected to although they are public, such as one's own; wins
    /// over `allow_cidrs`.
    pub deny_cidrs: Vec<IpNet>,
    /// Host names that may be used although they look internal: a name such as `receiver`, or
    /// `.internal` for all names below. Their addresses are still checked.
    pub allow_names: Vec<String>,
    /// Ports that may be used although another protocol owns them.
    pub allow_ports: Vec<u16>,
}

impl Policy {
    /// What a trial on one machine needs: plain `http` to loopback addresses and `localhost`.
    #[must_use]
    pub fn loopback() -> Self {
        Self {
            allow_http: true,
            allow_cidrs: range::loopback().to_vec(),
            allow_names: vec!["localhost".to_owned()],
            ..Self::default()
        }
    }

    /// Entries of `allow_names` that can't match any name; empty when sound.
    #[must_use]
    pub fn invalid_names(&self) -> Vec<&str> {
        let bad = |entry: &&String| !name::is_allow_entry(entry);
        self.allow_names
            .iter()
            .filter(bad)
            .map(String::as_str)
            .collect()
    }
}

/// Judges a URL, without resolving its host.
///
/// # Errors
/// [`Refusal`] with the reason and the fix. Its text never holds the whole URL, which may carry
/// credentials.
pub fn check_url(input: &str, policy: &Policy) -> Result<Url, Refusal> {
    check_text(input)?;
    let url = Url::parse(input).map_err(Refusal::Malformed)?;
    match url.scheme() {
        "https" => {}
        "http" if policy.allow_http => {}
        "http" => return Err(Refusal::PlainHttp),
        _ => return Err(Refusal::Scheme(url.scheme().chars().take(32).collect())),
    }
    check_authority(input, &url)?;
    if url.fragment().is_some() {
        return Err(Refusal::Fragment);
    }
    if let Some(port) = url.port().filter(|p| !policy.allow_ports.contains(p)) {
        port::check(port)?;
    }
    match url.host() {
        Some(Host::Ipv4(ip)) => check_ip(ip.into(), policy)?,
        Some(Host::Ipv6(ip)) => check_ip(ip.into(), policy)?,
        Some(Host::Domain(name)) => name::check(name, &policy.allow_names)?,
        None => return Err(Refusal::NoHost),
    }
    if url.as_str().len() > MAX_URL {
        return Err(Refusal::TooLong(url.as_str().len()));
    }
    Ok(url)
}

/// Judges an address that is about to be connected to.
///
/// # Errors
/// [`Refusal::Denied`] or [`Refusal::Address`].
pub fn check_ip(ip: IpAddr, policy: &Policy) -> Result<(), Refusal> {
    if let Some(&range) = policy.deny_cidrs.iter().find(|net| net.contains(&ip)) {
        return Err(Refusal::Denied { ip, range });
    }
    if policy.allow_cidrs.iter().any(|net| net.contains(&ip)) {
        return Ok(());
    }
    match range::special(ip) {
        Some(why) => Err(Refusal::Address { ip, why }),
        None => Ok(()),
    }
}

/// What parsers silently drop or read differently.
fn check_text(input: &str) -> Result<(), Refusal> {
    if input.len() > MAX_URL {
        return Err(Refusal::TooLong(input.len()));
    }
    if input.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Refusal::Blank);
    }
    if input.contains('\\') {
        return Err(Refusal::Backslash);
    }
    Ok(())
}

/// The authority as written: behind exactly two slashes, without a user name.
fn check_authority(input: &str, url: &Url) -> Result<(), Refusal> {
    let rest = input
        .get(url.scheme().len()..)
        .and_then(|rest| rest.strip_prefix("://"))
        .filter(|rest| !rest.starts_with('/'))
        .ok_or(Refusal::Slashes)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    if authority.contains('@') || !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::Userinfo);
    }
    Ok(())
}
