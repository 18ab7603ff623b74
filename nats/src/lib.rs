//! JetStream as Hooklane uses it, and the only crate that names async-nats.
//!
//! Owns: the connection, the streams' definitions and their application, publishing with awaited
//! acknowledgements, the way of accepted events to `EVENTS`, pulling with a reconnection that really
//! resumes, the right to settle a message ([`AckToken`]), the two key-value buckets, and what the
//! sweep asks the broker's leader.
//!
//! Does not own: what messages say (`hooklane-proto`), what is done with them (the services), or
//! running a nats-server.

mod ack;
mod advisory;
mod api;
mod bucket;
mod client;
mod config;
mod error;
mod incoming;
mod publisher;
mod puller;
mod replies;
mod requests;

pub mod events;
pub mod inspect;
pub mod leases;
pub mod letters;
pub mod routes;
pub mod stored;
pub mod topology;

pub use ack::{AckError, AckToken, ack_all_confirmed};
pub use advisory::{Advisory, Kind as AdvisoryKind};
pub use client::Client;
pub use config::{Config, Problem, Servers};
pub use error::Error;
pub use incoming::Incoming;
pub use leases::{Epoch, Lease, LeaseError, Leases, Ownership};
pub use publisher::{Outgoing, PubAck, PublishError, Publisher};
pub use puller::unreadable::Unreadable;
pub use puller::{PullConfig, Puller};
pub use requests::{Request, Requests};
pub use routes::{Put, RouteUpdate, RouteUpdates, Routes};
