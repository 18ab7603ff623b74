//! Events' ids.

use super::signer::{self, base64, sha256_hmac};
use super::*;

/// A request that is signed over its body, to a source that looks for ids there.
fn signed(event_id: &str, body: &str) -> (Source, Sent) {
    let source = source(&format!(
        "secrets = [\"k\"]\nevent_id = {event_id}\n[[scheme]]\nlabel = \"v1\"\nsignature = \"header:s\"\n\
         encoding = \"base64\"\nalgorithm = \"hmac-sha256\"\nkey = \"utf8\"\ncontent = \"{{raw}}\"\n"
    ));
    let signature = base64(&sha256_hmac(b"k", &[body.as_bytes()]));
    (source, Sent::post(&[("s", &signature)], body))
}

fn id(event_id: &str, body: &str) -> (String, bool) {
    let (source, sent) = signed(event_id, body);
    let Identity { id, signed } = sent.identify(&source, THEN);
    (id, signed)
}

const ID: &str = r#"["{json:/id}", "{json:/uuid}"]"#;

#[test]
fn the_first_template_with_something_in_all_its_places_is_the_id() {
    for (body, expected) in [
        (r#"{"id":"a","uuid":"b"}"#, "a"),
        (r#"{"id":17,"uuid":"b"}"#, "17"),
        (r#"{"id":"","uuid":"b"}"#, "b"),
        (r#"{"id":null,"uuid":"b"}"#, "b"),
        (r#"{"id":{},"uuid":"b"}"#, "b"),
        (r#"{"id":" a ","uuid":"b"}"#, " a "),
    ] {
        assert_eq!(id(ID, body), (expected.to_owned(), true), "{body}");
    }
    let parts = r#"["{json:/a}:{json:/b}", "{json:/b}"]"#;
    assert_eq!(id(parts, r#"{"a":1,"b":2}"#).0, "1:2");
    assert_eq!(id(parts, r#"{"b":2}"#).0, "2");
}

#[test]
fn an_id_that_the_ledger_can_not_hold_is_hashed() {
    let long = "a".repeat(101);
    let wide = "é".repeat(100);
    for (written, text) in [
        (long.as_str(), long.as_str()),
        ("a\\u0000b", "a\0b"),
        ("a\\nb", "a\nb"),
        // Or else a partner's id could be mistaken for a hash of ours.
        ("sha256:00", "sha256:00"),
    ] {
        let found = id(ID, &format!(r#"{{"id":"{written}"}}"#));
        assert_eq!(found, (hashed(text.as_bytes()), true), "{written}");
    }
    assert_eq!(id(ID, &format!(r#"{{"id":"{wide}"}}"#)).0, wide);
    assert_eq!(hashed(b"").len(), 71);
}

#[test]
fn what_can_not_be_read_or_is_not_there_has_the_hash_of_what_was_signed() {
    for body in [
        r#"{"id":"a","id":"b"}"#,
        r#"{"id":"a","id":"b","uuid":"c"}"#,
        r#"{"id":"\ud800","uuid":"c"}"#,
        r#"{"other":1}"#,
        "not json",
        "",
        "\u{feff}{\"id\":\"a\"}",
        "[1]",
    ] {
        assert_eq!(id(ID, body), (hashed(body.as_bytes()), true), "{body}");
    }
}

#[test]
fn a_timestamp_that_is_signed_tells_equal_bodies_apart() {
    let sample = signer::stripe();
    let body = "{}";
    let ids: Vec<_> = [THEN, THEN + 1]
        .map(|second| {
            let second = second.to_string();
            let signature = sha256_hmac(b"secret of the test", &[second.as_bytes(), b".{}"]);
            let signature = crate::verify::encoding::hex(&signature);
            let header = format!("t={second},v1={signature}");
            Sent::post(&[("stripe-signature", &header)], body).identify(&sample.source, THEN)
        })
        .into();
    assert_ne!(ids[0].id, ids[1].id);
    assert!(ids.iter().all(|id| id.signed));
}

#[test]
fn an_id_counts_as_signed_only_where_it_is() {
    for (sample, expected) in [
        (
            signer::github(),
            ("72d3162e-cc78-11e3-81ab-4c9367dc0958", false),
        ),
        (signer::stripe(), ("evt_1", true)),
        (signer::slack(), ("Ev1", true)),
        (signer::linear(), ("d-1", false)),
        (
            signer::mailgun(),
            ("c4ca4238a0b923820dcc509a6f75849b", false),
        ),
        (
            signer::standard("standard-webhooks", "webhook"),
            ("msg_1", true),
        ),
        (
            signer::standard("gitlab-signed", "webhook"),
            ("msg_1", true),
        ),
        (signer::twilio_form(), ("SM1.received", false)),
    ] {
        let found = sample.sent.identify(&sample.source, THEN);
        assert_eq!((&*found.id, found.signed), expected, "{}", sample.preset);
    }
}

#[test]
fn another_event_in_a_request_of_mailgun_has_the_id_of_the_first() {
    let sample = signer::mailgun();
    let body = String::from_utf8(sample.sent.body.clone()).unwrap();
    let forged = body.replace("m-1", "m-2").replace("opened", "failed");
    let forged = Sent {
        body: forged.into_bytes(),
        ..sample.sent.clone()
    };
    assert_ne!(forged.body, sample.sent.body);
    let of = |sent: &Sent| sent.identify(&sample.source, THEN).id;
    assert_eq!(of(&forged), of(&sample.sent));
}

#[test]
fn topics_that_share_an_event_of_shopify_are_events_of_their_own() {
    let source = source("preset = \"shopify\"\nsecrets = [\"k\"]\n");
    let signature = base64(&sha256_hmac(b"k", &[b"{}"]));
    let id = |topic: &str| {
        let headers = [
            ("x-shopify-hmac-sha256", &*signature),
            ("x-shopify-event-id", "98880550-7158-44d4-b7cd-2c97c8a091b5"),
            ("x-shopify-topic", topic),
        ];
        Sent::post(&headers, "{}").identify(&source, THEN)
    };
    assert_eq!(
        id("orders/paid").id,
        "98880550-7158-44d4-b7cd-2c97c8a091b5.orders/paid"
    );
    assert_eq!(id("orders/paid"), id("orders/paid"));
    assert_ne!(id("orders/paid").id, id("orders/create").id);
}

#[test]
fn an_id_in_a_header_that_is_there_twice_is_none() {
    let sample = signer::github();
    let sent = sample.sent.with("x-github-delivery", "another");
    let found = sent.identify(&sample.source, THEN);
    assert_eq!(found.id, hashed(&sent.body));
    assert!(matches!(
        sent.read(&sample.source),
        Reading::Unreadable {
            reason: Unreadable::Ambiguous,
            ..
        }
    ));
}

#[test]
fn a_header_that_is_not_signed_does_not_change_how_a_body_is_read() {
    let sample = signer::slack();
    let sent = sample
        .sent
        .with("content-type", "application/x-www-form-urlencoded");
    assert_eq!(sent.identify(&sample.source, THEN).id, "Ev1");
    assert!(
        matches!(sent.read(&sample.source), Reading::Event(event) if event.event_type == "message")
    );
    let form = signer::signed_slack("command=%2Fdeploy&trigger_id=t-1");
    let sent = form.sent.with("content-type", "application/json");
    assert_eq!(sent.identify(&form.source, THEN).id, "t-1");
}
