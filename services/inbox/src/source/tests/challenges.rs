//! Handshakes.

use super::signer::{signed_discord, signed_slack, signed_zoom};
use super::*;

fn answer(source: &Source, sent: &Sent) -> Option<Answer> {
    let before = source.challenge(&sent.request(), None);
    before.or_else(|| {
        let verified = sent.verify(source, THEN).ok()?;
        source.challenge(&sent.request(), Some(&verified))
    })
}

fn text(body: &str) -> Answer {
    Answer {
        status: http::StatusCode::OK,
        content_type: Some("text/plain; charset=utf-8"),
        body: body.to_owned(),
    }
}

fn refusal(status: u16) -> Answer {
    let status = http::StatusCode::from_u16(status).unwrap();
    Answer {
        status,
        content_type: None,
        body: String::new(),
    }
}

#[test]
fn slack_has_its_challenge_back_exactly_and_only_when_signed() {
    let markup = "<script>alert(1)</script>\u{e9}\"\n{hmac}{value}";
    let body = serde_json::json!({"type": "url_verification", "challenge": markup}).to_string();
    let sample = signed_slack(&body);
    assert_eq!(answer(&sample.source, &sample.sent), Some(text(markup)));
    let unsigned = sample.sent.clone().without("x-slack-signature");
    assert_eq!(answer(&sample.source, &unsigned), None);
    let event = signed_slack(r#"{"type":"event_callback","challenge":"a"}"#);
    assert_eq!(answer(&event.source, &event.sent), None);
}

#[test]
fn a_challenge_that_is_long_or_missing_is_not_given_back() {
    for (body, expected) in [
        (
            format!(
                r#"{{"type":"url_verification","challenge":"{}"}}"#,
                "a".repeat(1024)
            ),
            200,
        ),
        (
            format!(
                r#"{{"type":"url_verification","challenge":"{}"}}"#,
                "a".repeat(1025)
            ),
            400,
        ),
        (r#"{"type":"url_verification"}"#.to_owned(), 400),
        (
            r#"{"type":"url_verification","challenge":{}}"#.to_owned(),
            400,
        ),
        (
            r#"{"type":"url_verification","challenge":"a","challenge":"b"}"#.to_owned(),
            400,
        ),
    ] {
        let sample = signed_slack(&body);
        let answer = answer(&sample.source, &sample.sent).unwrap();
        assert_eq!(answer.status, expected, "{body}");
    }
}

#[test]
fn zoom_has_its_token_signed_with_the_secret_that_verified_it() {
    let body =
        r#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
    let token = "83b2a60d4bbe49dc93763ed9e727a9a7690cbe4c1f8bb0adc0ffccd09ecb1384";
    let source = source("preset = \"zoom\"\nsecrets = [\"another\", \"zoomsecret\"]\n");
    let content = [b"v0:1700000000:", body.as_bytes()];
    let signature = super::signer::sha256_hmac(b"zoomsecret", &content);
    let signature = format!("v0={}", crate::verify::encoding::hex(&signature));
    let headers = [
        ("x-zm-signature", &*signature),
        ("x-zm-request-timestamp", "1700000000"),
    ];
    let expected = Answer {
        status: http::StatusCode::OK,
        content_type: Some("application/json"),
        body: format!(r#"{{"plainToken":"qgg8vlvZRS6UYooatFL8Aw","encryptedToken":"{token}"}}"#),
    };
    assert_eq!(answer(&source, &Sent::post(&headers, body)), Some(expected));
}

#[test]
fn a_value_stays_within_its_quotes() {
    let body =
        r#"{"event":"endpoint.url_validation","payload":{"plainToken":"a\",\"b\":\"\u0007"}}"#;
    let sample = signed_zoom(body);
    let answer = answer(&sample.source, &sample.sent).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(answer["plainToken"], "a\",\"b\":\"\u{7}");
    assert_eq!(answer.as_object().unwrap().len(), 2);
}

#[test]
fn discord_is_answered_by_what_it_asks() {
    for (body, expected) in [
        (r#"{"type":0,"version":1}"#, Some((204, ""))),
        (
            r#"{"type":1,"id":"1","token":"t"}"#,
            Some((200, r#"{"type":1}"#)),
        ),
        (r#"{"type":1,"event":{"type":"ENTITLEMENT_CREATE"}}"#, None),
        (r#"{"type":2,"id":"1"}"#, None),
    ] {
        let sample = signed_discord(body);
        let answer = answer(&sample.source, &sample.sent);
        let answer = answer.map(|answer| (answer.status.as_u16(), answer.body));
        assert_eq!(
            answer,
            expected.map(|(status, body)| (status, body.to_owned())),
            "{body}"
        );
        let wrong = sample.sent.clone().set("x-signature-ed25519", "00");
        let found = wrong.verify(&sample.source, THEN).unwrap_err();
        assert_eq!(found.status(), http::StatusCode::UNAUTHORIZED);
    }
}

#[test]
fn meta_has_its_challenge_back_for_the_token_alone() {
    let source = source("preset = \"meta\"\nsecrets = [\"s\"]\nverify_token = \"a token/1\"\n");
    assert_eq!(source.methods(), [Method::POST, Method::GET]);
    let ask = |query: &str| {
        let mut sent = Sent::post(&[], "").query(query);
        sent.method = Method::GET;
        answer(&source, &sent)
    };
    let head = "hub.mode=subscribe&hub.challenge=1158201444";
    let good = "hub.verify_token=a+token%2F1";
    assert_eq!(ask(&format!("{head}&{good}")), Some(text("1158201444")));
    assert_eq!(
        ask(&format!("{head}&hub.verify_token=a")),
        Some(refusal(403))
    );
    assert_eq!(ask(head), Some(refusal(403)));
    assert_eq!(ask(&format!("{head}&{good}&{good}")), Some(refusal(403)));
    assert_eq!(
        ask(&format!("hub.mode=subscribe&{good}")),
        Some(refusal(400))
    );
    assert_eq!(ask(&format!("hub.challenge=1&{good}")), None);
    let post = Sent::post(&[], "{}").query(&format!("{head}&{good}"));
    assert_eq!(answer(&source, &post), None);
}
