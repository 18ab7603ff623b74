//! One partition, while it is ours: its fan-out, its pulls, its batcher, its room.
//!
//! Owns starting all of them in the right order. How they end is in [`crate::drain`]; whether the
//! partition is ours is [`crate::ownership`]'s.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};

use hooklane_core::rules::partition::partition;
use hooklane_nats::{Client, Publisher};
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::attempt::{Engine, Opener};
use crate::budget::Budget;
use crate::config::Config;
use crate::fanout;
use crate::grip::Tokens;
use crate::lane::machine::Share;
use crate::memory::Memory;
use crate::ownership::Term;
use crate::pull::{self, Source};
use crate::records::{self, Recorder};
use crate::room;
use crate::routes::{Known, Table};
use crate::timebase::Timebase;

/// Events of one partition that are being fanned out; below the pending limit of `fanout-<p>`.
pub(crate) const EVENTS_HELD: usize = 384;

/// What is left past half of the places in a partition is divided among as many lanes.
const SHARES: u32 = 128;

/// What all partitions of the process share.
pub(crate) struct Process {
    /// This dispatcher's name in `LEASES`.
    pub(crate) name: String,
    pub(crate) config: Arc<Config>,
    pub(crate) nats: Client,
    pub(crate) engine: Arc<Engine>,
    pub(crate) opener: Opener,
    pub(crate) budget: Arc<Budget>,
    pub(crate) table: Table,
    pub(crate) copies: Publisher,
    pub(crate) records: Publisher,
    pub(crate) brake: watch::Sender<bool>,
    pub(crate) time: Timebase,
    pub(crate) owned: Mutex<BTreeSet<u16>>,
    /// What is in hand, by partition; outlives an ownership, since its records may.
    pub(crate) memories: Mutex<HashMap<u16, Arc<Tokens>>>,
    /// Batchers of partitions that were lost.
    pub(crate) late: TaskTracker,
    /// Ends them.
    pub(crate) give_up: CancellationToken,
}

impl Process {
    fn memory(&self, partition: u16) -> Arc<Tokens> {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = memories
            .entry(partition)
            .or_insert_with(|| Arc::new(Memory::new(self.config.records.remember)));
        Arc::clone(memory)
    }

    /// Notes whether a partition is ours.
    pub(crate) fn owns(&self, partition: u16, ours: bool) {
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        if ours {
            owned.insert(partition);
        } else {
            owned.remove(&partition);
        }
    }
}

/// What everything that acts for one ownership of a partition shares.
pub(crate) struct Context {
    pub(crate) partition: u16,
    pub(crate) config: Arc<Config>,
    pub(crate) nats: Client,
    pub(crate) engine: Arc<Engine>,
    pub(crate) opener: Opener,
    pub(crate) budget: Arc<Budget>,
    pub(crate) table: Table,
    pub(crate) copies: Publisher,
    pub(crate) recorder: Recorder,
    pub(crate) time: Timebase,
    pub(crate) term: Term,
    /// Ends attempts early.
    pub(crate) cut: CancellationToken,
    /// One for each delivery that is held or being recorded.
    pub(crate) permits: Arc<Semaphore>,
}

impl Context {
    /// A lane's share of what is bounded, at the present pressure.
    pub(crate) fn share(&self) -> Share {
        let max = self.config.max_held_per_partition;
        let free = u32::try_from(self.permits.available_permits()).unwrap_or(u32::MAX);
        // As with the budget: past half, a little for everybody.
        let held = if free > max / 2 {
            self.config.max_held_per_lane
        } else {
            (max / 2 / SHARES).clamp(1, self.config.max_held_per_lane)
        };
        Share {
            in_flight: self.budget.in_flight_share(),
            held,
        }
    }
}

/// A partition that runs.
pub(crate) struct Partition {
    pub(crate) number: u16,
    pub(crate) fanout: fanout::Ref,
    pub(crate) fanout_task: JoinHandle<()>,
    /// `None` once it was given away.
    pub(crate) batcher: Option<AbortOnDropHandle<()>>,
    pub(crate) pulls: JoinSet<()>,
    pub(crate) stop_pulling: CancellationToken,
    pub(crate) cut: CancellationToken,
    /// Serve room and follow settings; nothing is lost when they end.
    pub(crate) helpers: JoinSet<()>,
    #[cfg(test)]
    pub(crate) permits: Arc<Semaphore>,
}

impl Partition {
    /// Starts everything.
    pub(crate) async fn start(
        process: &Arc<Process>,
        number: u16,
        term: Term,
    ) -> Result<Self, fanout::StartError> {
        let (recorder, batcher) =
            records::channel(number, process.records.clone(), &process.config);
        let cut = CancellationToken::new();
        let permits = process.config.max_held_per_partition as usize;
        let context = Arc::new(Context {
            partition: number,
            config: Arc::clone(&process.config),
            nats: process.nats.clone(),
            engine: Arc::clone(&process.engine),
            opener: process.opener.clone(),
            budget: Arc::clone(&process.budget),
            table: process.table.clone(),
            copies: process.copies.clone(),
            recorder,
            time: process.time,
            term,
            cut: cut.clone(),
            permits: Arc::new(Semaphore::new(permits)),
        });
        // Before the lanes read the table, so that no change falls between.
        let changes = process.table.changes();
        let (fanout, fanout_task) = fanout::start(Arc::clone(&context)).await?;
        let batcher = AbortOnDropHandle::new(tokio::spawn(batcher.run()));
        let mut helpers = JoinSet::new();
        helpers.spawn(room::serve(process.nats.clone(), number, fanout.clone()));
        let partitions = NonZeroU16::new(process.nats.partitions()).unwrap_or(NonZeroU16::MIN);
        helpers.spawn(follow(changes, partitions, number, fanout.clone()));
        let stop_pulling = CancellationToken::new();
        #[cfg(test)]
        let permits = Arc::clone(&context.permits);
        let source = || Source {
            context: Arc::clone(&context),
            fanout: fanout.clone(),
            brake: process.brake.subscribe(),
            stop: stop_pulling.clone(),
        };
        let memory = process.memory(number);
        let mut pulls = JoinSet::new();
        pulls.spawn(pull::deliveries(source(), memory));
        pulls.spawn(pull::events(source()));
        Ok(Self {
            number,
            fanout,
            fanout_task,
            batcher: Some(batcher),
            pulls,
            stop_pulling,
            cut,
            helpers,
            #[cfg(test)]
            permits,
        })
    }
}

/// Tells a fan-out of settings that concern its partition.
async fn follow(
    mut changes: broadcast::Receiver<Arc<Known>>,
    partitions: NonZeroU16,
    number: u16,
    fanout: fanout::Ref,
) {
    loop {
        let message = match changes.recv().await {
            Ok(known) => {
                let of = partition(partitions, known.route.consumer.as_str());
                if of != number {
                    continue;
                }
                fanout::Msg::Settings(known)
            }
            Err(broadcast::error::RecvError::Lagged(_)) => fanout::Msg::AllSettings,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        if fanout.cast(message).is_err() {
            return;
        }
    }
}
