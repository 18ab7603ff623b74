//! A world of rows, streams and processes in which anything may be lost, delayed, repeated or
//! crash, to hold the machine against: it never puts back what is still under way, and it puts back
//! everything that was lost.

use proptest::prelude::*;

use super::*;

const NOT_AFTER: i64 = 20;
const GRACE: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Received,
    Stalled,
    Ended,
}

#[derive(Debug)]
struct Row {
    status: Status,
    drive: u32,
    driven_at: i64,
    not_after: i64,
}

/// A message: of this row, in this drive.
#[derive(Debug, Clone, Copy)]
struct Copy {
    row: usize,
    drive: u32,
    not_after: i64,
    stored: i64,
}

impl Copy {
    /// Its reader takes it, and does not drop it.
    fn counts(&self) -> bool {
        self.stored <= self.not_after
    }
}

/// What is taken from a stream and not settled yet.
#[derive(Debug, Clone, Copy)]
struct Hand {
    sequence: u64,
    copy: Copy,
    pulled: i64,
    /// It is published onward, and may be settled.
    done: bool,
}

#[derive(Debug, Default)]
struct Stream {
    made: i64,
    last: u64,
    held: Vec<(u64, Copy)>,
    hands: Vec<Hand>,
}

impl Stream {
    fn store(&mut self, copy: Copy) {
        self.last += 1;
        self.held.push((self.last, copy));
    }

    fn settle(&mut self, sequence: u64) {
        self.held.retain(|(held, _)| *held != sequence);
    }

    /// Takes the n-th of what nobody has in hand.
    fn pull(&mut self, n: usize, now: i64) {
        let free: Vec<(u64, Copy)> = self
            .held
            .iter()
            .filter(|(held, _)| self.hands.iter().all(|hand| hand.sequence != *held))
            .copied()
            .collect();
        let Some(&(sequence, copy)) = pick(&free, n) else {
            return;
        };
        if copy.counts() {
            self.hands.push(Hand {
                sequence,
                copy,
                pulled: now,
                done: false,
            });
        } else {
            self.settle(sequence);
        }
    }

    /// Settles the n-th in hand, where it is done.
    fn ack(&mut self, n: usize) {
        if let Some(at) = index(self.hands.len(), n)
            && self.hands[at].done
        {
            let hand = self.hands.swap_remove(at);
            self.settle(hand.sequence);
        }
    }

    /// The process that has it in hand dies.
    fn crash(&mut self, n: usize) {
        if let Some(at) = index(self.hands.len(), n) {
            self.hands.swap_remove(at);
        }
    }

    /// The broker loses one message.
    fn lose(&mut self, n: usize) {
        if let Some(at) = index(self.held.len(), n) {
            let (sequence, _) = self.held.swap_remove(at);
            self.hands.retain(|hand| hand.sequence != sequence);
        }
    }

    /// The store is wiped, and the stream made anew.
    fn wipe(&mut self, now: i64) {
        *self = Self {
            made: now,
            ..Self::default()
        };
    }
}

fn index(len: usize, n: usize) -> Option<usize> {
    (len > 0).then(|| n % len)
}

fn pick<T>(list: &[T], n: usize) -> Option<&T> {
    index(list.len(), n).map(|at| &list[at])
}

#[derive(Debug, Clone, Copy)]
enum Where {
    Events,
    Deliveries,
    Records,
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Accept,
    TopUp(usize),
    /// A publisher gets its message stored, however late.
    Publish(usize),
    /// A publisher gives up, or dies.
    GiveUp(usize),
    Pull(Where, usize),
    /// Publishes what is in hand onward, perhaps not for the first time.
    Onward(Where, usize),
    /// The fan-out or the lane parks what is in hand.
    Park(Where, usize),
    Ack(Where, usize),
    Crash(Where, usize),
    Lose(Where, usize),
    Wipe(Where),
    Wait(i64),
    /// One question of the sweep; the broker may not be readable.
    Sweep(bool),
}

#[derive(Debug)]
struct World {
    now: i64,
    rows: Vec<Row>,
    /// On their way to `EVENTS` (first drives) or `DELIVERIES` (later ones).
    publishing: Vec<Copy>,
    events: Stream,
    deliveries: Stream,
    records: Stream,
    sweep: Machine,
    sweeps: u32,
}

