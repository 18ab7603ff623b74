//! Running services: supervision, signals and health.

pub(crate) mod descriptors;
pub(crate) mod health;
pub(crate) mod local;
pub(crate) mod signals;
pub(crate) mod supervisor;
