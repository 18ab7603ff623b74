//! Which partitions are ours, and until when.
//!
//! # How a partition is owned
//!
//! By a lease in the `LEASES` bucket, taken by compare-and-set and forgotten by the bucket when it
//! is not renewed. The owner's right ends by itself earlier: two thirds of the lease's life after
//! the clock reading before the last renewal that succeeded, on a clock that runs while the host is
//! suspended. [`Term`] is that right; every attempt asks it right before the POST. Two owners for a
//! moment (a clock that lies, an attempt under way while the lease moves) cost at worst a burst.
//!
//! # How partitions are shared out
//!
//! Everybody looks at the leases now and then. Who has fewer than an even share takes what nobody
//! owns. When nothing is free, the one with less asks an owner who has at least two more than
//! itself to hand one over; the owner drains it, releases it, and whoever is first takes it. That
//! takes as long as the broker refuses the partition's records ([`crate::drain`] says why). So
//! each handing over makes the shares more even, and it ends. A dispatcher that dies is missing
//! from the list when its leases are gone, and the others' shares grow.

mod share;
mod term;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hooklane_core::broken::{self, Broken};
use hooklane_core::clock::Boot;
use hooklane_nats::{Lease, LeaseError, Leases};
use hooklane_proto::subject;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, error, info, warn};

use crate::drain::Haste;
use crate::partition::{Partition, Process};

pub(crate) use term::Term;

/// How long one call about a lease may take.
const CALL: Duration = Duration::from_secs(2);
/// The pause after a renewal that failed.
const AGAIN: Duration = Duration::from_millis(300);

/// Asks a partition's owner to hand it over.
#[derive(Debug, Serialize, Deserialize)]
struct HandOver {
    /// Who asks.
    owner: String,
    /// How many partitions the asker has.
    has: u16,
}

/// A partition that was handed over is left for whoever asked for it this long.
const LEFT: Duration = Duration::from_secs(5);

/// The partitions that run here, by number.
type Owned = BTreeMap<u16, Ours>;

/// One of them.
struct Ours {
    task: Id,
    stop: CancellationToken,
    /// It stops because another asked for it.
    handed_over: bool,
}

/// Partitions that are another's to take, and until when.
type Left = BTreeMap<u16, Instant>;

/// Owns partitions until `shutdown`, then drains and releases them all.
pub(crate) async fn run(process: Arc<Process>, shutdown: CancellationToken) {
    let leases = Leases::new(&process.nats).with_keys(process.opener.key_ids());
    let mut owned = Owned::new();
    let mut left = Left::new();
    let mut running: JoinSet<()> = JoinSet::new();
    // Partitions that others ask for; one request a partition waits at the most.
    let (asked_tx, mut asked) = mpsc::channel(usize::from(process.nats.partitions()));
    let mut ticks = tokio::time::interval(process.config.lease.balance_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = running.join_next_with_id(), if !running.is_empty() => {
                forget(&process, &mut owned, &mut left, ended);
            }
            Some((partition, has)) = asked.recv() => {
                hand_over(&mut owned, partition, has);
            }
            _ = ticks.tick() => {
                left.retain(|_, until| *until > Instant::now());
                let taken = balance(&process, &leases, &owned, &left).await;
                for (lease, term) in taken {
                    let partition = lease.partition();
                    process.owns(partition, true);
                    let stop = CancellationToken::new();
                    let haste = Haste {
                        shutdown: shutdown.clone(),
                        lost: CancellationToken::new(),
                    };
                    let (process, asked) = (Arc::clone(&process), asked_tx.clone());
                    let task =
                        running.spawn(hold(process, lease, term, stop.clone(), haste, asked));
                    let ours = Ours {
                        task: task.id(),
                        stop,
                        handed_over: false,
                    };
                    owned.insert(partition, ours);
                }
            }
        }
    }
    for ours in owned.values() {
        ours.stop.cancel();
    }
    while let Some(ended) = running.join_next_with_id().await {
        forget(&process, &mut owned, &mut left, ended);
    }
    process.late.close();
    if timeout(process.config.drain_records, process.late.wait())
        .await
        .is_err()
    {
        warn!("records of partitions that were lost could not be published in time");
        process.give_up.cancel();
        process.late.wait().await;
    }
}

