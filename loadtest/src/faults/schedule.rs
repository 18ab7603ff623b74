//! What goes wrong, and when: drawn from a seed, so that the same seed gives the same schedule.
//!
//! Two tracks run beside each other: blows to processes, servers and the links between them, one
//! after the other, and tricks of endpoints. Each track deals from a shuffled deck with every kind
//! in it, and shuffles anew when it is through, so that a long run has everything and a short one a
//! fair part. Pure: knows processes and endpoints as numbers only.

use std::time::Duration;

use hooklane_testkit::proxy::Cut;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::receiver::{Behaviour, Lie};

/// What there is to break.
#[derive(Debug, Clone)]
pub struct Field {
    /// The processes that attempt deliveries.
    pub dispatchers: Vec<usize>,
    /// All others.
    pub others: Vec<usize>,
    /// How many endpoints there are.
    pub endpoints: u32,
    /// Streams that may be full; with none, a seed's schedule is what it was before there were any.
    pub streams: Vec<&'static str>,
}

/// Everything that goes wrong in a run, each track in order of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// What happens to processes, servers and their links.
    pub blows: Vec<Planned<Blow>>,
    /// What endpoints do.
    pub tricks: Vec<Planned<Trick>>,
}

/// A fault and the earliest time of its beginning, from the beginning of the load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Planned<F> {
    /// When.
    pub at: Duration,
    /// What.
    pub fault: F,
}

/// A server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// nats-server.
    Nats,
    /// PostgreSQL.
    Postgres,
}

/// How a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is stopped in order.
    Stop,
    /// It is killed with `kill -9`.
    Kill,
}

/// What happens to processes, servers and their links. A number is that of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Blow {
    /// `kill -9`; started again after a while.
    Kill(usize, Duration),
    /// `SIGSTOP`, and `SIGCONT` after a while.
    Suspend(usize, Duration),
    /// `SIGTERM`; started again when it has stopped.
    Restart(usize),
    /// A server ends, and is back after a while.
    Down(Server, Ending, Duration),
    /// Everything that JetStream keeps is deleted.
    Wipe,
    /// PostgreSQL takes no writes for a while.
    ReadOnly(Duration),
    /// The connections of a process to a server are cut.
    Cut(usize, Server, Cut),
    /// Nothing passes between a process and a server for a while; then everything passes again,
    /// or the connections are cut.
    Stall(usize, Server, Duration, Option<Cut>),
    /// Nothing passes between any process and nats-server for a while.
    Isolate(Duration, Option<Cut>),
    /// A stream takes nothing more for a while.
    Full(&'static str, Duration),
}

/// What endpoints do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trick {
    /// An endpoint behaves badly for a while.
    Behave(u32, Behaviour, Duration),
    /// The connections to an endpoint are cut.
    Cut(u32, Cut),
    /// Nothing passes to and from an endpoint for a while.
    Stall(u32, Duration, Option<Cut>),
}

impl Blow {
    fn lasts(&self) -> Duration {
        match self {
            Self::Kill(_, time)
            | Self::Suspend(_, time)
            | Self::Down(_, _, time)
            | Self::ReadOnly(time)
            | Self::Full(_, time)
            | Self::Stall(_, _, time, _)
            | Self::Isolate(time, _) => *time,
            // About: the process, or the server, is quick to stop and to start.
            Self::Restart(_) | Self::Wipe => Duration::from_secs(1),
            Self::Cut(..) => Duration::ZERO,
        }
    }

