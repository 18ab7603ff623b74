//! The fixtures against real servers and a real HTTP client.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod proxy;
mod receiver;
mod servers;
