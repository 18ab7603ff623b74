//! What the ledger must hold before the first event: the event type, the consumers, and an
//! endpoint for each of the receiver's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use hooklane_core::rules::address::Policy;
use hooklane_core::rules::subscription::Filter;
use hooklane_core::secrets::MasterKeys;
use hooklane_proto::id::EndpointId;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_store::{Store, consumer, endpoint, event_type};
use tokio::task::JoinSet;

use crate::plan::{EVENT_TYPE, Plan};
use crate::receiver::Receiver;

/// Endpoints added at a time: each is a transaction that waits for the disk.
const AT_A_TIME: u32 = 8;

/// The settings of endpoints.
#[derive(Debug, Clone, Copy)]
pub struct Endpoints {
    /// Attempts a second, and as many at once after a pause; `None` is no limit.
    pub rate: Option<u16>,
    /// Attempts in flight.
    pub concurrency: u16,
    /// An attempt's total time.
    pub timeout: Duration,
}

impl Default for Endpoints {
    /// No limit of their own, and as much at once as an endpoint may have.
    fn default() -> Self {
        Self {
            rate: None,
            concurrency: 256,
            timeout: Duration::from_secs(15),
        }
    }
}

/// Adds everything: at `urls`, in the plan's order, with `settings` in turn. Returns the endpoints'
/// ids in the plan's order.
///
/// # Errors
/// Where the ledger refuses.
pub async fn set_up(
    store: &Store,
    plan: &Plan,
    receiver: &Receiver,
    urls: Vec<String>,
    settings: Vec<Endpoints>,
    keys: MasterKeys,
) -> Result<Vec<EndpointId>> {
    let name = EventType::new(EVENT_TYPE)?;
    event_type::add(store, &name, &event_type::New::default())
        .await
        .context("adding the event type")?;
    let keys = Arc::new(keys);
    let next = Arc::new(AtomicU32::new(0));
    let mut workers = JoinSet::new();
    let (urls, settings) = (Arc::new(urls), Arc::new(settings));
    for _ in 0..AT_A_TIME {
        let worker = Worker {
            store: store.clone(),
            plan: plan.clone(),
            urls: Arc::clone(&urls),
            settings: Arc::clone(&settings),
            keys: Arc::clone(&keys),
            next: Arc::clone(&next),
        };
        workers.spawn(worker.run());
    }
    let mut ids = vec![None; plan.endpoints() as usize];
    while let Some(worker) = workers.join_next().await {
        for added in worker.context("adding endpoints panicked")?? {
            receiver.set_secret(added.index, &added.secret)?;
            ids[added.index as usize] = Some(added.id);
        }
    }
    ids.into_iter()
        .collect::<Option<Vec<_>>>()
        .context("an endpoint was not added")
}

struct Added {
    index: u32,
    id: EndpointId,
    secret: String,
}

struct Worker {
    store: Store,
    plan: Plan,
    urls: Arc<Vec<String>>,
    settings: Arc<Vec<Endpoints>>,
    keys: Arc<MasterKeys>,
    next: Arc<AtomicU32>,
}

impl Worker {
    async fn run(self) -> Result<Vec<Added>> {
        let policy = Policy::loopback();
        let mut all = Vec::new();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.plan.consumers() {
                return Ok(all);
            }
            let id = ConsumerId::new(&Plan::consumer_name(index))?;
            consumer::add(&self.store, &id, "", None)
                .await
                .context("adding a consumer")?;
            for index in self.plan.endpoints_of(index) {
                let url = self.urls[index as usize].as_str();
                let settings = self.settings[index as usize % self.settings.len()];
                let new = endpoint::New {
                    rate: settings
                        .rate
                        .map_or(endpoint::Rate::Unlimited, endpoint::Rate::PerSecond),
                    concurrency: settings.concurrency,
                    timeout: settings.timeout,
                    ..endpoint::New::to(id.clone(), url, Filter::all())
                };
                let added = endpoint::add(&self.store, &new, &policy, &self.keys)
                    .await
                    .context("adding an endpoint")?;
                all.push(Added {
                    index,
                    id: added.endpoint.id,
                    secret: added.secret.reveal(),
                });
            }
        }
    }
}
