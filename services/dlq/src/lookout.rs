//! Exhausted messages of which no word came: a message that is still in the work queue although its
//! durable is done with it.
//!
//! One that was just acknowledged looks the same until the stream has removed it, so a message is
//! taken off when it is seen in two searches.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use hooklane_core::pace::pause;
use hooklane_nats::inspect;
use hooklane_proto::subject;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::Parts;
use crate::exhausted::{self, Suspect};
use crate::fault::Fault;
use crate::pace::Pace;

/// Searches until told to stop.
pub(crate) async fn run(parts: Parts, term: CancellationToken) {
    let mut pace = Pace::new(parts.config.search_every);
    let mut lookout = Lookout {
        parts,
        created: None,
        seen: BTreeMap::new(),
    };
    let mut wait = pace.good();
    while pause(wait, &term).await {
        let searched = tokio::select! {
            biased;
            () = term.cancelled() => return,
            searched = lookout.search() => searched,
        };
        wait = match searched {
            Ok(()) => pace.good(),
            Err(fault) => pace.bad("searching for exhausted messages", &fault),
        };
    }
}

struct Lookout {
    parts: Parts,
    /// The stream that the sequences are of.
    created: Option<DateTime<Utc>>,
    /// What the last search saw, by partition.
    seen: BTreeMap<u16, BTreeSet<u64>>,
}

impl Lookout {
    async fn search(&mut self) -> Result<(), Fault> {
        let client = &self.parts.client;
        let state = match inspect::stream_state(client, subject::DELIVERIES).await {
            Ok(state) => state,
            // Whoever reads it makes it anew.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if self.created != Some(state.created) {
            self.created = Some(state.created);
            self.seen.clear();
        }
        if state.messages == 0 {
            self.seen.clear();
            return Ok(());
        }
        for partition in 0..client.partitions() {
            self.partition(partition, state.server_time).await?;
        }
        Ok(())
    }

    async fn partition(&mut self, partition: u16, now: DateTime<Utc>) -> Result<(), Fault> {
        let client = &self.parts.client;
        let limit = self.parts.config.exhausted_at_once as usize;
        let durable = subject::lanes_durable(partition);
        let subjects = subject::deliveries_of(partition);
        let stream = subject::DELIVERIES;
        let found = inspect::exhausted(client, stream, &durable, &subjects, limit);
        let found: BTreeSet<u64> = match found.await {
            Ok(found) => found.into_iter().collect(),
            Err(error) if error.is_not_found() => {
                debug!(partition, %error, "nothing can be exhausted without a durable");
                BTreeSet::new()
            }
            Err(error) => return Err(error.into()),
        };
        let before = self.seen.insert(partition, found).unwrap_or_default();
        let twice: Vec<Suspect> = self.seen[&partition]
            .intersection(&before)
            .map(|&sequence| Suspect { sequence, at: now })
            .collect();
        if !twice.is_empty() {
            exhausted::take_off(&self.parts, &twice).await?;
        }
        Ok(())
    }
}
