//! The ledger on a real PostgreSQL: a database of its own for every test.

#![allow(clippy::unwrap_used, reason = "a fixture that fails should panic")]

mod accept;
mod api_key;
mod attempt;
mod audit;
mod audit_log;
mod connect;
mod consumer;
mod endpoint;
mod inbox;
mod ledger;
mod message;
mod outbox;
mod sql;

mod day;
mod dead_letter;
mod delivery;
mod record;
mod sweep;
mod task;
mod topup;
mod update;
