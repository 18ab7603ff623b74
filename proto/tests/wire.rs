//! What is on the wire stays readable: round trips, and golden files that an older release wrote.
//!
//! A golden file is never edited. A change of the wire form adds a file, and all of them are read.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::HashMap;

use bytes::Bytes;
use chrono::{DateTime, TimeZone, Utc};
use hooklane_proto::dead_letter::{DeadLetter, Unreadable};
use hooklane_proto::delivery::{Delivery, DeliveryKey};
use hooklane_proto::event::{Event, MAX_TARGETS, Target};
use hooklane_proto::header::Headers;
use hooklane_proto::id::{AttemptId, EndpointId, MessageId};
use hooklane_proto::record::{
    Attempt, Batch, Drive, FailureReason, MAX_BATCH_RECORDS, ParkReason, Parked, Record,
    SkipReason, Skipped, Verdict,
};
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_proto::trace::TraceContext;
use hooklane_proto::{decode, header};

fn at(micros: i64) -> DateTime<Utc> {
    Utc.timestamp_micros(1_790_000_000_000_000 + micros)
        .unwrap()
}

fn trace() -> TraceContext {
    TraceContext::parse(
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        Some("a=1"),
    )
    .unwrap()
}

fn event(targets: usize) -> Event {
    Event {
        message: MessageId::for_test(1),
        consumer: ConsumerId::new("acme").unwrap(),
        event_type: EventType::new("invoice.paid").unwrap(),
        content_type: "application/json".to_owned(),
        accepted_at: at(123_456),
        not_after: at(20_123_456),
        deadline: at(172_800_123_456),
        part: 0,
        targets: (0..targets)
            .map(|n| Target {
                endpoint: EndpointId::for_test(n as u64),
                version: n as i64 + 3,
            })
            .collect(),
        trace: Some(trace()),
        payload: Bytes::from_static(b"{\"a\":1,\"a\":2}"),
    }
}