/// A partition's task has ended.
fn forget(
    process: &Process,
    owned: &mut Owned,
    left: &mut Left,
    ended: Result<(Id, ()), JoinError>,
) {
    let id = match ended {
        Ok((id, ())) => id,
        Err(panicked) => {
            error!(%panicked, "the task of a partition failed, its lease expires");
            panicked.id()
        }
    };
    let Some(partition) = owned
        .iter()
        .find_map(|(partition, ours)| (ours.task == id).then_some(*partition))
    else {
        return;
    };
    if owned
        .remove(&partition)
        .is_some_and(|ours| ours.handed_over)
    {
        left.insert(partition, Instant::now() + LEFT);
    }
    process.owns(partition, false);
}

/// Gives up a partition if that makes the shares more even.
fn hand_over(owned: &mut Owned, partition: u16, has: u16) {
    let active = owned
        .values()
        .filter(|ours| !ours.stop.is_cancelled())
        .count();
    let count = u16::try_from(active).unwrap_or(u16::MAX);
    if share::should_hand_over(count, has)
        && let Some(ours) = owned.get_mut(&partition)
        && !ours.stop.is_cancelled()
    {
        info!(
            partition,
            ours = count,
            theirs = has,
            "handing a partition over"
        );
        ours.handed_over = true;
        ours.stop.cancel();
    }
}

