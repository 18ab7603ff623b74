//! The load test: generates load through the outbox, receives what comes of it, verifies and
//! measures. A library, so that the crash tests use the same parts.
//!
//! Owns the harness: servers and a `hooklane` process of its own, the plan of a run, generator,
//! receiver, verifier, measurement and reports. Does not own any of what it tests, and reaches
//! the ledger only through `hooklane-store`.

pub mod bench;
pub mod broker;
pub mod epoch;
pub mod faults;
pub mod generate;
pub mod host;
pub mod journal;
pub mod judge;
pub mod latency;
pub mod measure;
pub mod plan;
pub mod progress;
pub mod receiver;
pub mod report;
pub mod run;
pub mod setup;
pub mod shape;
pub mod system;
pub mod verify;
