//! A partition's fan-out: the actor that copies events to lanes and supervises the lanes.
//!
//! # What it does
//!
//! - *Events.* For each endpoint that an event names it decides: a copy to `DELIVERIES`, or a
//!   parked record where the lane has no room, is held, is down, or has a backlog in the ledger.
//!   When every part is safe the event is acknowledged, and also when the broker refused copies for
//!   too long ([`copies`]). An event that comes again, from a lease that moved or a broker that
//!   forgot, is copied to every endpoint: what was copied before the broker drops by its id, while a
//!   park beside that copy would have it driven twice.
//! - *Deliveries.* It hands them to their lanes, and starts a lane on its first.
//! - *Room.* It asks the lanes for the scheduler, keeps what they answer, and remembers which
//!   endpoints were named: their new events go behind their backlog.
//! - *Lanes that fail.* Supervision is one for one. What a failed lane held is recorded: queued
//!   deliveries parked as a fault of ours, attempts under way as interrupted (if the POST had
//!   begun). The next delivery starts the lane anew, with an empty token bucket. A lane that fails
//!   too often stays down for a while, and its deliveries are parked.
//! - *Idle lanes.* A lane says that it could go; it goes if nothing was sent to it meanwhile.
//!
//! # States
//!
//! `running` until it is told to drain; `draining` until every lane has nothing in flight and
//! every event under way is settled; then it says so and is stopped. While draining whatever still
//! comes is given back to the broker.
//!
//! # Edge cases
//!
//! A process that was suspended may have been sent events meanwhile that the next owner has fanned
//! out since. That one may have parked what would be copied here, and the ledger driven it again: a
//! copy would be attempted beside that drive. So without the lease no event is fanned out.
//!
//! A lane that failed loses its mailbox: what was in it naks by being dropped and comes again. An
//! eviction and a delivery may cross: the lane tells how many messages it has had, and the fan-out
//! compares. No handler waits for I/O: publishing is a task, and its ending is a message.

pub(crate) mod copies;
pub(crate) mod door;
pub(crate) mod room;
mod supervise;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hooklane_proto::event::Target;
use hooklane_proto::id::EndpointId;
use hooklane_proto::record::ParkReason;
use hooklane_proto::room::{Reply, Request, Room};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{error, info, warn};

use crate::grip::nak_all;
use crate::lane::gauge::Gauge;
use crate::lane::hand::{Hand, Held};
use crate::lane::settle::{after_fault, park};
use crate::lane::{self, Lane};
use crate::partition::Context;
use crate::routes::Known;
use copies::{Decision, HeldEvent, Job};
use door::{Backlog, Door};
use room::Collector;
use supervise::Told;

/// A lane without room is asked for a fresh look at most this often.
const REFRESH: Duration = Duration::from_millis(100);

/// What a fan-out is told.
pub(crate) enum Msg {
    /// Events came.
    Events(Vec<HeldEvent>),
    /// Deliveries came.
    Deliveries(Vec<Held>),
    /// The events of this fence are settled; copies to these endpoints will not come.
    Published { fence: u64, lost: Vec<EndpointId> },
    /// An endpoint's settings changed.
    Settings(Arc<Known>),
    /// Changes were missed: look at everything anew.
    AllSettings,
    /// The scheduler asks for room.
    Room(Request, oneshot::Sender<Reply>),
    /// All lanes have answered.
    Answered {
        rooms: Vec<Room>,
        reply: oneshot::Sender<Reply>,
    },
    /// A lane could go; it had so many messages.
    Idle { endpoint: EndpointId, received: u64 },
    /// A draining lane has nothing in flight.
    Drained { endpoint: EndpointId },
    /// Start nothing more; say when everything under way has ended.
    Drain(oneshot::Sender<()>),
    /// Fails a lane.
    #[cfg(test)]
    PanicLane(EndpointId),
}

/// The way to a fan-out.
pub(crate) type Ref = ActorRef<Msg>;

