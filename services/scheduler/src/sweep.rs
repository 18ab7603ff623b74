//! Sweeping: what the broker lost is found, by proof and not by guess.
//!
//! The machine says what to ask and what the answers prove; here it is asked, of the streams'
//! leaders, and acted upon. Partitions are swept side by side, and only those where the ledger has
//! deliveries that are out for suspiciously long: with everything well, nothing is asked of the
//! broker at all.

use std::collections::BTreeSet;
use std::num::NonZeroU16;

use chrono::TimeDelta;
use hooklane_core::broken::{self, Broken};
use hooklane_core::pace::pause;
use hooklane_nats::{Client, inspect};
use hooklane_proto::subject;
use hooklane_store::Store;
use hooklane_store::sweep::Lost;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::Config;
use crate::clocks::{self, Clocks};
use crate::pace::Pace;
use crate::stats::{Count, Handle};

mod machine;

use machine::{Ask, Horizon, Machine, Seen, Step};

/// Sweeps until told to stop.
pub(crate) async fn run(
    config: Config,
    store: Store,
    client: Client,
    handle: Handle,
    partitions: NonZeroU16,
    mut clocks: watch::Receiver<Clocks>,
    term: CancellationToken,
) {
    let mut pace = Pace::new(config.sweep_every);
    let mut under_way = BTreeSet::new();
    let mut tasks: JoinSet<u16> = JoinSet::new();
    while clocks::good(&mut clocks, &term).await {
        while let Some(done) = tasks.try_join_next() {
            match done {
                Ok(partition) => under_way.remove(&partition),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            };
        }
        let grace = TimeDelta::from_std(config.sweep_grace).unwrap_or(TimeDelta::MAX);
        let wait = match store.suspect(partitions.get(), grace).await {
            Ok(suspects) => {
                for partition in suspects {
                    if !broken::is(Broken::NoSweep) && under_way.insert(partition) {
                        let sweep = Sweep {
                            partition,
                            config: config.clone(),
                            store: store.clone(),
                            client: client.clone(),
                            handle: handle.clone(),
                        };
                        tasks.spawn(sweep.run(clocks.clone(), term.clone()));
                    }
                }
                pace.good()
            }
            Err(fault) => pace.bad("looking for deliveries that may be lost", &fault),
        };
        if !pause(wait, &term).await {
            break;
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// One sweep of one partition.
struct Sweep {
    partition: u16,
    config: Config,
    store: Store,
    client: Client,
    handle: Handle,
}

impl Sweep {
    /// Runs to its end, however long a stage takes, or until told to stop; answers the partition.
    async fn run(self, mut clocks: watch::Receiver<Clocks>, term: CancellationToken) -> u16 {
        let mut machine = Machine::new(self.config.sweep_grace);
        let mut stage = Instant::now();
        let horizon = loop {
            if !clocks::good(&mut clocks, &term).await {
                return self.partition;
            }
            let ask = machine.ask();
            let seen = tokio::select! {
                biased;
                () = term.cancelled() => return self.partition,
                seen = self.see(ask) => seen,
            };
            let step = match seen {
                Ok(seen) => machine.see(seen),
                Err(fault) => {
                    debug!(partition = self.partition, ?ask, %fault, "the broker can't be asked, which proves nothing");
                    Step::Wait
                }
            };
            match step {
                Step::Lost(horizon) => break horizon,
                Step::Next => stage = Instant::now(),
                Step::Wait => {
                    if stage.elapsed() > self.config.sweep_stuck_after {
                        warn!(
                            partition = self.partition,
                            ?ask,
                            "a sweep waits for a stream to settle: what is lost in this partition is not put back meanwhile"
                        );
                        stage = Instant::now();
                    }
                    if !pause(self.config.sweep_poll, &term).await {
                        return self.partition;
                    }
                }
            }
        };
        self.stall(horizon, &term).await;
        self.partition
    }

    /// Asks the broker. Whether a stream is the one that a mark is of is asked last: if it still is
    /// then, it was when the rest was looked at.
    async fn see(&self, ask: Ask) -> Result<Seen, hooklane_nats::Error> {
        let client = &self.client;
        let end = async |stream| -> Result<Seen, hooklane_nats::Error> {
            let state = inspect::stream_state(client, stream).await?;
            Ok(Seen::End {
                created: state.created,
                sequence: state.last_sequence,
                at: state.server_time,
            })
        };
        match ask {
            Ask::EventsEnd => end(subject::EVENTS).await,
            Ask::DeliveriesEnd => end(subject::DELIVERIES).await,
            Ask::RecordsEnd => end(subject::RECORDS).await,
            Ask::EventsRest { at_or_below } => {
                let durable = subject::fanout_durable(self.partition);
                let left = inspect::unsettled(client, subject::EVENTS, &durable, at_or_below).await;
                self.rest(subject::EVENTS, left).await
            }
            Ask::DeliveriesRest { at_or_below } => {
                let filter = subject::deliveries_of(self.partition);
                let first = inspect::first_sequence_of(client, subject::DELIVERIES, &filter).await;
                let left = first.map(|first| first.is_some_and(|first| first <= at_or_below));
                self.rest(subject::DELIVERIES, left).await
            }
            Ask::RecordsRest { at_or_below } => {
                let filter = subject::records(self.partition);
                let first = inspect::first_sequence_of(client, subject::RECORDS, &filter).await;
                let left = first.map(|first| first.is_some_and(|first| first <= at_or_below));
                self.rest(subject::RECORDS, left).await
            }
        }
    }

    async fn rest(
        &self,
        stream: &str,
        left: Result<bool, hooklane_nats::Error>,
    ) -> Result<Seen, hooklane_nats::Error> {
        let left = match left {
            // Whatever the reason, something may be left.
            Err(fault) => {
                debug!(partition = self.partition, stream, %fault, "what is left can't be seen");
                true
            }
            Ok(left) => left,
        };
        let state = inspect::stream_state(&self.client, stream).await?;
        Ok(Seen::Rest {
            created: state.created,
            left,
        })
    }

    /// Puts back what is proved lost.
    async fn stall(&self, horizon: Horizon, term: &CancellationToken) {
        let lost = Lost {
            partition: self.partition,
            not_after: horizon.not_after,
            driven_before: horizon.driven_before,
        };
        let mut pace = Pace::new(self.config.sweep_poll);
        let mut total = 0;
        loop {
            let stalled = self.store.stall_lost(lost, self.config.rows_at_once).await;
            match stalled {
                Ok(stalled) => {
                    total += stalled;
                    self.handle.add(Count::Lost, stalled);
                    if stalled < u64::from(self.config.rows_at_once) {
                        break;
                    }
                    if term.is_cancelled() {
                        return;
                    }
                }
                Err(fault) => {
                    // What is proved stays proved: the horizon does not move.
                    let wait = pace.bad("putting lost deliveries back", &fault);
                    if !pause(wait, term).await {
                        return;
                    }
                }
            }
        }
        self.handle.add(Count::Sweeps, 1);
        if total > 0 {
            warn!(
                partition = self.partition,
                lost = total,
                "deliveries were lost on their way and are driven again"
            );
        }
    }
}
