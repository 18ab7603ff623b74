use proptest::prelude::*;

use super::*;

const SEC: Duration = Duration::from_secs(1);

fn per_second(rate: u32, burst: u32) -> Rate {
    Rate::per_second(rate, Some(burst)).unwrap()
}

fn drain(bucket: &mut TokenBucket, now: Duration) -> u32 {
    let mut taken = 0;
    while taken < 100_000 && bucket.try_take(now).is_ok() {
        taken += 1;
    }
    taken
}

#[test]
fn rates_outside_the_limits_are_refused() {
    assert_eq!(Rate::per_second(0, None), Err(InvalidRate::Rate(0)));
    assert_eq!(Rate::per_second(1001, None), Err(InvalidRate::Rate(1001)));
    assert_eq!(
        Rate::per_second(70_000, None),
        Err(InvalidRate::Rate(70_000))
    );
    assert_eq!(Rate::per_second(1, Some(0)), Err(InvalidRate::Burst(0)));
    assert_eq!(
        Rate::per_second(1, Some(10_001)),
        Err(InvalidRate::Burst(10_001))
    );
    assert_eq!(Rate::per_second(50, None), Ok(per_second(50, 50)));
    assert!(Rate::per_second(1000, Some(10_000)).is_ok());
}

#[test]
fn a_full_bucket_gives_its_burst_then_the_rate() {
    let mut bucket = TokenBucket::new(per_second(50, 100), SEC);
    assert_eq!(bucket.available(SEC), 100);
    assert_eq!(drain(&mut bucket, SEC), 100);
    assert_eq!(bucket.available(SEC), 0);
    assert_eq!(bucket.try_take(SEC), Err(Wait(Duration::from_millis(20))));
    assert_eq!(drain(&mut bucket, SEC * 2), 50);
    assert_eq!(drain(&mut bucket, SEC * 1000), 100);
}

#[test]
fn the_wait_is_exact_and_rounds_up() {
    let mut bucket = TokenBucket::new(per_second(3, 1), Duration::ZERO);
    assert!(bucket.try_take(Duration::ZERO).is_ok());
    let Err(Wait(wait)) = bucket.try_take(Duration::ZERO) else {
        panic!("a token too many")
    };
    assert_eq!(wait, Duration::from_nanos(333_333_334));
    assert!(bucket.try_take(wait - Duration::from_nanos(1)).is_err());
    assert!(bucket.try_take(wait).is_ok());
}

#[test]
fn asking_often_loses_nothing() {
    let mut bucket = TokenBucket::new(per_second(7, 1), Duration::ZERO);
    let taken = (0..=10_000_000_u64)
        .step_by(777)
        .filter(|&micros| bucket.try_take(Duration::from_micros(micros)).is_ok())
        .count();
    assert_eq!(taken, 70);
}

#[test]
fn a_clock_running_back_mints_nothing() {
    let mut bucket = TokenBucket::new(per_second(10, 5), SEC * 100);
    assert_eq!(drain(&mut bucket, SEC * 100), 5);
    for _ in 0..10 {
        assert!(bucket.try_take(SEC).is_err());
        assert_eq!(bucket.available(SEC), 0);
        assert_eq!(drain(&mut bucket, SEC * 100), 0);
    }
    assert_eq!(
        bucket.try_take(SEC * 99),
        Err(Wait(Duration::from_millis(1100)))
    );
}

#[test]
fn full_means_that_waiting_adds_nothing() {
    let mut bucket = TokenBucket::new(per_second(10, 10), Duration::ZERO);
    assert!(bucket.is_full(Duration::ZERO));
    bucket.try_take(Duration::ZERO).unwrap();
    assert!(!bucket.is_full(Duration::from_millis(99)));
    assert!(bucket.is_full(Duration::from_millis(100)));
}

#[test]
fn unlimited_always_gives_and_is_full() {
    let mut bucket = TokenBucket::new(Rate::Unlimited, Duration::ZERO);
    assert_eq!(drain(&mut bucket, Duration::ZERO), 100_000);
    assert!(bucket.is_full(Duration::ZERO));
    assert_eq!(bucket.available(Duration::ZERO), u32::MAX);
}

