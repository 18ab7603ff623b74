//! Endpoint settings on their way from the ledger into the `ROUTES` bucket.
//!
//! Every change of an endpoint takes a new version, and a row whose version is not the published
//! one is put into the bucket; a bucket that was made anew gets everything again. Several relays
//! may do so at once: the bucket keeps the newest version, whoever writes last.

use std::time::Duration;

use futures::StreamExt as _;
use hooklane_nats::Routes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::pace::Faults;
use crate::{Error, Parts};

/// Routes read at once.
const BATCH: i64 = 500;
/// Routes put at once.
const AT_ONCE: usize = 32;
/// How often the bucket's identity is looked at.
const BUCKET: Duration = Duration::from_secs(1);
/// How often expired signing secrets are looked for.
const SECRETS: Duration = Duration::from_secs(5);

/// Publishes routes until `shutdown`.
pub(crate) async fn run(parts: Parts, shutdown: CancellationToken) {
    let mut faults = Faults::new("publishing endpoint settings");
    let mut publisher = Publisher::new(parts);
    while !shutdown.is_cancelled() {
        match publisher.round().await {
            Ok(true) => faults.over(),
            Ok(false) => {
                faults.over();
                let pause = tokio::time::sleep(publisher.parts.config.routes_every);
                let _ = shutdown.run_until_cancelled(pause).await;
            }
            Err(error) => faults.pause(&error, &shutdown).await,
        }
    }
}

/// Publishes what is not published.
pub(crate) async fn once(parts: &Parts) -> Result<(), Error> {
    let mut publisher = Publisher::new(parts.clone());
    while publisher.round().await? {}
    Ok(())
}

struct Publisher {
    parts: Parts,
    routes: Routes,
    bucket_seen: Option<Instant>,
    secrets_seen: Option<Instant>,
}

impl Publisher {
    fn new(parts: Parts) -> Self {
        let routes = Routes::new(&parts.client);
        Self {
            parts,
            routes,
            bucket_seen: None,
            secrets_seen: None,
        }
    }

    /// One batch; whether there may be more at once.
    async fn round(&mut self) -> Result<bool, Error> {
        let store = &self.parts.store;
        let due = |seen: Option<Instant>, every| seen.is_none_or(|at| at.elapsed() >= every);
        if due(self.bucket_seen, BUCKET) {
            let created = self.routes.created().await?;
            if store.adopt_route_bucket(created).await? {
                info!("the bucket of endpoint settings is a new one, filling it");
            }
            self.bucket_seen = Some(Instant::now());
        }
        if due(self.secrets_seen, SECRETS) {
            let endpoints = store.retire_secrets().await?;
            if endpoints > 0 {
                info!(endpoints, "expired signing secrets retired");
            }
            self.secrets_seen = Some(Instant::now());
        }
        let routes = store
            .unrouted(self.parts.config.default_rate, BATCH)
            .await?;
        if routes.is_empty() {
            return Ok(false);
        }
        let more = i64::try_from(routes.len()).is_ok_and(|read| read >= BATCH);
        let put = futures::stream::iter(routes).map(|route| {
            let bucket = self.routes.clone();
            async move {
                let put = bucket.put(&route).await;
                put.map(|_| (route.endpoint, route.version))
            }
        });
        let results: Vec<_> = put.buffer_unordered(AT_ONCE).collect().await;
        let mut published = Vec::with_capacity(results.len());
        let mut fault = None;
        for result in results {
            match result {
                Ok(version) => published.push(version),
                Err(error) => fault = Some(error),
            }
        }
        store.mark_routed(&published).await?;
        self.parts.handle.routed(published.len() as u64);
        match fault {
            Some(error) => Err(error.into()),
            None => Ok(more),
        }
    }
}
