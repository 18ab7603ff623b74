//! Outboxes: that no row is skipped, hurried or blocked, whatever the table looks like.

mod adopters;
mod fairness;
mod late;
mod leader;
mod operational;
mod set_aside;
mod speed;

use std::time::Duration;

use hooklane_proto::event::Event;
use hooklane_store::outbox::{Reader, Source};

use crate::accept::{names, settings};
use crate::ledger::Ledger;

const PATIENCE: Duration = Duration::from_secs(300);

/// A ledger with two consumers and two event types.
async fn ledger() -> Ledger {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    ledger
}

async fn lead(ledger: &Ledger, source: &Source) -> Reader {
    let reader = Reader::lead(&ledger.store, source).await.unwrap();
    reader.expect("nobody else leads it")
}

/// One round; the events to publish, and how many rows were settled.
async fn round(reader: &mut Reader) -> (Vec<Event>, usize) {
    let batch = reader.read().await.unwrap();
    let taken = reader.accept(&settings(), PATIENCE, batch).await.unwrap();
    (taken.accepted.events, taken.settled)
}

/// Rounds until nothing is pending.
async fn drain(reader: &mut Reader) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let (more, settled) = round(reader).await;
        if settled == 0 {
            return events;
        }
        events.extend(more);
    }
}

/// A row of Hooklane's own table, by plain SQL.
async fn row(ledger: &Ledger, consumer: &str, event_type: &str, payload: &str) -> String {
    ledger
        .sql(&format!(
            "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             VALUES ('{consumer}', '{event_type}', '{payload}') RETURNING id"
        ))
        .await
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn a_row_is_accepted_and_marked_in_one_step() {
    let ledger = ledger().await;
    let id = row(&ledger, "acme", "invoice.paid", "{}").await;
    let mut reader = lead(&ledger, &Source::default()).await;
    let events = drain(&mut reader).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].message.uuid().to_string(), id);
    let row = ledger
        .sql(
            "SELECT o.processed_at IS NOT NULL, m.id = o.id, m.source, m.idempotency_key = o.id::text
             FROM hooklane.outbox_events o JOIN hooklane.messages m ON m.id = o.id",
        )
        .await;
    assert_eq!(row, "t|t|outbox:main|t");
    // The same transaction wrote both.
    let together =
        "SELECT o.xmin = m.xmin FROM hooklane.outbox_events o JOIN hooklane.messages m USING (id)";
    assert_eq!(ledger.sql(together).await, "t");
}

#[tokio::test]
async fn the_payload_is_kept_as_it_was_written() {
    let ledger = ledger().await;
    let payloads = [
        r#"{"a":1,"a":2}"#,
        "1e400",
        "-0",
        r#"{"b":1,  "a":[1.0, 1.50, 10000000000000000000000001] }"#,
        "\"\\u00e9 é \u{1F600} \\ud83d\\ude00\"",
        "\n{ }\n",
        "null",
    ];
    for payload in payloads {
        row(&ledger, "acme", "invoice.paid", payload).await;
    }
    let mut reader = lead(&ledger, &Source::default()).await;
    let events = drain(&mut reader).await;
    let seen: Vec<&[u8]> = events.iter().map(|event| &*event.payload).collect();
    let expected: Vec<&[u8]> = payloads.iter().map(|payload| payload.as_bytes()).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn the_trace_of_a_row_goes_on() {
    let ledger = ledger().await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    ledger
        .sql(&format!(
            "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload, headers) VALUES
             ('acme', 'invoice.paid', '1', '{{\"traceparent\":\"{parent}\",\"tracestate\":\"a=b\"}}'),
             ('acme', 'invoice.paid', '2', '{{\"traceparent\":\"nonsense\"}}')"
        ))
        .await;
    let mut reader = lead(&ledger, &Source::default()).await;
    let events = drain(&mut reader).await;
    assert_eq!(events[0].trace.as_ref().unwrap().traceparent, parent);
    assert_eq!(events[1].trace, None);
}

#[tokio::test]
async fn rows_may_be_deleted_instead_of_marked() {
    let ledger = ledger().await;
    row(&ledger, "acme", "invoice.paid", "{}").await;
    let source = Source {
        on_published: hooklane_store::outbox::OnPublished::Delete,
        ..Source::default()
    };
    let mut reader = lead(&ledger, &source).await;
    assert_eq!(drain(&mut reader).await.len(), 1);
    let left = "SELECT count(*) FROM hooklane.outbox_events";
    assert_eq!(ledger.sql(left).await, "0");
}

#[tokio::test]
async fn processed_rows_are_purged_after_their_time() {
    let ledger = ledger().await;
    ledger
        .sql(
            "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload, processed_at)
             SELECT 'acme', 'invoice.paid', '1', now() - interval '7 days 1 min'
             FROM generate_series(1, 2500);
             INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload, processed_at)
             VALUES ('acme', 'invoice.paid', '2', now() - interval '6 days 23 h');
             INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             VALUES ('acme', 'invoice.paid', '3')",
        )
        .await;
    let mut reader = lead(&ledger, &Source::default()).await;
    assert!(reader.purge().await.unwrap());
    assert!(!reader.purge().await.unwrap());
    let left =
        "SELECT string_agg(payload::text, ',' ORDER BY position) FROM hooklane.outbox_events";
    assert_eq!(ledger.sql(left).await, "2,3");
}

#[tokio::test]
async fn the_batchs_bytes_are_bounded_and_nothing_is_left_behind() {
    let ledger = ledger().await;
    ledger
        .sql(
            "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             SELECT CASE WHEN n % 2 = 0 THEN 'acme' ELSE 'other' END, 'invoice.paid',
                    to_json(repeat('x', 200000)) FROM generate_series(1, 20) n",
        )
        .await;
    let source = Source {
        batch_bytes: 1 << 20,
        ..Source::default()
    };
    let mut reader = lead(&ledger, &source).await;
    let mut rounds = Vec::new();
    loop {
        let (events, settled) = round(&mut reader).await;
        if settled == 0 {
            break;
        }
        rounds.push(events.len());
    }
    assert_eq!(rounds.iter().sum::<usize>(), 20);
    assert!(rounds.iter().all(|&events| events <= 6), "{rounds:?}");
}

#[tokio::test]
async fn what_one_transaction_does_not_take_comes_with_the_next() {
    let ledger = ledger().await;
    for n in 0..10 {
        crate::accept::endpoint(&ledger, n, "acme", "*", "active").await;
    }
    ledger
        .sql(
            "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             SELECT 'acme', 'invoice.paid', '1' FROM generate_series(1, 25)",
        )
        .await;
    let mut reader = lead(&ledger, &Source::default()).await;
    let mut settings = settings();
    settings.max_deliveries = 100;
    let mut taken = Vec::new();
    loop {
        let batch = reader.read().await.unwrap();
        let round = reader.accept(&settings, PATIENCE, batch).await.unwrap();
        if round.settled == 0 {
            break;
        }
        taken.push(round.settled);
    }
    assert_eq!(taken, [10, 10, 5]);
}