impl World {
    fn new() -> Self {
        Self {
            now: 1_000,
            rows: Vec::new(),
            publishing: Vec::new(),
            events: Stream::default(),
            deliveries: Stream::default(),
            records: Stream::default(),
            sweep: Machine::new(Duration::from_secs(GRACE)),
            sweeps: 0,
        }
    }

    fn stream(&mut self, at: Where) -> &mut Stream {
        match at {
            Where::Events => &mut self.events,
            Where::Deliveries => &mut self.deliveries,
            Where::Records => &mut self.records,
        }
    }

    fn apply(&mut self, op: Op) {
        let now = self.now;
        match op {
            Op::Accept => {
                self.rows.push(Row {
                    status: Status::Stalled,
                    drive: 0,
                    driven_at: now,
                    not_after: now,
                });
                self.drive(self.rows.len() - 1);
            }
            Op::TopUp(n) => {
                let stalled: Vec<usize> = (0..self.rows.len())
                    .filter(|row| self.rows[*row].status == Status::Stalled)
                    .collect();
                if let Some(&row) = pick(&stalled, n) {
                    self.drive(row);
                }
            }
            Op::Publish(n) => {
                if let Some(at) = index(self.publishing.len(), n) {
                    let copy = Copy {
                        stored: now,
                        ..self.publishing.swap_remove(at)
                    };
                    if copy.drive == 1 {
                        self.events.store(copy);
                    } else {
                        self.deliveries.store(copy);
                    }
                }
            }
            Op::GiveUp(n) => {
                if let Some(at) = index(self.publishing.len(), n) {
                    self.publishing.swap_remove(at);
                }
            }
            Op::Pull(at, n) => self.stream(at).pull(n, now),
            Op::Onward(at, n) => self.onward(at, n, false),
            Op::Park(at, n) => self.onward(at, n, true),
            Op::Ack(at, n) => self.stream(at).ack(n),
            Op::Crash(at, n) => self.stream(at).crash(n),
            Op::Lose(at, n) => self.stream(at).lose(n),
            Op::Wipe(at) => self.stream(at).wipe(now),
            Op::Wait(seconds) => self.now += seconds,
            Op::Sweep(readable) => {
                if readable {
                    self.sweep_once();
                }
            }
        }
    }

    fn drive(&mut self, row: usize) {
        let now = self.now;
        let known = &mut self.rows[row];
        known.status = Status::Received;
        known.drive += 1;
        known.driven_at = now;
        known.not_after = now + NOT_AFTER;
        self.publishing.push(Copy {
            row,
            drive: known.drive,
            not_after: known.not_after,
            stored: 0,
        });
    }

    /// What a process does with the n-th it has in hand, before it settles it.
    fn onward(&mut self, at: Where, n: usize, park: bool) {
        let now = self.now;
        let stream = self.stream(at);
        let Some(i) = index(stream.hands.len(), n) else {
            return;
        };
        let hand = stream.hands[i];
        match at {
            Where::Events if park => self.record(hand.copy),
            Where::Events => {
                // The fan-out gives its copies a time of their own, and does not publish later.
                let copy = Copy {
                    not_after: hand.pulled + NOT_AFTER,
                    stored: now,
                    ..hand.copy
                };
                if !copy.counts() {
                    return;
                }
                self.deliveries.store(copy);
            }
            Where::Deliveries => self.record(hand.copy),
            Where::Records => {
                let row = &mut self.rows[hand.copy.row];
                if row.status != Status::Ended && hand.copy.drive >= row.drive {
                    row.status = if hand.copy.not_after == i64::MAX {
                        Status::Stalled
                    } else {
                        Status::Ended
                    };
                }
            }
        }
        self.stream(at).hands[i].done = true;
    }

    fn record(&mut self, copy: Copy) {
        // Every third is a park: its row is stalled, and driven again.
        let parked = (copy.row + copy.drive as usize).is_multiple_of(3);
        self.records.store(Copy {
            not_after: if parked { i64::MAX } else { i64::MAX - 1 },
            stored: self.now,
            ..copy
        });
    }

