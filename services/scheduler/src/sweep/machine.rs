//! The proof that a delivery is lost. Pure: knows no broker and no clock.
//!
//! A delivery that the ledger has as `received` is under way in one of three streams, and only ever
//! moves forward: an event in `EVENTS` is settled by its fan-out once every copy is in `DELIVERIES`
//! (or a park is in `RECORDS`); a copy leaves `DELIVERIES` once its record is in `RECORDS`; a record
//! leaves `RECORDS` once the ledger has it. So:
//!
//! 1. note the end of `EVENTS` and the leader's time t0; wait until this partition's fan-out has
//!    nothing unsettled at or below it;
//! 2. only then note the end of `DELIVERIES`; wait until it holds nothing of this partition at or
//!    below it;
//! 3. only then note the end of `RECORDS`; wait until it holds nothing of this partition at or below
//!    it.
//!
//! What was anywhere before t0 has passed all three by then and is in the ledger. A copy that was
//! not anywhere at t0 can't come any more once its not-after lies before t0: readers drop what the
//! broker stored later than that. So whatever is still `received` with a not-after before t0, less a
//! grace for clocks that differ, is lost. A younger delivery is left to the next sweep.
//!
//! A stream that was made anew since its end was noted holds nothing of what was noted: its stage is
//! done. What can't be seen proves nothing, and the machine waits.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// What the machine wants to know next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// The end of `EVENTS`, and its leader's time.
    EventsEnd,
    /// Whether the partition's fan-out has anything unsettled there.
    EventsRest {
        /// This sequence or one below.
        at_or_below: u64,
    },
    /// The end of `DELIVERIES`.
    DeliveriesEnd,
    /// Whether it holds anything of the partition there.
    DeliveriesRest {
        /// This sequence or one below.
        at_or_below: u64,
    },
    /// The end of `RECORDS`.
    RecordsEnd,
    /// Whether it holds anything of the partition there.
    RecordsRest {
        /// This sequence or one below.
        at_or_below: u64,
    },
}

/// What was seen, by the stream's leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// A stream's end.
    End {
        /// When the stream was made, which tells it from one made anew.
        created: DateTime<Utc>,
        /// Its last sequence.
        sequence: u64,
        /// The leader's time then.
        at: DateTime<Utc>,
    },
    /// What is left of it.
    Rest {
        /// When the stream was made, asked after the rest.
        created: DateTime<Utc>,
        /// Whether there is anything left.
        left: bool,
    },
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to ask at once.
    Next,
    /// Ask the same again later.
    Wait,
    /// The proof is complete, and the machine begins anew.
    Lost(Horizon),
}

/// Where what is proved ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Horizon {
    /// Lost is what has a not-after before this,
    pub(super) not_after: DateTime<Utc>,
    /// and was driven before this.
    pub(super) driven_before: DateTime<Utc>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Events,
    Deliveries,
    Records,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    created: DateTime<Utc>,
    sequence: u64,
}

/// One partition's sweep.
#[derive(Debug)]
pub(super) struct Machine {
    grace: TimeDelta,
    stage: Stage,
    /// The end of the stage's stream, once it is noted.
    mark: Option<Mark>,
    /// The leader's time when the sweep began.
    t0: Option<DateTime<Utc>>,
}

impl Machine {
    pub(super) fn new(grace: Duration) -> Self {
        Self {
            grace: TimeDelta::from_std(grace).unwrap_or(TimeDelta::MAX),
            stage: Stage::Events,
            mark: None,
            t0: None,
        }
    }

    /// What to look at now.
    pub(super) fn ask(&self) -> Ask {
        match (self.stage, self.mark) {
            (Stage::Events, None) => Ask::EventsEnd,
            (Stage::Deliveries, None) => Ask::DeliveriesEnd,
            (Stage::Records, None) => Ask::RecordsEnd,
            (stage, Some(mark)) => {
                let at_or_below = mark.sequence;
                match stage {
                    Stage::Events => Ask::EventsRest { at_or_below },
                    Stage::Deliveries => Ask::DeliveriesRest { at_or_below },
                    Stage::Records => Ask::RecordsRest { at_or_below },
                }
            }
        }
    }

    /// Takes the answer to [`Machine::ask`].
    pub(super) fn see(&mut self, seen: Seen) -> Step {
        match (self.mark, seen) {
            (
                None,
                Seen::End {
                    created,
                    sequence,
                    at,
                },
            ) => {
                self.mark = Some(Mark { created, sequence });
                self.t0.get_or_insert(at);
                Step::Next
            }
            (Some(mark), Seen::Rest { created, left }) => {
                if left && created == mark.created {
                    return Step::Wait;
                }
                self.mark = None;
                self.forward()
            }
            // An answer to another question proves nothing.
            _ => Step::Wait,
        }
    }

    /// The stage is done.
    fn forward(&mut self) -> Step {
        self.stage = match self.stage {
            Stage::Events => Stage::Deliveries,
            Stage::Deliveries => Stage::Records,
            Stage::Records => {
                self.stage = Stage::Events;
                let before = self
                    .t0
                    .take()
                    .and_then(|t0| t0.checked_sub_signed(self.grace));
                return match before {
                    Some(before) => Step::Lost(Horizon {
                        not_after: before,
                        driven_before: before,
                    }),
                    None => Step::Wait,
                };
            }
        };
        Step::Next
    }
}
