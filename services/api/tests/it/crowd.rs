//! Those who ask for much leave room for the others.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use hooklane_api::Config;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bench::{BATCH, BUDGET, Bench, MESSAGES};

const ONE: &str = r#"{"event_type": "invoice.paid", "payload": 1}"#;
const KEYED: &str = r#"{"event_type": "invoice.paid", "payload": 1, "idempotency_key": "k"}"#;
/// What a request takes that nobody is in the way of, and what a busy host adds.
const SHORT: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn wide_batches_leave_others_their_turn_and_end_in_time() {
    let bench = Bench::new().await;
    // A transaction a message, and more of them than there is time for.
    bench
        .ledger
        .sql(
            "INSERT INTO hooklane.consumers (id) VALUES ('other');
             INSERT INTO hooklane.endpoints (id, consumer_id, url, filters)
             SELECT gen_random_uuid(), 'acme', 'https://example.com/', '{*}'
             FROM generate_series(1, 1000)",
        )
        .await;
    let mut config = Config::default();
    config.intake.max_deliveries = 100;
    config.intake.commit_within = Duration::from_secs(6);
    let served = bench.serve(config).await;
    let wide =
        json!({"messages": vec![json!({"event_type": "invoice.paid", "payload": 1}); 1_000]});
    let mut batches = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (mut client, body) = (served.connect().await, wide.to_string());
        batches.spawn(async move {
            let started = Instant::now();
            (client.post(BATCH, body).await, started.elapsed())
        });
    }
    let begun = "SELECT count(*) > 2 FROM hooklane.messages";
    bench.until_sql(begun, "t").await;
    let mut client = served.connect().await;
    let started = Instant::now();
    let answer = client.post("/v1/consumers/other/messages", ONE).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert!(started.elapsed() < SHORT, "{:?}", started.elapsed());
    assert!(batches.try_join_next().is_none(), "they are under way");
    let mut accepted = 1;
    for (answer, took) in batches.join_all().await {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(took < BUDGET, "{took:?}");
        let results = answer.body["results"].as_array().unwrap();
        assert_eq!(results.len(), 1_000);
        let front: Vec<&Value> = results
            .iter()
            .take_while(|result| result["status"] == "accepted")
            .collect();
        assert!(front.is_sorted_by_key(|result| result["accepted_at"].as_str()));
        assert!(!front.is_empty() && front.len() < 1_000);
        let rest = &results[front.len()..];
        let busy = |result: &Value| result["problem"]["code"] == "busy";
        assert!(rest.iter().all(busy), "{:?}", rest.first());
        accepted += front.len();
    }
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.messages")
            .await,
        accepted.to_string()
    );
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_in_vain_is_refused_while_the_writers_are_still_busy() {
    let bench = Bench::new().await;
    let mut config = Config::default();
    config.intake.commits_at_once = 1;
    config.intake.wait_at_most = Duration::from_millis(200);
    let served = bench.serve(config).await;
    let held =
        "BEGIN; LOCK TABLE hooklane.idempotency_keys IN SHARE MODE; SELECT pg_sleep(4); COMMIT";
    let session = bench.ledger.database.psql(held);
    let (mut first, mut second) = (served.connect().await, served.connect().await);
    let waits = |granted: bool| {
        format!(
            "SELECT count(*) > 0 FROM pg_locks
             WHERE granted = {granted} AND mode = CASE WHEN granted THEN 'ShareLock' ELSE mode END
             AND relation = 'hooklane.idempotency_keys'::regclass
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    };
    let asking = async {
        bench.until_sql(&waits(true), "t").await;
        let busy = tokio::spawn(async move { first.post(MESSAGES, KEYED).await });
        bench.until_sql(&waits(false), "t").await;
        let answer = second.post(MESSAGES, ONE).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (429, "busy"));
        assert!(answer.headers.contains_key("retry-after"));
        assert!(!busy.is_finished(), "the writer is busy");
        assert_eq!(busy.await.unwrap().status, 202);
    };
    let (held, ()) = tokio::join!(session, asking);
    held.unwrap();
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_come_in_share_their_memory() {
    let bench = Bench::new().await;
    let config = Config {
        body_bytes: 64 << 10,
        ..Config::default()
    };
    let served = bench.serve(config).await;
    let (pieces, body) = tokio::sync::mpsc::channel::<Bytes>(1);
    let body = futures::stream::unfold(body, async |mut body| {
        let piece = body.recv().await?;
        Some((Ok::<_, Infallible>(piece), body))
    });
    let (mut slow, mut other) = (served.connect().await, served.connect().await);
    let slow = tokio::spawn(async move { slow.post(MESSAGES, Body::from_stream(body)).await });
    pieces
        .send(Bytes::from_static(&ONE.as_bytes()[..9]))
        .await
        .unwrap();
    let started = Instant::now();
    let refused = loop {
        let answer = other.post(MESSAGES, ONE).await;
        if answer.status != 202 {
            break answer;
        }
        assert!(started.elapsed() < BUDGET, "the slow body has no room");
    };
    assert_eq!((refused.status.as_u16(), refused.code()), (429, "busy"));
    assert!(refused.headers.contains_key("retry-after"));
    pieces
        .send(Bytes::from_static(&ONE.as_bytes()[9..]))
        .await
        .unwrap();
    drop(pieces);
    assert_eq!(slow.await.unwrap().status, 202);
    // Given back; a body alone that is larger than all may be is refused.
    let mut other = served.connect().await;
    assert_eq!(other.post(MESSAGES, ONE).await.status, 202);
    let large = format!(
        r#"{{"event_type": "invoice.paid", "payload": "{}"}}"#,
        "x".repeat(70_000)
    );
    assert_eq!(other.post(MESSAGES, large).await.status, 429);
    served.running.stop().await;
}
