//! One endpoint's lane, as a pure state machine: who starts when, and who goes back.
//!
//! # What it owns
//!
//! The order and the moment of attempts to one endpoint: the token bucket, the concurrency cap,
//! the hold that a 429 asks for, the queue of deliveries that wait for one of these, and the rule
//! that nothing waits longer than the horizon. It knows deliveries as [`Ticket`]s with a version
//! and two times; what a ticket stands for, how an attempt is made and how anything is recorded
//! is the shell's business (the lane actor). It knows no tokio, actor, broker or wall clock: time
//! is a [`Duration`] since any fixed origin.
//!
//! # How it is driven
//!
//! [`Machine::step`] takes one [`Input`] and answers [`Effects`]. Starting takes two steps,
//! because the process bounds all lanes' attempts together: effects say how many attempts are
//! [`wanted`](Effects::wanted) now, the shell asks the process for as many permits and comes back
//! with [`Input::Granted`]. [`Effects::wake_at`] is the only timer the lane needs.
//!
//! # The states a delivery passes
//!
//! ```text
//!             ┌────────── newer than the known settings ─────────▶ waiting
//!  arrived ───┤                                                      │ settings arrive
//!             ├────────── takes deliveries ──────▶ queued ◀──────────┤
//!             │                                      │ token, slot, no hold, permit
//!             │                                   in flight ──▶ ended (the shell records it)
//!             └─▶ settled: parked, skipped or released, from anywhere but in flight
//! ```
//!
//! Every ticket leaves by exactly one of `start` and `settle`, at most one horizon after it
//! arrived; a started one ends with exactly one [`Input::Ended`].
//!
//! # Why it decides as it does
//!
//! - *Parking is cheap, holding is not.* The ledger keeps what can't start soon, with its due
//!   time, so that the oldest come first whenever the lane can work again. So the queue is only
//!   as long as what the lane expects to start within the horizon ([`Machine::room`]).
//! - *Timeouts halve the cap, once per round of attempts.* Sixteen attempts that hang together
//!   are one piece of news and not sixteen: only an attempt that was started after the last
//!   halving halves again. Successes grow it back by one a round.
//! - *A hold is followed by a probe.* When the pause that a 429 asked for is over, one attempt
//!   goes first; the others follow when it was answered by anything but another such 429 or a
//!   timeout.
//! - *410 stops the lane at once*, before the ledger has disabled the endpoint and the settings
//!   say so: until newer settings arrive, deliveries are skipped as for a disabled endpoint.
//! - *A delivery past its deadline is parked*: the scheduler fails such rows, set-based.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use hooklane_core::rules::token_bucket::{Rate, TokenBucket, Wait};
use hooklane_proto::record::{ParkReason, SkipReason};
use hooklane_proto::route::State;

mod cap;
mod pace;
#[cfg(test)]
mod tests;
mod types;

use cap::Cap;
use pace::Pace;
pub(crate) use types::{Arrival, Effects, End, Input, Limits, Settings, Settle, Share, Ticket};

/// Deliveries that may wait for settings the lane does not know yet.
pub(crate) const MAX_WAITING: u32 = 256;

#[derive(Debug)]
struct Flight {
    started: Duration,
    probe: bool,
}

/// One endpoint's lane.
#[derive(Debug)]
pub(crate) struct Machine {
    limits: Limits,
    settings: Option<Settings>,
    bucket: TokenBucket,
    cap: Cap,
    pace: Pace,
    held_until: Option<Duration>,
    probing: bool,
    /// The version that a 410 answered: skip until a newer one is known.
    gone_at: Option<i64>,
    draining: bool,
    /// Ready but for a token, a slot, a permit or the end of a hold; ordered by `pulled`.
    queue: VecDeque<Arrival>,
    /// Made for settings that are not known yet; ordered by `pulled`.
    waiting: VecDeque<Arrival>,
    in_flight: HashMap<Ticket, Flight>,
    idle_since: Duration,
}

impl Machine {
    /// A lane that knows nothing of its endpoint yet.
    pub(crate) fn new(limits: Limits, now: Duration) -> Self {
        Self {
            limits,
            settings: None,
            bucket: TokenBucket::new(Rate::Unlimited, now),
            cap: Cap::new(1),
            pace: Pace::new(now),
            held_until: None,
            probing: false,
            gone_at: None,
            draining: false,
            queue: VecDeque::new(),
            waiting: VecDeque::new(),
            in_flight: HashMap::new(),
            idle_since: now,
        }
    }

    /// Takes one input and says what follows.
    pub(crate) fn step(&mut self, now: Duration, input: Input) -> Effects {
        let mut out = Effects::default();
        match input {
            Input::Arrived { arrivals, share } => {
                for arrival in arrivals {
                    self.arrive(now, arrival, share, &mut out);
                }
            }
            Input::Granted(permits) => self.start(now, permits, &mut out),
            Input::Ended(ticket, end) => self.ended(now, ticket, end, &mut out),
            Input::Settings(settings) => self.learn(now, settings, &mut out),
            Input::Tick => {}
            Input::Drain => self.drain(&mut out),
        }
        self.expire(now, &mut out);
        out.wanted = self.startable(now);
        out.wake_at = self.wake_at(now, out.wanted);
        if !self.is_idle() {
            self.idle_since = now;
        }
        out
    }

