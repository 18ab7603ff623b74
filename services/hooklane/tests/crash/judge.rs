//! What a crash excuses, and what it does not.
//!
//! A delivery is under way at a kill when its message is still in the broker: until its answer is
//! read, its record is safe and the message is settled. So is one whose event is still there and
//! which the ledger does not know as ended: it may have been parked in the ledger already, from
//! where it is driven, while the event comes again. At a wipe of the store it is under way
//! when the ledger has not taken its end. Both are read at the crash itself, from the broker and
//! from the ledger, so nothing here rests on how long things take.
//!
//! Every endpoint answers every request with success, so a delivery needs one request and one
//! record. Each crash that catches it under way excuses one request more, and one request without
//! a record: the attempt may have been cut, or its record or its settlement lost.
//!
//! In sum it is stricter: a delivery is in flight at a crash when it is under way and had been
//! requested before. There are no more repeated requests than deliveries in flight at the crashes,
//! but for those that were put back before the crash and came again through their event, which are
//! counted by themselves.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use hooklane_proto::id::{EndpointId, MessageId};
use loadtest::plan::Plan;
use loadtest::receiver::Seen;
use loadtest::verify::{ExcuseKind, Verdict};

use crate::broker::Pair;

/// A moment at which things broke.
#[derive(Debug)]
pub(crate) struct Crash {
    /// When, in microseconds since the run began.
    pub(crate) at: u64,
    /// Every delivery that was not settled then, attempted or not.
    pub(crate) open: HashSet<Pair>,
}

/// Who a request was for.
pub(crate) struct Places<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) endpoints: &'a [EndpointId],
}

impl Places<'_> {
    pub(crate) fn pair(&self, request: Seen) -> Pair {
        let (ordinal, endpoint) = self.plan.pair(request.slot);
        (
            MessageId::from_uuid(self.plan.id(ordinal)),
            self.endpoints[endpoint as usize],
        )
    }
}

/// What one delivery had beyond one request and its record.
#[derive(Debug, Clone, Copy, Default)]
struct Excess {
    requests: u64,
    unrecorded: u64,
    /// Crashes that caught it under way.
    crashes: u64,
    /// Those of them before which it had been requested.
    in_flight: u64,
}

impl Excess {
    fn repeated(self) -> u64 {
        self.requests.saturating_sub(1)
    }

    /// Requests that no crash in flight explains.
    fn put_back(self) -> u64 {
        self.repeated().saturating_sub(self.in_flight)
    }

    fn is_excused(self) -> bool {
        self.repeated() <= self.crashes && self.unrecorded <= self.crashes
    }
}

/// What was found, and what is wrong with it.
pub(crate) struct Judgement {
    /// Deliveries that should have been made.
    deliveries: u64,
    /// Deliveries under way, summed over the crashes.
    under_way: u64,
    /// Deliveries in flight, summed over the crashes.
    in_flight: u64,
    /// Requests beyond the first of their delivery.
    repeated: u64,
    /// Those of them whose delivery was not in flight at a crash.
    put_back: u64,
    /// Requests without a record.
    unrecorded: u64,
    /// Deliveries with more of either than the crashes that caught them excuse.
    pub(crate) suspects: Vec<Pair>,
    pub(crate) faults: Vec<String>,
}

impl Judgement {
    pub(crate) fn of(
        verdict: &Verdict,
        log: &[Seen],
        places: &Places<'_>,
        crashes: &[Crash],
    ) -> Self {
        let mut excesses: BTreeMap<Pair, Excess> = BTreeMap::new();
        let mut first: BTreeMap<Pair, u64> = BTreeMap::new();
        for seen in log {
            let pair = places.pair(*seen);
            excesses.entry(pair).or_default().requests += 1;
            let first = first.entry(pair).or_insert(seen.arrived);
            *first = (*first).min(seen.arrived);
        }
        for excuse in &verdict.excuses {
            if excuse.kind == ExcuseKind::Unrecorded {
                let pair = places.pair(excuse.request);
                excesses.entry(pair).or_default().unrecorded += 1;
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
                "{} deliveries were repeated or not recorded more often than crashes caught them, \
                 such as {first:?} with {:?}",
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
            repeated: sum(|excess| excess.repeated()),
            put_back: sum(|excess| excess.put_back()),
            unrecorded: sum(|excess| excess.unrecorded),
            suspects,
            faults,
        }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} deliveries, {} under way at the crashes and {} of them in flight, {} requests \
             repeated and {} of them put back before, {} without a record",
            self.deliveries,
            self.under_way,
            self.in_flight,
            self.repeated,
            self.put_back,
            self.unrecorded
        )
    }
}
