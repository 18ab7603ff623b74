//! One endpoint's deliveries.
mod machine;
