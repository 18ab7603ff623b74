//! What every service shares: clocks, pauses, configuration, telemetry, error codes, secrets at
//! rest and the pure rules of delivery.
//!
//! Nothing here opens a connection to PostgreSQL or NATS.

pub mod broken;
pub mod clock;
pub mod config;
pub mod error;
pub mod pace;
pub mod rules;
pub mod secrets;
pub mod telemetry;
pub mod tls;
pub mod trace;
