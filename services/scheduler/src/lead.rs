//! Having the lead: everything is put back by one scheduler of several.
//!
//! The lead's session is checked every few seconds; once it is lost, or a task ends, the work stops
//! and the lead is sought again.

use std::num::NonZeroU16;
use std::time::Duration;

use hooklane_core::pace::pause;
use hooklane_core::rules::partition;
use hooklane_store::Store;
use hooklane_store::leader::{Leadership, Led};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clocks::{self, Clocks};
use crate::pace::Pace;
use crate::tasks::Runner;
use crate::{Config, Error, Service, endings, sweep, topup};

/// Deliveries looked at in one page; more than are ever accepted at one moment.
const PAGE: u32 = 20_000;
/// A session that does not answer for so long is lost.
const CHECK: Duration = Duration::from_secs(5);

pub(crate) async fn run(service: Service, shutdown: CancellationToken) -> Result<(), Error> {
    let partitions = NonZeroU16::new(service.client.partitions()).ok_or(Error::NoPartitions)?;
    let mut pace = Pace::new(service.config.lead_every);
    loop {
        let wait = match service.store.lead(Led::Scheduler).await {
            Ok(Some(lead)) => {
                info!("scheduler leads");
                service.handle.leads(true);
                let outcome = work(&service, partitions, lead, &shutdown).await;
                service.handle.leads(false);
                outcome?;
                pace.good()
            }
            Ok(None) => pace.good(),
            Err(fault) => pace.bad("taking the scheduler's lead", &fault),
        };
        if !pause(wait, &shutdown).await {
            info!("scheduler stopped");
            return Ok(());
        }
    }
}

/// Works until the lead is lost or `shutdown`.
async fn work(
    service: &Service,
    partitions: NonZeroU16,
    mut lead: Leadership,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let Service {
        config,
        terms,
        store,
        client,
        handle,
    } = service;
    let term = shutdown.child_token();
    let (say, clocks) = watch::channel(Clocks::Unknown);
    let mut tasks = JoinSet::new();
    tasks.spawn(clocks::run(
        config.clock_every,
        config.clock_tolerance,
        store.clone(),
        client.clone(),
        handle.clone(),
        say,
        term.clone(),
    ));
    let own = || {
        (
            config.clone(),
            store.clone(),
            client.clone(),
            handle.clone(),
        )
    };
    let (c, s, n, h) = own();
    tasks.spawn(topup::run(
        c,
        s,
        n,
        h,
        partitions,
        clocks.clone(),
        term.clone(),
    ));
    let (c, s, _, h) = own();
    tasks.spawn(endings::run(c, s, h, clocks.clone(), term.clone()));
    let (c, s, n, h) = own();
    let runner = Runner {
        config: c,
        terms: *terms,
        store: s,
        client: n,
        handle: h,
    };
    tasks.spawn(runner.run(clocks.clone(), term.clone()));
    let (c, s, n, h) = own();
    let (swept, place) = (term.clone(), term.clone());
    tasks.spawn(async move {
        // Before the first sweep, or rows under a wrong partition would be judged by its streams.
        if rehome(&c, &s, partitions, &place).await {
            sweep::run(c, s, n, h, partitions, clocks, swept).await;
        }
    });

    let mut ended = None;
    while ended.is_none() && pause_or(config.lead_every, &term, &mut tasks, &mut ended).await {
        match timeout(CHECK, lead.check()).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => {
                warn!(%fault, "scheduler lost the lead");
                break;
            }
            Err(_elapsed) => {
                warn!("scheduler lost the lead: its session does not answer");
                break;
            }
        }
    }
    term.cancel();
    let mut outcome = ended.unwrap_or(Ok(()));
    while let Some(next) = tasks.join_next().await {
        outcome = outcome.and(next);
    }
    outcome.map_err(Error::Task)
}

/// Waits; `false` when told to stop, or when a task ended meanwhile, which is noted.
async fn pause_or(
    time: Duration,
    term: &CancellationToken,
    tasks: &mut JoinSet<()>,
    ended: &mut Option<Result<(), tokio::task::JoinError>>,
) -> bool {
    tokio::select! {
        biased;
        () = term.cancelled() => false,
        next = tasks.join_next() => {
            *ended = next;
            false
        }
        () = tokio::time::sleep(time) => true,
    }
}

/// Moves deliveries that stand under another partition than their consumer's to where they belong:
/// the number of partitions has changed since. `false` when told to stop first.
async fn rehome(
    config: &Config,
    store: &Store,
    partitions: NonZeroU16,
    term: &CancellationToken,
) -> bool {
    let mut pace = Pace::new(config.sweep_every);
    loop {
        let done = tokio::select! {
            biased;
            () = term.cancelled() => return false,
            done = rehome_all(config, store, partitions) => done,
        };
        match done {
            Ok(0) => return true,
            Ok(moved) => {
                info!(moved, "moved deliveries to their new partitions");
                return true;
            }
            Err(fault) => {
                let wait = pace.bad("moving deliveries to their partitions", &fault);
                if !pause(wait, term).await {
                    return false;
                }
            }
        }
    }
}

async fn rehome_all(
    config: &Config,
    store: &Store,
    partitions: NonZeroU16,
) -> Result<u64, hooklane_store::Error> {
    let mut moved = 0;
    let mut from = None;
    loop {
        let (page, next) = store.placed(from, PAGE).await?;
        for placed in page {
            let right = partition::partition(partitions, &placed.consumer);
            if placed.partition == right {
                continue;
            }
            loop {
                let now = store.move_to(&placed, right, config.rows_at_once).await?;
                moved += now;
                if now < u64::from(config.rows_at_once) {
                    break;
                }
            }
        }
        if next.is_none() {
            return Ok(moved);
        }
        from = next;
    }
}
