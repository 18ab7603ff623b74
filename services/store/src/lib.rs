//! The ledger: the only code that names `sqlx`.
//!
//! Owns the connection pool, the migrations, and one module an aggregate; row types stay inside,
//! domain types go out. Does not own decisions (they are pure rules in `hooklane-core`) nor what
//! travels through the broker. No transaction here is held across NATS or HTTP.
//!
//! Every function is one statement or one short transaction, safe to call from several processes
//! at once, and safe to cancel: a dropped future rolls back.

pub mod accept;
pub mod api_key;
pub mod attempt;
pub mod audit;
pub mod audit_log;
pub mod backlog;
pub mod consumer;
pub mod dead_letter;
pub mod delivery;
pub mod endpoint;
pub mod event_type;
pub mod inbox;
pub mod intake;
pub mod leader;
pub mod ledger;
pub mod manage;
pub mod master_key;
pub mod message;
pub mod operational;
pub mod outbox;
pub mod producer;
pub mod rejected;
pub mod route;
pub mod sweep;
pub mod task;
pub mod topup;

mod config;
pub mod day;
mod error;
mod lookback;
mod pool;
mod pressure;
pub mod record;

pub use config::Config;
pub use error::Error;
pub use pool::{Store, Writes};
