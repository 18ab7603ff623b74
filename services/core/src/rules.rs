//! What decides, and nothing that acts: the rules every service shares.
//!
//! Each module here is pure and synchronous. Time and randomness come in as arguments, results
//! go out as data, and nothing in here knows tokio, NATS, SQL or a socket, so that a table of
//! cases and a property test beside each rule say all there is to say about it.
//!
//! Not here: who calls a rule and what happens then. That is the lane's, the recorder's and the
//! scheduler's business.

pub mod address;
pub mod headers;
pub mod health;
pub mod merge;
pub mod outcome;
pub mod partition;
pub mod retry_after;
pub mod schedule;
pub mod signing;
pub mod subscription;
pub mod token_bucket;
pub mod transition;