#[test]
fn reconfiguring_keeps_tokens_and_adds_none() {
    let mut bucket = TokenBucket::new(per_second(10, 10), Duration::ZERO);
    for _ in 0..4 {
        bucket.try_take(Duration::ZERO).unwrap();
    }
    bucket.reconfigure(per_second(1000, 1000), Duration::ZERO);
    assert_eq!(bucket.available(Duration::ZERO), 6);
    bucket.reconfigure(per_second(1, 2), Duration::ZERO);
    assert_eq!(bucket.available(Duration::ZERO), 2);
    bucket.reconfigure(Rate::Unlimited, Duration::ZERO);
    assert!(bucket.try_take(Duration::ZERO).is_ok());
    bucket.reconfigure(per_second(1, 3), Duration::ZERO);
    assert_eq!(bucket.available(Duration::ZERO), 3);
    assert_eq!(bucket.rate(), per_second(1, 3));
}

#[test]
fn time_before_a_new_rate_counts_at_the_old_one() {
    let mut bucket = TokenBucket::new(per_second(1, 100), Duration::ZERO);
    assert_eq!(drain(&mut bucket, Duration::ZERO), 100);
    bucket.reconfigure(per_second(1000, 1000), SEC * 3);
    assert_eq!(bucket.available(SEC * 3), 3);
}

#[test]
fn the_longest_pause_does_not_overflow() {
    let mut bucket = TokenBucket::new(per_second(1000, 10_000), Duration::ZERO);
    assert_eq!(drain(&mut bucket, Duration::ZERO), 10_000);
    assert_eq!(bucket.available(Duration::MAX), 10_000);
    assert_eq!(drain(&mut bucket, Duration::MAX), 10_000);
}

proptest! {
    /// The invariant, over every window between two takes, with a clock that also jumps back.
    #[test]
    fn no_window_sees_more_than_burst_plus_rate_times_t(
        rate in 1..=1000_u32,
        burst in 1..=40_u32,
        steps in proptest::collection::vec(
            (prop_oneof![
                4 => -2_000_000..20_000_000_i64,
                1 => -5_000_000_000..5_000_000_000_i64,
            ], 0..30_usize),
            1..40,
        ),
    ) {
        let mut bucket = TokenBucket::new(per_second(rate, burst), Duration::ZERO);
        let (mut clock, mut latest) = (0_i64, 0_i64);
        let mut takes: Vec<u64> = Vec::new();
        for (advance, asks) in steps {
            clock = (clock + advance).max(0);
            if asks > 0 {
                // A reading that the bucket is not shown is none.
                latest = latest.max(clock);
            }
            let now = Duration::from_nanos(clock.unsigned_abs());
            for _ in 0..asks {
                if bucket.available(now) > 0 {
                    prop_assert!(bucket.try_take(now).is_ok());
                    takes.push(latest.unsigned_abs());
                } else {
                    prop_assert!(bucket.try_take(now).is_err());
                }
            }
        }
        for (i, from) in takes.iter().enumerate() {
            for (j, to) in takes.iter().enumerate().skip(i) {
                let given = u64::try_from(j - i + 1).unwrap();
                let beyond_burst = given.saturating_sub(u64::from(burst));
                prop_assert!(beyond_burst * TOKEN <= u64::from(rate) * (to - from));
            }
        }
    }

    /// And it never waits longer than it must: after the wait the token is there.
    #[test]
    fn the_token_is_there_after_the_wait(
        rate in 1..=1000_u32,
        burst in 1..=40_u32,
        jumps in proptest::collection::vec(0..3_000_000_000_u64, 1..50),
    ) {
        let mut bucket = TokenBucket::new(per_second(rate, burst), Duration::ZERO);
        let mut now = Duration::ZERO;
        for jump in jumps {
            now += Duration::from_nanos(jump);
            let _ = drain(&mut bucket, now);
            if let Err(Wait(wait)) = bucket.try_take(now) {
                prop_assert!(bucket.try_take(now + wait - Duration::from_nanos(1)).is_err());
                now += wait;
                prop_assert!(bucket.try_take(now).is_ok());
            }
        }
    }

    #[test]
    fn changing_the_rate_never_adds_tokens(
        settings in proptest::collection::vec((1..=1000_u32, 1..=100_u32, 0..50_u32), 1..30),
    ) {
        let mut bucket = TokenBucket::new(per_second(1, 1), Duration::ZERO);
        for (rate, burst, takes) in settings {
            let before = bucket.available(Duration::ZERO);
            bucket.reconfigure(per_second(rate, burst), Duration::ZERO);
            prop_assert_eq!(bucket.available(Duration::ZERO), before.min(burst));
            for _ in 0..takes {
                let _ = bucket.try_take(Duration::ZERO);
            }
        }
    }
}
