//! What attempts do to endpoints, and who is told.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_core::rules::health::Settings;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::EndpointId;
use hooklane_proto::record::{FailureReason, ParkReason, Record, Verdict};
use hooklane_proto::route::State;
use hooklane_store::endpoint::{self, Endpoint};

use crate::ledger::{Ledger, at, attempt, drive, failed, noon, parked, retry, sent};

/// A first attempt at `seconds` after noon; its number is its id.
fn tried(key: DeliveryKey, id: u64, seconds: i64, verdict: Verdict) -> Record {
    let mut record = attempt(drive(key, 1), id, 1, verdict);
    record.started_at = at(seconds);
    Record::Attempt(record)
}

fn again() -> Verdict {
    Verdict::Retry {
        next_attempt_at: at(300),
    }
}

/// Failures of different deliveries, one a second from `first` on.
async fn failures(ledger: &Ledger, endpoint: EndpointId, first: u64, count: u64) -> Vec<Record> {
    let keys = ledger
        .deliveries(first..first + count, endpoint, noon())
        .await;
    (first..)
        .zip(keys)
        .map(|(n, key)| tried(key, n, i64::try_from(n).unwrap(), again()))
        .collect()
}

async fn show(ledger: &Ledger, endpoint: EndpointId) -> Endpoint {
    endpoint::show(&ledger.store, endpoint).await.unwrap()
}

/// The types of the events written so far, in their order.
async fn events(ledger: &Ledger) -> Vec<String> {
    let types = ledger
        .sql("SELECT event_type FROM hooklane.operational_events ORDER BY position")
        .await;
    types.lines().map(str::to_owned).collect()
}

/// The `data` of the last event.
async fn last_event(ledger: &Ledger) -> serde_json::Value {
    let payload = ledger
        .sql("SELECT payload FROM hooklane.operational_events ORDER BY position DESC LIMIT 1")
        .await;
    let event: serde_json::Value = serde_json::from_str(&payload).unwrap();
    event["data"].clone()
}

#[tokio::test]
async fn five_failures_make_it_failing_and_a_success_brings_it_back() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let before = show(&ledger, endpoint).await;
    let five = failures(&ledger, endpoint, 1, 5).await;
    let applied = ledger.store.apply(&five[..4]).await.unwrap();
    assert_eq!((applied.failing, applied.attempts), (0, 4));
    let applied = ledger.store.apply(&five[4..]).await.unwrap();
    assert_eq!(applied.failing, 1);
    let failing = show(&ledger, endpoint).await;
    assert_eq!(failing.state, State::Failing);
    assert_eq!(failing.consecutive_failures, 5);
    assert_eq!(failing.failing_since, Some(at(1)));
    // Something to the lanes it is not.
    assert_eq!(failing.version, before.version);
    let data = last_event(&ledger).await;
    assert_eq!(data["endpoint"], endpoint.to_string());
    assert_eq!(data["consumer"], "acme");
    assert_eq!(data["reason"], "failures_in_a_row");
    assert_eq!(data["consecutive_failures"], 5);

    let key = ledger.delivery(9, endpoint, noon()).await;
    let success = [tried(key, 9, 9, Verdict::Sent)];
    let applied = ledger.store.apply(&success).await.unwrap();
    assert_eq!(applied.recovered, 1);
    let well = show(&ledger, endpoint).await;
    assert_eq!(well.state, State::Active);
    assert_eq!((well.consecutive_failures, well.failing_since), (0, None));
    assert_eq!(well.version, before.version);
    assert_eq!(last_event(&ledger).await["consecutive_failures"], 5);
    assert_eq!(
        events(&ledger).await,
        ["hooklane.endpoint.failing", "hooklane.endpoint.recovered"]
    );
}

#[tokio::test]
async fn a_record_that_comes_again_counts_once() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let four = failures(&ledger, endpoint, 1, 4).await;
    let health = "SELECT h FROM hooklane.endpoint_health h";
    ledger.store.apply(&four).await.unwrap();
    let before = ledger.sql(health).await;
    for _ in 0..3 {
        ledger.store.apply(&four).await.unwrap();
        ledger.store.apply(&four[2..]).await.unwrap();
    }
    assert_eq!(ledger.sql(health).await, before);
    // Known ones beside a new one: the new one alone counts.
    let key = ledger.delivery(5, endpoint, noon()).await;
    let mixed = [&four[..], &[tried(key, 5, 5, again())]].concat();
    ledger.store.apply(&mixed).await.unwrap();
    assert_eq!(show(&ledger, endpoint).await.consecutive_failures, 5);
    ledger.store.apply(&mixed).await.unwrap();
    assert_eq!(events(&ledger).await, ["hooklane.endpoint.failing"]);
}

