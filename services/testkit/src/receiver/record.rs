//! What arrived: whole requests within a bound, and counts without one.

use std::collections::HashMap;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::time::Instant;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// `POST` and so on.
    pub method: String,
    /// The request target: path and query.
    pub target: String,
    /// The headers in their order, with names as sent.
    pub headers: Vec<(String, String)>,
    /// The body, byte for byte; what had come of it when the client or the reply cut it short.
    pub body: Bytes,
    /// Whether the whole body arrived.
    pub complete: bool,
    /// When its head had arrived.
    pub at: Instant,
    /// The same by the wall clock.
    pub wall: SystemTime,
    /// Counts connections from 1; the same number means a connection used again.
    pub connection: u64,
}

impl Recorded {
    /// The target without its query.
    #[must_use]
    pub fn path(&self) -> &str {
        path_of(&self.target)
    }

    /// The first header named `name`, in whatever case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Every header named `name`, in whatever case.
    #[must_use]
    pub fn headers_named(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }
}

pub(super) fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

/// Counts of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were read, or of which as much was read as the reply asks for.
    pub arrived: u64,
    /// Replies that were given to the end.
    pub answered: u64,
    /// Requests that ended without one: the client left, or the reply was to break off.
    pub broken: u64,
    /// Requests whose head has arrived and whose reply hasn't ended.
    pub in_flight: u64,
    /// The most that were in flight at once.
    pub max_in_flight: u64,
    /// Connections accepted; 0 for a single path.
    pub connections: u64,
}

impl Counts {
    fn begin(&mut self) {
        self.in_flight += 1;
        self.max_in_flight = self.max_in_flight.max(self.in_flight);
    }

    fn end(&mut self, answered: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if answered {
            self.answered += 1;
        } else {
            self.broken += 1;
        }
    }

    fn forget(&mut self) {
        *self = Self {
            in_flight: self.in_flight,
            max_in_flight: self.in_flight,
            ..Self::default()
        };
    }
}

#[derive(Debug)]
pub(super) struct Records {
    kept: Vec<Recorded>,
    kept_bytes: usize,
    keep: usize,
    keep_bytes: usize,
    total: Counts,
    paths: HashMap<String, Counts>,
    connections: u64,
}

impl Records {
    pub(super) fn new(keep: usize, keep_bytes: usize) -> Self {
        Self {
            kept: Vec::new(),
            kept_bytes: 0,
            keep,
            keep_bytes,
            total: Counts::default(),
            paths: HashMap::new(),
            connections: 0,
        }
    }

    pub(super) fn kept(&self) -> &[Recorded] {
        &self.kept
    }

    pub(super) fn total(&self) -> Counts {
        self.total
    }

    pub(super) fn of(&self, path: &str) -> Counts {
        self.paths.get(path).copied().unwrap_or_default()
    }

    /// Whether bodies are worth keeping while they are read.
    pub(super) fn is_full(&self) -> bool {
        self.kept.len() >= self.keep || self.kept_bytes >= self.keep_bytes
    }

    pub(super) fn connected(&mut self) -> u64 {
        self.connections += 1;
        self.total.connections += 1;
        self.connections
    }

    pub(super) fn begin(&mut self, path: &str) {
        self.total.begin();
        match self.paths.get_mut(path) {
            Some(counts) => counts.begin(),
            None => self.paths.entry(path.to_owned()).or_default().begin(),
        }
    }

    pub(super) fn arrived(&mut self, request: Recorded) {
        self.total.arrived += 1;
        if let Some(counts) = self.paths.get_mut(request.path()) {
            counts.arrived += 1;
        }
        if !self.is_full() {
            self.kept_bytes += request.body.len();
            // Bodies end in another order than heads arrive in, but never far from it.
            let at = self
                .kept
                .iter()
                .rposition(|earlier| earlier.at <= request.at)
                .map_or(0, |before| before + 1);
            self.kept.insert(at, request);
        }
    }

    pub(super) fn end(&mut self, path: &str, answered: bool) {
        self.total.end(answered);
        if let Some(counts) = self.paths.get_mut(path) {
            counts.end(answered);
        }
    }

    pub(super) fn forget(&mut self) {
        self.kept.clear();
        self.kept_bytes = 0;
        self.total.forget();
        for counts in self.paths.values_mut() {
            counts.forget();
        }
    }
}
