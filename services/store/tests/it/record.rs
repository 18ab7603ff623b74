//! Records into rows.

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_proto::record::{FailureReason, ParkReason, Record, SkipReason, Verdict};
use hooklane_store::record::Applied;

use crate::ledger::{Ledger, at, attempt, drive, failed, noon, parked, retry, sent, skipped};

mod health;
mod order;
mod speed;

async fn status(ledger: &Ledger) -> String {
    ledger
        .one("SELECT status::text FROM hooklane.deliveries")
        .await
}

#[tokio::test]
async fn a_sent_attempt_ends_the_delivery_and_is_kept_whole() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    let mut record = attempt(drive(key, 1), 1, 1, Verdict::Sent);
    record.headers = vec![("x".to_owned(), "nul \0 here".to_owned())];
    record.body = b"\0\xff".to_vec();
    record.detail = Some("a\0b".to_owned());
    let applied = ledger
        .store
        .apply(&[Record::Attempt(record)])
        .await
        .unwrap();
    assert_eq!(
        applied,
        Applied {
            attempts: 1,
            changed: 1,
            ..Applied::default()
        }
    );
    assert_eq!(status(&ledger).await, "sent");
    assert_eq!(
        ledger
            .one::<String>("SELECT headers->0->>1 FROM hooklane.attempts")
            .await,
        "nul \u{fffd} here"
    );
    assert_eq!(
        ledger
            .one::<Vec<u8>>("SELECT body FROM hooklane.attempts")
            .await,
        b"\0\xff"
    );
    assert_eq!(
        ledger
            .one::<DateTime<Utc>>("SELECT settled_at FROM hooklane.deliveries")
            .await,
        noon() + TimeDelta::microseconds(1_500)
    );
    assert_eq!(
        ledger
            .one::<i64>("SELECT count(*) FROM hooklane.backlogs")
            .await,
        0
    );
}

#[tokio::test]
async fn a_record_applied_again_changes_nothing() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    let batch = [
        retry(drive(key, 1), 1, 1, at(5)),
        retry(drive(key, 1), 1, 1, at(5)),
    ];
    let first = ledger.store.apply(&batch).await.unwrap();
    assert_eq!((first.attempts, first.changed), (1, 1));
    let second = ledger.store.apply(&batch).await.unwrap();
    assert_eq!(
        second,
        Applied {
            outranked: 1,
            ..Applied::default()
        }
    );
    assert_eq!(
        ledger
            .one::<i64>("SELECT count(*) FROM hooklane.attempts")
            .await,
        1
    );
    assert_eq!(
        ledger
            .one::<i32>("SELECT attempt_count FROM hooklane.deliveries")
            .await,
        1
    );
}

#[tokio::test]
async fn an_attempt_that_loses_its_rank_is_still_in_the_log_and_counted() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    ledger
        .store
        .apply(&[sent(drive(key, 1), 1, 1)])
        .await
        .unwrap();
    let late = ledger
        .store
        .apply(&[retry(drive(key, 2), 2, 2, at(5))])
        .await
        .unwrap();
    assert_eq!(late.attempts, 1);
    assert_eq!(status(&ledger).await, "sent");
    assert_eq!(
        ledger
            .one::<i32>("SELECT attempt_count FROM hooklane.deliveries")
            .await,
        2
    );
}

#[tokio::test]
async fn a_stalled_delivery_is_in_its_endpoints_backlog_at_the_earliest_due_time() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let first = ledger.delivery(1, endpoint, noon()).await;
    let second = ledger.delivery(2, endpoint, noon()).await;
    let due = "SELECT due_at FROM hooklane.backlogs";
    ledger
        .store
        .apply(&[retry(drive(first, 1), 1, 1, at(300))])
        .await
        .unwrap();
    assert_eq!(ledger.one::<DateTime<Utc>>(due).await, at(300));
    let park = parked(drive(second, 1), ParkReason::NoRoom, at(5));
    ledger
        .store
        .apply(std::slice::from_ref(&park))
        .await
        .unwrap();
    assert_eq!(ledger.one::<DateTime<Utc>>(due).await, at(5));
    ledger.store.apply(&[park]).await.unwrap();
    assert_eq!(ledger.one::<DateTime<Utc>>(due).await, at(5));
}

