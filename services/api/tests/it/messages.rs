//! What a message may be, and how its fate is told.

use hooklane_api::Config;
use serde_json::json;

use crate::bench::{BATCH, Bench, MESSAGES};

fn of(payload: &str) -> String {
    format!(r#"{{"event_type": "invoice.paid", "payload": {payload}}}"#)
}

fn keyed(key: &str, payload: &str) -> String {
    format!(r#"{{"event_type": "invoice.paid", "payload": {payload}, "idempotency_key": "{key}"}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_kept_and_published_byte_for_byte_in_its_trace() {
    let bench = Bench::new().await;
    bench.ledger.endpoint(1).await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let payload = "{ \"a\": 1.0,\n\"a\": \"\\u00e9é\" }";
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("traceparent", parent), ("tracestate", "a=b")];
    let answer = client
        .try_post(MESSAGES, &headers, of(payload))
        .await
        .unwrap();
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.body["repeated"], json!(false));
    assert_eq!(answer.body.get("warnings"), None);
    let id = answer.body["id"].as_str().unwrap();
    let row = bench
        .ledger
        .sql(
            "SELECT m.id, convert_from(payload, 'UTF8'), content_type, source, traceparent, tracestate,
                    d.status
             FROM hooklane.messages m JOIN hooklane.deliveries d ON d.message_id = m.id",
        )
        .await;
    let uuid = id.strip_prefix("msg_").unwrap();
    let row = row.replace('-', "");
    let expected = format!("{uuid}|{payload}|application/json|api|{parent}|a=b|received");
    assert_eq!(row, expected.replace('-', ""));
    let count = async || {
        let state = hooklane_nats::inspect::stream_state(&bench.client, "EVENTS").await;
        state.is_ok_and(|state| state.messages == 1)
    };
    let budget = crate::bench::BUDGET;
    hooklane_testkit::wait::until("it is published", budget, count)
        .await
        .unwrap();
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_repeats_its_receipt_or_is_in_conflict() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let first = client.post(MESSAGES, keyed("k", "1")).await;
    let again = client
        .try_post(MESSAGES, &[("idempotency-key", "k")], of("1"))
        .await
        .unwrap();
    assert_eq!(again.status, 202, "{again:?}");
    assert_eq!(again.body["id"], first.body["id"]);
    assert_eq!(again.body["accepted_at"], first.body["accepted_at"]);
    assert_eq!(again.body["repeated"], json!(true));
    let other = client.post(MESSAGES, keyed("k", "2")).await;
    assert_eq!((other.status.as_u16(), other.code()), (409, "conflict"));
    let both = client
        .try_post(MESSAGES, &[("idempotency-key", "l")], keyed("k", "1"))
        .await
        .unwrap();
    assert_eq!((both.status.as_u16(), both.code()), (422, "unprocessable"));
    let same = client
        .try_post(MESSAGES, &[("idempotency-key", "k")], keyed("k", "1"))
        .await
        .unwrap();
    assert_eq!(same.body["repeated"], json!(true), "{same:?}");
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.messages")
            .await,
        "1"
    );
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_message_is_told_and_nothing_is_written() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let large = format!("\"{}\"", "x".repeat(256 * 1024));
    let deep = format!("{}{}", "[".repeat(101), "]".repeat(101));
    let long_key = "é".repeat(256);
    for (body, status, code) in [
        (of("{"), 400, "invalid_data"),
        (of("NaN"), 400, "invalid_data"),
        (
            r#"{"event_type": "invoice.paid"}"#.to_owned(),
            422,
            "unprocessable",
        ),
        (
            r#"{"event_type": 1, "payload": 1}"#.to_owned(),
            422,
            "unprocessable",
        ),
        (
            r#"{"event_type": "a b", "payload": 1}"#.to_owned(),
            422,
            "unprocessable",
        ),
        (
            r#"{"event_type": "a", "event_type": "a", "payload": 1}"#.to_owned(),
            422,
            "unprocessable",
        ),
        (
            r#"{"event_type": "a", "payload": 1, "more": 1}"#.to_owned(),
            422,
            "unprocessable",
        ),
        (
            r#"["invoice.paid", 1, null]"#.to_owned(),
            422,
            "unprocessable",
        ),
        (
            r#"{"event_type": "unknown", "payload": 1}"#.to_owned(),
            422,
            "unknown_event_type",
        ),
        (keyed("", "1"), 422, "unprocessable"),
        (keyed("\\u0000", "1"), 422, "unprocessable"),
        (keyed(&long_key, "1"), 422, "unprocessable"),
        (of(&large), 413, "payload_too_large"),
        (of(&deep), 422, "limit_exceeded"),
    ] {
        let shown: String = body.chars().take(80).collect();
        let answer = client.post(MESSAGES, body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (status, code),
            "{shown}: {answer:?}"
        );
    }
    let answer = client.post("/v1/consumers/nobody/messages", of("1")).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (404, "not_found"));
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.messages")
            .await,
        "0"
    );
    // As many characters as the document says, whatever they take.
    let longest = keyed(&"\u{1F600}".repeat(255), "1");
    assert_eq!(client.post(MESSAGES, longest).await.status, 202);
    // As large and as deep as may be.
    let large = format!("\"{}\"", "x".repeat(256 * 1024 - 2));
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    for payload in [large, deep, "null".to_owned(), r#""\u0000""#.to_owned()] {
        let answer = client.post(MESSAGES, of(&payload)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_held_against_the_schema_that_is_in_force() {
    let bench = Bench::new().await;
    let schema = json!({
        "type": "object", "required": ["amount"],
        "properties": {"amount": {"type": "number"}, "name": {"maxLength": 40000}},
    });
    let set = |schema: &str| format!("UPDATE hooklane.event_types SET schema = '{schema}'");
    bench.ledger.sql(&set(&schema.to_string())).await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let answer = client.post(MESSAGES, of(r#"{"amount": "ten"}"#)).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (422, "schema_mismatch")
    );
    let told = json!([{
        "pointer": "/payload/amount", "detail": "\"ten\" is not of type \"number\"",
    }]);
    assert_eq!(answer.body["errors"], told);
    for (length, status) in [(40_000, 202), (40_001, 422)] {
        let payload = json!({"amount": 1, "name": "x".repeat(length)}).to_string();
        let answer = client.post(MESSAGES, of(&payload)).await;
        assert_eq!(answer.status.as_u16(), status, "{answer:?}");
        assert!(answer.body.to_string().len() < 1_000);
    }
    bench.ledger.sql(&set("true")).await;
    let started = tokio::time::Instant::now();
    while client.post(MESSAGES, of(r#""now""#)).await.status != 202 {
        assert!(
            started.elapsed().as_secs() < 5,
            "a second, and what a busy host adds"
        );
    }
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deprecated_event_type_is_accepted_with_a_warning() {
    let bench = Bench::new().await;
    bench
        .ledger
        .sql("UPDATE hooklane.event_types SET deprecated = true")
        .await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let warning = json!(["the event type is deprecated"]);
    let answer = client.post(MESSAGES, of("1")).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["warnings"]),
        (202, &warning)
    );
    let answer = client
        .post(BATCH, format!(r#"{{"messages": [{}]}}"#, of("1")))
        .await;
    assert_eq!(answer.body["results"][0]["warnings"], warning);
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_a_batch_has_a_result_of_its_own() {
    let bench = Bench::new().await;
    bench
        .ledger
        .sql(
            r#"INSERT INTO hooklane.event_types (name, schema) VALUES ('strict', '{"type": "number"}')"#,
        )
        .await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let before = client.post(MESSAGES, keyed("before", "0")).await;
    let large = format!("\"{}\"", "x".repeat(256 * 1024));
    let messages = [
        of("1"),
        keyed("k", "2"),
        r#"{"event_type": "unknown", "payload": 1}"#.to_owned(),
        keyed("k", "2"),
        keyed("k", "3"),
        r#"{"event_type": "strict", "payload": "x"}"#.to_owned(),
        of(&large),
        keyed("before", "0"),
        keyed("\\n", "1"),
        r#"{"event_type": "strict", "payload": 5}"#.to_owned(),
    ];
    let answer = client
        .post(
            BATCH,
            format!(r#"{{"messages": [{}]}}"#, messages.join(",")),
        )
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let results = answer.body["results"].as_array().unwrap();
    let told: Vec<(&str, &str)> = results
        .iter()
        .map(|result| {
            let code = result["problem"]["code"].as_str().unwrap_or_default();
            (result["status"].as_str().unwrap(), code)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("accepted", ""),
            ("accepted", ""),
            ("rejected", "unknown_event_type"),
            ("repeated", ""),
            ("rejected", "conflict"),
            ("rejected", "schema_mismatch"),
            ("rejected", "payload_too_large"),
            ("repeated", ""),
            ("rejected", "unprocessable"),
            ("accepted", ""),
        ]
    );
    assert_eq!(results[1]["id"], results[3]["id"]);
    assert_eq!(results[7]["id"], before.body["id"]);
    assert_eq!(
        results[5]["problem"]["errors"][0]["pointer"],
        "/messages/5/payload"
    );
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.messages")
            .await,
        "4"
    );
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_read_of_a_batch_is_one_message_and_not_the_others() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let wrong = [
        r#"{"event_type": "invoice.paid", "payload": 1, "more": 1}"#,
        r#"{"event_type": 1, "payload": 1}"#,
        r#"{"event_type": "a b", "payload": 1}"#,
        r#"{"event_type": "invoice.paid"}"#,
        r#"{"event_type": "a", "event_type": "a", "payload": 1}"#,
        r#"["invoice.paid", 1, null]"#,
        "null",
        "7",
        r#""invoice.paid""#,
    ];
    let (first, last) = (of("1"), of("2"));
    let messages = [&[first.as_str()], &wrong[..], &[last.as_str()]].concat();
    let body = format!(r#"{{"messages": [ {} ]}}"#, messages.join(" ,\n "));
    let answer = client.post(BATCH, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let results = answer.body["results"].as_array().unwrap();
    assert_eq!(results.len(), messages.len());
    for (at, result) in results.iter().enumerate() {
        if at == 0 || at == messages.len() - 1 {
            assert_eq!(result["status"], "accepted", "{at}");
            continue;
        }
        let problem = &result["problem"];
        assert_eq!(problem["code"], "unprocessable", "{result}");
        let pointer = format!("/messages/{at}");
        assert_eq!(problem["errors"][0]["pointer"], json!(pointer));
        assert!(!problem["detail"].as_str().unwrap().contains("column"));
    }
    for whole in [
        r#"{"messages": [{]}"#,
        r#"{"messages": {}}"#,
        r#"[[]]"#,
        r#"{"messages": [], "more": 1}"#,
    ] {
        let answer = client.post(BATCH, whole).await;
        assert!(answer.status.is_client_error(), "{whole}: {answer:?}");
    }
    let document = client.get("/openapi.json").await.body;
    let messages = &document["components"]["schemas"]["NewMessages"]["properties"]["messages"];
    let item = "#/components/schemas/NewMessage";
    assert_eq!(messages["items"]["$ref"], item, "{messages}");
    assert_eq!(messages["maxItems"], 1_000);
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_limits_and_an_unknown_consumer_is_told_at_once() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let many = |count: usize| json!({"messages": vec![json!({"event_type": "invoice.paid", "payload": 1}); count]});
    for (count, status) in [(0, 422), (1_001, 422), (1_000, 200)] {
        let answer = client.post(BATCH, many(count).to_string()).await;
        assert_eq!(answer.status.as_u16(), status, "{count}");
    }
    let header = [("idempotency-key", "k")];
    let answer = client
        .try_post(BATCH, &header, many(1).to_string())
        .await
        .unwrap();
    assert_eq!(answer.status, 422);
    let unknown = json!({"messages": [{"event_type": "unknown", "payload": 1}]});
    for body in [many(1), unknown] {
        let answer = client
            .post("/v1/consumers/nobody/messages/batch", body.to_string())
            .await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, "not_found"));
    }
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.messages")
            .await,
        "1000"
    );
    served.running.stop().await;
}
