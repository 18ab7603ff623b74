//! The API between a real PostgreSQL and a real nats-server, over HTTP.

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
mod client;
mod commit;
mod crowd;
mod inbox;
mod management;
mod messages;
mod outage;
mod refusals;
mod scopes;
mod throughput;
mod trial;