    /// How many more deliveries it expects to start within the horizon: at its measured pace,
    /// its rate and its share of the process's caps. At least one when it is idle, none while it
    /// is held. An endpoint that takes no deliveries has room, since skipping takes no time.
    pub(crate) fn room(&self, now: Duration, share: Share) -> u32 {
        let free = share.held.saturating_sub(self.held());
        let Some(settings) = self.settings else {
            return free.min(MAX_WAITING.saturating_sub(self.waiting_count()));
        };
        if self.draining || self.is_held(now) {
            return 0;
        }
        if self.refuses(&settings).is_some() {
            return free;
        }
        let cap = self.current_cap().min(share.in_flight.max(1));
        let horizon = self.limits.horizon;
        let ages = self
            .in_flight
            .values()
            .map(|f| now.saturating_sub(f.started));
        let by_slots = self
            .pace
            .starts_within(horizon, now, cap, self.in_flight.len(), ages);
        let by_tokens = match settings.rate {
            Rate::Unlimited => u32::MAX,
            Rate::PerSecond { rate, .. } => {
                let refill = u128::from(rate.get()) * horizon.as_millis() / 1000;
                let refill = u32::try_from(refill).unwrap_or(u32::MAX);
                self.bucket.available(now).saturating_add(refill)
            }
        };
        let queued = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let room = by_slots.min(by_tokens).saturating_sub(queued);
        let least = u32::from(self.is_idle());
        room.max(least).min(free)
    }

    /// When the hold ends, while there is one.
    pub(crate) fn held_until(&self, now: Duration) -> Option<Duration> {
        self.held_until.filter(|&until| until > now)
    }

