//! Real servers, really started, stopped, killed and restarted.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "times real servers; a helper that fails fails its test"
)]

mod lives;
mod servers;
