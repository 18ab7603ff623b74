//! The audit finds what is wrong, says nothing of what is right, and a producer's rows are real.

use hooklane_proto::id::MessageId;
use hooklane_proto::record::ParkReason;
use hooklane_store::audit::{self, Open};
use hooklane_store::producer::{End, Producer, Row};
use uuid::Uuid;

use crate::ledger::{Ledger, at, drive, noon, parked, retry, sent};

/// Two deliveries sent, one of them at its second attempt, and one that waits.
async fn sound() -> Ledger {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    ledger
        .sql("UPDATE hooklane.endpoints SET created_at = '2026-01-01', updated_at = '2026-01-01'")
        .await;
    let keys = ledger.deliveries(1..4, endpoint, noon()).await;
    let records = [
        sent(drive(keys[0], 1), 1, 1),
        retry(drive(keys[1], 1), 2, 1, at(5)),
        parked(drive(keys[2], 1), ParkReason::NoRoom, at(0)),
    ];
    ledger.store.apply(&records).await.unwrap();
    let mut second = crate::ledger::attempt(
        drive(keys[1], 2),
        3,
        2,
        hooklane_proto::record::Verdict::Sent,
    );
    second.started_at = at(5);
    ledger
        .store
        .apply(&[hooklane_proto::record::Record::Attempt(second)])
        .await
        .unwrap();
    ledger
}

#[tokio::test]
async fn a_sound_ledger_has_no_findings_and_is_counted() {
    let ledger = sound().await;
    assert_eq!(audit::findings(&ledger.store).await.unwrap(), []);
    let totals = audit::totals(&ledger.store).await.unwrap();
    assert_eq!((totals.messages, totals.deliveries()), (3, 3));
    assert_eq!((totals.sent, totals.stalled, totals.attempts), (2, 1, 3));
    let open = audit::open(&ledger.store).await.unwrap();
    assert_eq!(
        open,
        Open {
            stalled: 1,
            ..Open::default()
        }
    );
    let mut numbers = Vec::new();
    audit::attempts(&ledger.store, |attempt| numbers.push(attempt.number))
        .await
        .unwrap();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 1, 2]);
}

#[tokio::test]
async fn each_planted_fault_is_found() {
    let id = |n| MessageId::for_test(n).uuid();
    let attempt =
        "INSERT INTO hooklane.attempts (started_at, id, accepted_at, message_id, endpoint_id,
                       series, drive, number, duration_us, status, error, verdict)
                   SELECT started_at, gen_random_uuid(), accepted_at, message_id, endpoint_id,
                       series, drive, number, duration_us, status, error, verdict
                   FROM hooklane.attempts WHERE";
    let faults = [
        (
            "I1",
            "outbox rows taken",
            "INSERT INTO hooklane.outbox_events (event_type, payload, consumer_id, processed_at)
             VALUES ('x', '{}', 'acme', now())"
                .to_owned(),
        ),
        (
            "I1",
            "messages without a delivery",
            format!(
                "DELETE FROM hooklane.deliveries WHERE message_id = '{}'",
                id(3)
            ),
        ),
        (
            "I1",
            "deliveries without their message",
            format!("DELETE FROM hooklane.messages WHERE id = '{}'", id(3)),
        ),
        (
            "I1",
            "deliveries `sent` without an attempt",
            format!(
                "UPDATE hooklane.deliveries SET status = 'sent' WHERE message_id = '{}'",
                id(3)
            ),
        ),
        (
            "I1",
            "deliveries not `sent` although",
            format!(
                "UPDATE hooklane.deliveries SET status = 'failed' WHERE message_id = '{}'",
                id(1)
            ),
        ),
        (
            "I1",
            "stalled deliveries that their endpoint's backlog",
            "UPDATE hooklane.backlogs SET due_at = due_at + interval '1 hour'".to_owned(),
        ),
        (
            "I3",
            "attempts after the deadline",
            "UPDATE hooklane.deliveries SET deadline = accepted_at + interval '1 second'".to_owned(),
        ),
        (
            "I3",
            "series with more than 8",
            format!(
                "{attempt} message_id = '{}' AND number = 1;
                 UPDATE hooklane.attempts SET verdict = 'retry', error = 'timeout'
                 WHERE message_id = '{}';
                 INSERT INTO hooklane.attempts (started_at, id, accepted_at, message_id, endpoint_id,
                     series, drive, number, duration_us, status, error, verdict)
                 SELECT started_at, gen_random_uuid(), accepted_at, message_id, endpoint_id,
                     series, drive, n, duration_us, status, error, verdict
                 FROM hooklane.attempts, generate_series(3, 10) n
                 WHERE message_id = '{}' AND number = 2",
                id(2),
                id(2),
                id(2)
            ),
        ),
        (
            "I4",
            "attempts after the one that was `sent`",
            format!(
                "UPDATE hooklane.attempts SET verdict = 'sent' WHERE message_id = '{}'",
                id(2)
            ),
        ),
        (
            "I5",
            "attempts of nothing in the ledger",
            format!(
                "{attempt} message_id = '{}';
                 UPDATE hooklane.attempts SET endpoint_id = gen_random_uuid()
                 WHERE message_id = '{}'
                   AND id IN (SELECT id FROM hooklane.attempts ORDER BY id DESC LIMIT 1)",
                id(1),
                id(1)
            ),
        ),
        (
            "I5",
            "attempts that share their number",
            format!("{attempt} message_id = '{}'", id(1)),
        ),
        (
            "I5",
            "attempts recorded twice",
            format!(
                "UPDATE hooklane.attempts SET id = (SELECT id FROM hooklane.attempts
                     WHERE message_id = '{}') WHERE number = 2",
                id(1)
            ),
        ),
        (
            "I5",
            "deliveries whose attempt count",
            "UPDATE hooklane.deliveries SET attempt_count = attempt_count + 1".to_owned(),
        ),
        (
            "I9",
            "idempotency keys under which",
            "INSERT INTO hooklane.outbox_events
                    (id, event_type, payload, consumer_id, idempotency_key, processed_at)
             SELECT id, event_type, '{}', consumer_id, 'the-same', now() FROM hooklane.messages"
                .to_owned(),
        ),
    ];
    for (invariant, what, plant) in faults {
        let ledger = sound().await;
        ledger.sql(&plant).await;
        let found = audit::findings(&ledger.store).await.unwrap();
        let finding = found
            .iter()
            .find(|finding| finding.what.starts_with(what))
            .unwrap_or_else(|| panic!("`{what}` is not among {found:?}"));
        assert_eq!(finding.invariant, invariant);
        assert!(
            finding.count > 0 && !finding.sample.is_empty(),
            "{finding:?}"
        );
    }
}

