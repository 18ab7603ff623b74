//! The scheduler between a real nats-server and a real PostgreSQL; the tests play the dispatcher.

#![allow(clippy::unwrap_used, reason = "a fixture that fails should panic")]

#[path = "../../../../nats/tests/it/broker.rs"]
#[allow(
    dead_code,
    reason = "shared with other crates' tests, which use the rest"
)]
mod broker;

#[path = "../../../store/tests/it/ledger.rs"]
#[allow(
    dead_code,
    reason = "shared with other crates' tests, which use the rest"
)]
mod ledger;

mod bench;
mod endings;
mod lead;
mod sweep;
mod tasks;
mod topup;
