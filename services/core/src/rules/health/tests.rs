use chrono::TimeDelta;
use proptest::prelude::*;

use super::*;

const STATES: [State; 5] = [
    State::Active,
    State::Failing,
    State::Paused,
    State::Disabled,
    State::Deleted,
];

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::seconds(seconds)
}

/// Later than anything here.
fn now() -> DateTime<Utc> {
    at(1_000_000)
}

fn outcome(id: u64, seconds: i64, kind: Kind) -> Outcome {
    Outcome {
        at: at(seconds),
        id: AttemptId::for_test(id),
        kind,
    }
}

/// One failure a second, from `first` on.
fn failures(count: u64, first: i64) -> Vec<Outcome> {
    (0..count)
        .map(|n| {
            let seconds = first + i64::try_from(n).unwrap();
            outcome(seconds.unsigned_abs(), seconds, Kind::Failure)
        })
        .collect()
}

fn observe(health: &mut Health, outcomes: &[Outcome]) -> Option<Transition> {
    health.observe(outcomes, now(), &Settings::default())
}

fn disabling() -> Settings {
    Settings {
        auto_disable: true,
        ..Settings::default()
    }
}

#[test]
fn the_fifth_failure_in_a_row_makes_it_failing_and_a_success_active() {
    let mut health = Health::new(State::Active);
    assert_eq!(observe(&mut health, &failures(4, 0)), None);
    let fifth = observe(&mut health, &[outcome(9, 9, Kind::Failure)]).unwrap();
    assert_eq!((fifth.from, fifth.to), (State::Active, State::Failing));
    assert_eq!(fifth.reason, Reason::FailuresInARow);
    let run = fifth.run.unwrap();
    assert_eq!((run.failures, run.since, run.last), (5, at(0), at(9)));

    let success = observe(&mut health, &[outcome(10, 10, Kind::Success)]).unwrap();
    assert_eq!((success.from, success.to), (State::Failing, State::Active));
    assert_eq!(success.run, Some(run));
    assert_eq!((health.state, health.run), (State::Active, None));
}

#[test]
fn a_success_between_them_breaks_the_row() {
    let mut health = Health::new(State::Active);
    let mut outcomes = failures(4, 0);
    outcomes.push(outcome(4, 4, Kind::Success));
    outcomes.extend(failures(4, 5));
    assert_eq!(observe(&mut health, &outcomes), None);
    assert_eq!(health.run.unwrap().failures, 4);
    assert_eq!(health.hours.total(at(10)), 8);
}

#[test]
fn one_delivery_out_of_retries_is_enough() {
    let mut health = Health::new(State::Active);
    let last = observe(&mut health, &[outcome(1, 1, Kind::Exhausted)]).unwrap();
    assert_eq!(
        (last.to, last.reason),
        (State::Failing, Reason::DeliveryExhausted)
    );
}

#[test]
fn a_410_disables_from_every_state_that_is_not_deleted() {
    for state in STATES {
        let mut health = Health::new(state);
        let change = observe(&mut health, &[outcome(1, 1, Kind::Gone)]);
        let stays = matches!(state, State::Disabled | State::Deleted);
        assert_eq!(change.is_none(), stays, "{state:?}");
        let expected = if state == State::Deleted {
            State::Deleted
        } else {
            State::Disabled
        };
        assert_eq!(health.state, expected);
        assert!(change.is_none_or(|change| change.reason == Reason::Gone));
    }
}

#[test]
fn a_hundred_failures_disable_only_over_twelve_hours_and_where_that_is_on() {
    let hour = 3_600;
    let spread = |gap: i64| -> Vec<Outcome> {
        (0_i64..100)
            .map(|n| outcome(n.unsigned_abs(), n * gap, Kind::Failure))
            .collect()
    };
    let state = |outcomes: &[Outcome], settings: Settings| {
        let mut health = Health::new(State::Active);
        let change = health.observe(outcomes, now(), &settings);
        assert_eq!(change.map(|change| change.to), Some(health.state));
        health.state
    };
    let slow = spread(12 * hour / 99 + 1);
    assert_eq!(state(&slow, disabling()), State::Disabled);
    assert_eq!(state(&slow[..99], disabling()), State::Failing);
    assert_eq!(state(&slow, Settings::default()), State::Failing);
    assert_eq!(state(&spread(60), disabling()), State::Failing);
    // An endpoint's own word goes over the deployment's.
    let own = Settings::default().of_endpoint(Some(true));
    assert_eq!(state(&slow, own), State::Disabled);
    assert_eq!(
        state(&slow, disabling().of_endpoint(Some(false))),
        State::Failing
    );
    assert_eq!(state(&slow, disabling().of_endpoint(None)), State::Disabled);
}

