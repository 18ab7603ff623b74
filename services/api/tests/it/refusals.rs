//! Bad input: a clear refusal, and nothing half-done.

use std::time::Duration;

use hooklane_api::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bench::{Bench, MESSAGES};
use crate::client::Client;

const ENDPOINTS: &str = "/v1/consumers/acme/endpoints";

#[tokio::test(flavor = "multi_thread")]
async fn malformed_bodies_are_refused_with_a_problem() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let deep = format!(
        "{{\"url\": {}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let cases: &[(&str, &str, u16)] = &[
        (ENDPOINTS, "", 400),
        (ENDPOINTS, "{", 400),
        (ENDPOINTS, "[]", 422),
        (ENDPOINTS, "nul", 400),
        (ENDPOINTS, r#"{"url": 7}"#, 422),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "urll": ""}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "url": "https://example.com"}"#,
            422,
        ),
        (ENDPOINTS, &deep, 422),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "rate": 0}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "rate": -1}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "rate": 1e9}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "rate": 5, "unlimited": true}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "concurrency": 0}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "timeout_ms": 1}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "event_types": []}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "event_types": ["no.such"]}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "headers": {"x-a": "b\r\nc: d"}}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "headers": {"x\n": "b"}}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "headers": {"host": "b"}}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "description": "a\u0000b"}"#,
            422,
        ),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "secret": "short"}"#,
            422,
        ),
        (ENDPOINTS, r#"{"url": "http://169.254.169.254/"}"#, 422),
        (ENDPOINTS, r#"{"url": "file:///etc/passwd"}"#, 422),
        ("/v1/consumers", r#"{"id": "a b"}"#, 422),
        ("/v1/consumers", r#"{"id": "ok", "name": "a\u0000b"}"#, 422),
        ("/v1/consumers", r#"{"id": "acme"}"#, 409),
        ("/v1/event-types", r#"{"name": "a..b"}"#, 422),
        ("/v1/event-types", r#"{"name": "hooklane.mine"}"#, 422),
        (
            "/v1/event-types",
            r#"{"name": "a.b", "schema": {"$ref": "https://example.com/s"}}"#,
            422,
        ),
        ("/v1/api-keys", r#"{"name": "", "scope": "admin"}"#, 422),
        ("/v1/api-keys", r#"{"name": "n", "scope": "root"}"#, 422),
        ("/v1/api-keys", r#"{"name": "n", "scope": "consumer"}"#, 422),
        ("/v1/consumers", r#"["listed", "name", null]"#, 422),
        (
            ENDPOINTS,
            r#"{"url": "https://example.com", "headers": {"x-a": "1", "x-a": "2"}}"#,
            422,
        ),
        (
            "/v1/consumers/acme/dead-letters/replay",
            r#"{"dead_letters": []}"#,
            422,
        ),
        (
            "/v1/consumers/acme/dead-letters/replay",
            r#"{"dead_letters": [["msg_01987c3e-9d6a-7000-8000-000000000001",
                "ep_01987c3e-9d6a-7000-8000-000000000001", "2026-11-30T20:29:27Z", 1]]}"#,
            422,
        ),
        ("/v1/consumers", "null", 422),
    ];
    for (path, body, status) in cases {
        let answer = client.post(path, (*body).to_owned()).await;
        let shown = body.chars().take(80).collect::<String>();
        assert_eq!(answer.status, *status, "{path} {shown}: {answer:?}");
        assert!(
            !answer.code().is_empty() && answer.body["detail"].is_string(),
            "{answer:?}"
        );
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert_eq!(
            answer.body["request_id"],
            answer.headers["request-id"].to_str().unwrap()
        );
    }
    let not_text = client
        .post(ENDPOINTS, b"{\"url\": \"\xff\"}".to_vec())
        .await;
    assert_eq!(not_text.status, 400, "{not_text:?}");
    let left = "SELECT (SELECT count(*) FROM hooklane.endpoints), (SELECT count(*) FROM hooklane.event_types
                 WHERE name NOT LIKE 'hooklane.%'), (SELECT count(*) FROM hooklane.consumers)";
    assert_eq!(
        bench.ledger.sql(left).await,
        "0|1|2",
        "nothing half-written"
    );
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_or_not_meant_is_a_problem_too() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let cases: &[(&str, &str, u16)] = &[
        ("GET", "/v1/nothing", 404),
        ("GET", "/", 404),
        ("DELETE", "/v1/consumers", 405),
        ("GET", "/v1/consumers/nobody", 404),
        ("GET", "/v1/consumers/nobody/endpoints", 404),
        ("GET", "/v1/consumers/a%00b", 400),
        ("GET", "/v1/consumers/%ff", 400),
        ("GET", "/v1/consumers/acme/endpoints/%c3%28", 400),
        ("GET", "/v1/consumers/acme/endpoints/ep_x", 400),
        ("GET", "/v1/consumers?limit=0", 400),
        ("GET", "/v1/consumers?limit=many", 400),
        ("GET", "/v1/consumers?cursor=!", 422),
        ("GET", "/v1/consumers?what=else", 400),
        ("GET", "/v1/consumers/acme/deliveries?status=lost", 400),
        ("GET", "/v1/audit-log?action=no.such", 422),
        ("GET", "/v1/audit-log?since=yesterday", 400),
        ("GET", "/v1/audit-log?since=-4713-01-01T00:00:00Z", 422),
        ("GET", "/v1/dead-letters?until=-262143-01-01T00:00:00Z", 422),
        ("POST", "/openapi.json", 405),
    ];
    for (method, path, status) in cases {
        let answer = client.ask(method, path, &[], None).await;
        assert_eq!(answer.status, *status, "{method} {path}: {answer:?}");
        assert_eq!(
            answer.headers["content-type"], "application/problem+json",
            "{path}"
        );
    }
    let mut stranger = Client::connect(served.address, "").await;
    let answer = stranger.get("/v1/consumers/%ff").await;
    assert_eq!(answer.status, 401, "{answer:?}");
    let body = r#"{"id": "x"}"#;
    let form = [("content-type", "text/plain")];
    let answer = client.ask("POST", "/v1/consumers", &form, None).await;
    assert_eq!(answer.status, 415, "{answer:?}");
    for tag in ["seven", "1", "\"1", "\"+1\"", "\"\"", "W/\"1\""] {
        let answer = client
            .ask(
                "PATCH",
                "/v1/consumers/acme",
                &[("if-match", tag)],
                Some("{}"),
            )
            .await;
        assert_eq!(answer.status, 422, "{tag}: {answer:?}");
    }
    let id = [("request-id", "my-own-7")];
    let answer = client.ask("POST", "/v1/consumers", &id, Some(body)).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["request-id"]),
        (201, &"my-own-7".parse().unwrap())
    );
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_no_body_refuses_one() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let added = client.post(ENDPOINTS, r#"{"url": "https://example.com/"}"#);
    let added = added.await;
    let endpoint = format!("{ENDPOINTS}/{}", added.body["id"].as_str().unwrap());
    let some = "01987c3e-9d6a-7000-8000-000000000001";
    let delivery = format!("/v1/consumers/acme/deliveries/msg_{some}/ep_{some}");
    for (method, path) in [
        ("POST", format!("{endpoint}/pause")),
        ("POST", format!("{endpoint}/resume")),
        ("POST", format!("{delivery}/cancel")),
        ("POST", format!("{delivery}/retry")),
        ("POST", format!("{MESSAGES}/msg_{some}/replay")),
        (
            "POST",
            format!("/v1/consumers/acme/tasks/task_{some}/cancel"),
        ),
        ("DELETE", endpoint.clone()),
        ("DELETE", "/v1/consumers/acme".to_owned()),
        ("DELETE", format!("/v1/api-keys/key_{some}")),
    ] {
        for body in ["{", "junk", r#"{"state": "paused"}"#] {
            let answer = client.ask(method, &path, &[], Some(body)).await;
            let refused = (answer.status.as_u16(), answer.code());
            assert_eq!(
                refused,
                (400, "invalid_data"),
                "{method} {path} {body}: {answer:?}"
            );
        }
    }
    let shown = client.get(&endpoint).await;
    assert_eq!(shown.body["state"], "active", "nothing was done: {shown:?}");
    let paused = client.post(&format!("{endpoint}/pause"), "").await;
    assert_eq!(paused.body["state"], "paused", "{paused:?}");
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoded_body_is_refused_as_one() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    for (coding, status) in [
        ("gzip", 415),
        ("identity, br", 415),
        ("identity", 201),
        ("Identity,", 409),
    ] {
        let headers = [("content-encoding", coding)];
        let answer = client
            .ask("POST", "/v1/consumers", &headers, Some(r#"{"id": "new"}"#))
            .await;
        assert_eq!(answer.status, status, "`{coding}`: {answer:?}");
        if status == 415 {
            assert_eq!(answer.code(), "unsupported_media_type");
            assert_eq!(answer.headers["accept-encoding"], "identity");
        }
    }
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_oversized_requests_end() {
    let bench = Bench::new().await;
    let config = Config {
        head_within: Duration::from_secs(1),
        body_within: Duration::from_secs(1),
        ..Config::default()
    };
    let served = bench.serve(config).await;
    let address = served.address;
    let talk = async |text: String| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A reset is an end, too.
        let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer))
            .await
            .unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let head = format!(
        "POST {MESSAGES} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         authorization: Bearer {}\r\n",
        served.key
    );
    // A head that never ends is cut off.
    talk("GET / HTTP/1.1\r\nhost: x\r\n".to_owned()).await;
    // A body that never ends.
    let answer = talk(format!("{head}content-length: 100\r\n\r\n{{")).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    // One that says it is huge, and one that does not say.
    let answer = talk(format!("{head}content-length: 99999999\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let chunk = "x".repeat(600_000);
    let answer = talk(format!(
        "{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{chunk}\r\n",
        chunk.len()
    ))
    .await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
        "{answer}"
    );
    // Answers that nobody reads.
    let mut deaf = TcpStream::connect(address).await.unwrap();
    let asked = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n";
    let cut_off = async { while deaf.write_all(asked).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(20), cut_off)
        .await
        .expect("the connection to end");
    // A flood of headers.
    let many: String = (0..200).map(|n| format!("x-{n}: y\r\n")).collect();
    let answer = talk(format!("{head}{many}content-length: 2\r\n\r\n{{}}")).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_a_rate_and_a_revoked_one_has_an_end() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut admin = served.connect().await;
    let body = r#"{"name": "slow", "scope": "read", "rate_limit": 2}"#;
    let made = admin.post("/v1/api-keys", body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let key = made.body["key"].as_str().unwrap();
    let mut client = Client::connect(served.address, key).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let answer = client.get("/v1/consumers").await;
        if answer.status == 429 {
            let seconds: u32 = answer.headers["retry-after"]
                .to_str()
                .unwrap()
                .parse()
                .unwrap();
            assert!((1..=2).contains(&seconds), "{answer:?}");
        }
        statuses.push(answer.status.as_u16());
    }
    assert!(
        statuses.starts_with(&[200, 200]) && statuses.contains(&429),
        "{statuses:?}"
    );
    let id = made.body["id"].as_str().unwrap();
    let answer = admin
        .ask("DELETE", &format!("/v1/api-keys/{id}"), &[], None)
        .await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(client.get("/v1/consumers").await.status, 401);
    let shown = admin.get(&format!("/v1/api-keys/{id}")).await;
    assert_eq!(shown.body["standing"], "revoked");
    let log = admin.get("/v1/audit-log?action=api_key.revoke").await;
    assert_eq!(log.body["data"][0]["subject"], id, "{log:?}");
    served.running.stop().await;
}
