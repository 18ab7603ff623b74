//! The broker's word: what is exhausted is taken off, and a terminated message says that a delivery
//! failed.
//!
//! An advisory is acknowledged once it is acted upon. One that is lost is made up for by the ledger
//! and by the lookout, one that comes twice finds nothing left to do.

use std::time::Duration;

use hooklane_core::pace::pause;
use hooklane_nats::{AckToken, Advisory, AdvisoryKind, Incoming, PullConfig, Puller};
use hooklane_proto::subject;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::Parts;
use crate::exhausted::{self, Suspect};
use crate::pace::Pace;
use crate::stats::Count;

/// How long a batch waits for more once it has some.
const LINGER: Duration = Duration::from_millis(20);
/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Acts upon advisories until told to stop.
pub(crate) async fn run(parts: Parts, term: CancellationToken) {
    let pull = PullConfig {
        max_bytes: 1 << 20,
        ..PullConfig::default()
    };
    let mut puller = Puller::new(
        &parts.client,
        subject::ADVISORIES,
        subject::ADVISORIES_DURABLE,
        pull,
    );
    while let Some(batch) = take(&mut puller, &parts, &term).await {
        if act(&parts, &batch, &term).await {
            for token in batch.tokens {
                token.ack().await;
            }
        } else {
            for token in batch.tokens {
                token.nak(None).await;
            }
        }
    }
    puller.stop().await;
}

#[derive(Default)]
struct Batch {
    tokens: Vec<AckToken>,
    suspects: Vec<Suspect>,
    terminated: bool,
}

impl Batch {
    fn add(&mut self, message: Incoming, parts: &Parts) {
        parts.handle.add(Count::Advisories, 1);
        self.tokens.push(message.token);
        let Some(advisory) = Advisory::read(&message.payload) else {
            warn!(subject = %message.subject, "an advisory can't be read, it is dropped");
            return;
        };
        match (advisory.kind, advisory.stream.as_str()) {
            (AdvisoryKind::Terminated, _) => self.terminated = true,
            (AdvisoryKind::MaxDeliveries, subject::DELIVERIES) => self.suspects.push(Suspect {
                sequence: advisory.sequence,
                at: advisory.at,
            }),
            // The inbox's, told to a durable that an earlier release made.
            (AdvisoryKind::MaxDeliveries, subject::INBOX) => {}
            (AdvisoryKind::MaxDeliveries, stream) => {
                // It stops nothing where it is, and its deliveries are found by the sweep.
                warn!(
                    stream,
                    sequence = advisory.sequence,
                    "an event was never fanned out, its deliveries are driven from the ledger"
                );
                parts.handle.add(Count::StuckEvents, 1);
            }
        }
    }
}

/// Waits for an advisory and takes what else is there; `None` when told to stop.
async fn take(puller: &mut Puller, parts: &Parts, term: &CancellationToken) -> Option<Batch> {
    let mut batch = Batch::default();
    let first = tokio::select! {
        biased;
        () = term.cancelled() => return None,
        message = puller.next() => message,
    };
    batch.add(first, parts);
    let until = Instant::now() + LINGER;
    while batch.tokens.len() < parts.config.exhausted_at_once as usize {
        match timeout_at(until, puller.next()).await {
            Ok(message) => batch.add(message, parts),
            Err(_elapsed) => break,
        }
    }
    Some(batch)
}

/// Acts upon a batch, however long that takes; `false` when told to stop before it was done.
async fn act(parts: &Parts, batch: &Batch, term: &CancellationToken) -> bool {
    if batch.terminated {
        parts.look.notify_one();
    }
    let mut pace = Pace::new(FIRST_PAUSE);
    while !batch.suspects.is_empty() {
        let taken = tokio::select! {
            biased;
            () = term.cancelled() => return false,
            taken = exhausted::take_off(parts, &batch.suspects) => taken,
        };
        match taken {
            Ok(()) => break,
            Err(fault) => {
                let wait = pace.bad("taking exhausted messages off", &fault);
                if !pause(wait, term).await {
                    return false;
                }
                for token in &batch.tokens {
                    token.progress().await;
                }
            }
        }
    }
    true
}