#[tokio::test]
async fn successes_of_an_endpoint_that_is_well_touch_nothing() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    // What was locked or written has another xmax or another place.
    let rows = "SELECT e.xmin, e.xmax, e.ctid, h.xmin, h.xmax, h.ctid
                  FROM hooklane.endpoints e LEFT JOIN hooklane.endpoint_health h ON h.endpoint_id = e.id";
    let before = ledger.sql(rows).await;
    let keys = ledger.deliveries(1..4, endpoint, noon()).await;
    ledger
        .store
        .apply(&[sent(drive(keys[0], 1), 1, 1)])
        .await
        .unwrap();
    assert_eq!(ledger.sql(rows).await, before);
    // Neither are they once it has recovered.
    ledger
        .store
        .apply(&[tried(keys[1], 2, 2, again())])
        .await
        .unwrap();
    ledger
        .store
        .apply(&[tried(keys[1], 3, 3, Verdict::Sent)])
        .await
        .unwrap();
    let before = ledger.sql(rows).await;
    ledger
        .store
        .apply(&[tried(keys[2], 4, 4, Verdict::Sent)])
        .await
        .unwrap();
    assert_eq!(ledger.sql(rows).await, before);
    assert_eq!(
        ledger
            .sql("SELECT count(*) FROM hooklane.endpoint_health")
            .await,
        "1"
    );
}

#[tokio::test]
async fn what_started_before_a_resume_does_not_stop_it_again() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let gone = ledger.delivery(1, endpoint, noon()).await;
    ledger
        .store
        .apply(&[failed(drive(gone, 1), 1, 1, FailureReason::Gone)])
        .await
        .unwrap();
    assert_eq!(show(&ledger, endpoint).await.state, State::Disabled);
    endpoint::resume(&ledger.store, endpoint).await.unwrap();
    let resumed = show(&ledger, endpoint).await;
    assert_eq!(
        (resumed.state, resumed.consecutive_failures),
        (State::Active, 0)
    );

    let late = ledger.delivery(2, endpoint, noon()).await;
    ledger
        .store
        .apply(&[failed(drive(late, 1), 2, 1, FailureReason::Gone)])
        .await
        .unwrap();
    let late = failures(&ledger, endpoint, 10, 20).await;
    ledger.store.apply(&late).await.unwrap();
    assert_eq!(show(&ledger, endpoint).await, resumed);

    // What starts afterwards counts.
    let key = ledger.delivery(3, endpoint, noon()).await;
    let mut anew = attempt(
        drive(key, 1),
        3,
        1,
        Verdict::Failed {
            reason: FailureReason::Gone,
        },
    );
    anew.started_at = clock::now();
    ledger.store.apply(&[Record::Attempt(anew)]).await.unwrap();
    assert_eq!(show(&ledger, endpoint).await.state, State::Disabled);
    let told = events(&ledger).await;
    assert_eq!(told.len(), 3, "{told:?}");
}

#[tokio::test]
async fn a_410_disables_a_paused_endpoint_and_leaves_a_deleted_one() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    endpoint::pause(&ledger.store, endpoint).await.unwrap();
    let key = ledger.delivery(1, endpoint, noon()).await;
    let under_way = failures(&ledger, endpoint, 10, 10).await;
    ledger.store.apply(&under_way).await.unwrap();
    let paused = show(&ledger, endpoint).await;
    assert_eq!(
        (paused.state, paused.consecutive_failures),
        (State::Paused, 0)
    );
    let gone = [failed(drive(key, 1), 1, 1, FailureReason::Gone)];
    assert_eq!(ledger.store.apply(&gone).await.unwrap().disabled, 1);
    let disabled = show(&ledger, endpoint).await;
    assert_eq!(disabled.state, State::Disabled);
    assert!(disabled.version > paused.version);

    let other = ledger.endpoint(2).await;
    endpoint::delete(&ledger.store, other).await.unwrap();
    let deleted = show(&ledger, other).await;
    let key = ledger.delivery(2, other, noon()).await;
    let gone = [failed(drive(key, 1), 2, 1, FailureReason::Gone)];
    assert_eq!(ledger.store.apply(&gone).await.unwrap().disabled, 0);
    assert_eq!(show(&ledger, other).await, deleted);
    assert_eq!(
        events(&ledger).await,
        [
            "hooklane.endpoint.paused",
            "hooklane.endpoint.disabled",
            "hooklane.endpoint.deleted"
        ]
    );
}

