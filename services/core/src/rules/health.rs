//! Endpoint health: what attempts, and people, do to an endpoint's state.
//!
//! ```text
//!              5 failures in a row, or a delivery out of retries
//!     active ------------------------------------------------------> failing
//!        ^   <------------------------------------------------------    |
//!        |                         any 2xx                              |
//!        |                                                              | where auto-disable is on: 100
//!        |                                                              | failures in a row over 12 h
//!        |  resume, and the failures are forgotten                      v
//!        +---------------------------------------------------------- disabled
//!        |                                                              ^
//!        +---- paused <-- pause -- active, failing                      | 410, from any state
//!                  \----------------------------------------------------+
//! deleted: from any state, for good; nothing leads out of it
//! ```
//!
//! A run is the failures since the last success. Records come in batches, from several recorders
//! and not quite in order, so attempts are ordered by when they started and not by when they were
//! heard of: inside a batch by sorting, across batches by what [`Health`] remembers of its run.
//! What started before the success or the resume that ended a run is forgotten with it, so a late
//! record can't bring back a state that was left. Where a late success falls into the middle of a
//! run, nobody knows how many failures follow it; the last one does, so that one is kept. A success
//! that ends no run is not remembered: an endpoint that is well costs nothing.
//!
//! A batch makes one transition at the most, from the state before it to the state after it.
//!
//! Owns the states, the run and the count of a day's failures. Does not own rows, nor the news of
//! a transition; time comes in as an argument.

mod hours;
mod manual;
#[cfg(test)]
mod tests;

use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_proto::id::AttemptId;
use hooklane_proto::route::State;
use serde::{Deserialize, Serialize};

use crate::config::Faults;
pub use hours::{HOURS, Hours};
pub use manual::{Action, Refused, act};

/// When an endpoint counts as failing, and when it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Failures in a row that make an endpoint failing, 1 to 1,000.
    pub failing_after: u32,
    /// Whether an endpoint that has been failing for long is disabled, where it has no setting of
    /// its own.
    pub auto_disable: bool,
    /// Failures in a row after which it is, 2 to 1,000,000; both this and the time must be reached.
    pub disable_after_failures: u32,
    /// The time, from the first of them to the last, 1 minute to 30 days.
    #[serde(with = "humantime_serde")]
    pub disable_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            failing_after: 5,
            auto_disable: false,
            disable_after_failures: 100,
            disable_after: Duration::from_secs(12 * 60 * 60),
        }
    }
}

impl Settings {
    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        faults.range("failing_after", self.failing_after, 1..=1_000);
        faults.range(
            "disable_after_failures",
            self.disable_after_failures,
            2..=1_000_000,
        );
        let (minute, month) = (60, 30 * 24 * 60 * 60);
        faults.duration(
            "disable_after",
            self.disable_after,
            Duration::from_secs(minute)..=Duration::from_secs(month),
        );
    }

    /// These, with an endpoint's own word on auto-disable where it has one.
    #[must_use]
    pub fn of_endpoint(self, auto_disable: Option<bool>) -> Self {
        Self {
            auto_disable: auto_disable.unwrap_or(self.auto_disable),
            ..self
        }
    }
}

/// What an attempt says about its endpoint. Our own faults say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 2xx.
    Success,
    /// Anything else, and more attempts follow.
    Failure,
    /// A failure after which its delivery is out of retries.
    Exhausted,
    /// 410: the endpoint wants no more.
    Gone,
}

/// One attempt, as health sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// When the attempt started.
    pub at: DateTime<Utc>,
    /// Which attempt; an outcome given twice counts once.
    pub id: AttemptId,
    /// What it says.
    pub kind: Kind,
}

/// The failures since the last success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// How many, at least 1.
    pub failures: u32,
    /// When the first of them started.
    pub since: DateTime<Utc>,
    /// When the last of them started.
    pub last: DateTime<Utc>,
}

/// What is known of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Its state.
    pub state: State,
    /// Its failures in a row; `None` where the last attempt succeeded, or none is known.
    pub run: Option<Run>,
    /// What started until then is forgotten: a success or a resume came after it.
    pub forgotten_until: Option<DateTime<Utc>>,
    /// Failures by the hour.
    pub hours: Hours,
}

/// Why a state was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Too many failures in a row.
    FailuresInARow,
    /// A delivery ran out of retries.
    DeliveryExhausted,
    /// A success.
    Success,
    /// It answered 410.
    Gone,
    /// It failed for too long.
    FailingTooLong,
}