#[tokio::test]
async fn drives_in_vain_are_counted_up_to_the_first_attempt() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let keys = ledger.deliveries(1..5, endpoint, noon()).await;
    let park = |key, n| parked(drive(key, n), ParkReason::NoRoom, at(0));
    let records = [
        sent(drive(keys[0], 1), 1, 1),
        park(keys[1], 1),
        park(keys[1], 2),
        sent(drive(keys[1], 3), 2, 1),
        park(keys[2], 1),
        park(keys[2], 2),
        park(keys[2], 3),
    ];
    for record in records {
        ledger.store.apply(&[record]).await.unwrap();
    }
    let vain = audit::vain_drives(&ledger.store, endpoint).await.unwrap();
    assert_eq!((vain.deliveries, vain.attempted), (4, 2));
    assert_eq!(vain.by_drives, [2, 0, 1, 1, 0, 0]);
    assert_eq!((vain.most, vain.over(2), vain.over(3)), (3, 1, 0));
}

#[tokio::test]
async fn a_producer_commits_its_rows_or_rolls_them_back() {
    let ledger = Ledger::new().await;
    let producer = Producer::connect(ledger.database.url(), 2).await.unwrap();
    let row = |payload: &str, traceparent: Option<&str>| Row {
        id: Uuid::now_v7(),
        consumer: "acme".to_owned(),
        event_type: "invoice.paid".to_owned(),
        payload: payload.to_owned(),
        traceparent: traceparent.map(str::to_owned),
        idempotency_key: None,
    };
    let rows = [
        row(r#"{"b": 1,  "a":2}"#, None),
        row(
            "{}",
            Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ),
    ];
    let mut called = 0;
    producer
        .write(&rows, End::RollBack, || called += 1)
        .await
        .unwrap();
    assert_eq!(
        ledger
            .sql("SELECT count(*) FROM hooklane.outbox_events")
            .await,
        "0"
    );
    // The second time because nobody knows how the first one ended.
    for _ in 0..2 {
        producer
            .write(&rows, End::Commit, || called += 1)
            .await
            .unwrap();
    }
    assert_eq!(called, 3);
    assert_eq!(
        ledger
            .sql("SELECT payload, headers->>'traceparent' FROM hooklane.outbox_events ORDER BY position")
            .await,
        "{\"b\": 1,  \"a\":2}|\n{}|00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    );
    producer.close().await;
}