#[tokio::test]
async fn a_410_disables_its_endpoint_once() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    let gone = [failed(drive(key, 1), 1, 1, FailureReason::Gone)];
    let state = "SELECT state::text FROM hooklane.endpoints";
    let version = "SELECT version FROM hooklane.endpoints";
    let before = ledger.one::<i64>(version).await;
    assert_eq!(ledger.store.apply(&gone).await.unwrap().disabled, 1);
    assert_eq!(ledger.one::<String>(state).await, "disabled");
    assert!(ledger.one::<i64>(version).await > before);
    assert_eq!(status(&ledger).await, "failed");

    ledger
        .sql("UPDATE hooklane.endpoints SET state = 'active'")
        .await;
    assert_eq!(ledger.store.apply(&gone).await.unwrap().disabled, 0);
    assert_eq!(ledger.one::<String>(state).await, "active");
}

#[tokio::test]
async fn a_hold_is_only_ever_made_longer() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    let now = clock::now();
    let until = |seconds| now + TimeDelta::seconds(seconds);
    let mut records = Vec::new();
    for (n, seconds) in [(1, 60), (2, 90), (3, 30), (4, -1)] {
        let verdict = Verdict::Retry {
            next_attempt_at: until(seconds),
        };
        let mut record = attempt(drive(key, n), u64::from(n.unsigned_abs()), n, verdict);
        record.hold_until = Some(until(seconds));
        records.push(Record::Attempt(record));
    }
    let held = "SELECT held_until FROM hooklane.endpoints";
    // One that is over already changes nothing.
    assert_eq!(ledger.store.apply(&records[3..]).await.unwrap().held, 0);
    assert_eq!(ledger.store.apply(&records[..2]).await.unwrap().held, 1);
    assert_eq!(ledger.one::<DateTime<Utc>>(held).await, until(90));
    let version = ledger
        .one::<i64>("SELECT version FROM hooklane.endpoints")
        .await;
    assert_eq!(ledger.store.apply(&records[2..]).await.unwrap().held, 0);
    assert_eq!(ledger.one::<DateTime<Utc>>(held).await, until(90));
    assert_eq!(
        ledger
            .one::<i64>("SELECT version FROM hooklane.endpoints")
            .await,
        version
    );
}

#[tokio::test]
async fn the_fifth_fault_is_poison() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    for n in 1..=5 {
        let fault = [parked(drive(key, n), ParkReason::Fault, at(60))];
        let applied = ledger.store.apply(&fault).await.unwrap();
        assert_eq!(applied.poisoned, u64::from(n == 5), "fault {n}");
        ledger.store.apply(&fault).await.unwrap();
        assert_eq!(
            ledger
                .one::<i32>("SELECT faults FROM hooklane.deliveries")
                .await,
            n
        );
    }
    assert_eq!(status(&ledger).await, "failed");
    assert_eq!(
        ledger
            .one::<String>("SELECT failure_reason FROM hooklane.deliveries")
            .await,
        "poison"
    );
}

#[tokio::test]
async fn records_of_a_dropped_day_are_counted_and_hold_nothing_up() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let here = ledger.delivery(1, endpoint, noon()).await;
    let mut gone = here;
    gone.accepted_at = at(-40 * 86_400);
    let applied = ledger
        .store
        .apply(&[sent(drive(here, 1), 1, 1), sent(drive(gone, 1), 2, 1)])
        .await
        .unwrap();
    assert_eq!((applied.changed, applied.missing), (1, 1));
}

