//! From the ledger into `DLQ`: a page is read, published with its acknowledgements awaited, and noted
//! in the ledger.
//!
//! A crash in between publishes the page again, under the same ids. A stream made anew is noticed by
//! its time of creation: what was put into the one before is then put there again. Each mover does
//! that for itself, between its pages, so that a page which went into the old stream and was noted
//! after the new one was made is found by whoever published it.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_nats::{Error as NatsError, Outgoing, PubAck, PublishError, inspect, topology};
use hooklane_proto::dead_letter::DeadLetter;
use hooklane_proto::subject;
use hooklane_store::dead_letter::{Series, Unfiled, Which};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::Parts;
use crate::fault::Fault;
use crate::pace::Pace;
use crate::stats::Count;

/// How far the clocks of PostgreSQL and NATS may be apart: so much too many are put there again.
const CLOCKS: TimeDelta = TimeDelta::seconds(10);
/// How long the page in hand may take after a stop was asked for.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Moves dead letters until told to stop.
pub(crate) async fn run(parts: Parts, term: CancellationToken) {
    let mut mover = Mover {
        parts,
        filled: None,
    };
    let mut pace = Pace::new(mover.parts.config.look_every);
    let look = std::sync::Arc::clone(&mover.parts.look);
    while !term.is_cancelled() {
        let stopped = async {
            term.cancelled().await;
            tokio::time::sleep(STOP_WITHIN).await;
        };
        let round = tokio::select! {
            biased;
            round = mover.round(&term) => round,
            () = stopped => return,
        };
        let wait = match round {
            Ok(()) => pace.good(),
            Err(fault) => {
                let wait = pace.bad("moving dead letters", &fault);
                tokio::select! {
                    () = term.cancelled() => return,
                    () = tokio::time::sleep(wait) => continue,
                }
            }
        };
        tokio::select! {
            () = term.cancelled() => return,
            () = look.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct Mover {
    parts: Parts,
    /// The stream that has everything which was put into those before it, by its time of creation.
    filled: Option<DateTime<Utc>>,
}

impl Mover {
    /// Everything that is there to move, page by page.
    async fn round(&mut self, term: &CancellationToken) -> Result<(), Fault> {
        let created = self.created().await?;
        if self.filled != Some(created) {
            let limit = self.parts.store.time().await?;
            let before = (created + CLOCKS).min(limit);
            let moved = self.all(Which::FiledBefore(before), term).await?;
            if term.is_cancelled() {
                return Ok(());
            }
            if moved > 0 {
                warn!(
                    letters = moved,
                    "DLQ was made anew, its dead letters are in it again"
                );
            }
            self.filled = Some(created);
        }
        let moved = self.all(Which::New, term).await?;
        if moved > 0 {
            info!(letters = moved, "deliveries failed and are in DLQ");
        }
        Ok(())
    }

    /// When the stream was made; makes it where it is not there.
    async fn created(&self) -> Result<DateTime<Utc>, Fault> {
        let client = &self.parts.client;
        match inspect::stream_state(client, subject::DLQ).await {
            Ok(state) => Ok(state.created),
            Err(error) if error.is_not_found() => {
                topology::ensure_stream(client, subject::DLQ).await?;
                Ok(inspect::stream_state(client, subject::DLQ).await?.created)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn all(&self, which: Which, term: &CancellationToken) -> Result<u64, Fault> {
        let Parts {
            config,
            store,
            handle,
            ..
        } = &self.parts;
        let mut moved = 0;
        while !term.is_cancelled() {
            let page = store
                .unfiled_dead_letters(which, config.letters_at_once, config.letter_bytes)
                .await?;
            let Unfiled {
                letters,
                unfit,
                at: Some(at),
            } = page
            else {
                break;
            };
            let (mut filed, fault) = self.publish(letters).await;
            handle.add(Count::Unfit, unfit.len() as u64);
            filed.extend(unfit.into_iter().map(|series| (series, None)));
            let marked = store.mark_dead_lettered(&filed, at).await?;
            handle.add(Count::DeadLettered, marked.first);
            handle.add(Count::PutAgain, marked.again);
            moved += marked.first + marked.again;
            if let Some(fault) = fault {
                return Err(fault);
            }
        }
        Ok(moved)
    }

    /// Publishes a page. Answers what is in the stream with its sequence, and what never will be
    /// without one; and a fault where some of it was not confirmed.
    async fn publish(
        &self,
        letters: Vec<DeadLetter>,
    ) -> (Vec<(Series, Option<u64>)>, Option<Fault>) {
        let handle = &self.parts.handle;
        let mut filed = Vec::with_capacity(letters.len());
        let mut large = Vec::new();
        let mut open = Vec::new();
        for (letter, result) in self.sent(letters).await {
            match result {
                Err(PublishError::Permanent(NatsError::TooLarge { .. })) => {
                    large.push(letter.without_payload());
                }
                result => sort(&letter, result, handle, &mut filed, &mut open),
            }
        }
        if !large.is_empty() {
            for (letter, result) in self.sent(large).await {
                if result.is_ok() {
                    handle.add(Count::Stripped, 1);
                }
                sort(&letter, result, handle, &mut filed, &mut open);
            }
        }
        let count = open.len();
        let fault = open.pop().map(|source| Fault::Publish { count, source });
        (filed, fault)
    }

    async fn sent(
        &self,
        letters: Vec<DeadLetter>,
    ) -> Vec<(DeadLetter, Result<PubAck, PublishError>)> {
        let messages = letters
            .iter()
            .map(|letter| Outgoing {
                subject: letter.subject(),
                headers: letter.headers(),
                payload: letter.payload.clone(),
            })
            .collect();
        let give_up = Instant::now() + self.parts.config.publish_within;
        let results = self.parts.publisher.publish_all(messages, give_up).await;
        letters.into_iter().zip(results).collect()
    }
}

fn sort(
    letter: &DeadLetter,
    result: Result<PubAck, PublishError>,
    handle: &crate::Handle,
    filed: &mut Vec<(Series, Option<u64>)>,
    open: &mut Vec<PublishError>,
) {
    let series = Series {
        key: letter.key,
        series: letter.series,
    };
    match result {
        Ok(ack) => filed.push((series, Some(ack.sequence))),
        Err(fault) if fault.is_transient() => open.push(fault),
        Err(fault) => {
            let (message, endpoint) = (letter.key.message, letter.key.endpoint);
            error!(%message, %endpoint, %fault, "a dead letter can't be put into DLQ, the ledger keeps it");
            handle.add(Count::Unfit, 1);
            filed.push((series, None));
        }
    }
}
