//! What the adopter's JetStream consumers gave up: the broker's word becomes a failure of the hand-off.
//!
//! A message that was delivered as often as its consumer delivers one stays in `INBOX`, where nobody
//! gets it any more; the failure has its event published again, as a message of its own. An advisory is
//! acknowledged once it is acted upon; one that comes twice counts once.

use std::time::Duration;

use hooklane_core::pace::pause;
use hooklane_nats::{AckToken, Advisory, AdvisoryKind, Client, Error, PullConfig, Puller, stored};
use hooklane_proto::id::InboxId;
use hooklane_proto::{header, subject};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{note, passes};
use crate::Parts;
use crate::pace::Pace;

/// How long a batch waits for more once it has some.
const LINGER: Duration = Duration::from_millis(20);
/// Most advisories of a batch.
const BATCH: usize = 256;

type Failed = (InboxId, u32, String);

/// Acts upon advisories until `term`.
pub(crate) async fn run(parts: Parts, term: CancellationToken) {
    let pull = PullConfig {
        max_bytes: 1 << 20,
        ..PullConfig::default()
    };
    let durable = subject::INBOX_ADVISORIES_DURABLE;
    let mut puller = Puller::new(&parts.client, subject::ADVISORIES, durable, pull);
    while let Some((tokens, advisories)) = take(&mut puller, &term).await {
        let acted = act(&parts, &advisories, &tokens, &term).await;
        for token in tokens {
            match acted {
                true => token.ack().await,
                false => token.nak(None).await,
            }
        }
    }
    puller.stop().await;
}

/// Waits for an advisory and takes what else is there; `None` when told to stop.
async fn take(
    puller: &mut Puller,
    term: &CancellationToken,
) -> Option<(Vec<AckToken>, Vec<Advisory>)> {
    let (mut tokens, mut advisories) = (Vec::new(), Vec::new());
    let mut next = tokio::select! {
        biased;
        () = term.cancelled() => return None,
        message = puller.next() => Some(message),
    };
    let until = Instant::now() + LINGER;
    while let Some(message) = next {
        match Advisory::read(&message.payload) {
            Some(advisory) if advisory.kind == AdvisoryKind::MaxDeliveries => {
                advisories.push(advisory);
            }
            Some(_) => {}
            None => warn!(subject = %message.subject, "an advisory can't be read, it is dropped"),
        }
        tokens.push(message.token);
        next = match tokens.len() < BATCH {
            true => timeout_at(until, puller.next()).await.ok(),
            false => None,
        };
    }
    Some((tokens, advisories))
}

/// Acts upon a batch, however long that takes; `false` when told to stop before it was done.
async fn act(
    parts: &Parts,
    advisories: &[Advisory],
    tokens: &[AckToken],
    term: &CancellationToken,
) -> bool {
    let mut pace = Pace::new();
    loop {
        let wait = match failures(&parts.client, advisories).await {
            Err(fault) => pace.broker("looking at what consumers of INBOX gave up", &fault),
            Ok(failed) if failed.is_empty() => return true,
            Ok(failed) => match parts.store.inbox_failed(parts.clock.now(), &failed).await {
                Ok(failures) => {
                    note(parts, &failures);
                    return true;
                }
                Err(fault) => {
                    let wait = pace.bad("noting what consumers of INBOX gave up", &fault);
                    if !passes(&fault) {
                        return true;
                    }
                    wait
                }
            },
        };
        if !pause(wait, term).await {
            return false;
        }
        for token in tokens {
            token.progress().await;
        }
    }
}

/// Which events these messages were of. One that is not there any more was too old to matter.
async fn failures(client: &Client, advisories: &[Advisory]) -> Result<Vec<Failed>, Error> {
    let mut failed = Vec::with_capacity(advisories.len());
    for advisory in advisories {
        let sequence = advisory.sequence;
        let message = match stored::get(client, subject::INBOX, sequence).await {
            Ok(Some(message)) if message.stored_at <= advisory.at => message,
            Ok(_) => {
                info!(sequence, "what a consumer gave up is not in INBOX any more");
                continue;
            }
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        let id = message.header(header::INBOX_EVENT);
        let Some(id) = id.and_then(|id| id.parse().ok()) else {
            warn!(sequence, subject = %message.subject, "what a consumer gave up is no event of ours");
            continue;
        };
        let attempt = message.header(header::INBOX_ATTEMPT);
        let attempt = attempt.and_then(|text| text.parse().ok()).unwrap_or(1);
        let consumer = &advisory.consumer;
        failed.push((
            id,
            attempt,
            format!("the JetStream consumer `{consumer}` gave it up"),
        ));
    }
    Ok(failed)
}
