//! Handshakes, and partners of several kinds beside each other.

use axum::body::Body;
use http::Request;
use ring::hmac;

use crate::bench::{Bench, config};
use crate::client::Answer;

const KEY: &str = "8f742231b10e8888abcd99yyyzzz85a5";

fn signed(text: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes());
    let tag = hmac::sign(&key, text.as_bytes());
    tag.as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[tokio::test]
async fn challenges_are_answered_to_who_may_ask_and_nothing_is_stored() {
    let bench = Bench::new().await;
    let mut config = config("");
    let sources = format!(
        "[meta]\npreset = \"meta\"\nsecrets = [\"{KEY}\"]\nverify_token = \"token\"\n\
         [slack]\npreset = \"slack\"\nsecrets = [\"{KEY}\"]\n"
    );
    let sources: std::collections::BTreeMap<String, _> = toml::from_str(&sources).unwrap();
    config.sources.extend(sources);
    let served = bench.serve(config).await;
    let ask =
        async |request: Request<Body>| -> Answer { served.connect().await.ask(request).await };

    let get = |query: &str| {
        let uri = format!("/in/meta?{query}");
        Request::get(uri)
            .header("host", "x")
            .body(Body::empty())
            .unwrap()
    };
    let asked = "hub.mode=subscribe&hub.challenge=%3Cb%3E1158201444&hub.verify_token=";
    let right = ask(get(&format!("{asked}token"))).await;
    assert_eq!(
        (right.status.as_u16(), right.body.as_str()),
        (200, "<b>1158201444")
    );
    assert_eq!(right.header("x-content-type-options"), "nosniff");
    assert!(
        right.header("content-type").starts_with("text/plain"),
        "{right:?}"
    );
    for query in [
        format!("{asked}wrong"),
        "hub.mode=subscribe".to_owned(),
        String::new(),
    ] {
        let wrong = ask(get(&query)).await;
        assert!(wrong.status.is_client_error(), "{wrong:?}");
        assert!(!wrong.body.contains("1158201444"), "{wrong:?}");
    }

    let post = |body: &str, key: &str| {
        let at = bench.clock.now().timestamp();
        let signature = signed(&format!("v0:{at}:{body}")).replace('a', key);
        Request::post("/in/slack")
            .header("host", "x")
            .header("content-type", "application/json")
            .header("x-slack-request-timestamp", at)
            .header("x-slack-signature", format!("v0={signature}"))
            .body(Body::from(body.to_owned()))
            .unwrap()
    };
    let body = r#"{"type":"url_verification","challenge":"3eZbrw1aB"}"#;
    let right = ask(post(body, "a")).await;
    assert_eq!(
        (right.status.as_u16(), right.body.as_str()),
        (200, "3eZbrw1aB")
    );
    assert_eq!(ask(post(body, "b")).await.status, 401);
    assert_eq!(served.running.handle.stats().challenges, 2);
    let rows = "SELECT count(*) FROM hooklane.webhook_inbox";
    assert_eq!(bench.ledger.sql(rows).await, "0");

    let event = r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}"#;
    assert_eq!(ask(post(event, "a")).await.status, 200);
    let published = bench.published(1).await;
    assert_eq!(published[0].subject, "inbox.slack.message");
    let integrity = published[0].header(hooklane_proto::header::INTEGRITY);
    assert_eq!(integrity, Some("full"));
    served.running.stop().await;
}
