//! The dispatcher against a real nats-server and real receivers.

mod bench;
mod deliver;
