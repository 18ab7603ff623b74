//! Configuration: one TOML file, overridden by `HOOKLANE__SECTION__KEY` from the environment.
//!
//! Owns how values are found, merged and read, how faults are collected, and how secrets hide.
//! It does not own the keys: every crate has a `Config` of its own, and the binary puts them
//! together. A `Config` is `Default + Serialize + Deserialize` with `#[serde(default,
//! deny_unknown_fields)]`, and has `validate(&self, faults: &mut Faults)`.

mod faults;
mod load;
mod secret;

pub use faults::{Fault, Faults};
pub use load::{PREFIX, Sources, load};
pub use secret::{ConnectionUrl, REDACTED, Secret};