    /// Attempts in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        u32::try_from(self.in_flight.len()).unwrap_or(u32::MAX)
    }

    /// Deliveries queued or waiting.
    pub(crate) fn held(&self) -> u32 {
        u32::try_from(self.queue.len() + self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// Whether nothing is held or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Whether a new lane in its place would do the same: idle with a full bucket, the full cap,
    /// no hold and no 410 that the settings don't show yet; or idle for very long.
    pub(crate) fn is_evictable(&self, now: Duration) -> bool {
        if !self.is_idle() || self.is_held(now) {
            return false;
        }
        let gone = match (self.gone_at, &self.settings) {
            (Some(version), Some(settings)) => settings.version <= version,
            _ => false,
        };
        let as_new = !gone && !self.probing && self.bucket.is_full(now) && self.cap.is_full();
        as_new || now.saturating_sub(self.idle_since) >= self.limits.forget_after
    }

    fn arrive(&mut self, now: Duration, arrival: Arrival, share: u32, out: &mut Effects) {
        let ticket = arrival.ticket;
        if self.draining {
            out.settle.push((ticket, Settle::Release));
            return;
        }
        let known = self.settings.filter(|s| arrival.version <= s.version);
        let Some(settings) = known else {
            if self.waiting_count() < MAX_WAITING && self.held() < share {
                self.waiting.push_back(arrival);
            } else {
                out.settle.push((ticket, park(ParkReason::UnknownVersion)));
            }
            return;
        };
        if let Some(reason) = self.refuses(&settings) {
            out.settle.push((ticket, Settle::Skip(reason)));
        } else if self.outlasted_by_hold(now, &arrival) {
            out.settle.push((ticket, self.park_held()));
        } else if self.held() >= share {
            out.settle.push((ticket, park(ParkReason::NoRoom)));
        } else {
            self.queue.push_back(arrival);
        }
    }

    fn start(&mut self, now: Duration, permits: u32, out: &mut Effects) {
        for _ in 0..permits.min(self.startable(now)) {
            let Some(arrival) = self.queue.pop_front() else {
                break;
            };
            if arrival.deadline <= now {
                out.settle.push((arrival.ticket, park(ParkReason::Horizon)));
                continue;
            }
            if self.bucket.try_take(now).is_err() {
                self.queue.push_front(arrival);
                break;
            }
            let flight = Flight {
                started: now,
                probe: self.probing,
            };
            self.in_flight.insert(arrival.ticket, flight);
            out.start.push(arrival.ticket);
        }
    }

    fn ended(&mut self, now: Duration, ticket: Ticket, end: End, out: &mut Effects) {
        let Some(flight) = self.in_flight.remove(&ticket) else {
            return;
        };
        if end != End::Void {
            self.pace
                .ended(now, now.saturating_sub(flight.started), end == End::Timeout);
        }
        if flight.probe && !matches!(end, End::Hold(_) | End::Timeout | End::Void) {
            self.probing = false;
        }
        match end {
            End::Success => self.cap.grow(),
            End::Timeout => self.cap.halve(flight.started, now),
            End::Hold(wait) => self.hold(now, now.saturating_add(wait), out),
            End::Gone => {
                self.gone_at = self.settings.map(|s| s.version);
                self.refuse_queue(SkipReason::Disabled, out);
            }
            End::Other | End::Void => {}
        }
    }

    fn learn(&mut self, now: Duration, settings: Settings, out: &mut Effects) {
        if self.settings.is_some_and(|s| settings.version <= s.version) {
            return;
        }
        if self.settings.is_some() {
            self.bucket.reconfigure(settings.rate, now);
            self.cap.set_limit(settings.concurrency);
        } else {
            self.bucket = TokenBucket::new(settings.rate, now);
            self.cap = Cap::new(settings.concurrency);
            if self.limits.cautious && settings.rate != Rate::Unlimited {
                while self.bucket.try_take(now).is_ok() {}
            }
        }
        self.settings = Some(settings);
        if let Some(until) = settings.held_until {
            self.hold(now, until, out);
        }
        let (known, newer): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|arrival| arrival.version <= settings.version);
        self.waiting = newer;
        if !known.is_empty() {
            self.queue.extend(known);
            self.queue.make_contiguous().sort_by_key(|a| a.pulled);
        }
        if let Some(reason) = self.refuses(&settings) {
            self.refuse_queue(reason, out);
        }
    }

    fn hold(&mut self, now: Duration, until: Duration, out: &mut Effects) {
        if until <= now || self.held_until.is_some_and(|held| held >= until) {
            return;
        }
        self.held_until = Some(until);
        self.probing = true;
        let outlasted = |a: &&Arrival| self.outlasted_by_hold(now, a);
        let count = self.queue.iter().take_while(outlasted).count();
        let back = self.park_held();
        out.settle
            .extend(self.queue.drain(..count).map(|a| (a.ticket, back)));
    }

    fn drain(&mut self, out: &mut Effects) {
        self.draining = true;
        let all = self.queue.drain(..).chain(self.waiting.drain(..));
        out.settle.extend(all.map(|a| (a.ticket, Settle::Release)));
    }

    /// Parks what the horizon has passed for.
    fn expire(&mut self, now: Duration, out: &mut Effects) {
        let horizon = self.limits.horizon;
        let due = |a: &Arrival| a.pulled.saturating_add(horizon) <= now;
        for (line, reason) in [
            (&mut self.queue, ParkReason::Horizon),
            (&mut self.waiting, ParkReason::UnknownVersion),
        ] {
            let late = line.iter().take_while(|a| due(a)).count();
            out.settle
                .extend(line.drain(..late).map(|a| (a.ticket, park(reason))));
        }
    }

    fn refuse_queue(&mut self, reason: SkipReason, out: &mut Effects) {
        let all = self.queue.drain(..);
        out.settle
            .extend(all.map(|a| (a.ticket, Settle::Skip(reason))));
    }

    /// Why the endpoint takes no deliveries, if it takes none.
    fn refuses(&self, settings: &Settings) -> Option<SkipReason> {
        match settings.state {
            State::Paused => Some(SkipReason::Paused),
            State::Disabled => Some(SkipReason::Disabled),
            State::Deleted => Some(SkipReason::Deleted),
            State::Active | State::Failing => self
                .gone_at
                .filter(|&version| settings.version <= version)
                .map(|_| SkipReason::Disabled),
        }
    }

    fn is_held(&self, now: Duration) -> bool {
        self.held_until(now).is_some()
    }

    fn outlasted_by_hold(&self, now: Duration, arrival: &Arrival) -> bool {
        self.held_until(now)
            .is_some_and(|until| arrival.pulled.saturating_add(self.limits.horizon) <= until)
    }

    fn park_held(&self) -> Settle {
        Settle::Park {
            reason: ParkReason::Held,
            not_before: self.held_until,
        }
    }

    fn current_cap(&self) -> u32 {
        if self.probing { 1 } else { self.cap.now() }
    }

    fn waiting_count(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    fn free_slots(&self) -> u32 {
        self.current_cap().saturating_sub(self.in_flight())
    }

    fn startable(&self, now: Duration) -> u32 {
        if self.draining || self.is_held(now) || self.queue.is_empty() {
            return 0;
        }
        let queued = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        queued
            .min(self.free_slots())
            .min(self.bucket.available(now))
    }

    fn wake_at(&self, now: Duration, wanted: u32) -> Option<Duration> {
        let horizon = self.limits.horizon;
        let first = [self.queue.front(), self.waiting.front()];
        let expiry = first
            .into_iter()
            .flatten()
            .map(|a| a.pulled.saturating_add(horizon))
            .min();
        if self.queue.is_empty() || wanted > 0 {
            return expiry;
        }
        let next = match self.held_until(now) {
            Some(until) => Some(until),
            // Without a slot, the end of an attempt wakes it.
            None if self.free_slots() == 0 => None,
            // `try_take` on a copy says when the next token comes, without taking one.
            None => match self.bucket.clone().try_take(now) {
                Err(Wait(wait)) => Some(now.saturating_add(wait)),
                Ok(()) => None,
            },
        };
        [expiry, next].into_iter().flatten().min()
    }
}

fn park(reason: ParkReason) -> Settle {
    Settle::Park {
        reason,
        not_before: None,
    }
}