/// Why a fan-out can't be started.
pub(crate) type StartError = ractor::SpawnErr;

/// The actor.
struct Fanout;

/// Starts a partition's fan-out; its task ends with it.
///
/// # Errors
/// [`StartError`], which none of its own doing causes.
pub(crate) async fn start(context: Arc<Context>) -> Result<(Ref, JoinHandle<()>), StartError> {
    Fanout::spawn(None, Fanout, context).await
}

/// The actor's state.
struct State {
    context: Arc<Context>,
    lanes: HashMap<EndpointId, Slot>,
    endpoints: HashMap<ActorId, EndpointId>,
    backlog: Backlog<EndpointId>,
    publishing: JoinSet<()>,
    fences: HashSet<u64>,
    next_fence: u64,
    draining: Option<oneshot::Sender<()>>,
}

/// An endpoint's lane and what is known of it here.
#[derive(Default)]
struct Slot {
    lane: Option<Running>,
    door: Door,
    failures: VecDeque<Duration>,
    down_until: Option<Duration>,
}

/// A lane that runs.
struct Running {
    actor: ActorRef<lane::Msg>,
    hand: Arc<Hand>,
    gauge: Arc<Gauge>,
    /// Messages with deliveries sent.
    sent: u64,
    refreshed: Duration,
}

impl Actor for Fanout {
    type Msg = Msg;
    type State = State;
    type Arguments = Arc<Context>;

    async fn pre_start(
        &self,
        _myself: ActorRef<Msg>,
        context: Arc<Context>,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State {
            context,
            lanes: HashMap::new(),
            endpoints: HashMap::new(),
            backlog: Backlog::new(),
            publishing: JoinSet::new(),
            fences: HashSet::new(),
            next_fence: 0,
            draining: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Msg>,
        message: Msg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let now = state.context.time.now();
        match message {
            Msg::Events(events) => state.events(&myself, now, events).await,
            Msg::Deliveries(deliveries) => state.deliveries(&myself, now, deliveries).await,
            Msg::Published { fence, lost } => {
                while state.publishing.try_join_next().is_some() {}
                state.fences.remove(&fence);
                for endpoint in lost {
                    if let Some(slot) = state.lanes.get_mut(&endpoint) {
                        slot.door.arrived(1);
                    }
                }
            }
            Msg::Settings(known) => state.settings(known),
            Msg::AllSettings => state.all_settings(),
            Msg::Room(request, reply) => state.room(&myself, now, request, reply).await,
            Msg::Answered { rooms, reply } => state.answered(now, rooms, reply),
            Msg::Idle { endpoint, received } => state.evict(now, endpoint, received),
            Msg::Drained { endpoint } => state.remove(endpoint),
            Msg::Drain(done) => state.drain(done),
            #[cfg(test)]
            Msg::PanicLane(endpoint) => {
                if let Some(running) = state.lanes.get(&endpoint).and_then(|s| s.lane.as_ref()) {
                    let _ = running.actor.cast(lane::Msg::Panic);
                }
            }
        }
        state.finish_drain();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorStarted(_) => {}
            SupervisionEvent::ActorTerminated(who, _, reason) => {
                // One that was evicted or drained is not in the list any more.
                if state.endpoints.contains_key(&who.get_id()) {
                    let reason = reason.unwrap_or_else(|| "stopped".to_owned());
                    state.failed(who.get_id(), &reason);
                }
            }
            SupervisionEvent::ActorFailed(who, reason) => {
                state.failed(who.get_id(), &reason.to_string());
            }
            SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        state.finish_drain();
        Ok(())
    }
}

impl State {
    /// The endpoint's lane, started if need be; `None` while it is down.
    async fn lane(
        &mut self,
        myself: &ActorRef<Msg>,
        now: Duration,
        endpoint: EndpointId,
    ) -> Option<&mut Slot> {
        let slot = self.lanes.entry(endpoint).or_default();
        if slot.down_until.is_some_and(|until| until > now) {
            return None;
        }
        slot.down_until = None;
        if slot.lane.is_none() {
            let (hand, gauge) = (Arc::new(Hand::default()), Arc::new(Gauge::default()));
            let args = lane::Args {
                context: Arc::clone(&self.context),
                endpoint,
                hand: Arc::clone(&hand),
                gauge: Arc::clone(&gauge),
                fanout: myself.clone(),
                restarted: !slot.failures.is_empty(),
            };
            match Actor::spawn_linked(None, Lane, args, myself.get_cell()).await {
                Ok((actor, _task)) => {
                    self.endpoints.insert(actor.get_id(), endpoint);
                    slot.lane = Some(Running {
                        actor,
                        hand,
                        gauge,
                        sent: 0,
                        refreshed: now,
                    });
                }
                Err(reason) => {
                    error!(%endpoint, %reason, "a lane can't be started");
                    return None;
                }
            }
        }
        Some(slot)
    }

