//! One endpoint's lane: the actor around the machine.
//!
//! Owns turning messages into the machine's inputs and carrying its effects out: starting
//! attempts, making records, giving messages back, telling the broker what is still in hand, one
//! timer. Does not own any decision about when (the [`machine`]'s), how an attempt is made
//! ([`crate::attempt`]), or its own restart (the fan-out's, its supervisor).
//!
//! No handler waits for I/O. Attempts are tasks in a set that ends with the actor; every ending
//! comes back through the [`inbox`]. The mailbox is bounded by what travels in it: every delivery
//! holds a permit of its partition.

pub(crate) mod gauge;
pub(crate) mod hand;
mod inbox;
pub(crate) mod machine;
pub(crate) mod settle;
mod timer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hooklane_core::clock;
use hooklane_proto::id::EndpointId;
use hooklane_proto::record::ParkReason;
use hooklane_proto::room::Room;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;
use tracing::{Instrument as _, error, info_span};

use crate::budget::{Slot, Standing, Waiter};
use crate::fanout;
use crate::fanout::room::Collector;
use crate::grip::nak_all;
use crate::partition::Context;
use crate::records::{Entry, Owner};
use crate::routes::Known;
use crate::timebase::Now;
use gauge::Gauge;
use hand::{Flight, Hand, Held};
use inbox::{Ender, Ending, Inbox};
use machine::{Arrival, Effects, End, Input, Limits, Machine, Settle, Share, Ticket};
use timer::Timer;

pub(crate) use settle::park;

/// How often a lane looks whether the broker has to be told what is in hand.
const LOOK: Duration = Duration::from_secs(1);

/// What a lane is told.
pub(crate) enum Msg {
    /// Deliveries came.
    Arrived(Vec<Held>),
    /// Attempts ended; they are in the inbox.
    Ended,
    /// Settings came.
    Settings(Arc<Known>),
    /// The timer of this generation.
    Wake(u64),
    /// An attempt's permit may be had.
    Permit,
    /// The scheduler asks for room; so much is promised already.
    Room(Arc<Collector>, u32),
    /// The fan-out wants a fresh gauge.
    Refresh,
    /// Start nothing more; say when nothing is in flight.
    Drain,
    /// Fails.
    #[cfg(test)]
    Panic,
}

/// The actor.
pub(crate) struct Lane;

/// What a lane starts with.
pub(crate) struct Args {
    pub(crate) context: Arc<Context>,
    pub(crate) endpoint: EndpointId,
    pub(crate) hand: Arc<Hand>,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) fanout: ActorRef<fanout::Msg>,
    /// It takes the place of one that failed.
    pub(crate) restarted: bool,
}

/// The actor's state.
pub(crate) struct State {
    context: Arc<Context>,
    endpoint: EndpointId,
    fanout: ActorRef<fanout::Msg>,
    machine: Machine,
    known: Option<Arc<Known>>,
    hand: Arc<Hand>,
    gauge: Arc<Gauge>,
    inbox: Arc<Inbox>,
    bell: Arc<Bell>,
    attempts: JoinSet<()>,
    next_ticket: u64,
    /// Bytes behind the tickets.
    bytes: usize,
    /// Messages with deliveries taken, for the handshake of an eviction.
    received: u64,
    /// In line for a permit.
    in_line: bool,
    draining: bool,
    idle_since: Duration,
    timer: Timer,
}

/// Wakes a lane that waits for a permit.
struct Bell(ActorRef<Msg>);

impl Waiter for Bell {
    fn wake(&self) -> bool {
        self.0.cast(Msg::Permit).is_ok()
    }
}

impl Actor for Lane {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        args: Args,
    ) -> Result<State, ActorProcessingErr> {
        let Args {
            context,
            endpoint,
            hand,
            gauge,
            fanout,
            restarted,
        } = args;
        let now = context.time.both();
        let limits = Limits {
            horizon: context.config.horizon,
            forget_after: context.config.forget_after,
            cautious: restarted,
        };
        let mut state = State {
            machine: Machine::new(limits, now.at),
            known: None,
            hand,
            gauge,
            inbox: Inbox::new(myself.clone()),
            bell: Arc::new(Bell(myself.clone())),
            attempts: JoinSet::new(),
            next_ticket: 0,
            bytes: 0,
            received: 0,
            in_line: false,
            draining: false,
            idle_since: now.at,
            timer: Timer::default(),
            endpoint,
            fanout,
            context,
        };
        if let Some(known) = state.context.table.get(endpoint) {
            state.learn(now, known);
        }
        state.after(&myself, now, None);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Msg>,
        message: Msg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let now = state.context.time.both();
        let wake_at = match message {
            Msg::Arrived(deliveries) => state.arrived(now, deliveries),
            Msg::Ended => state.ended(now),
            Msg::Settings(known) => state.learn(now, known),
            Msg::Wake(generation) => {
                if generation != state.timer.generation() {
                    return Ok(());
                }
                state.timer.fired();
                state.tell(now);
                state.consider_eviction(now);
                state.step(now, Input::Tick)
            }
            Msg::Permit => {
                state.in_line = false;
                let wake_at = state.step(now, Input::Tick);
                if !state.in_line {
                    state.context.budget.pass_on();
                }
                wake_at
            }
            Msg::Room(collector, promised) => {
                let wake_at = state.step(now, Input::Tick);
                state.answer(now, &collector, promised);
                wake_at
            }
            Msg::Refresh => state.step(now, Input::Tick),
            Msg::Drain => {
                state.draining = true;
                state.step(now, Input::Drain)
            }
            #[cfg(test)]
            Msg::Panic => panic!("asked to fail"),
        };
        state.after(&myself, now, wake_at);
        Ok(())
    }
}

