use chrono::TimeDelta;
use proptest::prelude::*;

use super::*;
use DeliveryStatus::{Cancelled, Failed, Received, Sent, Skipped, Stalled};

fn at(minute: i64) -> Option<DateTime<Utc>> {
    Some(DateTime::from_timestamp(1_700_000_000, 0).unwrap() + TimeDelta::minutes(minute))
}

fn state(series: i32, status: DeliveryStatus, drive: i32, settled: Settled) -> State {
    State {
        series,
        status,
        drive,
        settled,
        next_attempt_at: None,
        attempt_count: 0,
        last_status: None,
        failure_reason: None,
    }
}

fn received(drive: i32) -> State {
    state(1, Received, drive, Settled::None)
}

fn parked(drive: i32) -> State {
    State {
        next_attempt_at: at(0),
        ..state(1, Stalled, drive, Settled::Parked)
    }
}

fn attempted(drive: i32, count: i32, status: u16) -> State {
    State {
        next_attempt_at: at(5),
        attempt_count: count,
        last_status: Some(status),
        ..state(1, Stalled, drive, Settled::Attempted)
    }
}

fn ended(status: DeliveryStatus, drive: i32) -> State {
    state(1, status, drive, Settled::Attempted)
}

/// Both orders, which must agree.
fn both(a: &State, b: &State) -> State {
    let merged = merge(a.clone(), b.clone());
    assert_eq!(merge(b.clone(), a.clone()), merged);
    merged
}

#[test]
fn the_table_of_who_wins() {
    let later_park = State {
        next_attempt_at: at(9),
        ..parked(1)
    };
    let replayed = state(2, Received, 4, Settled::None);
    // the loser, the winner
    let table = [
        (received(1), parked(1)),
        (received(1), attempted(1, 1, 500)),
        (parked(1), attempted(1, 1, 500)),
        (
            attempted(1, 1, 500),
            State {
                attempt_count: 1,
                last_status: Some(500),
                ..received(2)
            },
        ),
        (parked(1), received(2)),
        (parked(1), later_park),
        (
            attempted(9, 0, 500),
            State {
                last_status: Some(500),
                ..ended(Skipped, 1)
            },
        ),
        (ended(Skipped, 9), ended(Failed, 1)),
        (ended(Failed, 9), ended(Cancelled, 1)),
        (ended(Cancelled, 9), ended(Sent, 1)),
        (ended(Sent, 1), ended(Sent, 2)),
        (ended(Sent, 3), replayed),
    ];
    for (loser, winner) in table {
        assert_eq!(
            both(&loser, &winner),
            winner,
            "{loser:?} against {winner:?}"
        );
    }
}

#[test]
fn a_park_after_an_attempt_keeps_its_count_and_status() {
    let park = State {
        attempt_count: 2,
        ..parked(3)
    };
    let merged = both(&attempted(2, 2, 503), &park);
    assert_eq!((merged.drive, merged.settled), (3, Settled::Parked));
    assert_eq!((merged.attempt_count, merged.last_status), (2, Some(503)));
}

#[test]
fn counts_never_shrink_within_a_series_and_start_anew_in_the_next() {
    let merged = both(&attempted(5, 5, 500), &ended(Sent, 2));
    assert_eq!((merged.status, merged.attempt_count), (Sent, 5));
    let replayed = state(2, Received, 6, Settled::None);
    assert_eq!(both(&attempted(5, 5, 500), &replayed), replayed);
}

#[test]
fn an_attempt_without_an_answer_clears_the_status_of_the_one_before() {
    let silent = State {
        last_status: None,
        ..attempted(2, 2, 0)
    };
    assert_eq!(both(&attempted(1, 1, 500), &silent).last_status, None);
}

#[test]
fn a_success_is_not_hidden_by_a_doubled_attempt() {
    let sent = State {
        attempt_count: 1,
        last_status: Some(204),
        ..ended(Sent, 1)
    };
    assert_eq!(both(&sent, &attempted(1, 1, 500)), sent);
}

