//! From `INTAKE` to `EVENTS`.

use std::time::Duration;

use hooklane_nats::inspect;
use hooklane_proto::header;
use hooklane_proto::subject;
use hooklane_store::rejected::Filter;
use hooklane_testkit::{postgres, wait};

use crate::bench::{BUDGET, Bench, intake_only};
use crate::ledger::Ledger;
use crate::wire::Subscriber;

const SUBJECT: &str = "intake.acme.invoice.paid";

async fn drained(bench: &Bench) {
    wait::until("INTAKE is empty", BUDGET, async || {
        let state = inspect::stream_state(&bench.client, subject::INTAKE).await;
        state.is_ok_and(|state| state.messages == 0)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_is_accepted_byte_for_byte() {
    let bench = Bench::new().await;
    let relay = bench.relay(intake_only());
    let bodies: [&[u8]; 6] = [
        br#"{"a":1,"a":2}"#,
        b"1e400",
        b"-0",
        "{\"é\": \"\\u00e9 \u{1F600}\"}\n".as_bytes(),
        b"\x00\xff",
        b"",
    ];
    let mut events = bench.events("acme");
    for body in bodies {
        bench.intake(SUBJECT, &[], body).await;
        assert_eq!(&*events.next().await.payload, body);
    }
    drained(&bench).await;
    let sources = "SELECT DISTINCT source FROM hooklane.messages";
    assert_eq!(bench.ledger.sql(sources).await, "intake");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_give_the_key_the_content_type_and_the_trace() {
    let bench = Bench::new().await;
    let relay = bench.relay(intake_only());
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [
        (header::IDEMPOTENCY_KEY, "order-1"),
        (header::CONTENT_TYPE, "text/plain"),
        (header::TRACEPARENT, parent),
    ];
    bench.intake(SUBJECT, &headers, b"hello").await;
    let mut events = bench.events("acme");
    let event = events.next().await;
    assert_eq!(event.content_type, "text/plain");
    assert_eq!(event.trace.unwrap().traceparent, parent);
    // The key makes a repetition one.
    bench.intake(SUBJECT, &headers, b"hello").await;
    drained(&bench).await;
    assert!(events.is_quiet().await);
    assert_eq!(relay.handle.counted().repeated, 1);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_go_to_whoever_asks() {
    let bench = Bench::new().await;
    let relay = bench.relay(intake_only());
    let mut receipts = Subscriber::to(bench.nats.url(), "receipts.>").await;
    let to = (header::RECEIPT_TO, "receipts.shop");
    let key = (header::IDEMPOTENCY_KEY, "order-1");
    bench.intake(SUBJECT, &[to, key], b"1").await;
    let first = receipts.next().await;
    assert!(
        first.contains(r#""outcome":"accepted","message":"msg_"#),
        "{first}"
    );
    bench.intake(SUBJECT, &[to, key], b"1").await;
    let again = receipts.next().await;
    assert_eq!(
        again,
        first.replace("accepted\",\"message", "repeat\",\"message")
    );
    bench.intake(SUBJECT, &[to, key], b"2").await;
    let conflict = receipts.next().await;
    assert!(
        conflict.contains(r#""outcome":"rejected","reason":"conflict""#),
        "{conflict}"
    );
    bench.intake("intake.acme.brand.new", &[to], b"1").await;
    let waiting = receipts.next().await;
    assert!(waiting.contains(r#""outcome":"waiting""#), "{waiting}");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_can_not_be_aimed_at_hooklanes_own_subjects() {
    let bench = Bench::new().await;
    let relay = bench.relay(intake_only());
    let to = (header::RECEIPT_TO, "intake.acme.invoice.paid");
    bench.intake(SUBJECT, &[to], b"1").await;
    bench
        .intake(SUBJECT, &[(header::RECEIPT_TO, "a b")], b"1")
        .await;
    drained(&bench).await;
    assert_eq!(relay.handle.counted().accepted, 2);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cant_be_accepted_is_set_aside_with_its_payload() {
    let bench = Bench::new().await;
    let relay = bench.relay(intake_only());
    bench.intake("intake.acme", &[], b"no type").await;
    bench
        .intake("intake.acme.not-a-type", &[], b"bad type")
        .await;
    bench
        .intake("intake.nobody.invoice.paid", &[], b"no such consumer")
        .await;
    bench
        .intake(SUBJECT, &[], &vec![b'x'; 256 * 1024 + 1])
        .await;
    bench
        .intake(SUBJECT, &[(header::IDEMPOTENCY_KEY, "")], b"empty key")
        .await;
    bench.intake(SUBJECT, &[], b"good").await;
    drained(&bench).await;
    let filter = Filter {
        source: Some("intake".to_owned()),
        waiting: true,
        ..Filter::default()
    };
    let rejected = bench.ledger.store.rejected(&filter, 0, 10).await.unwrap();
    let mut seen: Vec<_> = rejected
        .iter()
        .map(|r| (r.reason.as_str(), r.bytes))
        .collect();
    seen.sort_unstable();
    let expected = [
        ("bad_consumer", Some(7)),
        ("bad_event_type", Some(8)),
        ("bad_key", Some(9)),
        ("payload_too_large", None),
        ("unknown_consumer", Some(16)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.messages")
            .await,
        "1"
    );

    // Known in time.
    bench
        .ledger
        .sql("INSERT INTO hooklane.consumers (id) VALUES ('nobody')")
        .await;
    assert_eq!(
        bench.events("nobody").payloads(1).await,
        ["no such consumer"]
    );
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_made_anew_does_not_repeat_the_old_ones_keys() {
    let bench = Bench::new().await;
    let relay = bench.relay(intake_only());
    bench.intake(SUBJECT, &[], b"old").await;
    drained(&bench).await;
    bench.nats.wipe_store().await.unwrap();
    wait::until(
        "the stream is made anew",
        Duration::from_secs(30),
        async || {
            inspect::stream_state(&bench.client, subject::INTAKE)
                .await
                .is_ok()
        },
    )
    .await
    .unwrap();
    // The same sequence, other content.
    bench.intake(SUBJECT, &[], b"new").await;
    bench
        .until_sql("SELECT count(*) FROM hooklane.messages", "2")
        .await;
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.rejected_events")
            .await,
        "0"
    );
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_ledger_is_down_intake_holds_its_messages() {
    let server = postgres::Server::start().await.unwrap();
    let ledger = Ledger::on(&server).await;
    let mut bench = Bench::new().await;
    ledger.endpoint(1).await;
    ledger
        .sql("INSERT INTO hooklane.event_types (name) VALUES ('invoice.paid')")
        .await;
    bench.ledger = ledger;
    let relay = bench.relay(intake_only());
    bench.intake(SUBJECT, &[], b"1").await;
    drained(&bench).await;
    server.stop().await.unwrap();
    bench.intake(SUBJECT, &[], b"2").await;
    server.restart().await.unwrap();
    drained(&bench).await;
    let counted = bench
        .ledger
        .sql("SELECT count(*) FROM hooklane.messages")
        .await;
    assert_eq!(counted, "2");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_taken_in_batches() {
    let bench = Bench::new().await;
    for n in 0..300 {
        bench.intake(SUBJECT, &[], n.to_string().as_bytes()).await;
    }
    let relay = bench.relay(intake_only());
    drained(&bench).await;
    let transactions = "SELECT count(DISTINCT xmin::text) < 60 FROM hooklane.messages";
    assert_eq!(bench.ledger.sql(transactions).await, "t");
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.messages")
            .await,
        "300"
    );
    relay.stop().await;
}