#[test]
fn while_it_takes_no_deliveries_only_the_days_count_goes_on() {
    for state in [State::Paused, State::Disabled] {
        let mut health = Health::new(state);
        let mut outcomes = failures(200, 0);
        outcomes.push(outcome(500, 500, Kind::Success));
        assert_eq!(observe(&mut health, &outcomes), None);
        assert_eq!((health.state, health.run), (state, None));
        assert_eq!(health.hours.total(at(200)), 200);
    }
    let mut deleted = Health::new(State::Deleted);
    observe(&mut deleted, &failures(200, 0));
    assert_eq!(deleted, Health::new(State::Deleted));
}

#[test]
fn one_wrong_clock_does_not_silence_what_comes_later() {
    let mut health = Health::new(State::Active);
    let settings = Settings::default();
    health.observe(&[outcome(1, 900_000, Kind::Failure)], at(0), &settings);
    health.observe(&[outcome(2, 900_001, Kind::Success)], at(1), &settings);
    let change = health.observe(&failures(5, 10), at(20), &settings);
    assert_eq!(change.map(|change| change.to), Some(State::Failing));
    assert_eq!(health.hours.total(at(20)), 6);
}

#[test]
fn a_late_success_in_the_middle_of_a_run_leaves_what_is_known_to_follow() {
    let mut health = Health::new(State::Active);
    observe(&mut health, &failures(10, 0));
    let change = observe(&mut health, &[outcome(50, 5, Kind::Success)]).unwrap();
    assert_eq!(change.to, State::Active);
    assert_eq!(
        health.run.map(|run| (run.failures, run.since)),
        Some((1, at(9)))
    );
    // Failures that were before it come too late.
    assert_eq!(observe(&mut health, &failures(5, 0)), None);
    assert_eq!(health.run.map(|run| run.failures), Some(1));
    // A success from before the run says nothing of it.
    observe(&mut health, &failures(5, 20));
    assert_eq!(health.state, State::Failing);
    assert_eq!(observe(&mut health, &[outcome(60, 7, Kind::Success)]), None);
}

#[test]
fn people_pause_resume_and_delete_by_the_table() {
    use Refused::{Deleted, Disabled};
    use State::{Active, Paused};
    let table = |action| STATES.map(|state| act(state, action));
    assert_eq!(
        table(Action::Pause),
        [
            Ok(Some(Paused)),
            Ok(Some(Paused)),
            Ok(None),
            Err(Disabled),
            Err(Deleted)
        ]
    );
    assert_eq!(
        table(Action::Resume),
        [
            Ok(None),
            Ok(None),
            Ok(Some(Active)),
            Ok(Some(Active)),
            Err(Deleted)
        ]
    );
    let gone = Ok(Some(State::Deleted));
    assert_eq!(table(Action::Delete), [gone, gone, gone, gone, Ok(None)]);
}

#[test]
fn a_day_old_failure_leaves_the_count_and_a_late_one_enters_its_own_hour() {
    let mut hours = Hours::default();
    assert_eq!((hours.last(), hours.total(at(0))), (None, 0));
    let hour = 3_600;
    hours.add(at(0));
    hours.add(at(30 * hour));
    hours.add(at(29 * hour));
    hours.add(at(0));
    assert_eq!(hours.total(at(30 * hour)), 2);
    assert_eq!(hours.total(at(53 * hour)), 1);
    assert_eq!(hours.total(at(54 * hour)), 0);
    let kept = Hours::from_parts(hours.last(), &hours.counts().collect::<Vec<_>>());
    assert_eq!(kept, hours);
}

