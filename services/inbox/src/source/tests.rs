use chrono::{DateTime, Utc};
use hooklane_core::config::Faults;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::*;

mod challenges;
mod config;
mod edges;
mod flips;
mod ids;
mod paypal;
mod reading;
mod signer;
mod vectors;

/// When the samples were signed, in seconds since 1970.
const THEN: i64 = 1_700_000_000;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(second, 0).unwrap()
}

/// A source of this block.
#[track_caller]
fn source(block: &str) -> Source {
    let block = toml::from_str(block).unwrap_or_else(|error| panic!("{error}\n{block}"));
    let mut faults = Faults::new();
    let source = Source::compile("partner", &block, &mut faults);
    source.unwrap_or_else(|| panic!("{faults}"))
}

/// The keys and texts of what is wrong with a block.
fn faults(block: &str) -> Vec<String> {
    let block = toml::from_str(block).unwrap_or_else(|error| panic!("{error}\n{block}"));
    let mut faults = Faults::new();
    let source = Source::compile("partner", &block, &mut faults);
    assert_eq!(source.is_none(), !faults.is_empty());
    faults.found().iter().map(ToString::to_string).collect()
}

/// A request, owned.
#[derive(Debug, Clone)]
struct Sent {
    method: Method,
    query: Option<String>,
    headers: HeaderMap,
    body: Vec<u8>,
    certificates: Option<Vec<u8>>,
}

impl Sent {
    fn post(headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        let mut sent = Self {
            method: Method::POST,
            query: None,
            headers: HeaderMap::new(),
            body: body.into(),
            certificates: None,
        };
        for (name, value) in headers {
            sent = sent.with(name, value);
        }
        sent
    }

    fn query(mut self, query: &str) -> Self {
        self.query = Some(query.to_owned());
        self
    }

    /// With another value of this header.
    fn with(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().unwrap();
        self.headers
            .append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        self
    }

    /// With this value of a header instead.
    fn set(mut self, name: &str, value: &str) -> Self {
        self.headers.remove(name);
        self.with(name, value)
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    fn request(&self) -> Request<'_> {
        Request {
            method: &self.method,
            query: self.query.as_deref(),
            headers: &self.headers,
            body: &self.body,
            certificates: self.certificates.as_deref(),
        }
    }

    fn verify(&self, source: &Source, second: i64) -> Result<Verified, Reject> {
        source.verify(&self.request(), at(second))
    }

    fn identify(&self, source: &Source, second: i64) -> Identity {
        let verified = self.verify(source, second).unwrap();
        source.identify(&self.request(), &verified)
    }

    fn read(&self, source: &Source) -> Reading {
        source.read(Part::Whole, &self.headers, &self.body)
    }
}