    fn sweep_once(&mut self) {
        let ask = self.sweep.ask();
        let clock = |seconds: i64| DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
        let end = |stream: &Stream| Seen::End {
            created: clock(stream.made),
            sequence: stream.last,
            at: clock(self.now),
        };
        let rest = |stream: &Stream, below: u64| Seen::Rest {
            created: clock(stream.made),
            left: stream.held.iter().any(|(sequence, _)| *sequence <= below),
        };
        let seen = match ask {
            Ask::EventsEnd => end(&self.events),
            Ask::DeliveriesEnd => end(&self.deliveries),
            Ask::RecordsEnd => end(&self.records),
            Ask::EventsRest { at_or_below } => rest(&self.events, at_or_below),
            Ask::DeliveriesRest { at_or_below } => rest(&self.deliveries, at_or_below),
            Ask::RecordsRest { at_or_below } => rest(&self.records, at_or_below),
        };
        if let Step::Lost(horizon) = self.sweep.see(seen) {
            self.sweeps += 1;
            for row in 0..self.rows.len() {
                let known = &self.rows[row];
                if known.status == Status::Received
                    && clock(known.not_after) < horizon.not_after
                    && clock(known.driven_at) < horizon.driven_before
                {
                    let drive = known.drive;
                    assert!(
                        !self.under_way(row, drive),
                        "row {row} is put back while drive {drive} is under way: {self:#?}"
                    );
                    self.rows[row].status = Status::Stalled;
                }
            }
        }
    }

    /// Whether this drive can still come to an attempt or a record.
    fn under_way(&self, row: usize, drive: u32) -> bool {
        let is = |copy: &Copy| copy.row == row && copy.drive == drive;
        let held = |stream: &Stream| {
            stream
                .held
                .iter()
                .any(|(_, copy)| is(copy) && copy.counts())
                || stream.hands.iter().any(|hand| is(&hand.copy))
        };
        held(&self.events)
            || held(&self.deliveries)
            || held(&self.records)
            || self
                .publishing
                .iter()
                .any(|copy| is(copy) && copy.not_after >= self.now)
    }

    /// Everybody works on and nothing more goes wrong.
    fn settle_down(&mut self) {
        for _ in 0..1_000 {
            if self.rows.iter().all(|row| row.status == Status::Ended) {
                return;
            }
            for at in [Where::Events, Where::Deliveries, Where::Records] {
                for op in [
                    Op::Pull(at, 0),
                    Op::Onward(at, 0),
                    Op::Ack(at, 0),
                    Op::Crash(at, 0),
                ] {
                    self.apply(op);
                }
            }
            for op in [
                Op::Publish(0),
                Op::TopUp(0),
                Op::Sweep(true),
                Op::Sweep(true),
                Op::Wait(1),
            ] {
                self.apply(op);
            }
        }
        panic!("something stays under way for ever: {self:#?}");
    }
}

fn place() -> impl Strategy<Value = Where> {
    prop_oneof![
        Just(Where::Events),
        Just(Where::Deliveries),
        Just(Where::Records)
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let n = 0..8_usize;
    prop_oneof![
        4 => Just(Op::Accept),
        4 => n.clone().prop_map(Op::TopUp),
        6 => n.clone().prop_map(Op::Publish),
        1 => n.clone().prop_map(Op::GiveUp),
        12 => (place(), n.clone()).prop_map(|(at, n)| Op::Pull(at, n)),
        10 => (place(), n.clone()).prop_map(|(at, n)| Op::Onward(at, n)),
        2 => (place(), n.clone()).prop_map(|(at, n)| Op::Park(at, n)),
        10 => (place(), n.clone()).prop_map(|(at, n)| Op::Ack(at, n)),
        2 => (place(), n.clone()).prop_map(|(at, n)| Op::Crash(at, n)),
        2 => (place(), n).prop_map(|(at, n)| Op::Lose(at, n)),
        1 => place().prop_map(Op::Wipe),
        6 => (0..15_i64).prop_map(Op::Wait),
        16 => prop::bool::weighted(0.9).prop_map(Op::Sweep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_under_way_is_never_put_back_and_what_is_lost_always_is(
        ops in prop::collection::vec(op(), 1..250)
    ) {
        let mut world = World::new();
        for op in ops {
            world.apply(op);
        }
        world.settle_down();
    }
}

#[test]
fn a_delivery_that_was_never_published_is_put_back() {
    let mut world = World::new();
    world.apply(Op::Accept);
    world.apply(Op::GiveUp(0));
    for _ in 0..60 {
        world.apply(Op::Wait(1));
        world.apply(Op::Sweep(true));
    }
    assert!(world.sweeps > 5);
    assert_eq!(world.rows[0].status, Status::Stalled);
}