    /// As a person reads it; `name` gives a process's name.
    #[must_use]
    pub fn text(&self, name: impl Fn(usize) -> String) -> String {
        match *self {
            Self::Kill(process, time) => format!(
                "kill -9 {}, start it {} later",
                name(process),
                seconds(time)
            ),
            Self::Suspend(process, time) => {
                format!("suspend {} for {}", name(process), seconds(time))
            }
            Self::Restart(process) => format!("restart {} in order", name(process)),
            Self::Down(server, Ending::Stop, time) => {
                format!("stop {} for {}", server.name(), seconds(time))
            }
            Self::Down(server, Ending::Kill, time) => {
                format!(
                    "kill -9 {}, start it {} later",
                    server.name(),
                    seconds(time)
                )
            }
            Self::Wipe => "delete everything that JetStream keeps".to_owned(),
            Self::ReadOnly(time) => format!("PostgreSQL takes no writes for {}", seconds(time)),
            Self::Cut(process, server, cut) => {
                format!("cut {} from {} {}", name(process), server.name(), by(cut))
            }
            Self::Stall(process, server, time, end) => format!(
                "stall {} and {} for {}, {}",
                name(process),
                server.name(),
                seconds(time),
                then(end)
            ),
            Self::Isolate(time, end) => format!(
                "stall everybody and nats-server for {}, {}",
                seconds(time),
                then(end)
            ),
            Self::Full(stream, time) => format!("{stream} is full for {}", seconds(time)),
        }
    }
}

impl Trick {
    fn lasts(&self) -> Duration {
        match self {
            Self::Behave(_, _, time) | Self::Stall(_, time, _) => *time,
            Self::Cut(..) => Duration::ZERO,
        }
    }

    /// As a person reads it.
    #[must_use]
    pub fn text(&self) -> String {
        match *self {
            Self::Behave(endpoint, behaviour, time) => format!(
                "endpoint {endpoint} for {}: {}",
                seconds(time),
                behaves(behaviour)
            ),
            Self::Cut(endpoint, cut) => format!("cut endpoint {endpoint} off {}", by(cut)),
            Self::Stall(endpoint, time, end) => format!(
                "stall endpoint {endpoint} for {}, {}",
                seconds(time),
                then(end)
            ),
        }
    }
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Self::Nats => "nats-server",
            Self::Postgres => "PostgreSQL",
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn by(cut: Cut) -> &'static str {
    match cut {
        Cut::Reset => "by a reset",
        Cut::Finish => "in order",
    }
}

fn then(end: Option<Cut>) -> &'static str {
    match end {
        None => "then go on",
        Some(Cut::Reset) => "then reset",
        Some(Cut::Finish) => "then close",
    }
}

fn behaves(behaviour: Behaviour) -> String {
    match behaviour {
        Behaviour::Answer(status) => format!("answers {status}"),
        Behaviour::Hang(time) => format!("answers after {}", seconds(time)),
        Behaviour::Busy(status, after) => format!("answers {status}, retry after {after} s"),
        Behaviour::Reset => "resets the connection".to_owned(),
        Behaviour::Close => "closes the connection".to_owned(),
        Behaviour::Lie(lie) => format!("lies: {lie:?}"),
    }
}

impl Schedule {
    /// The schedule of a seed for a load of that length.
    ///
    /// # Panics
    /// Where the field has no dispatchers, no other processes or no endpoints.
    #[must_use]
    pub fn of(seed: u64, length: Duration, field: &Field) -> Self {
        // A generator each, so that neither track depends on how much of the other is drawn.
        let mut random = StdRng::seed_from_u64(seed);
        let kinds = BLOWS + field.streams.len() as u32;
        let blows = track(&mut random, length, GAPS, kinds, |random, kind| {
            blow(random, kind, field)
        });
        let mut random = StdRng::seed_from_u64(!seed);
        let tricks = track(&mut random, length, TRICK_GAPS, TRICKS, |random, kind| {
            trick(random, kind, field)
        });
        Self {
            blows: timed(blows, Blow::lasts),
            tricks: timed(tricks, Trick::lasts),
        }
    }
}

/// Seconds between the end of a blow and the next one.
const GAPS: std::ops::Range<f64> = 0.5..4.0;
const TRICK_GAPS: std::ops::Range<f64> = 0.2..1.5;

type Gap = Duration;

