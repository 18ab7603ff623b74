//! `hooklane message`, `hooklane delivery` and `hooklane outbox`: what became of events.

use std::num::NonZeroU16;

use bytes::Bytes;
use hooklane_proto::id::MessageId;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_store::accept::{NewMessage, Origin, Outcome, Settings};
use serde_json::Value;

use crate::bench::Bench;

/// Accepts an event as the relay would.
pub(crate) async fn accept(bench: &Bench, key: Option<&str>) -> MessageId {
    accept_payload(bench, key, b"{\"n\":  1}").await
}

async fn accept_payload(bench: &Bench, key: Option<&str>, payload: &'static [u8]) -> MessageId {
    let message = NewMessage {
        id: None,
        consumer: ConsumerId::new("acme").unwrap(),
        event_type: EventType::new("invoice.paid").unwrap(),
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(payload),
        key: key.map(str::to_owned),
        only: None,
        origin: Origin::Api,
        trace: None,
    };
    let store = bench.store().await;
    let settings = Settings::new(NonZeroU16::new(16).unwrap());
    let accepted = store.accept(&settings, &[message]).await.unwrap();
    store.close().await;
    match &accepted.outcomes[0] {
        Outcome::Accepted(receipt) => receipt.message,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn sql(bench: &Bench, text: &str) -> String {
    bench.database().psql(text).await.unwrap().trim().to_owned()
}

async fn statuses(bench: &Bench) -> String {
    sql(
        bench,
        "SELECT string_agg(DISTINCT status || '/' || coalesce(failure_reason, ''), ' ') FROM hooklane.deliveries",
    )
    .await
}

#[tokio::test]
async fn a_message_is_found_by_its_id_and_its_key_and_shown_as_a_tree() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    let id = accept(&bench, Some("order-7")).await;
    sql(
        &bench,
        "INSERT INTO hooklane.attempts (started_at, id, accepted_at, message_id, endpoint_id, series, drive, number,
             duration_us, status, body, verdict)
         SELECT accepted_at, gen_random_uuid(), accepted_at, message_id, endpoint_id, 1, 1, 1, 1500, 500, 'sorry', 'retry'
           FROM hooklane.deliveries",
    )
    .await;
    let bare = id.uuid().to_string();
    for text in [id.to_string(), bare, "order-7".to_owned()] {
        let shown = bench.json(&["message", "show", &text]);
        assert_eq!(shown["found"], "accepted");
        let message = &shown["messages"][0];
        assert_eq!(message["id"], id.to_string());
        assert_eq!(message["payload"], "{\"n\":  1}");
        assert_eq!(message["delivery_count"], 1);
        let delivery = &message["deliveries"][0];
        assert_eq!(delivery["endpoint"], *endpoint);
        assert_eq!(delivery["status"], "received");
        assert_eq!(delivery["tries"][0]["status"], 500);
        assert_eq!(delivery["tries"][0]["body"], "sorry");
    }
    let tree = bench.ok(&["message", "show", "order-7", "--consumer", "acme"]);
    assert!(tree.contains(&format!("└─ {endpoint} received")), "{tree}");
    assert!(
        tree.contains("attempt 1") && tree.contains("500 in 1.5 ms, retry"),
        "{tree}"
    );
    let payload = bench.ok(&["message", "show", "order-7", "--payload"]);
    assert_eq!(payload, "{\"n\":  1}");
    bench.fails(65, "not_found", &["message", "show", "order-8"]);
    bench.fails(
        65,
        "not_found",
        &["message", "show", &MessageId::for_test(1).to_string()],
    );
}

#[tokio::test]
async fn payloads_are_readable_for_people_and_exact_in_json() {
    const PRETTY: &str = "{\n  \"order\": \"a-7\",\n  \"total\": 9007199254740993,\n  \"note\": \"say \\\"hi\\\"\"\n}\n";
    let bench = Bench::ledger().await;
    bench.endpoint();
    accept_payload(&bench, Some("text"), PRETTY.as_bytes()).await;
    let tree = bench.ok(&["message", "show", "text"]);
    let line =
        r#"application/json: { "order": "a-7", "total": 9007199254740993, "note": "say \"hi\"" }"#;
    assert!(tree.contains(line), "{tree}");
    let shown = bench.json(&["message", "show", "text"]);
    assert_eq!(shown["messages"][0]["payload"], PRETTY);
    assert_eq!(shown["messages"][0].get("payload_base64"), None);

    accept_payload(&bench, Some("bytes"), b"\xff\0\x1b").await;
    let tree = bench.ok(&["message", "show", "bytes"]);
    assert!(
        tree.contains("3 bytes of application/json: ff001b"),
        "{tree}"
    );
    let shown = bench.json(&["message", "show", "bytes"]);
    let message = &shown["messages"][0];
    assert_eq!(
        (&message["payload"], &message["payload_bytes"]),
        (&Value::Null, &3.into())
    );
    assert_eq!(message["payload_base64"], "/wAb");
}