    async fn events(&mut self, myself: &ActorRef<Msg>, now: Duration, events: Vec<HeldEvent>) {
        if self.draining.is_some() {
            let tokens = events.into_iter().map(|held| held.token).collect();
            tokio::spawn(nak_all(tokens));
            return;
        }
        if !self.context.term.holds() {
            tokio::spawn(copies::give_back(events));
            return;
        }
        let mut jobs = Vec::with_capacity(events.len());
        for held in events {
            let mut decisions = Vec::with_capacity(held.event.targets.len());
            for &target in &held.event.targets {
                decisions.push(self.decide(myself, now, target, held.again).await);
            }
            jobs.push(Job { held, decisions });
        }
        self.next_fence += 1;
        let fence = self.next_fence;
        self.fences.insert(fence);
        let (context, fanout) = (Arc::clone(&self.context), myself.clone());
        self.publishing.spawn(async move {
            let mut told = Told::new(fence, fanout);
            told.lost = copies::publish(context, jobs).await;
        });
    }

    async fn decide(
        &mut self,
        myself: &ActorRef<Msg>,
        now: Duration,
        target: Target,
        again: bool,
    ) -> Decision {
        let endpoint = target.endpoint;
        let backlog = self.backlog.names(now, &endpoint);
        let Some(slot) = self.lane(myself, now, endpoint).await else {
            return Decision::Park(endpoint, ParkReason::Fault, Some(after_fault()));
        };
        let Some(running) = slot.lane.as_mut() else {
            return Decision::Park(endpoint, ParkReason::Fault, Some(after_fault()));
        };
        if again {
            slot.door.insist(now);
            return Decision::Go(target);
        }
        let (room, held_until) = (running.gauge.room(), running.gauge.held_until());
        match slot.door.admit(now, room, held_until.is_some(), backlog) {
            Ok(()) => Decision::Go(target),
            Err(reason) => {
                // Time alone may have given it room, which it does not see without being asked.
                if now.saturating_sub(running.refreshed) >= REFRESH {
                    running.refreshed = now;
                    let _ = running.actor.cast(lane::Msg::Refresh);
                }
                let not_before = held_until.filter(|_| reason == ParkReason::Held);
                Decision::Park(endpoint, reason, not_before)
            }
        }
    }

    async fn deliveries(&mut self, myself: &ActorRef<Msg>, now: Duration, deliveries: Vec<Held>) {
        if self.draining.is_some() {
            let tokens = deliveries
                .into_iter()
                .flat_map(|held| held.grip.release())
                .collect();
            tokio::spawn(nak_all(tokens));
            return;
        }
        let mut by_endpoint: HashMap<EndpointId, Vec<Held>> = HashMap::new();
        for held in deliveries {
            by_endpoint
                .entry(held.delivery.key.endpoint)
                .or_default()
                .push(held);
        }
        for (endpoint, deliveries) in by_endpoint {
            let count = u32::try_from(deliveries.len()).unwrap_or(u32::MAX);
            let slot = self.lane(myself, now, endpoint).await;
            let Some((running, door)) = slot.and_then(|s| Some((s.lane.as_mut()?, &mut s.door)))
            else {
                for held in deliveries {
                    let later = Some(after_fault());
                    self.context
                        .recorder
                        .settle(park(held, ParkReason::Fault, later));
                }
                continue;
            };
            door.arrived(count);
            running.gauge.sent(count);
            running.sent += 1;
            // A lane that has just failed drops them, which gives them back.
            let _ = running.actor.cast(lane::Msg::Arrived(deliveries));
        }
    }

