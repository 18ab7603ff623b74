//! From the inbox's outbox to `INBOX`.
//!
//! Rows are published in their order, many at a time but of an entity only one, and deleted once the
//! broker has confirmed them. A crash in between publishes them again under the same id, which the
//! broker drops; what comes later than its memory of ids reaches the adopter twice, with the same
//! event id and sequence. Where one of an entity can't be published, those behind it wait.

use std::collections::HashSet;

use hooklane_core::pace::pause;
use hooklane_nats::{Outgoing, PublishError, Publisher};
use hooklane_store::inbox::Publication;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::rounds::{Lane, lane, rounds};
use super::{event, note, passes};
use crate::Parts;
use crate::pace::Pace;
use crate::stats::Count;

/// What became of a batch.
#[derive(Debug, Default)]
struct Done {
    published: Vec<i64>,
    /// What the stream will never take, and why.
    refused: Vec<(i64, String)>,
    /// Why some were not published.
    fault: Option<PublishError>,
}

/// Publishes until `term`, as the only one.
pub(super) async fn run(parts: Parts, term: CancellationToken) {
    let config = &parts.config.hand_off;
    let publisher = Publisher::new(
        &parts.client,
        config.publish_batch as usize,
        config.publish_batch_bytes as usize,
    );
    let mut pace = Pace::new();
    loop {
        let (limit, bytes) = (config.publish_batch, config.publish_batch_bytes);
        let reading = parts.store.inbox_publications(limit, bytes);
        let read = tokio::select! {
            biased;
            () = term.cancelled() => return,
            read = reading => read,
        };
        let wait = match read {
            Ok(rows) if rows.is_empty() => {
                pace.good();
                config.poll
            }
            Ok(rows) => {
                // Not cut off when told to stop: what is confirmed by then is written down.
                let until = Instant::now() + config.publish_within;
                let done = publish(&publisher, rows, until, &term).await;
                let fault = done.fault.as_ref().map(ToString::to_string);
                if !settle(&parts, done, &term).await {
                    return;
                }
                match fault {
                    None => {
                        pace.good();
                        continue;
                    }
                    Some(fault) => pace.broker("publishing events into INBOX", &fault),
                }
            }
            Err(fault) => pace.bad("reading what is to be published", &fault),
        };
        tokio::select! {
            biased;
            () = term.cancelled() => return,
            () = parts.bells.publish.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn publish(
    publisher: &Publisher,
    rows: Vec<Publication>,
    until: Instant,
    term: &CancellationToken,
) -> Done {
    let mut done = Done::default();
    let mut stuck: HashSet<Lane> = HashSet::new();
    for round in rounds(rows) {
        if term.is_cancelled() {
            break;
        }
        let (mut at, mut messages) = (Vec::new(), Vec::new());
        for row in round {
            let lane = lane(&row);
            if lane.as_ref().is_some_and(|lane| stuck.contains(lane)) {
                continue;
            }
            at.push((row.position, lane));
            let event = event(row.hand_off);
            messages.push(Outgoing {
                subject: event.subject(),
                headers: event.headers(),
                payload: event.body,
            });
        }
        let results = publisher.publish_all(messages, until).await;
        for ((position, lane), result) in at.into_iter().zip(results) {
            match result {
                Ok(_) => done.published.push(position),
                Err(fault) => {
                    stuck.extend(lane);
                    match fault {
                        PublishError::Permanent(error) => {
                            done.refused.push((position, error.to_string()));
                        }
                        fault @ PublishError::GaveUp(_) => done.fault = Some(fault),
                    }
                }
            }
        }
    }
    done
}

/// Writes down what became of a batch, however long that takes; `false` when told to stop before.
async fn settle(parts: &Parts, done: Done, term: &CancellationToken) -> bool {
    let Done {
        published, refused, ..
    } = done;
    let mut pace = Pace::new();
    while !published.is_empty() {
        match parts.store.inbox_published(&published).await {
            Ok(gone) => {
                debug!(events = published.len(), gone, "published events");
                parts.handle.add(Count::Published, gone);
                break;
            }
            Err(fault) => {
                let wait = pace.bad("noting what is published", &fault);
                if !pause(wait, term).await {
                    return false;
                }
            }
        }
    }
    while !refused.is_empty() {
        let now = parts.clock.now();
        match parts.store.inbox_unpublishable(now, &refused).await {
            Ok(failures) => {
                let why = &refused[0].1;
                error!(
                    events = refused.len(),
                    why, "the stream INBOX does not take events"
                );
                note(parts, &failures);
                break;
            }
            Err(fault) => {
                let wait = pace.bad("noting what can't be published", &fault);
                if !passes(&fault) || !pause(wait, term).await {
                    return false;
                }
            }
        }
    }
    true
}
