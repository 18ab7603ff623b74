//! Endpoint settings in the `ROUTES` bucket.
//!
//! A newer version is never overwritten by an older one, whoever writes last; a deleted endpoint
//! stays as a tombstone ([`hooklane_proto::route::State::Deleted`]). Watching is in `watch`.

mod watch;

use chrono::{DateTime, Utc};
use hooklane_proto::id::EndpointId;
use hooklane_proto::route::Route;
use hooklane_proto::subject;
use hooklane_proto::token::ConsumerId;

use crate::bucket::{self, Bucket, Write};
use crate::client::Client;
use crate::error::Error;
pub use watch::{RouteUpdate, RouteUpdates};

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is stored.
    Stored,
    /// The bucket has this version already, or a newer one.
    Known,
}

/// The `ROUTES` bucket.
#[derive(Clone)]
pub struct Routes {
    bucket: Bucket,
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Routes")
    }
}

impl Routes {
    /// The bucket on this connection.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self {
            bucket: Bucket::new(client, subject::ROUTES),
        }
    }

    /// Stores a route where the bucket has none of its endpoint, or an older one.
    ///
    /// # Errors
    /// Where the broker can't be asked. It may have it all the same; writing again is harmless.
    pub async fn put(&self, route: &Route) -> Result<Put, Error> {
        let key = subject::route_key(&route.consumer, route.endpoint);
        let value = bucket::to_json(route);
        loop {
            let last = self.bucket.last(&key).await?;
            let stored = last.as_ref().and_then(|entry| entry.value.as_ref());
            // What can't be read is nobody's and gives way.
            let stored: Option<Route> = stored.and_then(|value| bucket::json(value));
            if stored.is_some_and(|stored| stored.version >= route.version) {
                return Ok(Put::Known);
            }
            let revision = last.map_or(0, |entry| entry.revision);
            // Who lost the race looks again: versions only grow, so this ends.
            if let Write::Stored(_) = self.bucket.put(&key, revision, value.clone()).await? {
                return Ok(Put::Stored);
            }
        }
    }

    /// An endpoint's route, `None` where the bucket has none.
    ///
    /// # Errors
    /// Where the broker can't be asked.
    pub async fn get(
        &self,
        consumer: &ConsumerId,
        endpoint: EndpointId,
    ) -> Result<Option<Route>, Error> {
        let key = subject::route_key(consumer, endpoint);
        let last = self.bucket.last(&key).await?;
        Ok(last.and_then(|entry| bucket::json(&entry.value?)))
    }

    /// When the bucket was made: another time than before means that everything has to be put
    /// again. Makes it where it is missing.
    ///
    /// # Errors
    /// Where the broker can't be asked.
    pub async fn created(&self) -> Result<DateTime<Utc>, Error> {
        self.bucket.created().await
    }

    /// Every route, then every change, without end. Must be called within a tokio runtime.
    #[must_use]
    pub fn watch_all(&self) -> RouteUpdates {
        RouteUpdates::new(self.bucket.clone())
    }
}