/// Deals from shuffled decks of `kinds` kinds, enough for the length even if nothing lasted.
fn track<F>(
    random: &mut StdRng,
    length: Duration,
    gaps: std::ops::Range<f64>,
    kinds: u32,
    mut make: impl FnMut(&mut StdRng, u32) -> F,
) -> (Duration, Vec<(Gap, F)>) {
    let mut dealt = Vec::new();
    let mut deck = Vec::new();
    let mut sum = Duration::ZERO;
    while sum < length {
        if deck.is_empty() {
            deck = (0..kinds).collect();
            deck.shuffle(random);
        }
        let gap = Duration::from_secs_f64(random.random_range(gaps.clone()));
        sum += gap;
        if let Some(kind) = deck.pop() {
            dealt.push((gap, make(random, kind)));
        }
    }
    (length, dealt)
}

/// Gives each its time; drops what would not end in time.
fn timed<F>(
    (length, dealt): (Duration, Vec<(Gap, F)>),
    lasts: impl Fn(&F) -> Duration,
) -> Vec<Planned<F>> {
    let mut clock = Duration::ZERO;
    let mut planned = Vec::new();
    for (gap, fault) in dealt {
        let at = clock + gap;
        let end = at + lasts(&fault);
        if end > length {
            break;
        }
        planned.push(Planned { at, fault });
        clock = end;
    }
    planned
}

/// Kinds of blows, without those to streams.
const BLOWS: u32 = 20;

fn blow(random: &mut StdRng, kind: u32, field: &Field) -> Blow {
    let dispatcher = pick(random, &field.dispatchers);
    let other = pick(random, &field.others);
    let anybody = if random.random_bool(0.5) {
        dispatcher
    } else {
        other
    };
    let cut = a_cut(random);
    let end = random.random_bool(0.5).then_some(cut);
    let short = between(random, 0.0..3.0);
    // Around the life of a lease and the ack wait, both 10 s: some faults outlive them.
    let long = between(random, 3.0..14.0);
    let stream = kind.checked_sub(BLOWS);
    if let Some(stream) = stream.and_then(|nth| field.streams.get(nth as usize)) {
        return Blow::Full(stream, long);
    }
    match kind {
        0 | 1 => Blow::Kill(dispatcher, short),
        2 => Blow::Kill(other, short),
        3 => Blow::Kill(anybody, long),
        4 => Blow::Suspend(dispatcher, between(random, 11.0..15.0)),
        5 => Blow::Suspend(dispatcher, long),
        6 => Blow::Suspend(other, long),
        7 => Blow::Restart(dispatcher),
        8 => Blow::Restart(other),
        9 => Blow::Down(Server::Nats, Ending::Stop, short),
        10 => Blow::Down(Server::Nats, Ending::Kill, short),
        11 | 12 => Blow::Wipe,
        13 => Blow::Down(Server::Postgres, Ending::Stop, short),
        14 => Blow::Down(Server::Postgres, Ending::Kill, short),
        15 => Blow::ReadOnly(between(random, 2.0..8.0)),
        16 => Blow::Cut(anybody, Server::Nats, cut),
        17 => Blow::Cut(anybody, Server::Postgres, cut),
        18 => Blow::Stall(dispatcher, Server::Nats, long, end),
        _ => match random.random_range(0..3) {
            0 => Blow::Isolate(between(random, 2.0..9.0), end),
            1 => Blow::Stall(other, Server::Nats, long, end),
            _ => Blow::Stall(anybody, Server::Postgres, long, end),
        },
    }
}

/// Kinds of tricks: the answers, the lies, and the links.
const TRICKS: u32 = 6 + Lie::ALL.len() as u32 + 3;

fn trick(random: &mut StdRng, kind: u32, field: &Field) -> Trick {
    let endpoint = random.random_range(0..field.endpoints);
    let time = between(random, 1.0..7.0);
    let cut = a_cut(random);
    let end = random.random_bool(0.5).then_some(cut);
    let behaviour = match kind {
        0 => Behaviour::Answer(500),
        1 => Behaviour::Busy(429, random.random_range(1..4)),
        2 => Behaviour::Busy(503, random.random_range(1..4)),
        3 => Behaviour::Hang(between(random, 0.2..9.0)),
        4 => Behaviour::Reset,
        5 => Behaviour::Close,
        6..9 => {
            return match kind {
                6 => Trick::Cut(endpoint, cut),
                7 => Trick::Stall(endpoint, time, end),
                _ => Trick::Stall(endpoint, between(random, 5.0..9.0), end),
            };
        }
        _ => Behaviour::Lie(Lie::ALL[kind as usize - 9]),
    };
    Trick::Behave(endpoint, behaviour, time)
}

