//! Further tries of events set aside: the ones that wait for a name, and the ones requeued.

use std::time::Duration;

use hooklane_nats::events::Lane;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::pace::Faults;
use crate::{Error, Parts};

/// How often; less often where looking alone takes long.
const EVERY: Duration = Duration::from_secs(1);
/// The share of the time that looking may take: one in so many.
const SHARE: u32 = 10;
/// How often old rejected events are removed.
const PURGE_EVERY: Duration = Duration::from_secs(600);
const PURGE: i64 = 1_000;

/// Tries again until `shutdown`.
pub(crate) async fn run(parts: Parts, shutdown: CancellationToken) {
    let lane = parts.lane();
    let mut faults = Faults::new("trying again what was set aside");
    let mut purged: Option<Instant> = None;
    while !shutdown.is_cancelled() {
        let started = Instant::now();
        let tried = async {
            let more = round(&parts, &lane).await?;
            if purged.is_none_or(|at| at.elapsed() >= PURGE_EVERY) {
                let removed = parts.store.purge_rejected(PURGE).await?;
                if removed < PURGE.unsigned_abs() {
                    purged = Some(Instant::now());
                }
            }
            Ok::<_, hooklane_store::Error>(more)
        }
        .await;
        match tried {
            Ok(true) => faults.over(),
            Ok(false) => {
                faults.over();
                let pause = EVERY.max(started.elapsed() * SHARE);
                let _ = shutdown
                    .run_until_cancelled(tokio::time::sleep(pause))
                    .await;
            }
            Err(error) => faults.pause(&error, &shutdown).await,
        }
    }
    lane.finish().await;
}

/// Tries again now.
pub(crate) async fn once(parts: &Parts) -> Result<(), Error> {
    let lane = parts.lane();
    let outcome = async {
        while round(parts, &lane).await? {}
        Ok::<_, hooklane_store::Error>(())
    }
    .await;
    lane.finish().await;
    Ok(outcome?)
}

/// One round; whether there is more to try at once.
async fn round(parts: &Parts, lane: &Lane) -> Result<bool, hooklane_store::Error> {
    let tried = parts.store.try_again(&parts.settings).await?;
    if tried.given_up > 0 {
        warn!(
            events = tried.given_up,
            "events rejected: their consumer or event type did not come to be known"
        );
    }
    let accepted = tried.accepted.events.len();
    if accepted > 0 {
        info!(events = accepted, "events accepted that had been set aside");
    }
    parts.publish(lane, tried.accepted).await;
    Ok(tried.more)
}
