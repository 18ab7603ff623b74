//! Several messages of `RECORDS` taken together for one transaction.
//!
//! Adaptive: takes what is there, and waits only a few milliseconds for more. A quiet system writes
//! small batches at once, a busy one large batches.

use hooklane_nats::{AckToken, Incoming, Puller};
use hooklane_proto::record::{Batch, Record};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::config::Config;
use crate::stats::Handle;

/// Records to write, and the right to settle the messages that they came in.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) records: Vec<Record>,
    pub(crate) tokens: Vec<AckToken>,
    bytes: usize,
}

impl Taken {
    fn is_full(&self, config: &Config) -> bool {
        self.records.len() >= config.batch_records || self.bytes >= config.batch_bytes
    }

    async fn add(&mut self, message: Incoming, handle: &Handle) {
        match Batch::decode(&message.payload) {
            Ok(batch) => {
                self.bytes += message.payload.len();
                self.records.extend(batch.records);
                self.tokens.push(message.token);
            }
            Err(fault) => {
                handle.undecodable();
                // Its deliveries are found by the sweep: their records never come.
                error!(
                    sequence = message.stream_sequence,
                    bytes = message.payload.len(),
                    subject = %message.subject,
                    %fault,
                    "a message on RECORDS can't be read and is dropped, its deliveries will be driven again"
                );
                let reason = format!("not a batch of records: {fault}");
                if let Err(error) = message.token.term(&reason).await {
                    tracing::warn!(%error, "an unreadable message was not ended, it will come again");
                }
            }
        }
    }
}

/// Waits for a message and takes what else is there. `None` when told to stop before there was one.
pub(crate) async fn take(
    puller: &mut Puller,
    config: &Config,
    handle: &Handle,
    shutdown: &CancellationToken,
) -> Option<Taken> {
    let mut taken = Taken::default();
    while taken.tokens.is_empty() {
        let first = tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            message = puller.next() => message,
        };
        taken.add(first, handle).await;
    }
    let until = Instant::now() + config.linger;
    while !taken.is_full(config) {
        match timeout_at(until, puller.next()).await {
            Ok(message) => taken.add(message, handle).await,
            Err(_elapsed) => break,
        }
    }
    Some(taken)
}
