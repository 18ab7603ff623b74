//! The dispatcher against a real nats-server and real receivers.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../../../../nats/tests/it/broker.rs"]
#[allow(
    dead_code,
    reason = "shared with other crates' tests, which use the rest"
)]
mod broker;

mod bench;
mod deliver;
mod dns;
mod full;
mod http_answers;
mod http_many;
mod http_raw;
mod http_tls;
mod lanes;
mod ractor_contract;
mod raw;
mod rows;
mod stopping;
