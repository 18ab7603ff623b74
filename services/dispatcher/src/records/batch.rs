//! One batch: made once, published until the broker has it, and then its messages are settled.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use hooklane_core::broken::{self, Broken};
use hooklane_nats::{AckToken, Outgoing, PublishError, Publisher, ack_all_confirmed};
use hooklane_proto::header::{self, Headers};
use hooklane_proto::record::{self, MAX_BATCH_BYTES, Record};
use hooklane_proto::subject;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{debug, error, warn};
use uuid::Uuid;

use super::{Entry, Owner};

/// How long one call to the publisher tries. Afterwards it is simply called again.
const TRY: Duration = Duration::from_secs(30);

/// Entries with their encoded form.
pub(super) struct Batch {
    partition: u16,
    records: Vec<Record>,
    owners: Vec<Owner>,
}

/// What became of publishing.
enum Published {
    Safe,
    TooLarge,
}

impl Batch {
    /// Makes batches of what was taken, each small enough for one message.
    pub(super) fn fill(taken: &mut Vec<Entry>, partition: u16) -> Vec<Self> {
        let mut batches: Vec<Self> = Vec::with_capacity(1);
        let mut bytes = 0;
        for Entry { record, owner } in taken.drain(..) {
            let size = record.size_hint();
            let fits = bytes + size <= MAX_BATCH_BYTES;
            let batch = match batches.last_mut() {
                Some(batch) if fits => batch,
                _ => {
                    bytes = 0;
                    batches.push(Self::new(partition));
                    let last = batches.len() - 1;
                    &mut batches[last]
                }
            };
            bytes += size;
            batch.records.push(record);
            batch.owners.push(owner);
        }
        batches
    }

    fn new(partition: u16) -> Self {
        Self {
            partition,
            records: Vec::new(),
            owners: Vec::new(),
        }
    }