impl State {
    fn arrived(&mut self, now: Now, deliveries: Vec<Held>) -> Option<Duration> {
        self.received += 1;
        self.gauge
            .taken(u32::try_from(deliveries.len()).unwrap_or(u32::MAX));
        let mut arrivals = Vec::with_capacity(deliveries.len());
        let mut hand = self.hand.lock();
        for mut held in deliveries {
            let size = held.grip.size();
            if !self.context.budget.admits(self.bytes, size) {
                self.context
                    .recorder
                    .settle(park(held, ParkReason::NoRoom, None));
                continue;
            }
            held.span = settle::span(&held);
            self.next_ticket += 1;
            let ticket = Ticket(self.next_ticket);
            arrivals.push(Arrival {
                ticket,
                version: held.delivery.endpoint_version,
                pulled: held.pulled,
                deadline: now.at_wall(held.delivery.deadline),
            });
            self.bytes += size;
            hand.insert(ticket, held);
        }
        drop(hand);
        let share = self.context.share().held;
        self.step(now, Input::Arrived { arrivals, share })
    }

    fn ended(&mut self, now: Now) -> Option<Duration> {
        // Reaped here, or the set would keep every attempt there ever was.
        while self.attempts.try_join_next().is_some() {}
        let mut wake_at = None;
        for (ticket, ending) in self.inbox.take() {
            let Some(held) = self.take(ticket) else {
                continue;
            };
            let end = self.conclude(held, ending);
            if let Some(known) = &self.known
                && end != End::Void
            {
                known.attempted(end == End::Timeout);
            }
            wake_at = self.step(now, Input::Ended(ticket, end));
        }
        wake_at
    }

    /// Makes an ended attempt's record, and says what the machine learns.
    fn conclude(&mut self, mut held: Held, ending: Ending) -> End {
        match ending {
            Ending::Made(made) => {
                let crate::attempt::Made { record, end } = *made;
                let reason = settle::terminal(&record, &held);
                held.grip.resize(record.size_hint());
                let owner = match reason {
                    Some(reason) => Owner::Term(held.grip, reason),
                    None => Owner::Ack(held.grip),
                };
                self.context.recorder.settle(Entry { record, owner });
                end
            }
            Ending::Unmade => {
                self.release(vec![held]);
                End::Void
            }
            Ending::Lost => {
                error!(endpoint = %self.endpoint, message = %held.delivery.key.message, "an attempt's task failed");
                let later = settle::after_fault();
                self.context
                    .recorder
                    .settle(park(held, ParkReason::Fault, Some(later)));
                End::Void
            }
        }
    }

    fn learn(&mut self, now: Now, known: Arc<Known>) -> Option<Duration> {
        let settings = known.settings(now);
        let newer = |old: &Arc<Known>| old.route.version < known.route.version;
        if self.known.as_ref().is_none_or(newer) {
            self.known = Some(known);
        }
        self.step(now, Input::Settings(settings))
    }

    /// Steps the machine and carries out what follows, including the starts that the process
    /// grants permits for.
    fn step(&mut self, now: Now, input: Input) -> Option<Duration> {
        let mut effects = self.machine.step(now.at, input);
        let mut slots: Vec<Slot> = Vec::new();
        loop {
            let Effects {
                start,
                settle,
                wanted,
                wake_at,
            } = effects;
            for ticket in start {
                if let Some(slot) = slots.pop() {
                    self.start(ticket, slot);
                }
            }
            self.settle_all(now, settle);
            // Those that were not needed.
            slots.clear();
            if wanted > 0 {
                slots = self.grant(wanted);
            }
            if slots.is_empty() {
                return wake_at;
            }
            let granted = u32::try_from(slots.len()).unwrap_or(u32::MAX);
            effects = self.machine.step(now.at, Input::Granted(granted));
        }
    }

