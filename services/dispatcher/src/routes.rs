//! What the process knows of endpoints: the `ROUTES` bucket, followed into a table.
//!
//! Owns the table and the following. A newer version is never replaced by an older one, whatever
//! the order of telling, and nothing is ever removed: a deleted endpoint stays as a tombstone, and
//! one that a bucket made anew does not tell yet is told soon. Secrets stay sealed in the table
//! until a lane needs them, and are opened once for each version.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use hooklane_core::rules::token_bucket::Rate;
use hooklane_nats::{RouteUpdate, Routes};
use hooklane_proto::id::EndpointId;
use hooklane_proto::route::Route;
use tokio::sync::{broadcast, watch};
use tracing::{info, warn};

use crate::attempt::{Opener, Target};
use crate::budget::Standing;
use crate::lane::machine::Settings;
use crate::timebase::Now;

/// Updates that a partition may be behind before it has to read the table again.
const BEHIND: usize = 1_024;

/// One version of an endpoint's settings.
pub(crate) struct Known {
    pub(crate) route: Route,
    target: OnceLock<Target>,
    /// A [`Standing`]; shared by the endpoint's versions, and outlives its lane.
    standing: Arc<AtomicU8>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known")
            .field("endpoint", &self.route.endpoint)
            .field("version", &self.route.version)
            .finish_non_exhaustive()
    }
}

impl Known {
    /// What attempts need, opened at the first call.
    pub(crate) fn target(&self, opener: &Opener) -> &Target {
        self.target.get_or_init(|| opener.open(&self.route))
    }

    /// What the endpoint's last attempt has shown.
    pub(crate) fn standing(&self) -> Standing {
        match self.standing.load(Ordering::Relaxed) {
            0 => Standing::Unknown,
            1 => Standing::Answers,
            _ => Standing::Hangs,
        }
    }

    /// An attempt has ended with an answer, or in time without one, or not.
    pub(crate) fn attempted(&self, timed_out: bool) {
        let standing = if timed_out { 2 } else { 1 };
        self.standing.store(standing, Ordering::Relaxed);
    }

    /// What the lane's machine needs.
    pub(crate) fn settings(&self, now: Now) -> Settings {
        let Route {
            endpoint,
            consumer: _,
            version,
            state,
            url: _,
            rate,
            burst,
            concurrency,
            timeout_ms: _,
            secrets: _,
            headers: _,
            held_until,
        } = &self.route;
        let rate = match rate {
            None => Rate::Unlimited,
            // Written by ourselves from checked settings; should it be outside the limits all the
            // same, a slow lane is better than an unlimited one.
            Some(rate) => Rate::per_second(*rate, Some(*burst)).unwrap_or_else(|error| {
                warn!(%endpoint, version, %error, "the endpoint's rate can't be used, taking 1 a second");
                Rate::per_second(1, Some(1)).unwrap_or(Rate::Unlimited)
            }),
        };
        Settings {
            version: *version,
            state: *state,
            rate,
            concurrency: (*concurrency).clamp(1, 256),
            held_until: held_until.map(|until| now.at_wall(until)),
        }
    }
}

/// The table.
#[derive(Clone)]
pub(crate) struct Table(Arc<Inner>);

struct Inner {
    routes: RwLock<HashMap<EndpointId, Arc<Known>>>,
    changes: broadcast::Sender<Arc<Known>>,
    current: watch::Sender<bool>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            routes: RwLock::default(),
            changes: broadcast::Sender::new(BEHIND),
            current: watch::Sender::new(false),
        }))
    }

    /// What is known of an endpoint.
    pub(crate) fn get(&self, endpoint: EndpointId) -> Option<Arc<Known>> {
        let routes = self.0.routes.read().unwrap_or_else(PoisonError::into_inner);
        routes.get(&endpoint).cloned()
    }

    /// Changes from now on. Who falls behind asks [`Table::get`] for what it uses.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Arc<Known>> {
        self.0.changes.subscribe()
    }

    /// Waits until the bucket has been read once.
    pub(crate) async fn current(&self) {
        let mut current = self.0.current.subscribe();
        // The sender lives in `self`.
        let _ = current.wait_for(|current| *current).await;
    }

    /// Takes a route unless as new a one is known.
    pub(crate) fn learn(&self, route: Route) {
        let mut routes = self
            .0
            .routes
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let known = routes.get(&route.endpoint);
        if known.is_some_and(|known| known.route.version >= route.version) {
            return;
        }
        let standing = known.map_or_else(Arc::default, |known| Arc::clone(&known.standing));
        let endpoint = route.endpoint;
        let known = Arc::new(Known {
            route,
            target: OnceLock::new(),
            standing,
        });
        routes.insert(endpoint, Arc::clone(&known));
        drop(routes);
        // An `Err` says that nobody listens now.
        let _ = self.0.changes.send(known);
    }

    /// Follows the bucket until dropped.
    pub(crate) async fn follow(self, bucket: Routes) {
        let mut updates = bucket.watch_all();
        loop {
            match updates.next().await {
                RouteUpdate::Begin { created } => info!(%created, "reading routes"),
                RouteUpdate::Route(route) => self.learn(*route),
                RouteUpdate::Current => {
                    self.0.current.send_replace(true);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hooklane_proto::route::State;
    use hooklane_proto::token::ConsumerId;

    use super::*;
    use crate::timebase::Timebase;

    fn route(version: i64, concurrency: u32) -> Route {
        Route {
            endpoint: EndpointId::for_test(1),
            consumer: ConsumerId::new("acme").unwrap(),
            version,
            state: State::Active,
            url: "https://example.com/".to_owned(),
            rate: Some(10),
            burst: 20,
            concurrency,
            timeout_ms: 15_000,
            secrets: Vec::new(),
            headers: None,
            held_until: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_version_never_replaces_a_newer_one() {
        let table = Table::new();
        let mut changes = table.changes();
        table.learn(route(2, 16));
        table.learn(route(1, 8));
        table.learn(route(2, 4));
        let known = table.get(EndpointId::for_test(1)).unwrap();
        assert_eq!((known.route.version, known.route.concurrency), (2, 16));
        assert_eq!(changes.try_recv().unwrap().route.version, 2);
        assert!(changes.try_recv().is_err());
        let settings = known.settings(Timebase::start().both());
        assert_eq!(settings.rate, Rate::per_second(10, Some(20)).unwrap());
    }
}
