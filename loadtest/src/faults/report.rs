//! What a run with faults found, for people and as JSON.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::notes::Dealt;
use crate::judge::Judgement;

/// A run's report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What the schedule was drawn from.
    pub seed: u64,
    /// How long the load went on, in seconds.
    pub seconds: f64,
    /// How to run the same again.
    pub again: String,
    /// The faults as they were carried out, in order of time.
    pub faults: Vec<Dealt>,
    /// Processes that gave up on a server while they started, and were started again.
    pub ended: Vec<String>,
    /// Events committed.
    pub events: u64,
    /// Requests that the receivers read.
    pub requests: u64,
    /// Those of them that were verified byte by byte.
    pub verified: u64,
    /// Attempts in the ledger.
    pub attempts: u64,
    /// How long after the last fault everything was settled, in seconds; `None` where it was not.
    pub settled_after: Option<f64>,
    /// What crashes excuse, counted.
    pub judgement: Option<Judgement>,
    /// What is wrong, each with the id of the invariant that it breaks.
    pub breaches: Vec<String>,
    /// What is known of a few deliveries that nothing excuses, with times since the run began.
    pub known: Vec<String>,
    /// When the load began in these times, in seconds.
    pub begun: f64,
    /// Where the logs are kept, if something is wrong.
    pub logs: Option<PathBuf>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.breaches.is_empty()
    }

    /// As a person reads it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "seed {}: {} faults in {:.0} s",
            self.seed,
            self.faults.len(),
            self.seconds
        )?;
        for Dealt { at, took, what } in &self.faults {
            writeln!(out, "  {at:7.1} s  {took:5.1} s  {what}")?;
        }
        for ended in &self.ended {
            writeln!(out, "  {ended}, and was started again")?;
        }
        writeln!(
            out,
            "{} events, {} requests ({} verified byte by byte), {} attempts in the ledger",
            self.events, self.requests, self.verified, self.attempts
        )?;
        match self.settled_after {
            Some(seconds) => writeln!(out, "settled {seconds:.1} s after the last fault")?,
            None => writeln!(out, "not settled")?,
        }
        if let Some(judgement) = &self.judgement {
            writeln!(out, "{judgement}")?;
        }
        if self.is_good() {
            return writeln!(out, "seed {}: no invariant is broken", self.seed);
        }
        for breach in &self.breaches {
            writeln!(out, "BREACH: {breach}")?;
        }
        for line in &self.known {
            writeln!(out, "  {line}")?;
        }
        if !self.known.is_empty() {
            writeln!(out, "  (the load began at {:.3} s)", self.begun)?;
        }
        if let Some(logs) = &self.logs {
            writeln!(out, "logs: {}", logs.display())?;
        }
        writeln!(out, "run it again: {}", self.again)
    }
}
