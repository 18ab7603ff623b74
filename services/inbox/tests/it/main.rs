//! The inbox between a real PostgreSQL and a real nats-server; the tests play partners and adopters.

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
mod challenges;
mod client;
mod crash;
mod exhausted;
mod order;
mod refusals;
mod requests;
mod throughput;
