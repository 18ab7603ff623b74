//! What a crash excuses, and what it does not.
//!
//! A delivery is under way at a kill when its message is still in the broker: until its answer is
//! read, its record is safe and the message is settled. So is one whose event is still there and
//! which the ledger does not know as ended: it may have been parked in the ledger already, from
//! where it is driven, while the event comes again. Where the broker itself is killed that holds for
//! what the ledger knows as ended, too: it may have forgotten which events were acknowledged last,
//! and which copies it had. At a wipe of the store a delivery is under way when the ledger has not
//! taken its end. Both are read at the crash itself, from the broker and
//! from the ledger, so nothing here rests on how long things take.
//!
//! A delivery needs one request that is answered with success, and every request needs a record.
//! Each crash that catches it under way excuses one request more after a success, and one request
//! without a record: the attempt may have been cut, or its record or its settlement lost. (Two, where
//! a request of it was broken off: an attempt sends its request again where a kept connection was
//! just closed.)
//!
//! In sum it is stricter: a delivery is in flight at a crash when it is under way and had been
//! requested before. There are no more repeated requests than deliveries in flight at the crashes,
//! but for those that were put back before the crash and came again through their event, which are
//! counted by themselves.
//!
//! A link that breaks between a lane and an endpoint may hide a success from the lane, which then
//! rightly tries again; that takes no crash, and is counted apart. So is an answer that came when its
//! attempt had timed out, by the ledger.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use anyhow::{Context, Result};
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_store::Store;
use hooklane_store::audit;
use serde::Serialize;

use crate::broker::Pair;
use crate::epoch::Epoch;
use crate::plan::Plan;
use crate::receiver::Seen;
use crate::verify::{ExcuseKind, Verdict};

/// A moment at which things broke.
#[derive(Debug)]
pub struct Crash {
    /// When, in microseconds since the run began.
    pub at: u64,
    /// Every delivery that was not settled then, attempted or not.
    pub open: HashSet<Pair>,
}

/// A time in which an endpoint's answers may not have reached the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hidden {
    /// The endpoint.
    pub endpoint: u32,
    /// Since when, in microseconds since the run began.
    pub from: u64,
    /// Until when.
    pub to: u64,
}

impl Hidden {
    /// Whether a request to the endpoint was open in that time.
    #[must_use]
    pub fn covers(&self, endpoint: u32, request: Seen) -> bool {
        self.endpoint == endpoint && request.arrived <= self.to && request.ended >= self.from
    }
}

/// Who a request was for.
#[derive(Debug)]
pub struct Places<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The ledger's ids of its endpoints.
    pub endpoints: &'a [EndpointId],
}

impl Places<'_> {
    /// The delivery.
    #[must_use]
    pub fn pair(&self, request: Seen) -> Pair {
        let (ordinal, endpoint) = self.plan.pair(request.slot);
        (
            MessageId::from_uuid(self.plan.id(ordinal)),
            self.endpoints[endpoint as usize],
        )
    }
}

/// What one delivery had beyond what it needed.
#[derive(Debug, Clone, Copy, Default)]
struct Excess {
    /// Requests after a success that the lane had seen.
    repeated: u64,
    /// Requests after a success that a broken link may have hidden.
    hidden: u64,
    /// Requests after a success that came too late for the lane.
    late: u64,
    unrecorded: u64,
    /// Requests without an answer.
    broken_off: u64,
    /// Crashes that caught it under way.
    crashes: u64,
    /// Those of them before which it had been requested.
    in_flight: u64,
}

impl Excess {
    /// Requests that no crash in flight explains.
    fn put_back(self) -> u64 {
        self.repeated.saturating_sub(self.in_flight)
    }

    fn is_excused(self) -> bool {
        let again = self.crashes.min(self.broken_off);
        self.repeated <= self.crashes && self.unrecorded <= self.crashes + again
    }
}

/// What was found, and what is wrong with it.
#[derive(Debug, Serialize)]
pub struct Judgement {
    /// Deliveries that should have been made.
    pub deliveries: u64,
    /// Deliveries under way, summed over the crashes.
    pub under_way: u64,
    /// Deliveries in flight, summed over the crashes.
    pub in_flight: u64,
    /// Requests after a success of their delivery.
    pub repeated: u64,
    /// Those of them whose delivery was not in flight at a crash.
    pub put_back: u64,
    /// Requests after a success that a broken link may have hidden; not among the repeated.
    pub hidden: u64,
    /// Requests after a success that came when its attempt had timed out; not among the repeated.
    pub late: u64,
    /// Requests without a record.
    pub unrecorded: u64,
    /// Deliveries with more of either than the crashes that caught them excuse.
    #[serde(skip)]
    pub suspects: Vec<Pair>,
    /// What is wrong.
    #[serde(skip)]
    pub faults: Vec<String>,
}