#[tokio::test]
async fn an_event_that_is_not_accepted_is_found_in_the_outbox_or_among_the_rejected() {
    let bench = Bench::ledger().await;
    let row = sql(
        &bench,
        "INSERT INTO hooklane.outbox_events (event_type, payload, consumer_id) VALUES ('invoice.paid', '{}', 'acme') RETURNING id",
    )
    .await;
    let row = row.lines().next().unwrap();
    let shown = bench.json(&["message", "show", row]);
    assert_eq!(
        (&shown["found"], &shown["consumer"]),
        (&"pending".into(), &"acme".into())
    );
    sql(
        &bench,
        &format!(
            "INSERT INTO hooklane.rejected_events (source, source_id, consumer_id, payload, reason, detail)
             VALUES ('outbox:ledger', '{row}', 'acme', '{{}}', 'unknown_consumer', 'nobody')"
        ),
    )
    .await;
    let shown = bench.json(&["message", "show", row]);
    assert_eq!(
        (&shown["found"], &shown["reason"]),
        (&"rejected".into(), &"unknown_consumer".into())
    );
    let text = bench.ok(&["message", "show", row]);
    assert!(text.contains("hooklane outbox requeue 1"), "{text}");

    let listed = bench.json(&["outbox", "rejected"]);
    assert_eq!(listed["rejected"][0]["source_id"], row);
    assert_eq!(listed["next"], Value::Null);
    let none = bench.json(&["outbox", "rejected", "--reason", "conflict"]);
    assert_eq!(none["rejected"], serde_json::json!([]));
    let status = bench.json(&["outbox", "status"]);
    assert_eq!(status["set_aside"][0]["count"], 1);
    assert_eq!(status["sources"][0]["pending"], 1);
    assert_eq!(status["sources"][0]["led"], false);
    assert_eq!(bench.json(&["outbox", "requeue", "1"])["requeued"], 1);
    let standing = bench.json(&["outbox", "rejected"])["rejected"][0]["standing"].clone();
    assert_eq!(standing, "requeued");
    assert_eq!(bench.json(&["outbox", "requeue", "99"])["requeued"], 0);
    bench.fails(
        65,
        "invalid_data",
        &["outbox", "status", "--source", "nowhere"],
    );
}

#[tokio::test]
async fn deliveries_are_listed_in_pages_and_narrowed() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.insert(0, accept(&bench, None).await.to_string());
    }
    let seen = |page: &Value| -> Vec<String> {
        let deliveries = page["deliveries"].as_array().unwrap();
        deliveries
            .iter()
            .map(|d| d["message"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = bench.json(&["delivery", "list", "--limit", "2"]);
    assert_eq!(seen(&first), ids[..2]);
    let next = first["next"].as_str().unwrap();
    let second = bench.json(&["delivery", "list", "--limit", "2", "--after", next]);
    assert_eq!(seen(&second), ids[2..]);
    assert_eq!(second["next"], Value::Null);

    for (args, count) in [
        (["--consumer", "acme"], 3),
        (["--consumer", "hooklane"], 0),
        (["--endpoint", &endpoint], 3),
        (["--status", "received"], 3),
        (["--status", "stalled"], 0),
        (["--since", "1h"], 3),
        (["--since", "0s"], 0),
    ] {
        let page = bench.json(&[&["delivery", "list"][..], &args].concat());
        assert_eq!(seen(&page).len(), count, "{args:?}");
    }
    let text = bench.ok(&["delivery", "list"]);
    assert!(
        text.contains(&endpoint) && text.contains("received"),
        "{text}"
    );
}

#[tokio::test]
async fn open_deliveries_are_cancelled_by_hand_once() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    let id = accept(&bench, None).await.to_string();
    let other = "ep_00000000-0000-7000-8000-000000000001";
    bench.fails(
        65,
        "not_found",
        &["delivery", "cancel", &id, "--endpoint", other],
    );
    let done = bench.json(&["delivery", "cancel", &id, "--endpoint", &endpoint]);
    assert_eq!(done["cancelled"][0], *endpoint);
    assert_eq!(statuses(&bench).await, "cancelled/cancelled");
    let text = bench.fails(65, "conflict", &["delivery", "cancel", &id]);
    assert!(text.contains("cancelled"), "{text}");
    let nothing = MessageId::for_test(1).to_string();
    bench.fails(65, "not_found", &["delivery", "cancel", &nothing]);
}

/// More than one batch of open deliveries for the endpoint, one half of them in the broker.
async fn many(bench: &Bench) {
    accept(bench, None).await;
    sql(
        bench,
        "INSERT INTO hooklane.deliveries (accepted_at, message_id, endpoint_id, consumer_id, partition, status,
             driven_at, not_after, next_attempt_at, deadline)
         SELECT d.accepted_at, gen_random_uuid(), d.endpoint_id, d.consumer_id, d.partition,
                (CASE n % 2 WHEN 0 THEN 'received' ELSE 'stalled' END)::hooklane.delivery_status,
                d.driven_at, d.not_after + n % 7 * interval '1 second', d.next_attempt_at, d.deadline
           FROM hooklane.deliveries d, generate_series(1, 5000) n",
    )
    .await;
}

