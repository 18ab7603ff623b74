use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn start() -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000, 0).unwrap()
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn far() -> DateTime<Utc> {
    start() + TimeDelta::days(365)
}

/// The offsets of all attempts from the first, for one answer of the receiver to all of them.
fn walk(retry_after: Option<Duration>, sample: f64) -> Vec<Duration> {
    let schedule = Schedule::default();
    let deadline = schedule.deadline_from(start());
    let mut now = start();
    let mut offsets = vec![Duration::ZERO];
    for counted in 1.. {
        match schedule.next(counted, now, deadline, retry_after, sample) {
            Next::At(at) => {
                now = at;
                offsets.push((at - start()).to_std().unwrap());
            }
            Next::Exhausted(why) => {
                assert_eq!(why, Exhausted::Attempts);
                break;
            }
        }
    }
    offsets
}

#[test]
fn eight_attempts_at_the_documented_offsets() {
    let expected = [0, 5, 305, 2105, 9305, 27305, 63305, 99305].map(secs);
    assert_eq!(walk(None, 0.0), expected);
    assert_eq!(Schedule::default().attempts(), 8);
}

#[test]
fn second_failure_waits_five_minutes() {
    let next = Schedule::default().next(2, start(), far(), None, 0.0);
    assert_eq!(next, Next::At(start() + TimeDelta::minutes(5)));
}

#[test]
fn the_largest_retry_after_every_time_ends_after_thirty_hours() {
    let offsets = walk(Some(HOUR * 100), 0.0);
    assert_eq!(offsets.len(), 8);
    assert_eq!(offsets[7], HOUR * 30);
}

#[test]
fn the_largest_jitter_every_time_stays_inside_the_deadline() {
    let offsets = walk(Some(HOUR), 1.0);
    assert_eq!(offsets.len(), 8);
    assert!(offsets[7] < HOUR * 48);
}

#[test]
fn retry_after_only_delays() {
    let schedule = Schedule::default();
    // counted attempts so far, Retry-After in seconds, wait in seconds
    let table = [
        (3, 1, 1800),
        (1, 0, 5),
        (1, 6, 6),
        (1, 7200, 3600),
        (4, 7200, 7200),
        (1, u64::MAX, 3600),
        (7, 3600, 36000),
    ];
    for (counted, asked, wait) in table {
        let next = schedule.next(counted, start(), far(), Some(secs(asked)), 0.0);
        let at = start() + TimeDelta::seconds(wait);
        assert_eq!(next, Next::At(at), "attempt {counted}, Retry-After {asked}");
    }
}

#[test]
fn deadline_is_the_last_moment_not_the_first_forbidden() {
    let schedule = Schedule::default();
    let deadline = start() + TimeDelta::seconds(5);
    assert_eq!(
        schedule.next(1, start(), deadline, None, 0.0),
        Next::At(deadline)
    );
    let sooner = deadline - TimeDelta::nanoseconds(1);
    assert_eq!(
        schedule.next(1, start(), sooner, None, 0.0),
        Next::Exhausted(Exhausted::Deadline)
    );
}

#[test]
fn the_eighth_failure_is_the_last_even_with_time_left() {
    for counted in [8, 9, u8::MAX] {
        let next = Schedule::default().next(counted, start(), far(), None, 0.0);
        assert_eq!(next, Next::Exhausted(Exhausted::Attempts));
    }
}

#[test]
fn an_own_fault_comes_back_soon_but_not_after_the_deadline() {
    let schedule = Schedule::default();
    assert_eq!(
        schedule.next_after_own_fault(start(), far(), 0.0),
        Next::At(start() + TimeDelta::seconds(5))
    );
    assert_eq!(
        schedule.next_after_own_fault(start(), start(), 0.0),
        Next::Exhausted(Exhausted::Deadline)
    );
}

#[test]
fn default_is_sound_and_reads_back_as_people_write_it() {
    let schedule = Schedule::default();
    assert_eq!(schedule.validate(), []);
    let text = toml::to_string(&schedule).unwrap();
    assert!(text.contains(r#""5m", "30m", "2h""#), "{text}");
    assert_eq!(toml::from_str::<Schedule>(&text).unwrap(), schedule);
    let short: Schedule = toml::from_str(r#"delays = ["100ms", "1s"]"#).unwrap();
    assert_eq!(short.attempts(), 3);
    assert_eq!(short.deadline, schedule.deadline);
    assert!(toml::from_str::<Schedule>("delay = []").is_err());
}

#[test]
fn every_fault_is_reported_at_once_with_its_key() {
    let schedule = Schedule {
        delays: vec![Duration::ZERO, HOUR * 1000],
        deadline: HOUR * 999,
        jitter: f64::NAN,
        retry_after_cap: HOUR * 1000,
        own_fault_delay: Duration::ZERO,
    };
    let faults: Vec<String> = schedule
        .validate()
        .iter()
        .map(ToString::to_string)
        .collect();
    let keys: Vec<&str> = faults
        .iter()
        .map(|f| f.split(':').next().unwrap())
        .collect();
    assert_eq!(
        keys,
        [
            "deadline",
            "delays.0",
            "delays.1",
            "jitter",
            "retry_after_cap",
            "own_fault_delay"
        ]
    );
    let long = Schedule {
        delays: vec![HOUR; 51],
        ..Schedule::default()
    };
    assert_eq!(long.validate(), [Invalid::TooManyDelays(51)]);
}

prop_compose! {
    fn any_duration()(secs in prop_oneof![0..100_u64, 0..1_000_000_u64, any::<u64>()], nanos in 0..1_000_000_000_u32) -> Duration {
        Duration::new(secs, nanos)
    }
}

proptest! {
    #[test]
    fn never_sooner_than_the_schedule_never_later_than_the_deadline(
        counted in any::<u8>(),
        left in 0..(60 * 3600_i64),
        retry_after in proptest::option::of(any_duration()),
        sample in 0.0..1.0_f64,
    ) {
        let schedule = Schedule::default();
        let deadline = start() + TimeDelta::seconds(left);
        match schedule.next(counted, start(), deadline, retry_after, sample) {
            Next::At(at) => {
                let wait = (at - start()).to_std().unwrap();
                let delay = schedule.delays[usize::from(counted.saturating_sub(1))];
                let asked = retry_after.unwrap_or_default().min(HOUR);
                prop_assert!(wait >= delay && wait >= asked);
                prop_assert!(wait <= delay.mul_f64(1.2).max(asked) + Duration::from_micros(1));
                prop_assert!(at <= deadline);
            }
            Next::Exhausted(Exhausted::Attempts) => prop_assert!(counted >= 8),
            Next::Exhausted(Exhausted::Deadline) => prop_assert!(counted < 8),
        }
    }

    #[test]
    fn no_setting_panics(
        delays in proptest::collection::vec(any_duration(), 0..300),
        deadline in any_duration(),
        jitter in any::<f64>(),
        sample in any::<f64>(),
        counted in any::<u8>(),
        retry_after in proptest::option::of(any_duration()),
    ) {
        let schedule = Schedule {
            delays,
            deadline,
            jitter,
            retry_after_cap: deadline,
            own_fault_delay: deadline,
        };
        let _ = schedule.validate();
        let end = schedule.deadline_from(start());
        let _ = schedule.next(counted, start(), end, retry_after, sample);
        let _ = schedule.next_after_own_fault(start(), end, sample);
    }
}
