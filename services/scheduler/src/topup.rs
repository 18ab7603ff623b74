//! Topping up: due work goes to the lanes that have room for it.
//!
//! One loop asks the ledger which endpoints have due work and hands each partition its share; one
//! task a partition asks the owner for room, claims, and publishes. A partition that is still busy
//! with the last round is left out of the next, so a slow one holds up no other.
//!
//! A delivery that was claimed and whose publishing the broker did not confirm is left `received`:
//! the broker may have it all the same, and putting it back at once would drive it twice. The sweep
//! knows the difference.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use hooklane_core::pace::pause;
use hooklane_core::rules::partition;
use hooklane_nats::{Client, Publisher};
use hooklane_proto::id::EndpointId;
use hooklane_store::backlog::Due;
use hooklane_store::{Error, Store};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::clocks::{self, Clocks};
use crate::pace::Pace;
use crate::stats::Handle;

mod rooms;
mod worker;

use worker::Worker;

/// Tops up until told to stop.
pub(crate) async fn run(
    config: Config,
    store: Store,
    client: Client,
    handle: Handle,
    partitions: NonZeroU16,
    mut clocks: watch::Receiver<Clocks>,
    term: CancellationToken,
) {
    let claims = Arc::new(Semaphore::new(config.claims_at_once.max(1) as usize));
    let publisher = Publisher::new(&client, config.publish_window, config.publish_window_bytes);
    let mut tasks = JoinSet::new();
    let mut rounds = Rounds {
        partitions,
        after: None,
        workers: Vec::new(),
    };
    for partition in 0..partitions.get() {
        // Room for one: a partition gets its next share when it has begun the last.
        let (give, take) = mpsc::channel(1);
        rounds.workers.push(Hand { give, named: false });
        let worker = Worker {
            partition,
            config: config.clone(),
            store: store.clone(),
            client: client.clone(),
            publisher: publisher.clone(),
            claims: Arc::clone(&claims),
            handle: handle.clone(),
        };
        tasks.spawn(worker.run(take, term.clone()));
    }
    let mut pace = Pace::new(config.top_up_every);
    while clocks::good(&mut clocks, &term).await {
        let round = tokio::select! {
            biased;
            () = term.cancelled() => break,
            // A worker only ends early by a panic, and then so does this.
            Some(Err(panic)) = tasks.join_next() => std::panic::resume_unwind(panic.into_panic()),
            round = rounds.next(&store, config.endpoints_at_once) => round,
        };
        let wait = match round {
            Ok(()) => pace.good(),
            Err(fault) => pace.bad("looking for due deliveries", &fault),
        };
        if !pause(wait, &term).await {
            break;
        }
    }
    drop(rounds);
    while tasks.join_next().await.is_some() {}
}

/// Hands out due endpoints, page by page where there are very many.
struct Rounds {
    partitions: NonZeroU16,
    after: Option<Due>,
    workers: Vec<Hand>,
}

/// The way to one partition's worker.
struct Hand {
    give: mpsc::Sender<Vec<EndpointId>>,
    /// Whether the last share named endpoints: then the owner is told when there are none any more.
    named: bool,
}

impl Rounds {
    async fn next(&mut self, store: &Store, limit: u32) -> Result<(), Error> {
        let page = store.due(self.after.as_ref(), limit).await?;
        let full = page.len() >= limit as usize;
        let mut shares = share(self.partitions, &page);
        for (partition, hand) in (0..self.partitions.get()).zip(&mut self.workers) {
            let share = shares.remove(&partition).unwrap_or_default();
            let names = !share.is_empty();
            if (names || hand.named) && hand.give.try_send(share).is_ok() {
                hand.named = names;
            }
        }
        self.after = page.into_iter().next_back().filter(|_| full);
        Ok(())
    }
}

fn share(partitions: NonZeroU16, page: &[Due]) -> BTreeMap<u16, Vec<EndpointId>> {
    let mut shares: BTreeMap<u16, Vec<EndpointId>> = BTreeMap::new();
    for due in page {
        // Not the stored partition: it may be of the time before their number was changed.
        let partition = partition::partition(partitions, due.consumer.as_str());
        shares.entry(partition).or_default().push(due.endpoint);
    }
    shares
}