#[test]
fn statuses_have_stable_names_and_ranks() {
    let table = [
        (Received, "received", 0),
        (Stalled, "stalled", 0),
        (Skipped, "skipped", 1),
        (Failed, "failed", 2),
        (Cancelled, "cancelled", 3),
        (Sent, "sent", 4),
    ];
    assert_eq!(DeliveryStatus::ALL, table.map(|(status, ..)| status));
    for (status, name, rank) in table {
        assert_eq!(status.to_string(), name);
        assert_eq!(name.parse(), Ok(status));
        assert_eq!(status.rank(), rank);
        assert_eq!(status.is_terminal(), rank > 0);
    }
    assert!("SENT".parse::<DeliveryStatus>().is_err());
    for settled in [Settled::None, Settled::Parked, Settled::Attempted] {
        assert_eq!(Settled::from_rank(settled.rank()), Some(settled));
    }
    assert_eq!(Settled::from_rank(3), None);
}

prop_compose! {
    /// Few values a field, so that ties and near ties are common.
    fn any_state()(
        series in 1..3_i32,
        status in proptest::sample::select(&DeliveryStatus::ALL[..]),
        drive in 1..4_i32,
        settled in 0..3_i16,
        next in proptest::option::of(0..3_i64),
        attempt_count in 0..3_i32,
        last_status in proptest::option::of(proptest::sample::select(&[200_u16, 204, 410, 500][..])),
        failure_reason in proptest::option::of("[ab]"),
    ) -> State {
        State {
            series,
            status,
            drive,
            settled: Settled::from_rank(settled).unwrap(),
            next_attempt_at: next.and_then(at),
            attempt_count,
            last_status,
            failure_reason,
        }
    }
}

fn fold(states: &[State], order: &[usize]) -> State {
    let (first, rest) = order.split_first().unwrap();
    rest.iter().fold(states[*first].clone(), |sum, &index| {
        merge(sum, states[index].clone())
    })
}

/// Calls `each` with every order of `0..n` (Heap's algorithm).
fn permutations(items: &mut Vec<usize>, n: usize, each: &mut impl FnMut(&[usize])) {
    if n <= 1 {
        return each(items);
    }
    for i in 0..n {
        permutations(items, n - 1, each);
        items.swap(if n.is_multiple_of(2) { i } else { 0 }, n - 1);
    }
}

proptest! {
    #[test]
    fn merging_commutes_associates_and_repeats_freely(a in any_state(), b in any_state(), c in any_state()) {
        let ab = merge(a.clone(), b.clone());
        prop_assert_eq!(&merge(b.clone(), a.clone()), &ab);
        prop_assert_eq!(&merge(a.clone(), a.clone()), &a);
        prop_assert_eq!(&merge(ab.clone(), a.clone()), &ab);
        prop_assert_eq!(&merge(ab.clone(), b.clone()), &ab);
        prop_assert_eq!(merge(ab, c.clone()), merge(a, merge(b, c)));
    }

    #[test]
    fn every_order_of_arrival_ends_in_one_state(states in proptest::collection::vec(any_state(), 1..6)) {
        let mut order: Vec<usize> = (0..states.len()).collect();
        let expected = fold(&states, &order);
        let mut seen = 0_usize;
        let mut agree = true;
        permutations(&mut order, states.len(), &mut |order| {
            seen += 1;
            agree &= fold(&states, order) == expected;
        });
        prop_assert!(agree);
        prop_assert_eq!(seen, (1..=states.len()).product::<usize>());
    }

    #[test]
    fn any_order_with_repetitions_ends_in_the_same_state(
        states in proptest::collection::vec(any_state(), 1..6),
        picks in proptest::collection::vec(any::<proptest::sample::Index>(), 0..10),
    ) {
        let all: Vec<usize> = (0..states.len()).collect();
        let mut repeated: Vec<usize> = picks.iter().map(|p| p.index(states.len())).collect();
        repeated.extend(&all);
        prop_assert_eq!(fold(&states, &repeated), fold(&states, &all));
    }

    #[test]
    fn a_merge_never_goes_back(a in any_state(), b in any_state()) {
        let merged = merge(a.clone(), b);
        prop_assert!(merged.series >= a.series);
        if merged.series == a.series {
            prop_assert!(merged.status.rank() >= a.status.rank());
            prop_assert!(merged.attempt_count >= a.attempt_count);
            if merged.status.rank() == a.status.rank() {
                prop_assert!(merged.drive >= a.drive);
            }
        }
    }
}
