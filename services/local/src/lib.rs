//! Finds, installs, starts and stops the servers that Hooklane needs on a developer's machine.
//!
//! Owns: looking for nats-server, the `nats` command and PostgreSQL, installing what is missing,
//! and private servers on free loopback ports whose lives never outlast the process that started
//! them. It is the one implementation behind `hooklane up --local`, `cargo xtask` and the tests.
//!
//! Does not own: schemas, streams, configuration of Hooklane itself, or servers somebody else
//! runs. It speaks neither SQL nor NATS beyond asking "are you there?".
//!
//! Everything here blocks. Async callers go through `spawn_blocking`; a server may be started
//! from any thread, because each child belongs to a thread of its own.

#![allow(
    clippy::disallowed_methods,
    reason = "drives child processes by wall-clock budgets and reads PATH; no product logic here"
)]

mod account;
mod dir;
mod environment;
mod error;
mod install;
mod nats;
mod port;
mod postgres;
mod process;
mod psql;
mod stack;
mod tools;

pub use dir::{RunDir, servers_home};
pub use environment::{MARK, exports, inherited};
pub use error::Error;
pub use nats::{Nats, NatsOptions};
pub use port::free as free_port;
pub use postgres::{Postgres, PostgresOptions};
pub use psql::{Psql, with_database};
pub use stack::{Stack, StackOptions, external_database_url, external_nats_url};
pub use tools::{Install, nats_cli, nats_server, postgres_bin};

/// Receives one line for each step that takes time or changes the machine.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// Says each step on standard error.
pub fn to_stderr(line: &str) {
    eprintln!("local: {line}");
}

/// Says nothing.
pub fn quiet(_line: &str) {}