    /// Publishes, however long that takes, and settles.
    pub(super) async fn deliver(self, publisher: Publisher, progress_every: Duration) {
        let mut open = vec![self];
        while let Some(mut batch) = open.pop() {
            if broken::is(Broken::AckFirst) {
                settle(std::mem::take(&mut batch.owners)).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            match batch.publish(&publisher, progress_every).await {
                Published::Safe => settle(batch.owners).await,
                Published::TooLarge if batch.records.len() > 1 => {
                    let half = batch.records.len() / 2;
                    let mut rest = Self::new(batch.partition);
                    rest.records = batch.records.split_off(half);
                    rest.owners = batch.owners.split_off(half);
                    open.extend([rest, batch]);
                }
                Published::TooLarge => {
                    if batch.strip() {
                        open.push(batch);
                    } else {
                        error!(
                            partition = batch.partition,
                            "a record is larger than the broker takes, raise its max_payload"
                        );
                        // What can't be recorded is given back: the broker counts how often, and
                        // its last word is seen by the dead-letter mover.
                        drop(batch.owners);
                    }
                }
            }
        }
    }

    async fn publish(&mut self, publisher: &Publisher, progress_every: Duration) -> Published {
        let outgoing = self.encode();
        let mut ticks = tokio::time::interval_at(Instant::now() + progress_every, progress_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let publishing = publisher.publish(outgoing.clone(), Instant::now() + TRY);
            tokio::pin!(publishing);
            let result = loop {
                tokio::select! {
                    biased;
                    result = &mut publishing => break result,
                    _ = ticks.tick() => self.progress(),
                }
            };
            match result {
                Ok(_) => return Published::Safe,
                Err(PublishError::Permanent(hooklane_nats::Error::TooLarge { .. })) => {
                    return Published::TooLarge;
                }
                Err(reason) => {
                    warn!(partition = self.partition, records = self.records.len(), %reason, "records can't be published yet");
                    if !reason.is_transient() {
                        self.progress();
                        tokio::time::sleep(progress_every).await;
                    }
                }
            }
        }
    }

    fn encode(&mut self) -> Outgoing {
        let batch = record::Batch {
            records: std::mem::take(&mut self.records),
        };
        let payload = Bytes::from(batch.encode());
        self.records = batch.records;
        let mut headers = Headers::new();
        headers.push(header::MSG_ID, Uuid::now_v7().simple().to_string());
        Outgoing {
            subject: subject::records(self.partition),
            headers,
            payload,
        }
    }

    fn progress(&self) {
        for owner in &self.owners {
            match owner {
                Owner::Ack(grip) | Owner::Term(grip, _) => grip.progress(),
                // Its fan-out tells the broker.
                Owner::Part(_) => {}
            }
        }
    }

    /// Takes the answer's headers and body out of an attempt; `false` where there is nothing to
    /// take.
    fn strip(&mut self) -> bool {
        let mut stripped = false;
        for record in &mut self.records {
            if let Record::Attempt(attempt) = record {
                stripped |= !attempt.headers.is_empty() || !attempt.body.is_empty();
                attempt.headers = Vec::new();
                attempt.body = Vec::new();
            }
        }
        stripped
    }
}

/// The records are safe: their messages go.
async fn settle(owners: Vec<Owner>) {
    let mut acks: Vec<AckToken> = Vec::with_capacity(owners.len());
    let mut terms: Vec<(AckToken, String)> = Vec::new();
    let mut copies: Vec<AckToken> = Vec::new();
    for owner in owners {
        match owner {
            Owner::Ack(grip) => {
                let (token, more) = grip.recorded();
                acks.extend(token);
                copies.extend(more);
            }
            Owner::Term(grip, reason) => {
                let (token, more) = grip.recorded();
                terms.extend(token.map(|token| (token, reason)));
                copies.extend(more);
            }
            Owner::Part(parts) => parts.one_done(),
        }
    }
    let ended = terms
        .into_iter()
        .map(|(token, reason)| async move { token.term(&reason).await });
    let (acked, ended) = tokio::join!(ack_all_confirmed(acks), join_all(ended));
    let unconfirmed = acked.iter().chain(&ended).filter(|r| r.is_err()).count();
    if unconfirmed > 0 {
        // They may come again and are then acknowledged from memory.
        debug!(unconfirmed, "settlements were not confirmed");
    }
    for copy in copies {
        copy.ack().await;
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use hooklane_proto::delivery::DeliveryKey;
    use hooklane_proto::id::{AttemptId, EndpointId, MessageId};
    use hooklane_proto::record::{Attempt, Drive, Verdict};

    use super::super::Parts;
    use super::*;

    fn entry(n: u64, body: usize) -> Entry {
        let drive = Drive {
            key: DeliveryKey {
                accepted_at: DateTime::UNIX_EPOCH,
                message: MessageId::for_test(n),
                endpoint: EndpointId::for_test(1),
            },
            series: 1,
            drive: 1,
        };
        let record = Record::Attempt(Attempt {
            drive,
            id: AttemptId::for_test(n),
            number: 1,
            counted: 1,
            started_at: DateTime::UNIX_EPOCH,
            duration_us: 1,
            status: Some(200),
            headers: Vec::new(),
            body: vec![0; body],
            error: None,
            detail: None,
            verdict: Verdict::Sent,
            hold_until: None,
            trace: None,
        });
        Entry {
            record,
            owner: Owner::Part(Parts::new(1)),
        }
    }

    #[test]
    fn no_batch_exceeds_what_one_message_takes() {
        let mut taken: Vec<_> = (0..200).map(|n| entry(n, 16 << 10)).collect();
        let batches = Batch::fill(&mut taken, 3);
        assert!(batches.len() > 1);
        let counts: usize = batches.iter().map(|b| b.records.len()).sum();
        assert_eq!(counts, 200);
        for mut batch in batches {
            assert!(batch.encode().payload.len() <= MAX_BATCH_BYTES);
        }
    }

    #[test]
    fn a_record_is_stripped_once() {
        let mut batch = Batch::fill(&mut vec![entry(1, 100)], 0).pop().unwrap();
        assert!(batch.strip());
        assert!(!batch.strip());
    }
}
