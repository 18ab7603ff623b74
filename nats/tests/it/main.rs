//! Against a real nats-server, which is killed, wiped and filled at will.

mod broker;
mod connection;
mod events;
mod inspect;
mod leases;
mod look;
mod publish;
mod pull;
mod routes;
mod settle;
mod topology;
mod unreadable;
mod users;