/// Takes free partitions up to an even share, or asks for one.
async fn balance(
    process: &Process,
    leases: &Leases,
    owned: &Owned,
    left: &Left,
) -> Vec<(Lease, Term)> {
    let listed = match timeout(CALL, leases.list()).await {
        Ok(Ok(listed)) => listed,
        Ok(Err(error)) => {
            debug!(%error, "leases can't be read now");
            return Vec::new();
        }
        Err(_elapsed) => return Vec::new(),
    };
    let owners: Vec<(u16, &str)> = listed
        .iter()
        .map(|ownership| (ownership.partition, ownership.owner.as_str()))
        .collect();
    let plan = share::plan(
        process.nats.partitions(),
        &process.name,
        &owners,
        owned.keys(),
    );
    let mut taken = Vec::new();
    for partition in plan.take {
        if left.contains_key(&partition) {
            continue;
        }
        let before = Boot::now();
        let acquired = timeout(CALL, leases.acquire(partition, &process.name));
        match acquired.await {
            Ok(Ok(Some(lease))) => {
                let term = Term::new(before.after(process.config.lease.good_for()));
                info!(partition, epoch = %lease.epoch(), "owns a partition");
                taken.push((lease, term));
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => debug!(partition, %error, "the partition can't be taken now"),
            Err(_elapsed) => {}
        }
    }
    if let Some(partition) = plan.ask {
        ask(process, partition, plan.has).await;
    }
    taken
}

async fn ask(process: &Process, partition: u16, has: u16) {
    let request = HandOver {
        owner: process.name.clone(),
        has,
    };
    let body = serde_json::to_vec(&request).unwrap_or_default();
    let asked = process
        .nats
        .request(subject::hand_over(partition), body.into(), CALL);
    if let Err(error) = asked.await {
        debug!(partition, %error, "the partition's owner does not answer");
    }
}

/// Runs a partition as long as its lease holds and nobody stops it.
async fn hold(
    process: Arc<Process>,
    mut lease: Lease,
    term: Term,
    stop: CancellationToken,
    haste: Haste,
    asked: mpsc::Sender<(u16, u16)>,
) {
    let number = lease.partition();
    let mut partition = match Partition::start(&process, number, term.clone()).await {
        Ok(partition) => partition,
        Err(error) => {
            // The lease is left to expire, which keeps this from spinning.
            error!(partition = number, %error, "the partition can't be started");
            return;
        }
    };
    let serving = AbortOnDropHandle::new(tokio::spawn(serve_hand_over(
        Arc::clone(&process),
        number,
        asked,
    )));
    let lost = tokio::select! {
        biased;
        () = stop.cancelled() => false,
        () = renew(&mut lease, &term, &process.config.lease) => true,
        () = partition.failed() => false,
    };
    drop(serving);
    if lost {
        // Another may have it already: only what is in flight is seen to its end.
        term.revoke();
        warn!(partition = number, "the lease is lost, the partition stops");
        haste.lost.cancel();
        let rest = partition.stop(&process.config, &haste).await;
        finish_later(&process, rest);
        return;
    }
    // The lease is kept until nothing is under way, so that nobody attempts beside us, nor again
    // what is not recorded yet.
    let stopping = partition.stop(&process.config, &haste);
    tokio::pin!(stopping);
    let released = tokio::select! {
        _ = &mut stopping => true,
        () = renew(&mut lease, &term, &process.config.lease) => false,
    };
    term.revoke();
    if !released {
        warn!(partition = number, "the lease was lost while draining");
        haste.lost.cancel();
        let rest = stopping.await;
        finish_later(&process, rest);
        return;
    }
    match timeout(CALL, lease.release()).await {
        Ok(Ok(())) => info!(partition = number, "released a partition"),
        Ok(Err(error)) => {
            debug!(partition = number, %error, "the lease was not released, it expires");
        }
        Err(_elapsed) => debug!(partition = number, "the lease was not released, it expires"),
    }
}

/// Records of a lost partition go on to the ledger, whoever owns it now: what was attempted is
/// known then, and messages that come again here meanwhile are recognised.
fn finish_later(process: &Arc<Process>, rest: Option<AbortOnDropHandle<()>>) {
    if let Some(batcher) = rest {
        let give_up = process.give_up.clone();
        process.late.spawn(async move {
            tokio::select! {
                // An `Err` says that it has ended as well.
                _ = batcher => {}
                () = give_up.cancelled() => {}
            }
        });
    }
}

/// Renews until the lease is lost or its term has passed.
async fn renew(lease: &mut Lease, term: &Term, config: &crate::config::Lease) {
    let mut pause = config.renew_every;
    loop {
        tokio::time::sleep(pause).await;
        let before = Boot::now();
        match timeout(CALL, lease.renew()).await {
            Ok(Ok(())) => {
                term.extend(before.after(config.good_for()));
                pause = config.renew_every;
            }
            Ok(Err(LeaseError::Lost(_))) if !broken::is(Broken::NoLeaseCheck) => return,
            Ok(Err(error)) => {
                debug!(partition = lease.partition(), %error, "the lease can't be renewed now");
                pause = AGAIN;
            }
            Err(_elapsed) => pause = AGAIN,
        }
        if !term.holds() {
            return;
        }
    }
}

/// Passes on what others ask for.
async fn serve_hand_over(process: Arc<Process>, partition: u16, asked: mpsc::Sender<(u16, u16)>) {
    loop {
        match process.nats.serve(subject::hand_over(partition)).await {
            Ok(mut requests) => {
                while let Some(request) = requests.next().await {
                    if let Ok(HandOver { owner, has }) = serde_json::from_slice(&request.payload) {
                        debug!(partition, owner, has, "is asked to hand over");
                        // A full queue has a request of this kind already.
                        let _ = asked.try_send((partition, has));
                    }
                    if let Err(error) = request.reply(bytes::Bytes::new()).await {
                        debug!(partition, %error, "no answer to a request to hand over");
                    }
                }
            }
            Err(error) => debug!(partition, %error, "requests to hand over can't be served now"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
