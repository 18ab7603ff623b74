//! Placeholder.
mod lane;
