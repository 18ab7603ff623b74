//! Whether what happened is what should have: every committed event at exactly its endpoints, and
//! a ledger that agrees with what the receiver saw.
//!
//! Owns the comparison of three lists: what the generator committed (journal), what the receiver
//! saw (its log) and what the ledger holds (its audit). A crash excuses some differences; this
//! module counts them apart and says which requests they rest on, and the caller, who knows when
//! it killed what, judges them.

mod excuse;

use std::collections::HashMap;

use anyhow::{Context, Result};
use hooklane_proto::id::EndpointId;
use hooklane_store::Store;
use hooklane_store::audit::{self, Finding, Totals};
use serde::Serialize;

use crate::epoch::Epoch;
use crate::journal::{Fate, Journal};
use crate::plan::Plan;
use crate::receiver::{Counters, Seen};
use crate::setup::Endpoints;

pub use excuse::{Excuse, ExcuseKind};

use excuse::Timeouts;

/// Error classes of attempts that never reach a receiver.
const NEVER_ARRIVED: [&str; 7] = [
    "dns",
    "address_refused",
    "connect_refused",
    "connect_timeout",
    "unreachable",
    "tls",
    "own_fault",
];

/// What an attempt's note says where it sent its request twice: a kept connection was just closed.
const SENT_TWICE: &str = "sent once more";

/// What the comparison found.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// (event, endpoint) pairs that should have been delivered.
    pub expected: u64,
    /// Of these, how many the receiver answered with 2xx at least once.
    pub delivered: u64,
    /// Of these, how many it never saw.
    pub missing: u64,
    /// Requests beyond the first that was answered with 2xx, for the same pair.
    pub duplicates: u64,
    /// Requests after one whose answer came when its attempt had timed out; not among the
    /// duplicates.
    pub late: u64,
    /// Requests for events that were rolled back, or never written.
    pub uncommitted: u64,
    /// Requests that no recorded attempt stands for.
    pub unrecorded: u64,
    /// Recorded attempts, of those that should have arrived, that the receiver never saw.
    pub phantoms: u64,
    /// What the receiver counted.
    #[serde(skip)]
    pub counters: Counters,
    /// The ledger's counts.
    #[serde(skip)]
    pub totals: Totals,
    /// Rules of the ledger that are broken.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// The requests that each duplicate and each unrecorded one rests on: see [`Excuse`].
    #[serde(skip)]
    pub excuses: Vec<Excuse>,
}

impl Verdict {
    /// What is wrong where nothing crashed and everything should have been delivered.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.unexcusable();
        let mut zero = |count: u64, what: &str| {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        };
        zero(self.duplicates, "requests repeated after a 2xx (I4)");
        zero(self.unrecorded, "requests without a recorded attempt (I5)");
        for finding in self.findings.iter().filter(|finding| finding.excusable) {
            faults.push(text(finding));
        }
        faults
    }

    /// What is wrong even if something crashed.
    #[must_use]
    pub fn unexcusable(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut zero = |count: u64, what: &str| {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        };
        zero(self.missing, "deliveries never arrived (I1)");
        zero(self.uncommitted, "requests for events never committed");
        zero(self.phantoms, "recorded attempts that were not made (I5)");
        zero(self.counters.bad_signatures, "bad signatures (I7)");
        zero(
            self.counters.bad_payloads,
            "payloads changed on the way (I7)",
        );
        zero(self.counters.strangers, "requests at the wrong endpoint");
        zero(self.counters.malformed, "malformed requests");
        zero(self.totals.rejected, "events set aside");
        for finding in self.findings.iter().filter(|finding| !finding.excusable) {
            faults.push(text(finding));
        }
        faults
    }

    /// What is wrong where everything should have been delivered by now.
    #[must_use]
    pub fn all_sent(&self) -> Vec<String> {
        let Totals {
            received,
            stalled,
            skipped,
            failed,
            cancelled,
            sent,
            ..
        } = self.totals;
        let mut faults = Vec::new();
        if self.delivered != self.expected {
            faults.push(format!(
                "{} of {} deliveries were answered with 2xx",
                self.delivered, self.expected
            ));
        }
        if sent != self.expected || received + stalled + skipped + failed + cancelled != 0 {
            faults.push(format!(
                "of {} deliveries the ledger has {sent} sent, {received} received, {stalled} \
                 stalled, {skipped} skipped, {failed} failed, {cancelled} cancelled (I1)",
                self.expected
            ));
        }
        faults
    }
}

