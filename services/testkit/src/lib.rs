//! What every integration test needs: a database of its own, a nats-server of its own, a
//! scripted HTTP [`Receiver`], a service at work, and waiting without sleeping.
//!
//! Owns the fixtures' lives: each ends with its handle, and none outlives the test process.
//! Does not know Hooklane's schema, streams or clients; a test brings its own migrations.
//!
//! `cargo xtask test` starts one PostgreSQL for the whole run and names it in
//! [`DATABASE_URL`]; a plain `cargo test -p …` starts one per test process instead.

#![allow(
    clippy::disallowed_methods,
    reason = "reads what cargo xtask test passes down, and real time; tests only"
)]

pub mod nats;
pub mod pgbench;
pub mod postgres;
pub mod proxy;
pub mod receiver;
pub mod wait;

mod home;
mod running;

pub use anyhow::Result;
pub use home::blocking;
pub use receiver::{Receiver, Reply};
pub use running::Running;

/// Names the directory in which a whole run keeps its files, so that they go when it ends.
pub const HOME: &str = "HOOKLANE_TEST_HOME";
/// Names the PostgreSQL that a whole run shares: any URL on it whose user may create databases.
pub const DATABASE_URL: &str = "HOOKLANE_TEST_DATABASE_URL";
/// Names a nats-server that is not ours, on which tests take turns (see [`nats::Server::any`]).
pub const NATS_URL: &str = "HOOKLANE_TEST_NATS_URL";
