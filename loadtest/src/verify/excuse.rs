//! The requests that differences rest on: those that another followed after a success, and those
//! without a record.
//!
//! A success is one only if the lane can have read it. An answer that came when the time of its
//! attempt was up is not, where the ledger has that attempt as timed out: the lane had given up, and
//! the next request is right.

use std::collections::HashMap;
use std::time::Duration;

use hooklane_store::audit::Attempt;

use super::Tally;
use crate::epoch::Epoch;
use crate::receiver::Seen;

/// The class of attempts that nothing answered in time.
const TIMEOUT: &str = "timeout";
/// How long an answer may take to be read, or a request until it has been, and how far the ledger's
/// clock may be from the run's, in microseconds. Less than the shortest delay before a retry, so that
/// an attempt stands for no request of the next one.
const MARGIN: u64 = 250_000;

/// A difference that only a crash excuses, or an answer that came too late, with the request that it
/// rests on: it must have been under way at the crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excuse {
    /// What it is.
    pub kind: ExcuseKind,
    /// The request.
    pub request: Seen,
}

/// Which difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExcuseKind {
    /// The request was answered with 2xx, and yet another one followed.
    Repeated,
    /// The same, but the answer came when the lane had given up, which takes no crash.
    TooLate,
    /// No attempt in the ledger stands for the request.
    Unrecorded,
}

/// An attempt that waited for its answer as long as it may, in microseconds since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GivenUp {
    /// When it started.
    from: u64,
    /// Until when an answer would have counted.
    deadline: u64,
}

impl GivenUp {
    /// `None` for an attempt that ended in another way, or before its time.
    fn of(attempt: &Attempt, timeout: Duration, epoch: Epoch) -> Option<Self> {
        let timeout = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        let took = u64::try_from(attempt.duration_us).unwrap_or(0);
        if attempt.error.as_deref() != Some(TIMEOUT) || took < timeout {
            return None;
        }
        let from = epoch.micros_at(attempt.started_at);
        Some(Self {
            from,
            deadline: from.saturating_add(timeout),
        })
    }

    /// Whether the request may be this attempt's and ended when nobody waited for its answer any
    /// more.
    fn missed(self, request: Seen) -> bool {
        let is_its = request.arrived + MARGIN >= self.from
            && request.arrived <= self.deadline.saturating_add(MARGIN);
        is_its && request.ended + MARGIN >= self.deadline
    }
}

/// The ledger's attempts that timed out, by their place in the plan.
#[derive(Debug, Default)]
pub(super) struct Timeouts(HashMap<u32, Vec<GivenUp>>);

impl Timeouts {
    /// Notes an attempt if it is one.
    pub(super) fn note(&mut self, slot: u32, attempt: &Attempt, timeout: Duration, epoch: Epoch) {
        if let Some(given_up) = GivenUp::of(attempt, timeout, epoch) {
            self.0.entry(slot).or_default().push(given_up);
        }
    }

    /// Takes out the attempt that did not wait for the request's answer: it stands for no other
    /// request. Gives whether there is one.
    fn take(&mut self, request: Seen) -> bool {
        let Some(attempts) = self.0.get_mut(&request.slot) else {
            return false;
        };
        let found = attempts.iter().position(|attempt| attempt.missed(request));
        found.map(|at| attempts.swap_remove(at)).is_some()
    }
}