fn text(finding: &Finding) -> String {
    format!(
        "{} {} ({}), such as {}",
        finding.count,
        finding.what,
        finding.invariant,
        finding.sample.join(", ")
    )
}

/// What the receiver saw of one pair, and what the ledger says of it.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    requests: u32,
    answered: u32,
    /// Recorded attempts that must have arrived.
    arrived: u32,
    /// Recorded attempts that may have arrived: cut off or timed out.
    perhaps: u32,
}

/// What is compared, and by what.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Who gets what.
    pub plan: &'a Plan,
    /// What was committed.
    pub journal: &'a Journal,
    /// What the receiver saw.
    pub log: &'a [Seen],
    /// What it counted.
    pub counters: Counters,
    /// The ledger's ids of the plan's endpoints.
    pub endpoints: &'a [EndpointId],
    /// Their settings, in turn; at least one.
    pub settings: &'a [Endpoints],
    /// The run's clock.
    pub epoch: Epoch,
}

/// Compares the three lists.
///
/// # Errors
/// Where the ledger can't be read.
pub async fn verify(run: Run<'_>, store: &Store) -> Result<Verdict> {
    let Run {
        plan,
        journal,
        log,
        counters,
        endpoints,
        settings,
        epoch,
    } = run;
    let mut tallies = vec![Tally::default(); plan.slots()];
    for seen in log {
        let tally = &mut tallies[seen.slot as usize];
        tally.requests += 1;
        tally.answered += u32::from(seen.is_success());
    }
    let index: HashMap<EndpointId, u32> = (0..).zip(endpoints).map(|(n, id)| (*id, n)).collect();
    let mut timeouts = Timeouts::default();
    let mut strays = 0;
    audit::attempts(store, |attempt| {
        let slot = plan
            .ordinal(attempt.message.uuid())
            .zip(index.get(&attempt.endpoint))
            .and_then(|(ordinal, endpoint)| plan.slot(ordinal, *endpoint));
        let Some(slot) = slot else {
            strays += 1;
            return;
        };
        let tally = &mut tallies[slot as usize];
        let (_, endpoint) = plan.pair(slot);
        let timeout = settings[endpoint as usize % settings.len()].timeout;
        timeouts.note(slot, &attempt, timeout, epoch);
        let sent_twice = |detail: &str| detail.contains(SENT_TWICE);
        tally.perhaps += u32::from(attempt.detail.as_deref().is_some_and(sent_twice));
        match attempt.error.as_deref() {
            Some(error) if NEVER_ARRIVED.contains(&error) => {}
            Some(_) => tally.perhaps += 1,
            None => tally.arrived += 1,
        }
    })
    .await
    .context("reading the recorded attempts")?;
    let mut verdict = Verdict {
        expected: 0,
        delivered: 0,
        missing: 0,
        duplicates: 0,
        late: 0,
        uncommitted: 0,
        unrecorded: 0,
        phantoms: strays,
        counters,
        totals: audit::totals(store).await.context("counting the ledger")?,
        findings: audit::findings(store)
            .await
            .context("auditing the ledger")?,
        excuses: Vec::new(),
    };
    for (slot, tally) in (0..).zip(&tallies) {
        let (ordinal, _) = plan.pair(slot);
        if journal.fate(ordinal) != Fate::Committed {
            verdict.uncommitted += u64::from(tally.requests);
            verdict.phantoms += u64::from(tally.arrived);
            continue;
        }
        verdict.expected += 1;
        verdict.delivered += u64::from(tally.answered > 0);
        verdict.missing += u64::from(tally.requests == 0);
        verdict.phantoms += u64::from(tally.arrived.saturating_sub(tally.requests));
        verdict.unrecorded +=
            u64::from(tally.requests.saturating_sub(tally.arrived + tally.perhaps));
    }
    verdict.excuses = excuse::excuses(log, &tallies, timeouts);
    let count = |kind| {
        let excuses = verdict.excuses.iter();
        excuses.filter(|excuse| excuse.kind == kind).count() as u64
    };
    (verdict.duplicates, verdict.late) = (count(ExcuseKind::Repeated), count(ExcuseKind::TooLate));
    Ok(verdict)
}