#[test]
fn settings_out_of_range_are_told_with_their_key() {
    let mut faults = Faults::new();
    Settings::default().validate(&mut faults);
    assert!(faults.is_empty(), "{faults}");
    let settings = Settings {
        failing_after: 0,
        disable_after_failures: 1,
        disable_after: Duration::ZERO,
        ..Settings::default()
    };
    settings.validate(&mut faults);
    assert_eq!(faults.found().len(), 3, "{faults}");
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        6 => Just(Kind::Failure),
        3 => Just(Kind::Success),
        1 => Just(Kind::Exhausted),
        1 => Just(Kind::Gone),
    ]
}

/// Attempts with times of their own, in order.
fn history() -> impl Strategy<Value = Vec<Outcome>> {
    prop::collection::vec((kind(), 1..20_000_i64), 1..60).prop_map(|kinds| {
        let mut seconds = 0;
        (0..)
            .zip(kinds)
            .map(|(id, (kind, gap))| {
                seconds += gap;
                outcome(id, seconds, kind)
            })
            .collect()
    })
}

/// Few failures suffice, so that every transition is met.
fn touchy() -> Settings {
    Settings {
        failing_after: 3,
        auto_disable: true,
        disable_after_failures: 6,
        disable_after: Duration::from_secs(30_000),
    }
}

fn state() -> impl Strategy<Value = State> {
    prop::sample::select(STATES.as_slice())
}

fn after(state: State, batches: &[&[Outcome]]) -> Health {
    let mut health = Health::new(state);
    for batch in batches {
        health.observe(batch, at(2_000_000), &touchy());
    }
    health
}

proptest! {
    #[test]
    fn the_order_in_a_batch_does_not_matter_and_repetitions_count_once(
        state in state(),
        (history, shuffled) in history()
            .prop_flat_map(|history| (Just(history.clone()), Just(history).prop_shuffle()))
    ) {
        let expected = after(state, &[&history]);
        prop_assert_eq!(&after(state, &[&shuffled]), &expected);
        prop_assert_eq!(&after(state, &[&[shuffled, history].concat()]), &expected);
    }

    #[test]
    fn how_a_history_is_cut_into_batches_does_not_matter(
        state in state(), history in history(), cut in 0..60_usize
    ) {
        let (first, second) = history.split_at(cut.min(history.len()));
        prop_assert_eq!(after(state, &[first, second]), after(state, &[&history]));
        let single: Vec<&[Outcome]> = history.chunks(1).collect();
        prop_assert_eq!(after(state, &single), after(state, &[&history]));
    }

    #[test]
    fn what_started_before_a_resume_never_acts_on_what_came_after(
        before in history(), late in 0..60_usize, later in history()
    ) {
        let (known, late) = before.split_at(late.min(before.len()));
        let resumed = at(1_300_000);
        let later: Vec<Outcome> = later
            .iter()
            .map(|o| Outcome { at: o.at + TimeDelta::seconds(1_300_000), ..*o })
            .collect();
        let mut health = after(State::Active, &[known]);
        health.state = State::Active;
        health.forget(resumed);
        let mut expected = health.clone();
        let now = at(9_000_000);
        expected.observe(&later, now, &touchy());
        // The late ones alone change nothing but the day's count, and neither do they afterwards.
        let change = health.observe(late, now, &touchy());
        prop_assert!(change.is_none());
        prop_assert_eq!((health.state, health.run), (State::Active, None));
        health.observe(&later, now, &touchy());
        let change = health.observe(late, now, &touchy());
        prop_assert!(change.is_none());
        prop_assert_eq!((health.state, health.run), (expected.state, expected.run));
    }

    #[test]
    fn failing_and_a_run_go_together(history in history(), cut in 0..60_usize) {
        let (first, second) = history.split_at(cut.min(history.len()));
        // Out of order too.
        let health = after(State::Active, &[second, first]);
        if health.state == State::Failing {
            prop_assert!(health.run.is_some());
        }
    }

    #[test]
    fn the_days_count_is_that_of_its_hours(
        seconds in prop::collection::vec(0..400_000_i64, 0..80), now in 0..500_000_i64
    ) {
        let mut hours = Hours::default();
        for second in &seconds {
            hours.add(at(*second));
        }
        let newest = seconds.iter().map(|s| s / 3_600).max().unwrap_or(0);
        let now = now.max(newest * 3_600);
        let hour = now / 3_600;
        let expected = seconds.iter().filter(|s| hour - *s / 3_600 < 24).count();
        prop_assert_eq!(hours.total(at(now)), expected as u64);
    }
}