#[tokio::test]
async fn failing_for_long_disables_where_that_is_on() {
    let ledger = Ledger::new().await;
    let settings = |auto_disable| Settings {
        auto_disable,
        disable_after_failures: 6,
        disable_after: Duration::from_secs(8),
        ..Settings::default()
    };
    let cases = [
        (1, "NULL", false, State::Failing),
        (2, "NULL", true, State::Disabled),
        (3, "false", true, State::Failing),
        (4, "true", false, State::Disabled),
    ];
    for (n, own, deployment, expected) in cases {
        let endpoint = ledger.endpoint(n).await;
        ledger
            .sql(&format!(
                "UPDATE hooklane.endpoints SET auto_disable = {own} WHERE id = '{}'",
                endpoint.uuid()
            ))
            .await;
        let ten = failures(&ledger, endpoint, n * 100, 10).await;
        ledger
            .store
            .apply_by(&ten[..8], &settings(deployment))
            .await
            .unwrap();
        assert_eq!(show(&ledger, endpoint).await.state, State::Failing, "{n}");
        ledger
            .store
            .apply_by(&ten[8..], &settings(deployment))
            .await
            .unwrap();
        assert_eq!(show(&ledger, endpoint).await.state, expected, "{n}");
    }
    assert_eq!(last_event(&ledger).await["reason"], "failing_too_long");
}

#[tokio::test]
async fn a_days_failures_are_counted_by_the_hour() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let keys = ledger.deliveries(1..31, endpoint, noon()).await;
    let now = clock::now();
    let hours_ago = |n: u64| now - TimeDelta::hours(i64::try_from(n).unwrap());
    let records: Vec<Record> = (1..)
        .zip(keys)
        .map(|(n, key)| {
            let mut record = attempt(drive(key, 1), n, 1, again());
            record.started_at = hours_ago(n);
            Record::Attempt(record)
        })
        .collect();
    for part in records.chunks(7).rev() {
        ledger.store.apply(part).await.unwrap();
    }
    // Of the hour that has begun and the 23 before it.
    assert_eq!(show(&ledger, endpoint).await.failures_24h, 23);
    endpoint::pause(&ledger.store, endpoint).await.unwrap();
    endpoint::resume(&ledger.store, endpoint).await.unwrap();
    let resumed = show(&ledger, endpoint).await;
    assert_eq!(
        (resumed.consecutive_failures, resumed.failures_24h),
        (0, 23)
    );
}

#[tokio::test]
async fn a_delivery_out_of_retries_is_told_once_and_makes_its_endpoint_failing() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    let last = [failed(drive(key, 8), 1, 8, FailureReason::Exhausted)];
    ledger.store.apply(&last).await.unwrap();
    assert_eq!(show(&ledger, endpoint).await.state, State::Failing);
    // Twice, and a second attempt of the same drive, as a crash may leave one.
    ledger.store.apply(&last).await.unwrap();
    let double = [failed(drive(key, 9), 2, 9, FailureReason::Deadline)];
    ledger.store.apply(&double).await.unwrap();
    let told = ledger
        .sql(
            "SELECT payload->'data' FROM hooklane.operational_events
              WHERE event_type = 'hooklane.delivery.exhausted'",
        )
        .await;
    let data: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(data["message"], key.message.to_string());
    assert_eq!(data["endpoint"], endpoint.to_string());
    assert_eq!(
        (&data["attempts"], &data["reason"]),
        (&8.into(), &"exhausted".into())
    );
    assert_eq!(data["last_status"], 500);

    // One that was sent after all is no news.
    let other = ledger.delivery(2, endpoint, noon()).await;
    let both = [
        sent(drive(other, 8), 3, 8),
        failed(drive(other, 8), 4, 8, FailureReason::Exhausted),
    ];
    ledger.store.apply(&both).await.unwrap();
    let told = events(&ledger).await;
    let count = told
        .iter()
        .filter(|name| name.ends_with("exhausted"))
        .count();
    assert_eq!(count, 1, "{told:?}");
}

#[tokio::test]
async fn what_waits_past_its_deadline_is_told_too() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    ledger
        .store
        .apply(&[parked(drive(key, 1), ParkReason::NoRoom, at(5))])
        .await
        .unwrap();
    assert_eq!(ledger.store.fail_overdue(10).await.unwrap(), 1);
    assert_eq!(ledger.store.fail_overdue(10).await.unwrap(), 0);
    assert_eq!(events(&ledger).await, ["hooklane.delivery.exhausted"]);
    assert_eq!(last_event(&ledger).await["reason"], "deadline");
}