    fn settings(&mut self, known: Arc<Known>) {
        let slot = self.lanes.get(&known.route.endpoint);
        if let Some(running) = slot.and_then(|slot| slot.lane.as_ref()) {
            let _ = running.actor.cast(lane::Msg::Settings(known));
        }
    }

    fn all_settings(&mut self) {
        for (endpoint, slot) in &self.lanes {
            if let Some(running) = &slot.lane
                && let Some(known) = self.context.table.get(*endpoint)
            {
                let _ = running.actor.cast(lane::Msg::Settings(known));
            }
        }
    }

    async fn room(
        &mut self,
        myself: &ActorRef<Msg>,
        now: Duration,
        request: Request,
        reply: oneshot::Sender<Reply>,
    ) {
        if self.draining.is_some() {
            return;
        }
        let collector = Arc::new(Collector::new(myself.clone(), reply));
        for &endpoint in &request.endpoints {
            if let Some(slot) = self.lane(myself, now, endpoint).await
                && let Some(running) = &slot.lane
            {
                let promised = slot.door.promised(now);
                let message = lane::Msg::Room(Arc::clone(&collector), promised);
                let _ = running.actor.cast(message);
            }
        }
        self.backlog.told(now, request.endpoints);
    }

    fn answered(&mut self, now: Duration, rooms: Vec<Room>, reply: oneshot::Sender<Reply>) {
        let kept: Vec<(EndpointId, u32)> = rooms
            .iter()
            .map(|room| (room.endpoint, room.room))
            .collect();
        // Kept only for somebody who still waits: who has given up claims nothing.
        if reply.send(Reply { rooms }).is_ok() {
            for (endpoint, count) in kept {
                if let Some(slot) = self.lanes.get_mut(&endpoint) {
                    slot.door.reserve(now, count);
                }
            }
        }
    }

    fn evict(&mut self, now: Duration, endpoint: EndpointId, received: u64) {
        let Some(slot) = self.lanes.get_mut(&endpoint) else {
            return;
        };
        let crossed = slot.lane.as_ref().is_none_or(|lane| lane.sent != received);
        if crossed || slot.door.promised(now) > 0 {
            return;
        }
        self.remove(endpoint);
    }

    /// Stops a lane that has nothing any more, and forgets it.
    fn remove(&mut self, endpoint: EndpointId) {
        if let Some(slot) = self.lanes.remove(&endpoint)
            && let Some(running) = slot.lane
        {
            self.endpoints.remove(&running.actor.get_id());
            running.actor.stop(None);
        }
    }

    fn drain(&mut self, done: oneshot::Sender<()>) {
        info!(
            partition = self.context.partition,
            lanes = self.lanes.len(),
            "draining"
        );
        self.draining = Some(done);
        self.lanes.retain(|_, slot| slot.lane.is_some());
        for slot in self.lanes.values() {
            if let Some(running) = &slot.lane {
                let _ = running.actor.cast(lane::Msg::Drain);
            }
        }
    }

    fn finish_drain(&mut self) {
        if self.draining.is_none() || !self.lanes.is_empty() || !self.fences.is_empty() {
            return;
        }
        if let Some(done) = self.draining.take()
            && done.send(()).is_err()
        {
            warn!(
                partition = self.context.partition,
                "nobody waited for the drain"
            );
        }
    }
}