    fn grant(&mut self, wanted: u32) -> Vec<Slot> {
        let budget = &self.context.budget;
        let known = self.known.as_ref();
        let standing = known.map_or(Standing::Unknown, |known| known.standing());
        let slots = budget.grant(self.machine.in_flight(), wanted, standing);
        if !slots.is_empty() || self.in_line {
            return slots;
        }
        self.in_line = true;
        budget.wait(Arc::clone(&self.bell) as Arc<dyn Waiter>, standing);
        // One may have been given back just before.
        budget.grant(self.machine.in_flight(), wanted, standing)
    }

    fn start(&mut self, ticket: Ticket, slot: Slot) {
        let Some(known) = self.known.clone() else {
            return;
        };
        let mut hand = self.hand.lock();
        let Some(held) = hand.get_mut(&ticket) else {
            return;
        };
        let begun = Arc::new(AtomicBool::new(false));
        held.flight = Some(Flight {
            started_at: clock::now(),
            begun: Arc::clone(&begun),
        });
        let delivery = Arc::clone(&held.delivery);
        let span = info_span!(parent: &held.span, "attempt", number = delivery.attempts + 1);
        drop(hand);
        let context = Arc::clone(&self.context);
        let ender = Ender::new(&self.inbox, ticket);
        self.attempts.spawn(async move {
            // The last moment at which a lost lease can stop it.
            if !context.term.holds() {
                drop(slot);
                return ender.end(Ending::Unmade);
            }
            begun.store(true, Ordering::Release);
            let target = known.target(&context.opener);
            let made = context
                .engine
                .attempt(&delivery, target, &context.cut)
                .instrument(span)
                .await;
            drop(slot);
            ender.end(Ending::Made(Box::new(made)));
        });
    }

    fn settle_all(&mut self, now: Now, settled: Vec<(Ticket, Settle)>) {
        let mut released = Vec::new();
        for (ticket, how) in settled {
            let Some(held) = self.take(ticket) else {
                continue;
            };
            match how {
                Settle::Park { reason, not_before } => {
                    let not_before = not_before.map(|at| now.to_wall(at));
                    self.context.recorder.settle(park(held, reason, not_before));
                }
                Settle::Skip(reason) => self.context.recorder.settle(settle::skip(held, reason)),
                Settle::Release => released.push(held),
            }
        }
        if !released.is_empty() {
            self.release(released);
        }
    }

    fn release(&mut self, released: Vec<Held>) {
        let tokens = released
            .into_iter()
            .flat_map(|held| held.grip.release())
            .collect();
        // Outlives the lane, which is stopped as soon as it holds nothing.
        tokio::spawn(nak_all(tokens));
    }

    fn take(&mut self, ticket: Ticket) -> Option<Held> {
        let held = self.hand.lock().remove(&ticket)?;
        self.bytes = self.bytes.saturating_sub(held.grip.size());
        Some(held)
    }

    /// Tells the broker what has been in hand for a while.
    fn tell(&mut self, now: Now) {
        if !self.context.nats.is_connected() {
            return;
        }
        let every = self.context.config.progress_every;
        for held in self.hand.lock().values_mut() {
            if now.at.saturating_sub(held.told) >= every {
                held.told = now.at;
                held.grip.progress();
            }
        }
    }

    fn answer(&mut self, now: Now, collector: &Collector, promised: u32) {
        // Without settings nothing driven here could start.
        if self.known.is_none() {
            return;
        }
        let room = self.machine.room(now.at, self.context.share());
        let room = room
            .saturating_sub(promised)
            .saturating_sub(self.gauge.coming());
        if room > 0 {
            collector.add(Room {
                endpoint: self.endpoint,
                room,
            });
        }
    }

    fn consider_eviction(&self, now: Now) {
        let idle = now.at.saturating_sub(self.idle_since);
        if idle >= self.context.config.evict_after && self.machine.is_evictable(now.at) {
            let (endpoint, received) = (self.endpoint, self.received);
            // A fan-out that is gone has stopped its lanes.
            let _ = self.fanout.cast(fanout::Msg::Idle { endpoint, received });
        }
    }

    /// What follows every message: the gauge, the timer, the end of a drain.
    fn after(&mut self, myself: &ActorRef<Msg>, now: Now, wake_at: Option<Duration>) {
        let idle = self.machine.is_idle();
        if idle {
            if self.draining {
                let endpoint = self.endpoint;
                let _ = self.fanout.cast(fanout::Msg::Drained { endpoint });
            }
        } else {
            self.idle_since = now.at;
        }
        let share: Share = self.context.share();
        let held_until = self.machine.held_until(now.at).map(|at| now.to_wall(at));
        self.gauge
            .show(self.machine.room(now.at, share), held_until);
        let look = if idle {
            now.at + self.context.config.evict_after
        } else {
            now.at + LOOK
        };
        let at = wake_at.map_or(look, |at| at.min(look));
        self.timer.arm(myself, at, self.context.time.instant(at));
    }
}