fn lookup(headers: &Headers) -> HashMap<String, String> {
    headers
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn drive() -> Drive {
    Drive {
        key: DeliveryKey {
            accepted_at: at(123_456),
            message: MessageId::for_test(1),
            endpoint: EndpointId::for_test(2),
        },
        series: 1,
        drive: 4,
    }
}

fn batch() -> Batch {
    let attempt = Attempt {
        drive: drive(),
        id: AttemptId::for_test(9),
        number: 4,
        counted: 3,
        started_at: at(1),
        duration_us: 15_000_001,
        status: Some(503),
        headers: vec![("retry-after".to_owned(), "30".to_owned())],
        body: vec![0, 159, 146, 150],
        error: None,
        detail: None,
        verdict: Verdict::Retry {
            next_attempt_at: at(30_000_000),
        },
        hold_until: None,
        trace: Some(trace()),
    };
    Batch {
        records: vec![
            Record::Attempt(attempt.clone()),
            Record::Attempt(Attempt {
                status: None,
                headers: vec![],
                body: vec![],
                error: Some("timeout".to_owned()),
                detail: Some("no answer within 15 s".to_owned()),
                verdict: Verdict::Failed {
                    reason: FailureReason::Exhausted,
                },
                hold_until: Some(at(60_000_000)),
                trace: None,
                ..attempt.clone()
            }),
            Record::Attempt(Attempt {
                status: Some(204),
                verdict: Verdict::Sent,
                ..attempt
            }),
            Record::Parked(Parked {
                drive: drive(),
                reason: ParkReason::NoRoom,
                next_attempt_at: at(0),
            }),
            Record::Skipped(Skipped {
                drive: drive(),
                reason: SkipReason::Deleted,
            }),
        ],
    }
}

#[test]
fn an_event_round_trips_through_its_headers() {
    let event = event(3);
    let headers = lookup(&event.headers());
    let read = Event::read(
        "events.3.acme.invoice.paid",
        |name| headers.get(name).map(String::as_str),
        event.payload.clone(),
    );
    assert_eq!(read, Ok(event));
}

#[test]
fn a_large_event_is_split_without_losing_an_endpoint() {
    let whole = event(2 * MAX_TARGETS + 1);
    let parts = whole.clone().split();
    assert_eq!(parts.len(), 3);
    let ids: Vec<_> = parts
        .iter()
        .map(|p| p.headers().get(header::MSG_ID).unwrap().to_owned())
        .collect();
    assert_eq!(
        ids.iter().collect::<std::collections::HashSet<_>>().len(),
        3
    );
    let targets: Vec<_> = parts.into_iter().flat_map(|p| p.targets).collect();
    assert_eq!(targets, whole.targets);
}

#[test]
fn a_message_id_taken_again_is_no_repetition_to_the_broker() {
    let first = event(1);
    let later = Event {
        accepted_at: at(123_457),
        ..first.clone()
    };
    let others = Event {
        consumer: ConsumerId::new("globex").unwrap(),
        ..first.clone()
    };
    let id = |headers: Headers| headers.get(header::MSG_ID).unwrap().to_owned();
    let ids = [&first, &later, &others].map(|event| id(event.headers()));
    assert!(ids[0] != ids[1] && ids[0] != ids[2], "{ids:?}");
    assert_eq!(id(first.headers()), id(first.clone().headers()));

    let drives =
        [&first, &later].map(|event| id(Delivery::first(event, event.targets[0], at(0)).headers()));
    assert_ne!(drives[0], drives[1]);

    let mut letter = dead_letter();
    let before = id(letter.headers());
    letter.key.accepted_at = at(123_457);
    assert_ne!(before, id(letter.headers()));
}

#[test]
fn an_event_without_endpoints_is_still_one_message() {
    let parts = event(0).split();
    assert_eq!(parts.len(), 1);
    let headers = lookup(&parts[0].headers());
    let read = Event::read(
        "events.3.acme.invoice.paid",
        |name| headers.get(name).map(String::as_str),
        Bytes::new(),
    );
    assert_eq!(read.unwrap().targets, vec![]);
}

#[test]
fn a_delivery_round_trips_through_its_headers() {
    let event = event(1);
    let delivery = Delivery {
        series: 2,
        drive: 11,
        attempts: 9,
        counted: 1,
        ..Delivery::first(&event, event.targets[0], at(20_000_000))
    };
    let headers = lookup(&delivery.headers());
    let subject = format!("deliveries.3.acme.{}", delivery.key.endpoint);
    let read = Delivery::read(
        &subject,
        |name| headers.get(name).map(String::as_str),
        delivery.payload.clone(),
    );
    assert_eq!(read, Ok(delivery));
}

fn dead_letter() -> DeadLetter {
    DeadLetter {
        key: drive().key,
        consumer: ConsumerId::new("acme").unwrap(),
        event_type: EventType::new("invoice.paid").unwrap(),
        content_type: "application/json".to_owned(),
        series: 2,
        attempts: 16,
        reason: "exhausted".to_owned(),
        last_status: Some(503),
        last_error: None,
        failed_at: at(99_000_000),
        trace: Some(trace()),
        left_out: None,
        payload: Bytes::from_static(b"{\"a\":1}"),
    }
}

/// An unreadable message, as the dispatcher meets it.
fn unreadable() -> Unreadable {
    let mut headers = lookup(&event(1).headers());
    headers.remove(header::DEADLINE);
    let header = |name: &str| headers.get(name).map(String::as_str);
    let payload = Bytes::from_static(b"{}");
    let subject = "events.3.acme.invoice.paid";
    let problem = Event::read(subject, header, payload.clone()).unwrap_err();
    Unreadable::new("EVENTS", 42, at(5), subject, header, payload, &problem)
}

/// Headers a line each, as the golden files have them.
fn text_of(subject: &str, headers: &Headers) -> String {
    let lines = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"));
    std::iter::once(format!("{subject}\n"))
        .chain(lines)
        .collect()
}

#[test]
fn a_dead_letter_round_trips_through_its_headers() {
    for letter in [
        dead_letter(),
        DeadLetter {
            last_status: None,
            last_error: Some("timeout".to_owned()),
            trace: None,
            ..dead_letter().without_payload()
        },
    ] {
        let headers = lookup(&letter.headers());
        let read = DeadLetter::read(
            &letter.subject(),
            |name| headers.get(name).map(String::as_str),
            letter.payload.clone(),
        );
        assert_eq!(read, Ok(letter));
    }
}

#[test]
fn golden_dead_letters_are_still_written_and_read() {
    // The first form's broker id lacked the time of acceptance.
    let old = include_str!("golden/dead-letter-1.txt");
    let golden = include_str!("golden/dead-letter-2.txt");
    let letter = dead_letter();
    assert_eq!(text_of(&letter.subject(), &letter.headers()), golden);
    for golden in [old, golden] {
        let (subject, lines) = golden.split_once('\n').unwrap();
        let headers: HashMap<&str, &str> = lines
            .lines()
            .map(|line| line.split_once(": ").unwrap())
            .collect();
        let header = |name: &str| headers.get(name).copied();
        let read = DeadLetter::read(subject, header, letter.payload.clone());
        assert_eq!(read.as_ref(), Ok(&letter));
    }
}

#[test]
fn an_unreadable_message_keeps_what_is_there() {
    let unreadable = unreadable();
    let text = text_of(&unreadable.subject(), &unreadable.headers());
    assert_eq!(text, include_str!("golden/unreadable-1.txt"));
}

#[test]
fn an_unreadable_delivery_stays_with_its_endpoint() {
    let problem = hooklane_proto::header::HeaderError::Missing(header::DRIVE);
    let of = |subject: &str| {
        let bare = |_: &str| None::<&str>;
        Unreadable::new(
            "DELIVERIES",
            1,
            at(0),
            subject,
            bare,
            Bytes::new(),
            &problem,
        )
        .subject()
    };
    assert_eq!(of("deliveries.3.acme.ep_x"), "dlq.acme.ep_x");
    assert_eq!(of("deliveries"), "dlq._._");
}

#[test]
fn a_missing_header_is_named() {
    let mut headers = lookup(&event(1).headers());
    headers.remove(header::DEADLINE);
    let error = Event::read(
        "events.3.acme.invoice.paid",
        |name| headers.get(name).map(String::as_str),
        Bytes::new(),
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "header Hooklane-Deadline is missing");
}

#[test]
fn records_round_trip() {
    let batch = batch();
    assert_eq!(Batch::decode(&batch.encode()).unwrap(), batch);
}

#[test]
fn bodies_are_binary_on_the_wire() {
    let Record::Attempt(mut attempt) = batch().records[0].clone() else {
        panic!("an attempt");
    };
    let mut size = |body: Vec<u8>| {
        attempt.body = body;
        Batch {
            records: vec![Record::Attempt(attempt.clone())],
        }
        .encode()
        .len()
    };
    let grown = size(vec![255; 4096]) - size(vec![255; 1]);
    assert!(grown < 4096 + 8, "4,095 more bytes took {grown}");
}

#[test]
fn the_size_hint_bounds_what_a_record_adds() {
    let records = batch().records;
    for record in &records {
        let alone = Batch {
            records: vec![record.clone()],
        };
        assert!(
            alone.encode().len() <= record.size_hint() + 16,
            "{record:?}"
        );
    }
    assert!(records.len() < MAX_BATCH_RECORDS);
}

#[test]
fn golden_batches_are_still_read() {
    let golden = include_bytes!("golden/records-1.msgpack");
    assert_eq!(Batch::decode(golden).unwrap(), batch());
}

#[test]
fn a_newer_writers_extra_field_is_no_fault() {
    #[derive(serde::Serialize)]
    struct NewerRecord {
        mood: &'static str,
        #[serde(flatten)]
        record: Record,
    }
    #[derive(serde::Serialize)]
    struct NewerBatch {
        written_by: &'static str,
        records: Vec<NewerRecord>,
    }
    let Batch { records } = batch();
    let newer = NewerBatch {
        written_by: "a later release",
        records: records
            .into_iter()
            .map(|record| NewerRecord {
                mood: "good",
                record,
            })
            .collect(),
    };
    let bytes = rmp_serde::to_vec_named(&newer).unwrap();
    assert_eq!(Batch::decode(&bytes).unwrap(), batch());
}

#[test]
fn decoded_records_read_as_people_expect() {
    let shown = decode::records(&batch().encode()).unwrap();
    let golden: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("golden/records-1.json")).unwrap();
    assert_eq!(shown, golden);
}

#[test]
fn bytes_that_are_no_batch_are_an_error() {
    for bytes in [&b""[..], b"\x00", b"{\"records\":[]}", &[0xc1; 64]] {
        assert!(Batch::decode(bytes).is_err(), "{bytes:?}");
    }
}

/// Writes the golden files of the current form: `cargo test -p hooklane-proto -- --ignored`.
#[test]
#[ignore = "writes files; run by hand when the wire form changes, under a new number"]
fn write_golden_files() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let bytes = batch().encode();
    std::fs::write(format!("{dir}/records-1.msgpack"), &bytes).unwrap();
    let text = serde_json::to_string_pretty(&decode::records(&bytes).unwrap()).unwrap();
    std::fs::write(format!("{dir}/records-1.json"), text + "\n").unwrap();
    let letter = dead_letter();
    let text = text_of(&letter.subject(), &letter.headers());
    std::fs::write(format!("{dir}/dead-letter-1.txt"), text).unwrap();
    let text = text_of(&unreadable().subject(), &unreadable().headers());
    std::fs::write(format!("{dir}/unreadable-1.txt"), text).unwrap();
}
