//! Whether that by which a listing is narrowed is there at all: a slip of the hand is told from a
//! search that finds nothing.

use hooklane_proto::id::EndpointId;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_store::{Store, consumer, endpoint, event_type};

use crate::failure::Failure;

/// Refuses a consumer, an endpoint or an event type that there is not. Deleted endpoints are there:
/// their deliveries are.
pub(super) async fn all(
    store: &Store,
    consumer: Option<&ConsumerId>,
    endpoint: Option<EndpointId>,
    event_type: Option<&EventType>,
) -> Result<(), Failure> {
    if let Some(consumer) = consumer {
        consumer::show(store, consumer).await?;
    }
    if let Some(endpoint) = endpoint {
        endpoint::show(store, endpoint).await?;
    }
    if let Some(event_type) = event_type {
        event_type::show(store, event_type).await?;
    }
    Ok(())
}