impl Reason {
    /// Its name in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailuresInARow => "failures_in_a_row",
            Self::DeliveryExhausted => "delivery_exhausted",
            Self::Success => "success",
            Self::Gone => "gone",
            Self::FailingTooLong => "failing_too_long",
        }
    }
}

/// A change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// Why.
    pub reason: Reason,
    /// The run that led to it; of a recovery the run that ended.
    pub run: Option<Run>,
}

impl Health {
    /// An endpoint in this state of which nothing else is known.
    #[must_use]
    pub fn new(state: State) -> Self {
        Self {
            state,
            run: None,
            forgotten_until: None,
            hours: Hours::default(),
        }
    }

    /// Takes in attempts that were not known yet, in any order. What claims to start after `now`
    /// is taken to start now: one bad clock must not silence all that comes later.
    pub fn observe(
        &mut self,
        outcomes: &[Outcome],
        now: DateTime<Utc>,
        settings: &Settings,
    ) -> Option<Transition> {
        let mut outcomes = outcomes.to_vec();
        outcomes.sort_unstable_by_key(|outcome| (outcome.at, outcome.id));
        outcomes.dedup_by_key(|outcome| outcome.id);
        let from = self.state;
        let mut entered = None;
        for outcome in &outcomes {
            let at = outcome.at.min(now);
            if let Some(step) = self.step(at, outcome.kind, settings) {
                entered = Some(step);
            }
        }
        let (reason, run) = entered.filter(|_| self.state != from)?;
        Some(Transition {
            from,
            to: self.state,
            reason,
            run,
        })
    }

    /// Forgets what happened until now, as a resume does.
    pub fn forget(&mut self, now: DateTime<Utc>) {
        self.run = None;
        self.forgotten_until = self.forgotten_until.max(Some(now));
    }

    fn step(
        &mut self,
        at: DateTime<Utc>,
        kind: Kind,
        settings: &Settings,
    ) -> Option<(Reason, Option<Run>)> {
        if self.state == State::Deleted {
            return None;
        }
        if kind != Kind::Success {
            self.hours.add(at);
        }
        if self.forgotten_until.is_some_and(|until| at <= until) {
            return None;
        }
        match (self.state, kind) {
            (State::Deleted | State::Disabled, _) => None,
            (State::Paused, Kind::Gone) => Some(self.disable(Reason::Gone)),
            // What was under way when it was paused; the resume forgets it anyway.
            (State::Paused, _) => None,
            (State::Active | State::Failing, Kind::Success) => self.succeed(at),
            (State::Active | State::Failing, Kind::Gone) => {
                self.fail(at);
                Some(self.disable(Reason::Gone))
            }
            (State::Active | State::Failing, Kind::Failure | Kind::Exhausted) => {
                self.fail(at);
                self.judge(kind, settings)
            }
        }
    }

    fn succeed(&mut self, at: DateTime<Utc>) -> Option<(Reason, Option<Run>)> {
        let run = self.run?;
        self.forgotten_until = Some(at);
        if at < run.since {
            return None;
        }
        self.run = (at < run.last).then_some(Run {
            failures: 1,
            since: run.last,
            last: run.last,
        });
        let recovered = self.state == State::Failing;
        self.state = State::Active;
        recovered.then_some((Reason::Success, Some(run)))
    }

    fn fail(&mut self, at: DateTime<Utc>) {
        let run = self.run.get_or_insert(Run {
            failures: 0,
            since: at,
            last: at,
        });
        run.failures = run.failures.saturating_add(1);
        run.since = run.since.min(at);
        run.last = run.last.max(at);
    }

    /// Whether the run that just grew is too long.
    fn judge(&mut self, kind: Kind, settings: &Settings) -> Option<(Reason, Option<Run>)> {
        let run = self.run?;
        let mut entered = None;
        if self.state == State::Active {
            let reason = match kind {
                Kind::Exhausted => Reason::DeliveryExhausted,
                _ if run.failures >= settings.failing_after => Reason::FailuresInARow,
                _ => return None,
            };
            self.state = State::Failing;
            entered = Some((reason, self.run));
        }
        let lasted = (run.last - run.since).to_std().unwrap_or_default();
        if settings.auto_disable
            && run.failures >= settings.disable_after_failures
            && lasted >= settings.disable_after
        {
            return Some(self.disable(Reason::FailingTooLong));
        }
        entered
    }

    fn disable(&mut self, reason: Reason) -> (Reason, Option<Run>) {
        self.state = State::Disabled;
        (reason, self.run)
    }
}
