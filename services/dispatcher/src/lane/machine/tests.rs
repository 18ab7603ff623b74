use std::collections::{BTreeMap, BTreeSet};

use hooklane_proto::record::ParkReason;
use proptest::prelude::*;

use super::*;

const HORIZON: Duration = Duration::from_secs(10);
const LIMITS: Limits = Limits {
    horizon: HORIZON,
    forget_after: Duration::from_secs(600),
    cautious: false,
};
const ALL: Share = Share {
    in_flight: u32::MAX,
    held: u32::MAX,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn settings(version: i64, rate: Option<u32>, concurrency: u32) -> Settings {
    Settings {
        version,
        state: State::Active,
        rate: rate.map_or(Rate::Unlimited, |rate| {
            Rate::per_second(rate, None).unwrap()
        }),
        concurrency,
        held_until: None,
    }
}

/// The machine with a shell that grants everything and steps whenever a timer is due.
struct Lane {
    machine: Machine,
    now: Duration,
    wake_at: Option<Duration>,
    next: u64,
    pulled: BTreeMap<Ticket, Duration>,
    in_flight: BTreeSet<Ticket>,
    starts: Vec<Duration>,
    settled: Vec<(Ticket, Settle, Duration)>,
    /// Permits that one step may use.
    permits: u32,
    share: u32,
}

impl Lane {
    fn unknown() -> Self {
        Self {
            machine: Machine::new(LIMITS, Duration::ZERO),
            now: Duration::ZERO,
            wake_at: None,
            next: 0,
            pulled: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            starts: Vec::new(),
            settled: Vec::new(),
            permits: u32::MAX,
            share: u32::MAX,
        }
    }

    fn new(rate: Option<u32>, concurrency: u32) -> Self {
        let mut lane = Self::unknown();
        lane.step(Input::Settings(settings(1, rate, concurrency)));
        lane
    }

    fn step(&mut self, input: Input) {
        let effects = self.machine.step(self.now, input);
        let wanted = effects.wanted.min(self.permits);
        self.carry_out(effects);
        if wanted > 0 {
            let effects = self.machine.step(self.now, Input::Granted(wanted));
            self.carry_out(effects);
        }
    }

    fn carry_out(&mut self, effects: Effects) {
        for ticket in effects.start {
            assert!(self.pulled.contains_key(&ticket), "{ticket:?} left before");
            assert!(self.in_flight.insert(ticket), "{ticket:?} started twice");
            self.starts.push(self.now);
            let held = self.now - self.pulled[&ticket];
            assert!(held < HORIZON, "started after the horizon: {held:?}");
        }
        for (ticket, settle) in effects.settle {
            assert!(!self.in_flight.contains(&ticket), "{ticket:?} is in flight");
            let pulled = self.pulled.remove(&ticket);
            assert!(pulled.is_some(), "{ticket:?} left before");
            self.settled.push((ticket, settle, self.now));
        }
        self.wake_at = effects.wake_at;
    }

    fn arrive(&mut self, count: u32, version: i64) -> Vec<Ticket> {
        let arrivals: Vec<_> = (0..count)
            .map(|_| {
                self.next += 1;
                let ticket = Ticket(self.next);
                self.pulled.insert(ticket, self.now);
                Arrival {
                    ticket,
                    version,
                    pulled: self.now,
                    deadline: Duration::from_secs(1_000_000),
                }
            })
            .collect();
        let tickets = arrivals.iter().map(|a| a.ticket).collect();
        let share = self.share;
        self.step(Input::Arrived { arrivals, share });
        tickets
    }

    fn end(&mut self, ticket: Ticket, end: End) {
        assert!(self.in_flight.remove(&ticket));
        self.pulled.remove(&ticket);
        self.step(Input::Ended(ticket, end));
    }

    fn end_all(&mut self, end: End) {
        for ticket in self.in_flight.clone() {
            self.end(ticket, end);
        }
    }

    /// Lets time pass, stepping at every timer on the way.
    fn pass(&mut self, by: Duration) {
        let until = self.now + by;
        while let Some(at) = self.wake_at.filter(|&at| at <= until) {
            assert!(at > self.now, "a timer that is due at once spins");
            self.now = at;
            self.step(Input::Tick);
        }
        self.now = until;
        self.step(Input::Tick);
    }

    fn room(&self) -> u32 {
        self.machine.room(self.now, ALL)
    }

    fn parked(&self, reason: ParkReason) -> usize {
        let parked = |s: &Settle| matches!(s, Settle::Park { reason: r, .. } if *r == reason);
        self.settled.iter().filter(|(_, s, _)| parked(s)).count()
    }

    fn skipped(&self, reason: SkipReason) -> usize {
        let skip = Settle::Skip(reason);
        self.settled.iter().filter(|(_, s, _)| *s == skip).count()
    }
}

#[test]
fn an_unlimited_lane_starts_up_to_its_concurrency() {
    let mut lane = Lane::new(None, 256);
    lane.arrive(300, 1);
    assert_eq!(lane.in_flight.len(), 256);
    lane.end_all(End::Success);
    assert_eq!(lane.in_flight.len(), 44);
}

#[test]
fn the_burst_goes_at_once_and_the_rest_at_the_rate() {
    let mut lane = Lane::new(Some(10), 256);
    lane.arrive(50, 1);
    assert_eq!(lane.starts.len(), 10);
    lane.pass(ms(1000));
    assert_eq!(lane.starts.len(), 20);
    lane.pass(ms(1000));
    assert_eq!(lane.starts.len(), 30);
}

#[test]
fn what_finds_no_slot_within_the_horizon_is_parked() {
    let mut lane = Lane::new(None, 1);
    lane.arrive(3, 1);
    lane.pass(ms(9_999));
    assert_eq!(lane.settled.len(), 0);
    lane.pass(ms(1));
    assert_eq!(lane.parked(ParkReason::Horizon), 2);
    assert_eq!(lane.in_flight.len(), 1);
}

#[test]
fn timeouts_halve_the_concurrency_and_successes_grow_it_back() {
    let mut lane = Lane::new(None, 16);
    lane.arrive(100, 1);
    lane.pass(ms(5_000));
    lane.end_all(End::Timeout);
    assert_eq!(lane.in_flight.len(), 8);
    for _ in 0..10 {
        let ticket = *lane.in_flight.first().unwrap();
        lane.end(ticket, End::Success);
    }
    assert_eq!(lane.in_flight.len(), 9);
}

#[test]
fn a_short_hold_delays_and_then_one_probe_goes_first() {
    let mut lane = Lane::new(None, 4);
    lane.arrive(4, 1);
    lane.end_all(End::Hold(ms(3_000)));
    lane.arrive(6, 1);
    assert_eq!(lane.room(), 0);
    assert_eq!(lane.in_flight.len(), 0);
    lane.pass(ms(2_999));
    assert_eq!(lane.in_flight.len(), 0);
    lane.pass(ms(1));
    assert_eq!(lane.in_flight.len(), 1);
    lane.end_all(End::Success);
    assert_eq!(lane.in_flight.len(), 4);
}

#[test]
fn a_hold_beyond_the_horizon_parks_until_its_end() {
    let mut lane = Lane::new(None, 2);
    let first = lane.arrive(4, 1);
    lane.end(first[0], End::Hold(ms(3_600_000)));
    let until = lane.now + ms(3_600_000);
    let back = Settle::Park {
        reason: ParkReason::Held,
        not_before: Some(until),
    };
    assert!(lane.settled.iter().all(|(_, settle, _)| *settle == back));
    assert_eq!((lane.settled.len(), lane.in_flight.len()), (2, 1));
    lane.arrive(5, 1);
    assert_eq!(lane.parked(ParkReason::Held), lane.settled.len());
    assert_eq!(lane.machine.held(), 0);
}

#[test]
fn a_second_429_after_the_probe_holds_again() {
    let mut lane = Lane::new(None, 8);
    let first = lane.arrive(1, 1);
    lane.end(first[0], End::Hold(ms(1_000)));
    lane.arrive(4, 1);
    lane.pass(ms(1_000));
    lane.end_all(End::Hold(ms(1_000)));
    assert_eq!(lane.in_flight.len(), 0);
    lane.pass(ms(1_000));
    assert_eq!(lane.in_flight.len(), 1);
    lane.end_all(End::Timeout);
    assert_eq!(lane.in_flight.len(), 1, "a timeout keeps it probing");
    lane.end_all(End::Other);
    assert_eq!(lane.in_flight.len(), 1);
}

#[test]
fn a_hold_in_the_settings_survives_a_new_owner() {
    let mut lane = Lane::unknown();
    let held = Settings {
        held_until: Some(ms(5_000)),
        ..settings(3, None, 16)
    };
    lane.step(Input::Settings(held));
    lane.arrive(4, 3);
    assert_eq!(lane.room(), 0);
    lane.pass(ms(5_000));
    assert_eq!(lane.in_flight.len(), 1);
}

#[test]
fn a_delivery_for_newer_settings_waits_for_them() {
    let mut lane = Lane::new(None, 4);
    lane.arrive(1, 2);
    assert_eq!(lane.in_flight.len(), 0);
    lane.step(Input::Settings(settings(2, None, 4)));
    assert_eq!(lane.in_flight.len(), 1);
}

#[test]
fn a_delivery_whose_settings_never_come_is_parked_at_the_horizon() {
    let mut lane = Lane::unknown();
    lane.arrive(2, 1);
    assert!(
        lane.room() > 0,
        "the settings of a new endpoint may be on their way"
    );
    lane.pass(HORIZON);
    assert_eq!(lane.parked(ParkReason::UnknownVersion), 2);
}

#[test]
fn only_so_many_wait_for_settings() {
    let mut lane = Lane::unknown();
    lane.arrive(MAX_WAITING + 5, 1);
    assert_eq!(lane.parked(ParkReason::UnknownVersion), 5);
    assert_eq!(lane.room(), 0);
}

#[test]
fn older_settings_never_replace_newer_ones() {
    let mut lane = Lane::new(None, 4);
    let paused = Settings {
        state: State::Paused,
        ..settings(5, None, 4)
    };
    lane.step(Input::Settings(paused));
    lane.step(Input::Settings(settings(4, None, 4)));
    lane.arrive(1, 1);
    assert_eq!(lane.skipped(SkipReason::Paused), 1);
}

#[test]
fn pausing_skips_what_waits_and_lets_attempts_end() {
    let mut lane = Lane::new(None, 1);
    lane.arrive(5, 1);
    for (version, state) in [
        (2, State::Paused),
        (3, State::Disabled),
        (4, State::Deleted),
    ] {
        let changed = Settings {
            state,
            ..settings(version, None, 1)
        };
        lane.step(Input::Settings(changed));
        lane.arrive(1, version);
    }
    assert_eq!(lane.skipped(SkipReason::Paused), 5);
    assert_eq!(lane.skipped(SkipReason::Disabled), 1);
    assert_eq!(lane.skipped(SkipReason::Deleted), 1);
    assert_eq!(lane.in_flight.len(), 1);
    assert!(lane.room() > 1000, "skipping takes no time");
}

#[test]
fn a_410_stops_the_lane_until_newer_settings_come() {
    let mut lane = Lane::new(None, 1);
    let first = lane.arrive(20, 1);
    lane.end(first[0], End::Gone);
    assert_eq!(lane.skipped(SkipReason::Disabled), 19);
    lane.arrive(1, 1);
    assert_eq!(lane.skipped(SkipReason::Disabled), 20);
    assert!(!lane.machine.is_evictable(lane.now));
    lane.step(Input::Settings(settings(2, None, 1)));
    lane.arrive(1, 2);
    assert_eq!(lane.in_flight.len(), 1);
}

#[test]
fn a_delivery_past_its_deadline_is_parked_for_the_scheduler_to_fail() {
    let mut lane = Lane::new(None, 1);
    lane.pulled.insert(Ticket(999), Duration::ZERO);
    let arrivals = vec![Arrival {
        ticket: Ticket(999),
        version: 1,
        pulled: Duration::ZERO,
        deadline: Duration::ZERO,
    }];
    lane.step(Input::Arrived { arrivals, share: 9 });
    assert_eq!(lane.parked(ParkReason::Horizon), 1);
}

#[test]
fn beyond_its_share_it_parks_at_once() {
    let mut lane = Lane::new(None, 1);
    lane.share = 3;
    lane.arrive(10, 1);
    assert_eq!(lane.parked(ParkReason::NoRoom), 7);
}

#[test]
fn without_a_permit_nothing_starts() {
    let mut lane = Lane::new(None, 4);
    lane.permits = 0;
    lane.arrive(4, 1);
    assert_eq!(lane.in_flight.len(), 0);
    lane.permits = 2;
    lane.step(Input::Tick);
    assert_eq!(lane.in_flight.len(), 2);
}

#[test]
fn draining_gives_back_what_has_not_started() {
    let mut lane = Lane::new(None, 2);
    lane.arrive(5, 1);
    lane.arrive(1, 9);
    lane.step(Input::Drain);
    lane.arrive(1, 1);
    let released = lane
        .settled
        .iter()
        .filter(|(_, s, _)| *s == Settle::Release);
    assert_eq!(released.count(), 5);
    assert_eq!(lane.room(), 0);
    lane.end_all(End::Success);
    assert!(lane.machine.is_idle());
}

#[test]
fn room_follows_rate_and_measured_pace() {
    let mut lane = Lane::new(Some(50), 256);
    assert_eq!(lane.room(), 50 + 500);
    lane.arrive(200, 1);
    assert_eq!(lane.room(), 500 - 150, "less what is queued already");

    let mut slow = Lane::new(None, 4);
    slow.arrive(4, 1);
    slow.pass(ms(2_000));
    slow.end_all(End::Success);
    assert_eq!(slow.room(), 20, "four slots of two seconds each");
}

#[test]
fn a_hanging_lane_has_no_room_and_an_idle_one_at_least_one() {
    let mut lane = Lane::new(None, 2);
    lane.arrive(2, 1);
    lane.pass(ms(15_000));
    assert_eq!(lane.room(), 0);
    for _ in 0..5 {
        lane.end_all(End::Timeout);
        lane.arrive(2, 1);
        lane.pass(ms(15_000));
        assert_eq!(lane.room(), 0);
    }
    lane.end_all(End::Timeout);
    assert_eq!(lane.room(), 1);
}

#[test]
fn room_keeps_to_the_lanes_share() {
    let lane = Lane::new(None, 256);
    let share = Share {
        in_flight: 1,
        held: 7,
    };
    assert_eq!(lane.machine.room(lane.now, share), 7);
    let share = Share {
        in_flight: 1,
        held: 10_000,
    };
    assert_eq!(lane.machine.room(lane.now, share), 10);
}

#[test]
fn only_a_lane_as_good_as_new_is_evicted_early() {
    let mut lane = Lane::new(Some(10), 2);
    assert!(lane.machine.is_evictable(lane.now));
    lane.arrive(1, 1);
    assert!(!lane.machine.is_evictable(lane.now), "in flight");
    lane.end_all(End::Success);
    assert!(!lane.machine.is_evictable(lane.now), "a token is missing");
    lane.pass(ms(100));
    assert!(lane.machine.is_evictable(lane.now));
    lane.arrive(1, 1);
    lane.end_all(End::Timeout);
    lane.pass(ms(10_000));
    assert!(!lane.machine.is_evictable(lane.now), "the cap is halved");
    lane.pass(LIMITS.forget_after);
    assert!(lane.machine.is_evictable(lane.now));
}

#[test]
fn a_restarted_lane_starts_without_a_burst() {
    let limits = Limits {
        cautious: true,
        ..LIMITS
    };
    let mut lane = Lane::unknown();
    lane.machine = Machine::new(limits, Duration::ZERO);
    lane.step(Input::Settings(settings(1, Some(10), 16)));
    lane.arrive(5, 1);
    assert_eq!(lane.starts.len(), 0);
    lane.pass(ms(100));
    assert_eq!(lane.starts.len(), 1);
}

#[derive(Debug, Clone)]
enum Op {
    Arrive(u32, i64),
    Pass(u64),
    End(usize, End),
    Permits(u32),
    Settings(State, u32),
    Drain,
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        6 => Just(End::Success),
        2 => Just(End::Timeout),
        1 => (0..20_000u64).prop_map(|wait| End::Hold(ms(wait))),
        2 => Just(End::Other),
        1 => Just(End::Void),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let state = prop_oneof![
        4 => Just(State::Active),
        1 => Just(State::Failing),
        1 => Just(State::Paused),
        1 => Just(State::Deleted),
    ];
    prop_oneof![
        6 => (1..40u32, prop_oneof![9 => Just(0i64), 1 => 1..4i64]).prop_map(|(n, v)| Op::Arrive(n, v)),
        6 => (0..4_000u64).prop_map(Op::Pass),
        8 => (any::<usize>(), end()).prop_map(|(n, e)| Op::End(n, e)),
        1 => prop_oneof![Just(0u32), Just(3), Just(u32::MAX)].prop_map(Op::Permits),
        1 => (state, 1..20u32).prop_map(|(s, c)| Op::Settings(s, c)),
        1 => prop_oneof![20 => Just(Op::Pass(0)), 1 => Just(Op::Drain)],
    ]
}

/// Runs the operations and then lets everything end; every panic inside is a broken rule.
fn run(rate: Option<u32>, concurrency: u32, share: u32, ops: &[Op]) -> Lane {
    let mut lane = Lane::new(rate, concurrency);
    lane.share = share;
    let mut current = settings(1, rate, concurrency);
    let mut limit = concurrency;
    let mut held_until = Duration::ZERO;
    for op in ops {
        let flying = lane.in_flight.len();
        let starts = lane.starts.len();
        let was_held = held_until > lane.now;
        match op.clone() {
            Op::Arrive(count, ahead) => {
                lane.arrive(count, current.version + ahead);
            }
            Op::Pass(by) => lane.pass(ms(by)),
            Op::End(pick, end) => {
                if let Some(&ticket) = lane.in_flight.iter().nth(pick % flying.max(1)) {
                    if let End::Hold(wait) = end {
                        held_until = held_until.max(lane.now + wait);
                    }
                    lane.end(ticket, end);
                }
            }
            Op::Permits(permits) => lane.permits = permits,
            Op::Settings(state, concurrency) => {
                limit = concurrency;
                current = Settings {
                    state,
                    ..settings(current.version + 1, rate, concurrency)
                };
                lane.step(Input::Settings(current));
            }
            Op::Drain => lane.step(Input::Drain),
        }
        let new = lane.starts.len() - starts;
        if new > 0 {
            assert!(
                lane.in_flight.len() <= limit as usize,
                "concurrency exceeded"
            );
            assert!(
                !was_held || lane.starts[starts..].iter().all(|&at| at >= held_until),
                "started during a hold"
            );
        }
        assert!(lane.machine.held() <= share, "holds more than its share");
        let known = lane.in_flight.len() + lane.machine.held() as usize;
        assert_eq!(lane.pulled.len(), known, "a ticket is lost");
    }
    lane.pass(HORIZON);
    assert_eq!(lane.machine.held(), 0, "held beyond the horizon");
    lane.end_all(End::Success);
    assert!(lane.machine.is_idle());
    assert!(lane.pulled.is_empty());
    lane
}

proptest! {
    #[test]
    fn every_delivery_leaves_once_and_in_time(
        rate in proptest::option::of(1..200u32),
        concurrency in 1..32u32,
        share in 1..200u32,
        ops in proptest::collection::vec(op(), 1..80),
    ) {
        run(rate, concurrency, share, &ops);
    }

    #[test]
    fn no_window_sees_more_than_burst_and_rate(
        rate in 1..100u32,
        concurrency in 1..64u32,
        ops in proptest::collection::vec(op(), 1..80),
    ) {
        let lane = run(Some(rate), concurrency, u32::MAX, &ops);
        for (i, from) in lane.starts.iter().enumerate() {
            for (j, to) in lane.starts.iter().enumerate().skip(i) {
                let refill = (*to - *from).as_secs_f64() * f64::from(rate);
                let allowed = f64::from(rate) + refill + 1e-6;
                prop_assert!((j - i + 1) as f64 <= allowed, "{} starts", j - i + 1);
            }
        }
    }
}
