//! The request `room.<partition>`: how much can the lanes of these endpoints start soon?
//!
//! JSON both ways. The owner reserves what it answers, and parks new events of the endpoints
//! named until a request no longer names them.

use serde::{Deserialize, Serialize};

use crate::id::EndpointId;

/// Asks a partition's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Every endpoint of the partition with deliveries due in the ledger.
    pub endpoints: Vec<EndpointId>,
}

/// The owner's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// One for each endpoint with room; who is not named has none.
    pub rooms: Vec<Room>,
}

/// What one lane can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Deliveries that it expects to start within the horizon; at least 1.
    pub room: u32,
}
