//! The headers that an endpoint's owner adds to every attempt.
//!
//! Owns which names and values are allowed. Does not own what we send ourselves; it only keeps
//! custom headers from touching it: `webhook-*`, `hooklane-*`, the message's framing and what
//! belongs to one connection are reserved.
//!
//! Values often hold credentials, so that they are shown nowhere: not in `Debug`, not in an
//! error. [`CustomHeaders::expose`] is the one way to them.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

#[cfg(test)]
mod tests;

/// Most headers an endpoint may have.
pub const MAX_COUNT: usize = 32;
/// Longest name, in bytes.
pub const MAX_NAME: usize = 128;
/// Longest value, in bytes.
pub const MAX_VALUE: usize = 4096;
/// Most bytes of all names and values together: common servers refuse a head beyond 8 KiB.
pub const MAX_TOTAL: usize = 6144;

const RESERVED_PREFIXES: [&str; 2] = ["webhook-", "hooklane-"];

/// Ours, or of one connection (RFC 9110, 7.6.1), or changing how the body is read.
const RESERVED: [&str; 18] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade",
];

/// Checked headers; names are lower case and unique.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CustomHeaders(HeaderMap);

/// A header that can't be added. Says the name and never the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Not a header name.
    #[error(
        "`{0}` is not a header name; give letters, digits and any of !#$%&'*+-.^_`|~, at most 128"
    )]
    Name(String),
    /// Ours.
    #[error("the header `{0}` is reserved; choose another name")]
    Reserved(String),
    /// Twice.
    #[error("the header `{0}` is given twice; join its values or drop one")]
    Repeated(String),
    /// Not a header value.
    #[error(
        "the value of the header `{0}` has characters that a header can't carry; give visible \
         ASCII with spaces inside, without line breaks or white space at its ends"
    )]
    Value(String),
    /// Too long.
    #[error("the value of the header `{0}` is too long; give at most 4096 bytes")]
    ValueTooLong(String),
    /// Too many.
    #[error("there are {0} custom headers; give at most 32")]
    TooMany(usize),
    /// Too large together.
    #[error("the custom headers have {0} bytes together; give at most 6144")]
    TooLarge(usize),
}

impl CustomHeaders {
    /// Checks and takes the headers.
    ///
    /// # Errors
    /// [`Invalid`] for the first that can't be added.
    pub fn parse<I, N, V>(pairs: I) -> Result<Self, Invalid>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: AsRef<str>,
    {
        let mut headers = HeaderMap::new();
        let mut total = 0;
        for (name, value) in pairs {
            let (name, value) = (name.as_ref(), value.as_ref());
            total += name.len() + value.len();
            let name = check_name(name)?;
            let value = check_value(&name, value)?;
            if headers.contains_key(&name) {
                return Err(Invalid::Repeated(name.to_string()));
            }
            headers.insert(name, value);
        }
        if headers.len() > MAX_COUNT {
            return Err(Invalid::TooMany(headers.len()));
        }
        if total > MAX_TOTAL {
            return Err(Invalid::TooLarge(total));
        }
        Ok(Self(headers))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names, which may be shown.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(HeaderName::as_str)
    }

    /// Names with values, to be encrypted and kept; not to be shown.
    pub fn expose(&self) -> impl Iterator<Item = (&str, &str)> {
        // Only visible ASCII was let in, so that every value reads as text.
        self.0
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
    }

    /// Puts them on a request, none over one that it has already.
    pub fn apply(&self, request: &mut HeaderMap) {
        for (name, value) in &self.0 {
            request.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}

impl fmt::Debug for CustomHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

fn check_name(text: &str) -> Result<HeaderName, Invalid> {
    let name = HeaderName::from_bytes(text.as_bytes())
        .ok()
        .filter(|name| name.as_str().len() <= MAX_NAME)
        .ok_or_else(|| Invalid::Name(text.chars().take(MAX_NAME).collect()))?;
    let lower = name.as_str();
    let reserved =
        RESERVED.contains(&lower) || RESERVED_PREFIXES.iter().any(|p| lower.starts_with(p));
    if reserved {
        return Err(Invalid::Reserved(lower.to_owned()));
    }
    Ok(name)
}

fn check_value(name: &HeaderName, text: &str) -> Result<HeaderValue, Invalid> {
    if text.len() > MAX_VALUE {
        return Err(Invalid::ValueTooLong(name.to_string()));
    }
    let visible = |b: u8| b.is_ascii_graphic() || b == b' ' || b == b'\t';
    let sound = text.bytes().all(visible) && text.trim_ascii() == text;
    let mut value = Some(text)
        .filter(|_| sound)
        .and_then(|text| HeaderValue::from_str(text).ok())
        .ok_or_else(|| Invalid::Value(name.to_string()))?;
    // Keeps it out of Debug and out of HTTP/2's compression tables.
    value.set_sensitive(true);
    Ok(value)
}