fn pick(random: &mut StdRng, of: &[usize]) -> usize {
    of[random.random_range(0..of.len())]
}

fn between(random: &mut StdRng, seconds: std::ops::Range<f64>) -> Duration {
    Duration::from_secs_f64(random.random_range(seconds))
}

fn a_cut(random: &mut StdRng) -> Cut {
    if random.random_bool(0.7) {
        Cut::Reset
    } else {
        Cut::Finish
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn field() -> Field {
        Field {
            dispatchers: vec![1, 6],
            others: vec![0, 2, 3, 4, 5, 7, 8, 9],
            endpoints: 24,
            streams: Vec::new(),
        }
    }

    fn of(seed: u64, secs: u64) -> Schedule {
        Schedule::of(seed, Duration::from_secs(secs), &field())
    }

    #[test]
    fn a_seed_gives_the_same_schedule_and_another_one_another() {
        assert_eq!(of(7, 300), of(7, 300));
        assert_ne!(of(7, 300), of(8, 300));
    }

    #[test]
    fn a_longer_run_begins_like_a_shorter_one() {
        let (short, long) = (of(7, 60), of(7, 300));
        assert_eq!(short.blows, long.blows[..short.blows.len()]);
        assert_eq!(short.tricks, long.tricks[..short.tricks.len()]);
    }

    #[test]
    fn streams_are_full_where_that_is_asked_for() {
        let full = |schedule: &Schedule| -> BTreeSet<&'static str> {
            let blows = schedule.blows.iter().map(|planned| planned.fault);
            blows
                .filter_map(|blow| match blow {
                    Blow::Full(stream, _) => Some(stream),
                    _ => None,
                })
                .collect()
        };
        let field = Field {
            streams: vec!["ONE", "TWO"],
            ..field()
        };
        let asked = Schedule::of(3, Duration::from_secs(600), &field);
        assert_eq!(full(&asked), BTreeSet::from(["ONE", "TWO"]));
        assert!(full(&of(3, 600)).is_empty());
    }

    #[test]
    fn a_track_has_one_fault_at_a_time_and_all_end_in_time() {
        for seed in 0..50 {
            let schedule = of(seed, 120);
            in_turn(&schedule.blows, Blow::lasts);
            in_turn(&schedule.tricks, Trick::lasts);
        }
    }

    fn in_turn<F>(track: &[Planned<F>], lasts: impl Fn(&F) -> Duration) {
        let mut clock = Duration::ZERO;
        for planned in track {
            assert!(planned.at >= clock);
            clock = planned.at + lasts(&planned.fault);
        }
        assert!(clock <= Duration::from_secs(120));
        assert!(track.len() > 10);
    }

    #[test]
    fn ten_minutes_have_every_kind() {
        let schedule = of(3, 600);
        let kinds: BTreeSet<String> = schedule
            .blows
            .iter()
            .map(|planned| format!("{:?}", planned.fault))
            .map(|text| text.split(['(', ',']).next().unwrap_or_default().to_owned())
            .collect();
        for kind in [
            "Kill", "Suspend", "Restart", "Down", "Wipe", "ReadOnly", "Cut", "Stall",
        ] {
            assert!(kinds.contains(kind), "{kind} in {kinds:?}");
        }
        let lies = |planned: &&Planned<Trick>| {
            matches!(planned.fault, Trick::Behave(_, Behaviour::Lie(_), _))
        };
        assert!(schedule.tricks.iter().filter(lies).count() >= Lie::ALL.len());
    }
}
