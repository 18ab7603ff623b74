//! The REST API of a whole Hooklane: what it takes in arrives, and nothing secret leaves it.

use hooklane_testkit::wait::until_some;
use hooklane_testkit::{Receiver, Reply};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::process::{Process, ask, free_address};
use crate::system::{BUDGET, ready, system, verify};

const ENDPOINTS: &str = "/v1/consumers/acme/endpoints";
const MESSAGES: &str = "/v1/consumers/acme/messages";

/// A Hooklane with an API, and a key that may do everything.
struct Served {
    bench: Bench,
    address: String,
    key: String,
    up: Process,
    /// It lives as long as what uses it.
    _nats: hooklane_testkit::nats::Server,
}

impl Served {
    async fn start(prepare: impl FnOnce(&mut Bench)) -> Self {
        let (mut bench, nats, health) = system().await;
        let address = free_address();
        bench.set("HOOKLANE__API__LISTEN", address.as_str());
        prepare(&mut bench);
        bench.ok(&["consumer", "add", "acme"]);
        bench.ok(&["event-type", "add", "invoice.paid"]);
        let made = bench.json(&["api-key", "create", "--name", "test", "--scope", "admin"]);
        let key = made["key"].as_str().unwrap().to_owned();
        let up = Process::start(&bench, &["up"]);
        ready(&health).await;
        Self {
            bench,
            address,
            key,
            up,
            _nats: nats,
        }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let headers = format!(
            "Authorization: Bearer {}\r\nContent-Type: application/json\r\n",
            self.key
        );
        let answer = ask(&self.address, method, path, &headers, body).await;
        let (status, text) = answer.expect("an answer");
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask("POST", path, &body.to_string()).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    /// Sends a message; it comes to the receiver.
    async fn send(&self, receiver: &Receiver) -> hooklane_testkit::receiver::Recorded {
        let message = json!({"event_type": "invoice.paid", "payload": {"amount": 1250}});
        let sent = self.post(MESSAGES, &message).await;
        let id = sent["id"].as_str().unwrap();
        until_some("the message to arrive", BUDGET, async || {
            let came = receiver.requests();
            came.into_iter()
                .find(|request| request.header("webhook-id") == Some(id))
        })
        .await
        .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_secrets_verify_during_a_rotation_and_then_only_the_new_one() {
    let served = Served::start(|_| {}).await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(200));
    let added = served
        .post(ENDPOINTS, &json!({"url": receiver.url("/hook")}))
        .await;
    let old = added["secret"].as_str().unwrap().to_owned();
    let endpoint = format!("{ENDPOINTS}/{}", added["id"].as_str().unwrap());
    let verifies = |request: &_, secret: &str| verify(&served.bench, request, secret).code == 0;
    assert!(verifies(&served.send(&receiver).await, &old));

    let rotated = served
        .post(&format!("{endpoint}/secrets/rotate"), &json!({}))
        .await;
    let new = rotated["secret"].as_str().unwrap().to_owned();
    let until = rotated["old_until"].as_str().unwrap();
    let until = chrono::DateTime::parse_from_rfc3339(until)
        .unwrap()
        .to_utc();
    let left = until - hooklane_core::clock::now();
    assert!((23..=24).contains(&left.num_hours()), "{left}");
    until_some("the lanes to know", BUDGET, async || {
        let (_, shown) = served.ask("GET", &endpoint, "").await;
        (shown["routed"] == true).then_some(())
    })
    .await
    .unwrap();
    until_some("both to verify", BUDGET, async || {
        let request = served.send(&receiver).await;
        assert!(verifies(&request, &old), "the old one signs along");
        verifies(&request, &new).then_some(())
    })
    .await
    .unwrap();

    // The 24 hours pass: what is left of them is taken away where they are kept.
    let over = "UPDATE hooklane.endpoint_secrets SET expires_at = clock_timestamp() WHERE expires_at IS NOT NULL;
                UPDATE hooklane.endpoints SET version = nextval('hooklane.endpoint_version')";
    served.bench.database().psql(over).await.unwrap();
    until_some("the old one to have ended", BUDGET, async || {
        let request = served.send(&receiver).await;
        assert!(verifies(&request, &new), "the new one goes on");
        (!verifies(&request, &old)).then_some(())
    })
    .await
    .unwrap();
    served.up.signal("TERM");
    assert_eq!(served.up.wait(BUDGET).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_delivery_says_what_happened() {
    let served = Served::start(|_| {}).await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(418));
    let wanted =
        json!({"url": receiver.url("/hook"), "event_types": ["hooklane.endpoint.failing"]});
    let (status, refused) = served.ask("POST", ENDPOINTS, &wanted.to_string()).await;
    assert!(status == 201 || status == 422, "{refused}");
    let added = served
        .post(ENDPOINTS, &json!({"url": receiver.url("/hook")}))
        .await;
    let test = format!("{ENDPOINTS}/{}/test", added["id"].as_str().unwrap());
    let trial = json!({"event_type": "invoice.paid"});
    let (status, refused) = served.ask("POST", &test, &trial.to_string()).await;
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("conflict")),
        "no example: {refused}"
    );

    let example = json!({"example": {"invoice": "6f1e"}});
    let (status, _) = served
        .ask(
            "PATCH",
            "/v1/event-types/invoice.paid",
            &example.to_string(),
        )
        .await;
    assert_eq!(status, 200);
    let tried = served.post(&test, &trial).await;
    assert_eq!(tried["attempt"]["status"], 418, "{tried}");
    assert_eq!(tried["attempt"]["verdict"], "retry");
    let came = receiver.requests();
    assert_eq!(came.len(), 1, "to this endpoint alone");
    assert_eq!(&came[0].body[..], br#"{"invoice":"6f1e"}"#);
    let unknown = json!({"event_type": "no.such"});
    let (status, refused) = served.ask("POST", &test, &unknown.to_string()).await;
    assert_eq!(
        (status, &refused["code"]),
        (422, &json!("unknown_event_type"))
    );
    served.up.signal("TERM");
    assert_eq!(served.up.wait(BUDGET).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_a_log_an_answer_a_trace_or_the_database() {
    const HEADER: &str = "canary-header-7d1f";
    let collector = Receiver::start().await.unwrap();
    collector.fallback(Reply::status(200));
    let base = format!("http://{}", collector.address());
    let served = Served::start(|bench| {
        bench.set("HOOKLANE__TELEMETRY__LOG", "debug");
        bench.set("OTEL_EXPORTER_OTLP_ENDPOINT", base);
        bench.set("OTEL_BSP_SCHEDULE_DELAY", "100");
    })
    .await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(500));
    let wanted = json!({"url": receiver.url("/hook"), "headers": {"x-token": HEADER}});
    let added = served.post(ENDPOINTS, &wanted).await;
    let endpoint = format!("{ENDPOINTS}/{}", added["id"].as_str().unwrap());
    let made = served
        .post("/v1/api-keys", &json!({"name": "n", "scope": "read"}))
        .await;
    let rotated = served
        .post(&format!("{endpoint}/secrets/rotate"), &json!({}))
        .await;
    let mut secrets: Vec<String> = [&added["secret"], &made["key"], &rotated["secret"]]
        .map(|secret| secret.as_str().unwrap().to_owned())
        .to_vec();
    secrets.extend([
        served.key.clone(),
        HEADER.to_owned(),
        crate::bench::KEY.to_owned(),
    ]);
    assert_eq!(served.send(&receiver).await.header("x-token"), Some(HEADER));

    // Everything that can be read, wrong requests too, and one with the secrets in the wrong places.
    let mut told = Vec::new();
    for path in [
        "/openapi.json",
        "/v1/consumers",
        "/v1/event-types",
        "/v1/endpoints",
        "/v1/endpoints/failing",
        "/v1/api-keys",
        "/v1/audit-log",
        "/v1/tasks",
        "/v1/dead-letters",
        MESSAGES,
        ENDPOINTS,
        &endpoint,
        "/v1/consumers/acme/deliveries",
        "/v1/nothing",
        "/v1/consumers?cursor=x",
    ] {
        told.push(served.ask("GET", path, "").await.1.to_string());
    }
    for body in [
        json!({"url": "https://example.com", "secret": secrets[0], "rate": -1}),
        json!({"url": "https://example.com", "headers": {"bad name": HEADER}}),
        json!({"url": "https://example.com", "headers": {"x-token": format!("{HEADER}\n")}}),
    ] {
        let (status, answer) = served.ask("POST", ENDPOINTS, &body.to_string()).await;
        assert_eq!(status, 422, "{answer}");
        told.push(answer.to_string());
    }
    // Bytes in hexadecimal.
    let all = "SET xmlbinary = 'hex'; SELECT schema_to_xml('hooklane', true, false, '')";
    let dump = served.bench.database().psql(all).await.unwrap();
    served.up.signal("TERM");
    let ended = served.up.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
    let exported: Vec<u8> = collector
        .requests()
        .iter()
        .flat_map(|request| request.body.to_vec())
        .collect();
    assert!(
        !exported.is_empty() && ended.log.contains("DEBUG") && dump.contains("endpoint.create")
    );
    for secret in &secrets {
        let shown = &secret[..8.min(secret.len())];
        for answer in &told {
            assert!(
                !answer.contains(secret.as_str()),
                "{shown}… is in an answer: {answer}"
            );
        }
        assert!(
            !ended.log.contains(secret.as_str()),
            "{shown}… is in the log"
        );
        let hex: String = secret.bytes().map(|byte| format!("{byte:02X}")).collect();
        let kept = dump.contains(secret.as_str()) || dump.contains(&hex);
        assert!(!kept, "{shown}… is in the database");
        let in_trace = exported
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!in_trace, "{shown}… is in a trace");
    }
}
