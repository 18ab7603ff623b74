//! What a crash excuses, and what it does not.
//!
//! A request is under way from its arrival until its delivery is settled: the answer has been read,
//! its record is on the broker's disk and the message is acknowledged. The receiver sees the
//! request and the answer; the rest takes a moment more, for which [`SETTLING`] stands. A wiped
//! store loses also the records that the ledger had not taken yet, for which [`RECORDING`] stands.

use std::fmt;

use loadtest::receiver::Seen;
use loadtest::verify::{Excuse, ExcuseKind, Verdict};

/// From the answer until the delivery is settled, in microseconds.
const SETTLING: u64 = 1_000_000;
/// From the answer until the attempt is in the ledger, in microseconds.
const RECORDING: u64 = 3_000_000;
/// A request sent just before the kill is read a moment after it, in microseconds.
const ON_THE_WIRE: u64 = 500_000;

/// A moment at which things broke, in microseconds since the run began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crash {
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) is_wipe: bool,
}

impl Crash {
    /// Whether the request was under way then.
    fn caught(&self, request: Seen) -> bool {
        let after = if self.is_wipe { RECORDING } else { SETTLING };
        request.arrived <= self.ended + ON_THE_WIRE && request.ended + after >= self.began
    }
}

/// What was found, and what is wrong with it.
pub(crate) struct Judgement {
    /// Deliveries that should have been made.
    deliveries: u64,
    /// Requests under way at a crash.
    under_way: u64,
    /// Requests repeated after a success.
    repeated: u64,
    /// Requests without a record.
    unrecorded: u64,
    /// The longest that any excused request had been answered before the crash, in microseconds.
    oldest: u64,
    pub(crate) faults: Vec<String>,
}

impl Judgement {
    pub(crate) fn of(verdict: &Verdict, log: &[Seen], crashes: &[Crash]) -> Self {
        let caught = |request: Seen| crashes.iter().any(|crash| crash.caught(request));
        let under_way = log.iter().filter(|seen| caught(**seen)).count() as u64;
        let mut faults = verdict.unexcusable();
        faults.extend(verdict.all_sent());
        let count = |kind| {
            let of_kind = |excuse: &&Excuse| excuse.kind == kind;
            verdict.excuses.iter().filter(of_kind).count() as u64
        };
        let inexcusable: Vec<&Excuse> = verdict
            .excuses
            .iter()
            .filter(|excuse| !caught(excuse.request))
            .collect();
        if let Some(first) = inexcusable.first() {
            faults.push(format!(
                "{} requests were repeated or not recorded although no crash caught them, such as \
                 {first:?} (crashes at {crashes:?})",
                inexcusable.len()
            ));
        }
        // What the ledger finds of the same: attempts after a success, attempts of one number.
        for finding in verdict.findings.iter().filter(|finding| finding.excusable) {
            if finding.count > under_way {
                faults.push(format!(
                    "{} {} ({}), with {under_way} under way at the crashes",
                    finding.count, finding.what, finding.invariant
                ));
            }
        }
        let oldest = verdict
            .excuses
            .iter()
            .map(|excuse| age(excuse.request, crashes))
            .max()
            .unwrap_or(0);
        Self {
            deliveries: verdict.expected,
            under_way,
            repeated: count(ExcuseKind::Repeated),
            unrecorded: count(ExcuseKind::Unrecorded),
            oldest,
            faults,
        }
    }
}

/// How long before the nearest crash the request had been answered.
fn age(request: Seen, crashes: &[Crash]) -> u64 {
    crashes
        .iter()
        .filter(|crash| crash.ended + ON_THE_WIRE >= request.arrived)
        .map(|crash| crash.began.saturating_sub(request.ended))
        .min()
        .unwrap_or(u64::MAX)
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} deliveries, {} requests under way at a crash, {} repeated, {} unrecorded, the oldest \
             of these answered {} ms before its crash",
            self.deliveries,
            self.under_way,
            self.repeated,
            self.unrecorded,
            self.oldest / 1_000
        )
    }
}
