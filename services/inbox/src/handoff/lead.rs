//! Having the lead: of several processes one publishes, so that events keep their order.
//!
//! The lead's session is checked every few seconds; once it is lost, or publishing ends, the lead is
//! sought again. Two leaders for a moment publish the same rows in the same order, and the broker drops
//! what it has.

use std::time::Duration;

use hooklane_core::pace::pause;
use hooklane_store::leader::{Leadership, Led};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::publish;
use crate::Parts;
use crate::pace::Pace;

/// A session that does not answer for so long is lost.
const CHECK: Duration = Duration::from_secs(5);

/// Seeks the lead and publishes while it has it, until `term`.
pub(crate) async fn run(parts: Parts, term: CancellationToken) {
    let mut pace = Pace::new();
    loop {
        let taking = parts.store.lead(Led::Inbox);
        let taken = tokio::select! {
            biased;
            () = term.cancelled() => return,
            taken = taking => taken,
        };
        let wait = match taken {
            Ok(Some(lead)) => {
                pace.good();
                info!("this inbox publishes");
                work(&parts, lead, &term).await;
                parts.config.hand_off.lead_every
            }
            Ok(None) => {
                pace.good();
                parts.config.hand_off.lead_every
            }
            Err(fault) => pace.bad("taking the lead of publishing", &fault),
        };
        if !pause(wait, &term).await {
            return;
        }
    }
}

/// Publishes until the lead is lost or `term`.
async fn work(parts: &Parts, mut lead: Leadership, term: &CancellationToken) {
    let ours = term.child_token();
    let publishing = tokio::spawn(publish::run(parts.clone(), ours.clone()));
    let mut publishing = AbortOnDropHandle::new(publishing);
    loop {
        let ended = tokio::select! {
            biased;
            ended = &mut publishing => Some(ended),
            () = tokio::time::sleep(parts.config.hand_off.lead_every) => None,
        };
        match ended {
            Some(Ok(())) => return,
            Some(Err(error)) => {
                warn!(%error, "publishing ended early");
                return;
            }
            None => {}
        }
        match timeout(CHECK, lead.check()).await {
            Ok(Ok(())) => continue,
            Ok(Err(fault)) => warn!(%fault, "the lead of publishing is lost"),
            Err(_elapsed) => {
                warn!("the lead of publishing is lost: its session does not answer");
            }
        }
        ours.cancel();
        if let Err(error) = publishing.await {
            warn!(%error, "publishing ended early");
        }
        return;
    }
}