#[tokio::test]
async fn an_attempt_of_a_day_without_a_partition_makes_it() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    let mut late = attempt(drive(key, 1), 1, 1, Verdict::Sent);
    late.started_at = at(3 * 86_400);
    ledger
        .store
        .apply(&[Record::Attempt(late.clone())])
        .await
        .unwrap();
    // Known to this process, and dropped by another.
    ledger.sql("DROP TABLE hooklane.attempts_20260304").await;
    ledger.store.apply(&[Record::Attempt(late)]).await.unwrap();
    assert_eq!(
        ledger
            .one::<i64>("SELECT count(*) FROM hooklane.attempts_20260304")
            .await,
        1
    );
}

#[tokio::test]
async fn an_unwritable_record_fails_its_batch_whole_and_says_that_the_data_is_to_blame() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    let other = ledger.delivery(2, endpoint, noon()).await;
    let unwritable = parked(
        drive(other, 1),
        ParkReason::NoRoom,
        DateTime::<Utc>::MIN_UTC,
    );
    let batch = [sent(drive(key, 1), 1, 1), unwritable];
    let error = ledger.store.apply(&batch).await.unwrap_err();
    assert!(error.is_data_fault() && !error.is_transient(), "{error}");
    assert_eq!(
        ledger
            .one::<i64>("SELECT count(*) FROM hooklane.attempts")
            .await,
        0
    );

    ledger.store.apply(&batch[..1]).await.unwrap();
    ledger.store.fail_as_poison(&batch[1..]).await.unwrap();
    assert_eq!(
        ledger
            .one::<String>(
                "SELECT string_agg(status || ':' || coalesce(failure_reason, ''), ' ' ORDER BY message_id)
                   FROM hooklane.deliveries"
            )
            .await,
        "sent: failed:poison"
    );
}

#[tokio::test]
async fn what_a_pause_or_a_delete_ended_obeys_the_rank() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let paused = ledger.delivery(1, endpoint, noon()).await;
    let deleted = ledger.delivery(2, endpoint, noon()).await;
    ledger
        .store
        .apply(&[
            skipped(drive(paused, 1), SkipReason::Paused),
            skipped(drive(deleted, 1), SkipReason::Deleted),
        ])
        .await
        .unwrap();
    ledger
        .store
        .apply(&[
            retry(drive(paused, 2), 1, 1, at(5)),
            failed(drive(deleted, 2), 2, 1, FailureReason::Exhausted),
        ])
        .await
        .unwrap();
    assert_eq!(
        ledger
            .one::<String>(
                "SELECT string_agg(status || ':' || failure_reason, ' ' ORDER BY message_id)
                   FROM hooklane.deliveries"
            )
            .await,
        "skipped:paused cancelled:deleted"
    );
    ledger
        .store
        .apply(&[sent(drive(deleted, 1), 3, 1)])
        .await
        .unwrap();
    assert_eq!(
        ledger
            .one::<i64>("SELECT count(*) FROM hooklane.deliveries WHERE status = 'sent'")
            .await,
        1
    );
}

#[tokio::test]
async fn overlapping_batches_of_two_recorders_end_in_the_same_rows() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let mut forward = Vec::new();
    for (n, key) in (1..).zip(ledger.deliveries(1..201, endpoint, noon()).await) {
        forward.push(retry(drive(key, 1), n, 1, at(5)));
        forward.push(parked(drive(key, 1), ParkReason::Horizon, at(0)));
    }
    let mut backward = forward.clone();
    backward.reverse();
    let other = ledger.another_store().await;
    for _ in 0..20 {
        let (a, b) = tokio::join!(ledger.store.apply(&forward), other.apply(&backward));
        a.unwrap();
        b.unwrap();
    }
    assert_eq!(
        ledger
            .one::<i64>(
                "SELECT count(*) FROM hooklane.deliveries
                  WHERE status = 'stalled' AND settled = 2 AND attempt_count = 1"
            )
            .await,
        200
    );
    assert_eq!(
        ledger
            .one::<i64>("SELECT count(*) FROM hooklane.attempts")
            .await,
        200
    );
}
