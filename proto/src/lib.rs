//! What Hooklane says on the wire: every subject, header and record, and nothing that does I/O.
//!
//! Owns the names and shapes that two processes (or two releases) must agree on. It does not own
//! how messages travel (`hooklane-nats`) nor how they are kept (`hooklane-store`).

pub mod dead_letter;
pub mod decode;
pub mod delivery;
pub mod event;
pub mod header;
pub mod id;
pub mod inbox;
pub mod record;
pub mod room;
pub mod route;
pub mod subject;
pub mod token;
pub mod trace;

mod micros;
