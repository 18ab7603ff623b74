//! Any order of records ends in the row that the merge rule names.

use hooklane_core::rules::merge::{DeliveryStatus, Settled, State, merge};
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::record::{FailureReason, ParkReason, Record, SkipReason, Verdict};
use sqlx::Row as _;

use crate::ledger::{Ledger, at, attempt, drive, failed, noon, parked, retry, sent, skipped};

/// All orders of `0..n`.
fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(n - 1) {
        for place in 0..n {
            let mut longer = shorter.clone();
            longer.insert(place, n - 1);
            all.push(longer);
        }
    }
    all
}

/// What a record says, written down a second time and without the code under test.
fn state(record: &Record) -> State {
    let drive = record.drive();
    let mut state = State {
        series: drive.series,
        status: DeliveryStatus::Stalled,
        drive: drive.drive,
        settled: Settled::Parked,
        next_attempt_at: None,
        attempt_count: 0,
        last_status: None,
        failure_reason: None,
    };
    match record {
        Record::Attempt(attempt) => {
            state.settled = Settled::Attempted;
            state.attempt_count = attempt.number;
            state.last_status = attempt.status;
            match &attempt.verdict {
                Verdict::Sent => state.status = DeliveryStatus::Sent,
                Verdict::Failed { reason } => {
                    state.status = DeliveryStatus::Failed;
                    state.failure_reason = Some(reason.as_str().to_owned());
                }
                Verdict::Retry { next_attempt_at } => {
                    state.next_attempt_at = Some(*next_attempt_at);
                }
            }
        }
        Record::Parked(parked) => state.next_attempt_at = Some(parked.next_attempt_at),
        Record::Skipped(skipped) => {
            let (status, reason) = match skipped.reason {
                SkipReason::Paused => (DeliveryStatus::Skipped, "paused"),
                SkipReason::Disabled => (DeliveryStatus::Skipped, "disabled"),
                SkipReason::Deleted => (DeliveryStatus::Cancelled, "deleted"),
            };
            state.status = status;
            state.failure_reason = Some(reason.to_owned());
        }
    }
    state
}

fn initial() -> State {
    State {
        series: 1,
        status: DeliveryStatus::Received,
        drive: 1,
        settled: Settled::None,
        next_attempt_at: None,
        attempt_count: 0,
        last_status: None,
        failure_reason: None,
    }
}

async fn rows(ledger: &Ledger) -> Vec<State> {
    sqlx::query(
        "SELECT series, status::text, drive, settled, next_attempt_at, attempt_count, last_status,
                failure_reason FROM hooklane.deliveries ORDER BY message_id",
    )
    .fetch_all(&mut ledger.connect().await)
    .await
    .unwrap()
    .into_iter()
    .map(|row| {
        let status: DeliveryStatus = row.get::<String, _>(1).parse().unwrap();
        State {
            series: row.get(0),
            status,
            drive: row.get(2),
            settled: Settled::from_rank(row.get(3)).unwrap(),
            next_attempt_at: (status == DeliveryStatus::Stalled).then(|| row.get(4)),
            attempt_count: row.get(5),
            last_status: row.get::<Option<i16>, _>(6).map(i16::unsigned_abs),
            failure_reason: row.get(7),
        }
    })
    .collect()
}

/// Gives each permutation of the records a delivery of its own, applies them in that order, one at
/// a time and in pairs, and compares every row with the rule.
async fn all_orders_agree(records: fn(DeliveryKey, u64) -> Vec<Record>) {
    for at_once in [1, 2] {
        let ledger = Ledger::new().await;
        let endpoint = ledger.endpoint(1).await;
        let mut orders = Vec::new();
        let keys = ledger.deliveries(1..121, endpoint, noon()).await;
        let number = records(keys[0], 0).len();
        for ((n, key), order) in (1_u64..).zip(keys).zip(permutations(number)) {
            let records = records(key, n * 100);
            orders.push(
                order
                    .into_iter()
                    .map(|i| records[i].clone())
                    .collect::<Vec<_>>(),
            );
        }
        let expected = orders[0].iter().map(state).fold(initial(), merge);
        for round in 0..number.div_ceil(at_once) {
            let batch: Vec<Record> = orders
                .iter()
                .flat_map(|order| {
                    order
                        .chunks(at_once)
                        .nth(round)
                        .unwrap_or_default()
                        .to_vec()
                })
                .collect();
            ledger.store.apply(&batch).await.unwrap();
        }
        for (order, row) in orders.iter().zip(rows(&ledger).await) {
            assert_eq!(row, expected, "{order:#?}");
        }
        let attempts = orders[0]
            .iter()
            .filter(|record| matches!(record, Record::Attempt(_)))
            .count();
        assert_eq!(
            ledger
                .one::<i64>("SELECT count(*) FROM hooklane.attempts")
                .await,
            i64::try_from(attempts * orders.len()).unwrap()
        );
    }
}

#[tokio::test]
async fn retries_parks_and_a_success_agree_in_every_order() {
    all_orders_agree(|key, id| {
        vec![
            retry(drive(key, 1), id + 1, 1, at(5)),
            parked(drive(key, 2), ParkReason::NoRoom, at(5)),
            retry(drive(key, 3), id + 2, 2, at(300)),
            sent(drive(key, 4), id + 3, 3),
            skipped(drive(key, 5), SkipReason::Paused),
        ]
    })
    .await;
}

#[tokio::test]
async fn what_ends_a_delivery_agrees_in_every_order() {
    all_orders_agree(|key, id| {
        vec![
            failed(drive(key, 3), id + 1, 8, FailureReason::Exhausted),
            failed(drive(key, 3), id + 2, 8, FailureReason::Deadline),
            skipped(drive(key, 4), SkipReason::Deleted),
            skipped(drive(key, 2), SkipReason::Disabled),
            parked(drive(key, 5), ParkReason::Held, at(60)),
        ]
    })
    .await;
}

#[tokio::test]
async fn two_ends_of_one_drive_agree_in_every_order() {
    all_orders_agree(|key, id| {
        let mut answered = attempt(
            drive(key, 2),
            id + 3,
            2,
            Verdict::Retry {
                next_attempt_at: at(10),
            },
        );
        answered.status = Some(503);
        vec![
            parked(drive(key, 2), ParkReason::Horizon, at(500)),
            retry(drive(key, 2), id + 1, 2, at(300)),
            retry(drive(key, 2), id + 2, 2, at(200)),
            Record::Attempt(answered),
            retry(drive(key, 1), id + 4, 1, at(900)),
        ]
    })
    .await;
}

#[tokio::test]
async fn a_replays_series_wins_over_the_one_before_in_every_order() {
    all_orders_agree(|key, id| {
        let mut replayed = drive(key, 4);
        replayed.series = 2;
        let mut parked_again = drive(key, 5);
        parked_again.series = 2;
        vec![
            failed(drive(key, 3), id + 1, 8, FailureReason::Exhausted),
            sent(drive(key, 2), id + 2, 7),
            retry(replayed, id + 3, 9, at(5)),
            parked(parked_again, ParkReason::NoRoom, at(5)),
        ]
    })
    .await;
}
