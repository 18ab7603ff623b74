//! The built binary, as its users meet it: a real PostgreSQL and nats-server, processes, exit
//! codes.

#![allow(
    clippy::unwrap_used,
    reason = "a test that can't set itself up fails where it stands"
)]

mod api;
mod api_keys;
mod bench;
mod catalogue;
mod configuration;
mod copies;
mod dlq;
mod docs;
mod endpoints;
mod endpoints_live;
mod inbox;
mod inbox_live;
mod intake;
mod load;
mod local_servers;
mod messages;
mod nats_cli;
mod offline;
mod process;
mod rates;
mod recovery;
mod secrets;
mod serve;
mod stores;
mod surroundings;
mod system;
mod tasks;
mod topology;
mod waiting;
