//! What goes into a lane's machine and what comes out of it.

use std::time::Duration;

use hooklane_core::rules::token_bucket::Rate;
use hooklane_proto::record::{ParkReason, SkipReason};
use hooklane_proto::route::State;

/// Names one delivery to the machine; never used twice by one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// A delivery as the machine sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// Its name.
    pub(crate) ticket: Ticket,
    /// The endpoint's version that it was made for.
    pub(crate) version: i64,
    /// When it was pulled from the broker: the horizon runs from here.
    pub(crate) pulled: Duration,
    /// No attempt after this.
    pub(crate) deadline: Duration,
}

/// The endpoint's settings, as far as they decide when an attempt may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Grows with every change.
    pub(crate) version: i64,
    /// Whether it takes deliveries.
    pub(crate) state: State,
    /// Attempts a second.
    pub(crate) rate: Rate,
    /// Attempts in flight, at least 1.
    pub(crate) concurrency: u32,
    /// A pause that the endpoint asked for earlier ends then.
    pub(crate) held_until: Option<Duration>,
}

/// How an attempt ended, as far as the lane learns from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// 2xx.
    Success,
    /// No head of an answer in time.
    Timeout,
    /// 429 that asks the whole lane to wait that long.
    Hold(Duration),
    /// 410.
    Gone,
    /// Any other answer or failure.
    Other,
    /// Nothing learned: our own fault, or it never left.
    Void,
}

/// What happens to a lane.
#[derive(Debug)]
pub(crate) enum Input {
    /// Deliveries came from the broker; the lane may hold `share` in all.
    Arrived {
        /// In the order of their coming.
        arrivals: Vec<Arrival>,
        /// Deliveries the lane may hold, queued and waiting, in its share of the process's caps.
        share: u32,
    },
    /// The process granted permits for that many attempts.
    Granted(u32),
    /// An attempt ended.
    Ended(Ticket, End),
    /// Settings came; older ones than known are ignored.
    Settings(Settings),
    /// Time passed.
    Tick,
    /// The process is stopping or the partition is going to another: start nothing more.
    Drain,
}

/// How a delivery leaves without an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settle {
    /// Back into the ledger.
    Park {
        /// Why.
        reason: ParkReason,
        /// Not to be driven again before this; `None` keeps its due time.
        not_before: Option<Duration>,
    },
    /// The endpoint takes no deliveries.
    Skip(SkipReason),
    /// Back to the broker at once, for the next owner.
    Release,
}

/// What the shell has to do.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Attempt these now.
    pub(crate) start: Vec<Ticket>,
    /// Settle these now.
    pub(crate) settle: Vec<(Ticket, Settle)>,
    /// Attempts that could start now if the process grants permits.
    pub(crate) wanted: u32,
    /// Step again with [`Input::Tick`] then.
    pub(crate) wake_at: Option<Duration>,
}

/// The lane's share of what the process bounds, at this moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Attempts in flight.
    pub(crate) in_flight: u32,
    /// Deliveries held.
    pub(crate) held: u32,
}

/// What is fixed for a lane's life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How long a delivery may be held before it is attempted or parked.
    pub(crate) horizon: Duration,
    /// An idle lane is forgotten after this, whatever it has learned about its endpoint.
    pub(crate) forget_after: Duration,
    /// Starts with an empty bucket, since nobody knows what its predecessor took out of it.
    pub(crate) cautious: bool,
}