#[tokio::test]
async fn pausing_skips_what_waits_and_leaves_the_rest_to_the_lane() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    many(&bench).await;
    let paused = bench.json(&["endpoint", "pause", &endpoint]);
    assert_eq!(paused["deliveries"], 2500);
    assert_eq!(statuses(&bench).await, "received/ skipped/paused");
}

#[tokio::test]
async fn deleting_cancels_everything_open() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    many(&bench).await;
    let deleted = bench.json(&["endpoint", "delete", &endpoint]);
    assert_eq!(deleted["deliveries"], 5001);
    assert_eq!(statuses(&bench).await, "cancelled/deleted");
}

#[test]
fn no_rows_at_all_and_number_zero_are_bad_usage() {
    let bench = Bench::bare();
    let refused = |args: &[&str]| {
        let answer = bench.run(args);
        assert_eq!(answer.code, 64, "{args:?}: {}", answer.stderr);
        assert!(
            answer.stderr.contains("0 is not in 1.."),
            "{args:?}: {}",
            answer.stderr
        );
    };
    for command in ["consumer", "event-type", "endpoint", "delivery", "dlq"] {
        refused(&[command, "list", "--limit", "0"]);
    }
    refused(&["message", "show", "x", "--limit", "0"]);
    refused(&["outbox", "requeue", "0"]);
}

#[tokio::test]
async fn what_is_not_there_or_does_not_fit_is_said_as_it_is() {
    let bench = Bench::ledger().await;
    let text = bench.fails(65, "not_found", &["message", "show", "x"]);
    assert!(text.contains("there is no message `x`"), "{text}");
    sql(
        &bench,
        "ALTER TABLE hooklane.outbox_events DROP CONSTRAINT outbox_events_pkey",
    )
    .await;
    let text = bench.fails(64, "config", &["outbox", "status"]);
    assert!(text.contains("CREATE UNIQUE INDEX"), "{text}");
}

#[tokio::test]
async fn a_producers_control_characters_do_not_reach_the_terminal() {
    let bench = Bench::ledger().await;
    sql(
        &bench,
        "INSERT INTO hooklane.outbox_events (event_type, payload, consumer_id, idempotency_key)
         VALUES (E'a\\x1b[2J\\x07', '{}', 'nobody', E'k\\x1b]0;x')",
    )
    .await;
    let store = bench.store().await;
    let source = hooklane_store::outbox::Source::default();
    let settings = Settings::new(NonZeroU16::new(16).unwrap());
    let mut reader = hooklane_store::outbox::Reader::lead(&store, &source)
        .await
        .unwrap()
        .unwrap();
    let batch = reader.read().await.unwrap();
    let patience = std::time::Duration::ZERO;
    let _ = reader.accept(&settings, patience, batch).await.unwrap();
    drop(reader);
    store.close().await;
    let listed = bench.ok(&["outbox", "rejected", "--waiting"]);
    assert!(listed.contains(r"\u{1b}[2J\u{7}"), "{listed:?}");
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!listed.contains(control), "{listed:?}");
}
