//! One source's task: to lead it, to read it, to have its rows accepted and published.

use std::time::Duration;

use hooklane_nats::events::Lane;
use hooklane_store::outbox::{Reader, Scan, Source, Wake};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::pace::{Faults, Polls};
use crate::{Error, Parts, spans};

/// How often a standby tries to lead.
const STANDBY: Duration = Duration::from_secs(1);
/// How long a read may take before its session is given up: longer than the server lets a statement
/// run.
const READ: Duration = Duration::from_secs(40);

/// Relays a source until `shutdown`.
pub(crate) async fn run(parts: Parts, source: Source, shutdown: CancellationToken) {
    let lane = parts.lane();
    let mut faults = Faults::new(format!("outbox {}", source.name));
    let mut stands_by = false;
    while !shutdown.is_cancelled() {
        match Reader::lead(&parts.store, &source).await {
            Ok(Some(reader)) => {
                stands_by = false;
                announce(&source, &reader);
                let led = lead(&parts, &source, reader, &lane, &mut faults, &shutdown).await;
                if let Err(error) = led {
                    faults.pause(&error, &shutdown).await;
                }
            }
            Ok(None) => {
                faults.over();
                if !stands_by {
                    info!(
                        source = source.name,
                        "another relay reads this outbox, standing by"
                    );
                    stands_by = true;
                }
                let pause = tokio::time::sleep(STANDBY);
                let _ = shutdown.run_until_cancelled(pause).await;
            }
            Err(error) => faults.pause(&error, &shutdown).await,
        }
    }
    lane.finish().await;
}

/// Relays what is pending now; `false` where another relay reads this source.
pub(crate) async fn once(parts: &Parts, source: &Source) -> Result<bool, Error> {
    let Some(mut reader) = Reader::lead(&parts.store, source).await? else {
        return Ok(false);
    };
    let lane = parts.lane();
    let relayed = async {
        while round(parts, &mut reader, &lane).await? > 0 {}
        while reader.purge().await? {}
        Ok::<_, hooklane_store::Error>(())
    }
    .await;
    lane.finish().await;
    reader.close().await;
    relayed?;
    Ok(true)
}

fn announce(source: &Source, reader: &Reader) {
    match (reader.scan(), reader.why_plain()) {
        (Scan::Horizon, _) => info!(source = source.name, "reading this outbox"),
        (Scan::Plain, why) => warn!(
            source = source.name,
            reason = why.unwrap_or_default(),
            "reading this outbox from the start each time"
        ),
    }
}

/// Rounds until `shutdown` or a fault.
async fn lead(
    parts: &Parts,
    source: &Source,
    mut reader: Reader,
    lane: &Lane,
    faults: &mut Faults,
    shutdown: &CancellationToken,
) -> Result<(), hooklane_store::Error> {
    let mut polls = Polls::new(source.poll_min, source.poll_max);
    let mut wake = source.notify.then(|| Wake::new(&parts.store, source));
    while !shutdown.is_cancelled() {
        let settled = round(parts, &mut reader, lane).await?;
        faults.over();
        let purging = reader.purge().await?;
        let pause = if settled >= source.batch / 2 && settled > 0 {
            continue;
        } else if settled > 0 {
            polls.found()
        } else if purging {
            source.poll_min
        } else {
            polls.nothing()
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = woken(wake.as_mut()) => {}
            () = shutdown.cancelled() => {}
        }
    }
    reader.close().await;
    Ok(())
}

async fn woken(wake: Option<&mut Wake>) {
    match wake {
        Some(wake) => wake.wait().await,
        None => std::future::pending().await,
    }
}

/// Reads a batch and has it accepted; answers how many rows were settled.
async fn round(
    parts: &Parts,
    reader: &mut Reader,
    lane: &Lane,
) -> Result<usize, hooklane_store::Error> {
    let read = tokio::time::timeout(READ, reader.read()).await;
    let mut batch = read.map_err(|_elapsed| hooklane_store::Error::TimedOut {
        doing: "reading an outbox",
        after: READ,
    })??;
    if batch.offers.is_empty() {
        return Ok(0);
    }
    let spans = spans::open(&mut batch.offers);
    let taken = reader
        .accept(&parts.settings, parts.config.patience, batch)
        .await?;
    drop(spans);
    parts.publish(lane, taken.accepted).await;
    Ok(taken.settled)
}
