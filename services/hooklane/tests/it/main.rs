//! The built binary, as its users meet it: a real PostgreSQL and nats-server, processes, exit
//! codes.

mod bench;
mod catalogue;
mod configuration;
mod docs;
mod endpoints;
mod messages;
mod offline;
mod secrets;
mod serve;
mod topology;