impl Judgement {
    /// Holds what was found against the crashes and the links that broke.
    #[must_use]
    pub fn of(
        verdict: &Verdict,
        log: &[Seen],
        places: &Places<'_>,
        crashes: &[Crash],
        links: &[Hidden],
    ) -> Self {
        let mut excesses: BTreeMap<Pair, Excess> = BTreeMap::new();
        let mut first: BTreeMap<Pair, u64> = BTreeMap::new();
        for seen in log {
            let pair = places.pair(*seen);
            excesses.entry(pair).or_default().broken_off += u64::from(seen.status == 0);
            let first = first.entry(pair).or_insert(seen.arrived);
            *first = (*first).min(seen.arrived);
        }
        for excuse in &verdict.excuses {
            let excess = excesses.entry(places.pair(excuse.request)).or_default();
            let (_, endpoint) = places.plan.pair(excuse.request.slot);
            let is_hidden = links
                .iter()
                .any(|link| link.covers(endpoint, excuse.request));
            match excuse.kind {
                ExcuseKind::Unrecorded => excess.unrecorded += 1,
                ExcuseKind::TooLate => excess.late += 1,
                ExcuseKind::Repeated if is_hidden => excess.hidden += 1,
                ExcuseKind::Repeated => excess.repeated += 1,
            }
        }
        for (pair, excess) in &mut excesses {
            let caught = || crashes.iter().filter(|crash| crash.open.contains(pair));
            let requested = |crash: &&Crash| first.get(pair).is_some_and(|at| *at <= crash.at);
            excess.crashes = caught().count() as u64;
            excess.in_flight = caught().filter(requested).count() as u64;
        }
        let mut faults = verdict.unexcusable();
        faults.extend(verdict.all_sent());
        let suspects: Vec<Pair> = excesses
            .iter()
            .filter(|(_, excess)| !excess.is_excused())
            .map(|(pair, _)| *pair)
            .collect();
        if let Some(first) = suspects.first() {
            faults.push(format!(
                "{} deliveries were repeated (I4) or not recorded (I5) more often than crashes \
                 caught them, such as {first:?} with {:?}",
                suspects.len(),
                excesses[first]
            ));
        }
        let sum = |of: fn(&Excess) -> u64| excesses.values().map(of).sum::<u64>();
        let under_way = sum(|excess| excess.crashes);
        let in_flight = sum(|excess| excess.in_flight);
        // What the ledger finds of the same: attempts after a success, attempts of one number.
        for finding in verdict.findings.iter().filter(|finding| finding.excusable) {
            if finding.count > under_way {
                faults.push(format!(
                    "{} {} ({}), with {under_way} under way at the crashes",
                    finding.count, finding.what, finding.invariant
                ));
            }
        }
        Self {
            deliveries: verdict.expected,
            under_way,
            in_flight,
            repeated: sum(|excess| excess.repeated),
            put_back: sum(|excess| excess.put_back()),
            hidden: sum(|excess| excess.hidden),
            late: sum(|excess| excess.late),
            unrecorded: sum(|excess| excess.unrecorded),
            suspects,
            faults,
        }
    }
}

/// What the receiver saw, and what the ledger has, of the first few of these deliveries: a line each,
/// with times in seconds since the run began.
///
/// # Errors
/// Where the ledger can't be read.
pub async fn explain(
    pairs: &[Pair],
    log: &[Seen],
    places: &Places<'_>,
    epoch: Epoch,
    store: &Store,
) -> Result<Vec<String>> {
    const FEW: usize = 5;
    let few = &pairs[..pairs.len().min(FEW)];
    let mut lines = Vec::new();
    let seconds = |micros: u64| micros as f64 / 1e6;
    for seen in log {
        let pair = places.pair(*seen);
        if few.contains(&pair) {
            let (ordinal, endpoint) = places.plan.pair(seen.slot);
            let text = format!(
                "event {ordinal} for endpoint {endpoint}: a request from {:.3} s to {:.3} s, \
                 answered {}",
                seconds(seen.arrived),
                seconds(seen.ended),
                seen.status
            );
            lines.push((pair, seen.arrived, text));
        }
    }
    if few.is_empty() {
        return Ok(Vec::new());
    }
    audit::attempts(store, |attempt| {
        let pair = (attempt.message, attempt.endpoint);
        if few.contains(&pair) {
            let started = epoch.micros_at(attempt.started_at);
            let text = format!(
                "  attempt {} of drive {}, series {}, at {:.3} s for {:.3} s: {}{}",
                attempt.number,
                attempt.drive,
                attempt.series,
                seconds(started),
                attempt.duration_us as f64 / 1e6,
                attempt.error.as_deref().unwrap_or("answered "),
                attempt
                    .status
                    .map(|status| status.to_string())
                    .unwrap_or_default()
            );
            lines.push((pair, started, text));
        }
    })
    .await
    .context("reading the recorded attempts")?;
    lines.sort();
    Ok(lines.into_iter().map(|(.., text)| text).collect())
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} deliveries, {} under way at the crashes and {} of them in flight, {} requests \
             after a success and {} of them put back before, {} more after one that a link hid, {} \
             after one that came too late, {} without a record",
            self.deliveries,
            self.under_way,
            self.in_flight,
            self.repeated,
            self.put_back,
            self.hidden,
            self.late,
            self.unrecorded
        )
    }
}