#[tokio::test]
async fn what_happens_to_the_operators_own_endpoints_is_never_told() {
    let ledger = Ledger::new().await;
    let endpoint = EndpointId::for_test(1);
    ledger
        .sql(&format!(
            "INSERT INTO hooklane.endpoints (id, consumer_id, url, filters)
             VALUES ('{}', 'hooklane', 'https://example.com/', '{{*}}')",
            endpoint.uuid()
        ))
        .await;
    let mut records = failures(&ledger, endpoint, 1, 10).await;
    ledger
        .sql("UPDATE hooklane.deliveries SET consumer_id = 'hooklane'")
        .await;
    let key = records[0].drive().key;
    records.push(failed(drive(key, 9), 50, 9, FailureReason::Exhausted));
    ledger.store.apply(&records).await.unwrap();
    assert_eq!(show(&ledger, endpoint).await.state, State::Failing);
    let key = records[1].drive().key;
    let success = [tried(key, 60, 60, Verdict::Sent)];
    assert_eq!(ledger.store.apply(&success).await.unwrap().recovered, 1);
    ledger
        .sql("UPDATE hooklane.deliveries SET deadline = now() - interval '1 s'")
        .await;
    assert_eq!(ledger.store.fail_overdue(100).await.unwrap(), 8);
    endpoint::pause(&ledger.store, endpoint).await.unwrap();
    endpoint::resume(&ledger.store, endpoint).await.unwrap();
    endpoint::delete(&ledger.store, endpoint).await.unwrap();
    assert_eq!(events(&ledger).await, Vec::<String>::new());
}

#[tokio::test]
async fn news_is_written_with_what_it_tells_of_or_not_at_all() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let mut batch = failures(&ledger, endpoint, 1, 6).await;
    let key = batch.pop().unwrap().drive().key;
    batch.push(parked(
        drive(key, 1),
        ParkReason::NoRoom,
        DateTime::<Utc>::MIN_UTC,
    ));
    ledger.store.apply(&batch).await.unwrap_err();
    assert_eq!(show(&ledger, endpoint).await.state, State::Active);
    assert_eq!(events(&ledger).await, Vec::<String>::new());
    ledger.store.apply(&batch[..5]).await.unwrap();
    assert_eq!(events(&ledger).await, ["hooklane.endpoint.failing"]);
}

#[tokio::test]
async fn a_step_that_a_person_repeats_is_told_once() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    for _ in 0..2 {
        endpoint::pause(&ledger.store, endpoint).await.unwrap();
    }
    for _ in 0..2 {
        endpoint::resume(&ledger.store, endpoint).await.unwrap();
    }
    for _ in 0..2 {
        endpoint::delete(&ledger.store, endpoint).await.unwrap();
    }
    assert_eq!(
        events(&ledger).await,
        [
            "hooklane.endpoint.paused",
            "hooklane.endpoint.resumed",
            "hooklane.endpoint.deleted"
        ]
    );
    assert_eq!(
        ledger
            .sql("SELECT count(*) FROM hooklane.endpoint_health")
            .await,
        "0"
    );
}

#[tokio::test]
async fn recorders_side_by_side_lose_no_failure_and_wait_in_no_circle() {
    let ledger = Ledger::new().await;
    let (one, two) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    let mut records = failures(&ledger, one, 1, 200).await;
    records.extend(failures(&ledger, two, 1_001, 200).await);
    let other = ledger.another_store().await;
    let person = ledger.another_store().await;
    let (first, second): (Vec<_>, Vec<_>) = records
        .chunks(10)
        .enumerate()
        .partition(|(n, _)| n % 2 == 0);
    let write = async |store: &hooklane_store::Store, parts: &[(usize, &[Record])]| {
        for (_, part) in parts {
            // Both endpoints in every batch.
            let mut batch = part.to_vec();
            batch.extend(records[..5].to_vec());
            batch.extend(records[200..205].to_vec());
            store.apply(&batch).await.unwrap();
        }
    };
    let manage = async {
        for _ in 0..20 {
            endpoint::pause(&person, two).await.unwrap();
            endpoint::resume(&person, two).await.unwrap();
        }
    };
    tokio::join!(write(&ledger.store, &first), write(&other, &second), manage);
    assert_eq!(show(&ledger, one).await.consecutive_failures, 200);
    assert_eq!(show(&ledger, one).await.state, State::Failing);
    assert_eq!(show(&ledger, two).await.state, State::Active);
    let told = events(&ledger).await;
    let of = |name: &str| told.iter().filter(|told| told.ends_with(name)).count();
    assert_eq!((of(".paused"), of(".resumed")), (20, 20), "{told:?}");
}

#[tokio::test]
async fn a_retry_that_is_our_own_fault_says_nothing() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let keys = ledger.deliveries(1..11, endpoint, noon()).await;
    let records: Vec<Record> = (1..)
        .zip(keys)
        .map(|(n, key)| {
            let mut record = retry(drive(key, 1), n, 1, at(5));
            if let Record::Attempt(attempt) = &mut record {
                attempt.error = Some("interrupted".to_owned());
            }
            record
        })
        .collect();
    ledger.store.apply(&records).await.unwrap();
    let shown = show(&ledger, endpoint).await;
    assert_eq!((shown.state, shown.failures_24h), (State::Active, 0));
}