/// The requests that something followed which should not have, and those without a record. Which
/// of several requests of a pair has no record can't be told: the last ones are recorded, since
/// nothing cut them off, and so the first ones are taken.
pub(super) fn excuses(log: &[Seen], tallies: &[Tally], mut timeouts: Timeouts) -> Vec<Excuse> {
    let mut by_slot: HashMap<u32, Vec<Seen>> = HashMap::new();
    for seen in log {
        let tally = tallies[seen.slot as usize];
        if tally.requests > 1 || tally.requests > tally.arrived + tally.perhaps {
            by_slot.entry(seen.slot).or_default().push(*seen);
        }
    }
    let mut excuses = Vec::new();
    for (slot, mut requests) in by_slot {
        requests.sort_unstable_by_key(|seen| seen.arrived);
        let tally = tallies[slot as usize];
        let unrecorded = tally.requests.saturating_sub(tally.arrived + tally.perhaps);
        for request in requests.iter().take(unrecorded as usize) {
            excuses.push(Excuse {
                kind: ExcuseKind::Unrecorded,
                request: *request,
            });
        }
        let (_, followed) = requests.split_last().unwrap_or((&requests[0], &[]));
        for request in followed {
            let kind = match timeouts.take(*request) {
                true => ExcuseKind::TooLate,
                false => ExcuseKind::Repeated,
            };
            if request.is_success() {
                excuses.push(Excuse {
                    kind,
                    request: *request,
                });
            }
        }
    }
    excuses
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use hooklane_proto::id::{EndpointId, MessageId};

    use super::*;

    const SECOND: u64 = 1_000_000;
    const TIMEOUT_OF_ALL: Duration = Duration::from_secs(5);

    fn seen(slot: u32, status: u16, arrived: u64) -> Seen {
        Seen {
            slot,
            status,
            arrived,
            ended: arrived + 5,
        }
    }

    /// A request answered after that long, and one more that follows.
    fn answered_after(took: u64) -> [Seen; 2] {
        let first = Seen {
            ended: 10 * SECOND + took,
            ..seen(0, 200, 10 * SECOND)
        };
        [first, seen(0, 200, 28 * SECOND)]
    }

    fn attempt(epoch: Epoch, started: u64, took: u64, error: Option<&str>) -> Attempt {
        let micros = |n: u64| TimeDelta::microseconds(i64::try_from(n).unwrap());
        Attempt {
            message: MessageId::for_test(1),
            endpoint: EndpointId::for_test(1),
            series: 1,
            drive: 1,
            number: 1,
            started_at: epoch.wall() + micros(started),
            duration_us: i64::try_from(took).unwrap(),
            status: None,
            error: error.map(str::to_owned),
            detail: None,
        }
    }

    /// Of what kind the first of two requests is, with that one attempt beside the last one's.
    fn kind_of(log: &[Seen; 2], attempt: impl FnOnce(Epoch) -> Attempt) -> ExcuseKind {
        let epoch = Epoch::begin();
        let mut timeouts = Timeouts::default();
        timeouts.note(0, &attempt(epoch), TIMEOUT_OF_ALL, epoch);
        let found = excuses(log, &[twice()], timeouts);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].request, log[0]);
        found[0].kind
    }

    /// Two requests, each with its attempt.
    fn twice() -> Tally {
        Tally {
            requests: 2,
            answered: 2,
            arrived: 2,
            perhaps: 0,
        }
    }

    #[test]
    fn a_request_after_a_success_rests_on_the_success() {
        let log = [
            seen(0, 200, 10),
            seen(0, 200, 30),
            seen(1, 500, 10),
            seen(1, 200, 20),
        ];
        let found = excuses(&log, &[twice(), twice()], Timeouts::default());
        assert_eq!(
            found,
            [Excuse {
                kind: ExcuseKind::Repeated,
                request: log[0]
            }]
        );
    }

    #[test]
    fn a_request_without_a_record_is_the_first_of_its_pair() {
        let log = [seen(0, 0, 10), seen(0, 200, 30)];
        let tally = Tally {
            requests: 2,
            answered: 1,
            arrived: 1,
            perhaps: 0,
        };
        let found = excuses(&log, &[tally], Timeouts::default());
        assert_eq!(
            found,
            [Excuse {
                kind: ExcuseKind::Unrecorded,
                request: log[0]
            }]
        );
    }

    #[test]
    fn an_answer_after_its_attempt_timed_out_was_too_late() {
        let log = answered_after(5_049_000);
        let timed_out = |epoch| attempt(epoch, 10 * SECOND, 5_002_000, Some("timeout"));
        assert_eq!(kind_of(&log, timed_out), ExcuseKind::TooLate);
        // The lane's clock starts before the request arrives.
        let connected_late = |epoch| attempt(epoch, 8 * SECOND, 5_002_000, Some("timeout"));
        let log = answered_after(3_100_000);
        assert_eq!(kind_of(&log, connected_late), ExcuseKind::TooLate);
        // On its way when time was up.
        let log = answered_after(4_990_000);
        assert_eq!(kind_of(&log, timed_out), ExcuseKind::TooLate);
    }

    #[test]
    fn a_late_answer_is_a_success_without_an_attempt_that_timed_out() {
        let log = answered_after(5_049_000);
        let repeated = excuses(&log, &[twice()], Timeouts::default());
        assert_eq!(repeated[0].kind, ExcuseKind::Repeated);
        let took = 5_002_000;
        let kind = kind_of(&log, |epoch| attempt(epoch, 10 * SECOND, took, None));
        assert_eq!(kind, ExcuseKind::Repeated);
        let reset = |epoch| attempt(epoch, 10 * SECOND, took, Some("reset"));
        assert_eq!(kind_of(&log, reset), ExcuseKind::Repeated);
        // Gave up before its time.
        let early = |epoch| attempt(epoch, 10 * SECOND, 4_900_000, Some("timeout"));
        assert_eq!(kind_of(&log, early), ExcuseKind::Repeated);
        // Another request's.
        let other = |epoch| attempt(epoch, 16 * SECOND, took, Some("timeout"));
        assert_eq!(kind_of(&log, other), ExcuseKind::Repeated);
    }

    #[test]
    fn an_answer_in_time_is_a_success_whatever_its_attempt_says() {
        let log = answered_after(4_000_000);
        let timed_out = |epoch| attempt(epoch, 10 * SECOND, 5_002_000, Some("timeout"));
        assert_eq!(kind_of(&log, timed_out), ExcuseKind::Repeated);
    }

    #[test]
    fn an_attempt_that_timed_out_stands_for_one_request() {
        let epoch = Epoch::begin();
        let [late, last] = answered_after(5_049_000);
        let cut_off = Seen {
            status: 0,
            arrived: late.arrived - 1_000,
            ..late
        };
        let tally = Tally {
            requests: 3,
            arrived: 3,
            ..twice()
        };
        let kinds = |count: usize| -> Vec<ExcuseKind> {
            let mut timeouts = Timeouts::default();
            for _ in 0..count {
                let timed_out = attempt(epoch, 10 * SECOND, 5_002_000, Some("timeout"));
                timeouts.note(0, &timed_out, TIMEOUT_OF_ALL, epoch);
            }
            let found = excuses(&[cut_off, late, last], &[tally], timeouts);
            found.iter().map(|excuse| excuse.kind).collect()
        };
        assert_eq!(kinds(1), [ExcuseKind::Repeated]);
        assert_eq!(kinds(2), [ExcuseKind::TooLate]);
    }
}
