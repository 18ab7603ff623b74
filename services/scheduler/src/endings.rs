//! What ends without a lane: deliveries past their deadline, and those of stopped endpoints.

use hooklane_core::pace::pause;
use hooklane_store::{Error, Store, endpoint};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::Config;
use crate::clocks::{self, Clocks};
use crate::pace::Pace;
use crate::stats::{Count, Handle};

/// Stopped endpoints that one round looks at.
const ENDPOINTS: u32 = 100;

/// Ends what is to end until told to stop.
pub(crate) async fn run(
    config: Config,
    store: Store,
    handle: Handle,
    mut clocks: watch::Receiver<Clocks>,
    term: CancellationToken,
) {
    let mut pace = Pace::new(config.endings_every);
    while clocks::good(&mut clocks, &term).await {
        let round = tokio::select! {
            biased;
            () = term.cancelled() => return,
            round = round(&config, &store, &handle) => round,
        };
        let wait = match round {
            Ok(()) => pace.good(),
            Err(fault) => pace.bad("ending deliveries", &fault),
        };
        if !pause(wait, &term).await {
            return;
        }
    }
}

async fn round(config: &Config, store: &Store, handle: &Handle) -> Result<(), Error> {
    let limit = config.rows_at_once;
    let mut overdue = 0;
    loop {
        let now = store.fail_overdue(limit).await?;
        handle.add(Count::Overdue, now);
        overdue += now;
        if now < u64::from(limit) {
            break;
        }
    }
    if overdue > 0 {
        info!(overdue, "deliveries failed past their deadline");
    }
    let stopped = store.stopped_with_backlog(ENDPOINTS).await?;
    for endpoint in &stopped {
        loop {
            let now = endpoint::settle_stalled(store, *endpoint, limit).await?;
            handle.add(Count::Settled, now);
            if now < u64::from(limit) {
                break;
            }
        }
    }
    if !stopped.is_empty() {
        // What somebody else held is still there, and its backlog with it: the next round's.
        store.refresh_backlogs(&stopped).await?;
    }
    Ok(())
}
