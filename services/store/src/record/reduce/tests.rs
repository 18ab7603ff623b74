use chrono::TimeDelta;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::MessageId;
use hooklane_proto::record::Drive;
use hooklane_proto::trace::TraceContext;

use super::*;

fn attempt(message: u64, id: u64) -> Attempt {
    Attempt {
        drive: Drive {
            key: DeliveryKey {
                accepted_at: DateTime::UNIX_EPOCH,
                message: MessageId::for_test(message),
                endpoint: EndpointId::for_test(1),
            },
            series: 1,
            drive: 1,
        },
        id: AttemptId::for_test(id),
        number: 1,
        counted: 1,
        started_at: DateTime::UNIX_EPOCH,
        duration_us: 1_000,
        status: Some(200),
        headers: Vec::new(),
        body: Vec::new(),
        error: None,
        detail: None,
        verdict: Verdict::Sent,
        hold_until: None,
        trace: None,
    }
}

#[test]
fn rows_and_changes_are_sorted_and_each_is_there_once() {
    let mut records: Vec<Record> = [(3, 9), (1, 7), (3, 9), (2, 8)]
        .map(|(message, id)| Record::Attempt(attempt(message, id)))
        .into();
    let mut early = attempt(4, 10);
    early.started_at -= TimeDelta::seconds(1);
    records.push(Record::Attempt(early));
    let reduced = Reduced::of(&records);
    let ids: Vec<AttemptId> = reduced.attempts.iter().map(|row| row.id).collect();
    assert_eq!(ids, [10, 7, 8, 9].map(AttemptId::for_test));
    let messages: Vec<MessageId> = reduced.changes.iter().map(|(key, _)| key.message).collect();
    assert_eq!(messages, [1, 2, 3, 4].map(MessageId::for_test));
}

#[test]
fn what_postgres_cannot_hold_is_replaced() {
    let mut record = attempt(1, 1);
    record.headers = vec![("a\0".to_owned(), "\0b".to_owned())];
    record.error = Some("\0".to_owned());
    record.detail = Some("x\0".to_owned());
    record.trace = Some(TraceContext {
        traceparent: "\0".to_owned(),
        tracestate: String::new(),
    });
    record.status = Some(u16::MAX);
    let reduced = Reduced::of(&[Record::Attempt(record)]);
    let row = &reduced.attempts[0];
    assert_eq!(
        row.headers.as_deref(),
        Some("[[\"a\u{fffd}\",\"\u{fffd}b\"]]")
    );
    let texts = [&row.error, &row.detail, &row.traceparent];
    assert!(
        texts
            .iter()
            .all(|text| !text.as_ref().unwrap().contains('\0'))
    );
    assert_eq!(row.status, Some(i16::MAX));
}

#[test]
fn every_attempt_speaks_for_its_endpoint_but_our_own_faults() {
    let failed = |id, reason| {
        let mut record = attempt(id, id);
        record.verdict = Verdict::Failed { reason };
        record
    };
    let mut held = attempt(1, 1);
    held.hold_until = Some(DateTime::UNIX_EPOCH);
    let again = Verdict::Retry {
        next_attempt_at: DateTime::UNIX_EPOCH,
    };
    let mut timeout = attempt(5, 5);
    timeout.verdict = again.clone();
    timeout.error = Some("timeout".to_owned());
    let mut interrupted = attempt(6, 6);
    interrupted.verdict = again;
    interrupted.error = Some("interrupted".to_owned());
    let records = [
        held,
        failed(2, FailureReason::Gone),
        failed(3, FailureReason::Exhausted),
        failed(4, FailureReason::Deadline),
        timeout,
        interrupted,
        failed(7, FailureReason::Poison),
    ];
    let reduced = Reduced::of(&records.map(Record::Attempt));
    let kinds: Vec<Kind> = reduced.outcomes.iter().map(|(_, o)| o.kind).collect();
    let expected = [
        Kind::Success,
        Kind::Gone,
        Kind::Exhausted,
        Kind::Exhausted,
        Kind::Failure,
    ];
    assert_eq!(kinds, expected);
    assert_eq!(reduced.holds.len(), 1);
}
