//! From messages to rows: a batch is written whole, and only then acknowledged.
//!
//! What can go wrong, and what follows:
//! - the ledger is away, restarts, or is short of something: the batch is tried again with growing
//!   pauses, for as long as it takes, and the broker is told that it is being worked on;
//! - a statement takes too long: the batch is halved;
//! - a record can't be written: the batch is halved until it stands alone, so that its neighbours
//!   are written; then it is tried without headers, body and detail; then its delivery is failed as
//!   poison; then there is no such delivery, and it is dropped. Nothing blocks, and no row stays
//!   `received` for it;
//! - anything else (a missing table, a missing privilege) hits every record alike: a person must
//!   act, so it is an error in the log and is tried again.
//!
//! A batch that is written in parts and not finished comes again whole; records merge, so that is
//! harmless.

use std::time::Duration;

use hooklane_core::pace::Pauses;
use hooklane_core::rules::health::Settings;
use hooklane_nats::{AckToken, Client, PullConfig, Puller};
use hooklane_proto::record::Record;
use hooklane_proto::subject;
use hooklane_store::{Error, Store};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::batch;
use crate::config::Config;
use crate::stats::Handle;

mod stripped;

/// How often the broker is told that a batch is being worked on; its ack wait is 10 s.
const PROGRESS_EVERY: Duration = Duration::from_secs(3);

/// Writes records into the ledger, whatever it takes.
#[derive(Debug)]
pub(crate) struct Writer {
    store: Store,
    handle: Handle,
    longest_pause: Duration,
    health: Settings,
}

impl Writer {
    pub(crate) fn new(config: &Config, store: Store, handle: Handle) -> Self {
        Self {
            store,
            handle,
            longest_pause: config.longest_pause,
            health: config.health,
        }
    }

    pub(crate) async fn run(self, client: Client, config: Config, shutdown: CancellationToken) {
        let pull = PullConfig {
            batch: 256,
            max_bytes: config.batch_bytes,
            ..PullConfig::default()
        };
        let mut puller = Puller::new(&client, subject::RECORDS, subject::RECORDS_DURABLE, pull);
        while let Some(taken) = batch::take(&mut puller, &config, &self.handle, &shutdown).await {
            let batch::Taken {
                records, tokens, ..
            } = taken;
            let stopped = async {
                shutdown.cancelled().await;
                tokio::time::sleep(config.stop_within).await;
            };
            let written = tokio::select! {
                () = self.write_all(&records, &tokens) => true,
                () = stopped => false,
            };
            if written {
                for token in tokens {
                    // Not confirmed: an ack that is lost brings the batch again, and it merges.
                    token.ack().await;
                }
            } else {
                warn!(
                    records = records.len(),
                    "stopping before the ledger could take these records, they go back to the broker"
                );
                for token in tokens {
                    token.nak(None).await;
                }
            }
        }
        puller.stop().await;
    }

    /// Returns once every record is written or given up, telling the broker meanwhile that it is
    /// being worked on.
    async fn write_all(&self, records: &[Record], tokens: &[AckToken]) {
        let mut progress = interval_at(Instant::now() + PROGRESS_EVERY, PROGRESS_EVERY);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let writing = self.write(records);
        tokio::pin!(writing);
        loop {
            tokio::select! {
                () = &mut writing => return,
                _ = progress.tick() => {
                    for token in tokens {
                        token.progress().await;
                    }
                }
            }
        }
    }

    /// Writes records, halving them around what can't be written.
    async fn write(&self, records: &[Record]) {
        let mut parts: Vec<&[Record]> = vec![records];
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let mut pauses = Pauses::new(self.longest_pause);
            loop {
                let error = match self.store.apply_by(part, &self.health).await {
                    Ok(applied) => {
                        self.handle.applied(part.len(), &applied);
                        break;
                    }
                    Err(error) => error,
                };
                let halve = error.is_data_fault() || error.is_timeout();
                if halve && part.len() > 1 {
                    warn!(%error, records = part.len(), "records can't be written together, writing them in halves");
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                    break;
                }
                if error.is_data_fault() {
                    self.write_stripped(&part[0], &error).await;
                    break;
                }
                self.wait(&error, &mut pauses).await;
            }
        }
    }

    /// Writes one record without what is not needed, or else fails its delivery.
    async fn write_stripped(&self, record: &Record, fault: &Error) {
        let drive = record.drive();
        let (message, endpoint) = (drive.key.message, drive.key.endpoint);
        let mut pauses = Pauses::new(self.longest_pause);
        if let Some(stripped) = stripped::of(record) {
            loop {
                match self
                    .store
                    .apply_by(std::slice::from_ref(&stripped), &self.health)
                    .await
                {
                    Ok(applied) => {
                        self.handle.applied(1, &applied);
                        self.handle.stripped();
                        warn!(%message, %endpoint, %fault, "a record was written without headers, body and detail");
                        return;
                    }
                    Err(error) if error.is_data_fault() => break,
                    Err(error) => self.wait(&error, &mut pauses).await,
                }
            }
        }
        self.handle.unwritable();
        loop {
            match self
                .store
                .fail_as_poison(std::slice::from_ref(record))
                .await
            {
                Ok(applied) => {
                    self.handle.poisoned(applied.changed);
                    error!(
                        %message, %endpoint, drive = drive.drive, %fault,
                        "a record can't be written, its delivery failed as poison and can be replayed"
                    );
                    return;
                }
                Err(error) if error.is_data_fault() => {
                    error!(
                        %message, %endpoint, drive = drive.drive, %fault,
                        "a record can't be written and names no delivery, it is dropped"
                    );
                    return;
                }
                Err(error) => self.wait(&error, &mut pauses).await,
            }
        }
    }

    async fn wait(&self, error: &Error, pauses: &mut Pauses) {
        self.handle.retried();
        let pause = pauses.next(rand::random());
        if error.is_transient() {
            warn!(%error, ?pause, "records can't be written now, trying again");
        } else {
            error!(%error, ?pause, "records can't be written until this is repaired, trying again");
        }
        tokio::time::sleep(pause).await;
    }
}
