//! The shapes of load, and the numbers that describe one.

use clap::ValueEnum;

/// What kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// As many events as fast as it goes, to one endpoint without a rate limit.
    Flood,
    /// The same with ten endpoints for each event.
    Fanout10,
    /// 100 events a second: the latency of a system that is not busy.
    Steady,
    /// 1,000 endpoints, all healthy and one tenth of them hanging in turn: what do the others notice?
    Hanging,
    /// 100,000 messages waiting for one hanging endpoint beside a healthy one.
    Backlog,
    /// Under load, everything that JetStream keeps is deleted.
    Wipe,
}

impl Shape {
    /// Its name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flood => "flood",
            Self::Fanout10 => "fanout10",
            Self::Steady => "steady",
            Self::Hanging => "hanging",
            Self::Backlog => "backlog",
            Self::Wipe => "wipe",
        }
    }

    /// What it does unless told otherwise.
    #[must_use]
    pub const fn defaults(self) -> Numbers {
        let flood = Numbers {
            consumers: 1,
            endpoints_each: 1,
            events: 60_000,
            rate: None,
            rows: 100,
            warm_up: 2_000,
        };
        match self {
            Self::Flood => flood,
            Self::Fanout10 => Numbers {
                endpoints_each: 10,
                events: 20_000,
                warm_up: 500,
                ..flood
            },
            Self::Steady => Numbers {
                events: 3_000,
                rate: Some(100.0),
                rows: 1,
                warm_up: 200,
                ..flood
            },
            Self::Hanging => Numbers {
                consumers: 500,
                endpoints_each: 2,
                events: 10_000,
                rate: Some(500.0),
                rows: 1,
                warm_up: 2_500,
            },
            Self::Backlog => Numbers {
                consumers: 2,
                events: 100_000,
                ..flood
            },
            Self::Wipe => Numbers {
                consumers: 50,
                endpoints_each: 2,
                events: 10_000,
                warm_up: 500,
                ..flood
            },
        }
    }
}

/// A shape's numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbers {
    /// Consumers.
    pub consumers: u32,
    /// Endpoints of each consumer, all of which get each of its events.
    pub endpoints_each: u32,
    /// Events of each measured phase (of the backlog: waiting for the hanging endpoint).
    pub events: u32,
    /// Events a second; `None` is as fast as the database takes them.
    pub rate: Option<f64>,
    /// Outbox rows of one transaction.
    pub rows: u32,
    /// Events before anything is measured.
    pub warm_up: u32,
}
