//! What is noted while things go wrong, for the audit afterwards.

use serde::Serialize;

use super::pace::Span;
use crate::judge::{Crash, Hidden};

/// A fault as it was carried out.
#[derive(Debug, Clone, Serialize)]
pub struct Dealt {
    /// When it began, in seconds since the load did.
    pub at: f64,
    /// How long it took.
    pub took: f64,
    /// What it was.
    pub what: String,
}

/// What one track noted.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The faults, in order.
    pub(super) dealt: Vec<Dealt>,
    /// What was under way when.
    pub(super) crashes: Vec<Crash>,
    /// When partitions may have moved.
    pub(super) moves: Vec<Span>,
    /// When endpoints' answers may have been lost.
    pub(super) hidden: Vec<Hidden>,
    /// Processes that ended by themselves because a server was away, and were started again.
    pub(super) ended: Vec<String>,
    /// What is wrong already.
    pub(super) breaches: Vec<String>,
}

impl Notes {
    /// Adds what another track noted.
    pub(super) fn add(&mut self, other: Self) {
        let Self {
            dealt,
            crashes,
            moves,
            hidden,
            ended,
            breaches,
        } = other;
        self.dealt.extend(dealt);
        self.crashes.extend(crashes);
        self.moves.extend(moves);
        self.hidden.extend(hidden);
        self.ended.extend(ended);
        self.breaches.extend(breaches);
    }
}
