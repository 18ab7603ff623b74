//! What senders, proxies and attackers do to signatures.

use super::signer::{self, base64, sha256_hmac};
use super::*;
use crate::verify::encoding::hex;

const BODY: &str = r#"{"id":"evt_1"}"#;

/// A value of Stripe's header by this secret.
fn stripe(secret: &str, second: &str) -> String {
    let signature = sha256_hmac(
        secret.as_bytes(),
        &[second.as_bytes(), b".", BODY.as_bytes()],
    );
    hex(&signature)
}

fn with_stripe(header: &str) -> Result<Verified, Reject> {
    let source = source("preset = \"stripe\"\nsecrets = [\"new\", \"old\"]\n");
    Sent::post(&[("stripe-signature", header)], BODY).verify(&source, THEN)
}

#[test]
fn a_body_that_was_written_again_is_another_body() {
    let body = "{\"z\":1.0,\"a\":\"\\u001B\\/\",\"b\":1E2}\r\n";
    let signature = format!("sha256={}", hex(&sha256_hmac(b"k", &[body.as_bytes()])));
    let source = source("preset = \"github\"\nsecrets = [\"k\"]\n");
    let sent = Sent::post(&[("x-hub-signature-256", &signature)], body);
    assert!(sent.verify(&source, THEN).is_ok());
    for again in [
        body.replace("\\u001B", "\\u001b"),
        body.replace("1.0", "1"),
        body.replace("1E2", "100"),
        body.replace("\\/", "/"),
        body.replace("\r\n", "\n"),
        body.trim_end().to_owned(),
        body.replace(":1.0", ": 1.0"),
        "{\"a\":\"\\u001B\\/\",\"z\":1.0,\"b\":1E2}\r\n".to_owned(),
    ] {
        let sent = Sent::post(&[("x-hub-signature-256", &signature)], again.clone());
        assert_eq!(
            sent.verify(&source, THEN),
            Err(Reject::WrongSignature),
            "{again}"
        );
    }
}

#[test]
fn any_active_secret_verifies_and_says_which_it_was() {
    let ts = "1700000000";
    let (new, old, wrong) = (stripe("new", ts), stripe("old", ts), stripe("other", ts));
    for (header, expected) in [
        (format!("t={ts},v1={new}"), Ok("secrets.0")),
        (format!("t={ts},v1={old}"), Ok("secrets.1")),
        (format!("t={ts},v1={wrong},v1={old}"), Ok("secrets.1")),
        (format!("t={ts},v1={old},v1={new}"), Ok("secrets.0")),
        (format!("v1={new},t={ts}"), Ok("secrets.0")),
        (format!("t={ts}, v1={new}"), Ok("secrets.0")),
        (format!("t={ts},v1=zz,v1={new}"), Ok("secrets.0")),
        (format!("t={ts},v1={wrong}"), Err(Reject::WrongSignature)),
        (
            format!("t={ts},v1={}", &new[..62]),
            Err(Reject::WrongSignature),
        ),
        (format!("t={ts},v1={new}00"), Err(Reject::WrongSignature)),
        // Another version is no signature of this one.
        (format!("t={ts},v0={new}"), Err(Reject::MalformedSignature)),
        (format!("t={ts},v1=zz"), Err(Reject::MalformedSignature)),
        (format!("t={ts},v1="), Err(Reject::MalformedSignature)),
        (format!("t={ts}"), Err(Reject::MalformedSignature)),
        (String::new(), Err(Reject::MalformedSignature)),
        (format!("v1={new}"), Err(Reject::MissingTimestamp)),
        (format!("t=,v1={new}"), Err(Reject::MissingTimestamp)),
        (format!("t={ts},t={ts},v1={new}"), Err(Reject::RepeatedPart)),
        (
            format!("t=1700000000.0,v1={new}"),
            Err(Reject::MalformedTimestamp),
        ),
        (
            format!("t=-1700000000,v1={new}"),
            Err(Reject::MalformedTimestamp),
        ),
        (
            format!("t=9223372036854775808,v1={new}"),
            Err(Reject::MalformedTimestamp),
        ),
    ] {
        let found = with_stripe(&header);
        let found = found
            .as_ref()
            .map(|found| &*found.key_label)
            .map_err(|error| *error);
        assert_eq!(found, expected, "{header}");
    }
}

#[test]
fn a_signature_among_too_many_is_not_looked_for() {
    let ts = "1700000000";
    let new = stripe("new", ts);
    let wrong = format!("v1={},", "00".repeat(32));
    let header = |count: usize| format!("t={ts},{}v1={new}", wrong.repeat(count));
    assert!(with_stripe(&header(15)).is_ok());
    assert_eq!(with_stripe(&header(16)), Err(Reject::TooManySignatures));
    assert_eq!(with_stripe(&header(1000)), Err(Reject::TooManySignatures));
}

#[test]
fn a_time_is_tolerated_both_ways_and_not_beyond() {
    for (age, expected) in [
        (299, Ok(())),
        (300, Ok(())),
        (301, Err(Reject::TooOld)),
        (-300, Ok(())),
        (-301, Err(Reject::TooNew)),
    ] {
        let second = (THEN - age).to_string();
        let found = with_stripe(&format!("t={second},v1={}", stripe("new", &second)));
        assert_eq!(found.map(drop), expected, "{age}");
    }
    // A time that the partner didn't sign says nothing of the partner.
    let forged = format!("t=1,v1={}", stripe("new", "1700000000"));
    assert_eq!(with_stripe(&forged), Err(Reject::WrongSignature));
    // Milliseconds where seconds are meant lie far ahead.
    let ms = "1700000000000";
    let found = with_stripe(&format!("t={ms},v1={}", stripe("new", ms)));
    assert_eq!(found, Err(Reject::TooNew));
}

#[test]
fn a_source_may_tolerate_more_or_less() {
    let second = (THEN - 600).to_string();
    let header = format!("t={second},v1={}", stripe("k", &second));
    for (tolerance, expected) in [
        ("", Err(Reject::TooOld)),
        ("tolerance = \"10m\"", Ok(())),
        ("tolerance = \"599s\"", Err(Reject::TooOld)),
    ] {
        let source = source(&format!(
            "preset = \"stripe\"\nsecrets = [\"k\"]\n{tolerance}\n"
        ));
        let sent = Sent::post(&[("stripe-signature", &header)], BODY);
        assert_eq!(
            sent.verify(&source, THEN).map(drop),
            expected,
            "{tolerance}"
        );
    }
}

#[test]
fn what_sendgrid_sends_again_for_a_day_is_taken() {
    let sample = signer::sendgrid();
    let hour = 60 * 60;
    for (later, expected) in [(24 * hour, Ok(())), (26 * hour, Err(Reject::TooOld))] {
        let found = sample.sent.verify(&sample.source, THEN + later);
        assert_eq!(found.map(drop), expected, "{later}");
    }
}

#[test]
fn headers_that_are_there_twice_are_lists_of_signatures_and_no_other_value() {
    let sample = signer::standard("standard-webhooks", "webhook");
    let good = sample.sent.headers["webhook-signature"]
        .to_str()
        .unwrap()
        .to_owned();
    let wrong = format!("v1,{}", base64(&[0; 32]));
    for value in [
        format!("{wrong} {good}"),
        format!("{good} {wrong}"),
        format!("v1a,x {good}"),
    ] {
        let sent = sample.sent.clone().set("webhook-signature", &value);
        assert!(sent.verify(&sample.source, THEN).is_ok(), "{value}");
    }
    let twice = sample.sent.clone().with("webhook-signature", &wrong);
    assert!(twice.verify(&sample.source, THEN).is_ok());
    for name in ["webhook-id", "webhook-timestamp"] {
        let value = sample.sent.headers[name].to_str().unwrap().to_owned();
        let twice = sample.sent.clone().with(name, &value);
        assert_eq!(
            twice.verify(&sample.source, THEN),
            Err(Reject::RepeatedPart),
            "{name}"
        );
    }
    let odd = sample.sent.clone().set("webhook-signature", "v1,\u{e9}");
    assert_eq!(
        odd.verify(&sample.source, THEN),
        Err(Reject::MalformedSignature)
    );
    let odd = sample.sent.clone().set("webhook-id", "msg_\u{e9}");
    assert_eq!(odd.verify(&sample.source, THEN), Err(Reject::RepeatedPart));
    let none = sample.sent.clone().without("webhook-id");
    assert_eq!(none.verify(&sample.source, THEN), Err(Reject::MissingPart));
    let none = sample.sent.clone().without("webhook-signature");
    assert_eq!(
        none.verify(&sample.source, THEN),
        Err(Reject::MissingSignature)
    );
}

#[test]
fn a_version_without_a_key_and_an_older_signature_are_not_taken() {
    // The asymmetric version's signature, for a source that has a shared secret alone.
    let sample = signer::standard("standard-webhooks", "webhook");
    let asymmetric = format!("v1a,{}", base64(&[0; 64]));
    let sent = sample.sent.clone().set("webhook-signature", &asymmetric);
    assert_eq!(
        sent.verify(&sample.source, THEN),
        Err(Reject::MalformedSignature)
    );

    // GitHub's SHA-1 header, HubSpot's first two versions, Square's SHA-1 header.
    let github = signer::github();
    let sent = github.sent.without("x-hub-signature-256");
    let sent = sent.with(
        "x-hub-signature",
        "sha1=b4a1b84bd32e3a0d3a54b6e5f1a7d3b4b3b7c6a1",
    );
    assert_eq!(
        sent.verify(&github.source, THEN),
        Err(Reject::MissingSignature)
    );
    let source = source(
        "preset = \"hubspot\"\nsecrets = [\"yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy\"]\n\
         public_url = \"https://www.example.com/webhook_uri\"\n",
    );
    for signature in [
        "69fc6631a867edd4f9e9e627fc5c1148e3fbdd8b21837b6d2b8901c1fa57f750",
        "4fe4e3a7d3cf09db53be39d0a58130e2aaba074ec123a9e355b876a689a1c383",
    ] {
        let body = "{'example_field':'example_value'}";
        let sent = Sent::post(&[("x-hubspot-signature", signature)], body);
        assert_eq!(sent.verify(&source, THEN), Err(Reject::MissingSignature));
    }
}

#[test]
fn a_secret_with_and_without_its_prefix_and_padding_is_the_same() {
    let key = [7_u8; 32];
    let sample = signer::standard("standard-webhooks", "webhook");
    let padded = base64(&key);
    let bare = padded.trim_end_matches('=');
    for secret in [
        format!("whsec_{padded}"),
        padded.clone(),
        format!("whsec_{bare}"),
    ] {
        let source = source(&format!(
            "preset = \"standard-webhooks\"\nsecrets = [\"{secret}\"]\n"
        ));
        assert!(sample.sent.verify(&source, THEN).is_ok(), "{secret}");
    }
}

#[test]
fn an_address_is_the_configured_one_with_the_requests_query() {
    // Square's address is signed as it is registered: an escape, its port and a slash count.
    let body = b"{}";
    for (registered, public_url, query, expected) in [
        (
            "https://h.example/in/a?x=%2C",
            "https://h.example/in/a",
            Some("x=%2C"),
            true,
        ),
        (
            "https://h.example/in/a?x=%2C",
            "https://h.example/in/a",
            Some("x=%2c"),
            false,
        ),
        (
            "https://h.example/in/a?x=%2C",
            "https://h.example/in/a",
            Some("x=,"),
            false,
        ),
        (
            "https://h.example/in/a?a=1&b=2",
            "https://h.example/in/a",
            Some("b=2&a=1"),
            false,
        ),
        (
            "https://h.example/in/a",
            "https://h.example/in/a",
            None,
            true,
        ),
        (
            "https://h.example/in/a?",
            "https://h.example/in/a",
            Some(""),
            true,
        ),
        (
            "https://h.example/in/a/",
            "https://h.example/in/a",
            None,
            false,
        ),
        (
            "https://h.example/in/a/",
            "https://h.example/in/a/",
            None,
            true,
        ),
        (
            "https://h.example:8443/in/a",
            "https://h.example:8443/in/a",
            None,
            true,
        ),
        (
            "https://h.example:443/in/a",
            "https://h.example/in/a",
            None,
            false,
        ),
        (
            "https://H.example/in/a",
            "https://h.example/in/a",
            None,
            false,
        ),
    ] {
        let source = source(&format!(
            "preset = \"square\"\nsecrets = [\"k\"]\npublic_url = \"{public_url}\"\n"
        ));
        let signature = base64(&sha256_hmac(b"k", &[registered.as_bytes(), body]));
        let header = ("x-square-hmacsha256-signature", &*signature);
        // What a proxy made of the host is not asked.
        let mut sent = Sent::post(&[header, ("host", "internal:8080")], *body);
        sent.query = query.map(str::to_owned);
        assert_eq!(
            sent.verify(&source, THEN).is_ok(),
            expected,
            "{registered} {public_url}"
        );
    }
}

#[test]
fn twilio_may_write_the_address_with_its_port_and_without() {
    let sha1 = ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
    for (signed, public_url, expected) in [
        ("https://h.example:443/in/t", "https://h.example/in/t", true),
        ("https://h.example/in/t", "https://h.example:443/in/t", true),
        (
            "https://h.example/in/t",
            "https://h.example:8443/in/t",
            true,
        ),
        ("http://h.example:80/in/t", "http://h.example/in/t", true),
        (
            "https://h.example:444/in/t",
            "https://h.example/in/t",
            false,
        ),
        (
            "https://other.example/in/t",
            "https://h.example/in/t",
            false,
        ),
    ] {
        let source = source(&format!(
            "preset = \"twilio\"\nsecrets = [\"k\"]\npublic_url = \"{public_url}\"\n"
        ));
        let signature = base64(&signer::hmac(sha1, b"k", &[signed.as_bytes()]));
        let sent = Sent::post(&[("x-twilio-signature", &signature)], "");
        assert_eq!(
            sent.verify(&source, THEN).is_ok(),
            expected,
            "{signed} {public_url}"
        );
    }
}

#[test]
fn twilio_takes_no_body_that_its_signature_says_nothing_of() {
    let sample = signer::twilio_json();
    let sent = Sent {
        body: b"{}".to_vec(),
        ..sample.sent.clone()
    };
    assert_eq!(sent.verify(&sample.source, THEN), Err(Reject::BodyDigest));
    // The digest twice: one that is signed, one that fits.
    let query = format!(
        "{}&bodySHA256={}",
        sample.sent.query.clone().unwrap(),
        "00".repeat(32)
    );
    let sent = sample.sent.clone().query(&query);
    assert!(sent.verify(&sample.source, THEN).is_err());
    // A form's signature over no field at all, with a body that is no form.
    let sha1 = ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
    let url = b"https://hooks.example/in/partner";
    let signature = base64(&signer::hmac(sha1, b"secret of the test", &[url]));
    let sent = Sent::post(&[("x-twilio-signature", &signature)], "{\"a\":1}");
    assert_eq!(
        sent.verify(&sample.source, THEN),
        Err(Reject::UnreadableBody)
    );
}

#[test]
fn an_unsigned_field_can_change_where_the_integrity_says_so() {
    for (sample, from, to) in [
        (signer::mailgun(), "opened", "failed"),
        (signer::adyen(), "\"reason\":\"ok\"", "\"reason\":\"no\""),
    ] {
        let body = String::from_utf8(sample.sent.body.clone())
            .unwrap()
            .replace(from, to);
        let sent = Sent {
            body: body.into_bytes(),
            ..sample.sent.clone()
        };
        assert!(
            sent.verify(&sample.source, THEN).is_ok(),
            "{}",
            sample.preset
        );
        assert!(
            sample
                .source
                .integrity()
                .to_string()
                .starts_with("partial: ")
        );
    }
}

#[test]
fn a_signature_in_a_body_that_can_be_read_in_two_ways_is_none() {
    let sample = signer::mailgun();
    let body = String::from_utf8(sample.sent.body.clone()).unwrap();
    let verify = |body: String| Sent::post(&[], body).verify(&sample.source, THEN);
    let token = "\"token\":\"c4ca4238a0b923820dcc509a6f75849b\"";
    let twice = body.replace(token, &format!("{token},\"token\":\"other\""));
    assert_eq!(verify(twice), Err(Reject::RepeatedPart));
    let signature = body.find("\"signature\":\"").unwrap();
    let (head, tail) = body.split_at(signature);
    let twice = format!("{head}\"signature\":\"00\",{tail}");
    assert_eq!(verify(twice), Err(Reject::RepeatedPart));
    assert_eq!(verify("{".to_owned()), Err(Reject::UnreadableBody));
    assert_eq!(verify("[".repeat(100_000)), Err(Reject::UnreadableBody));
    assert_eq!(verify("{}".to_owned()), Err(Reject::MissingSignature));
}

#[test]
fn a_form_of_very_many_fields_is_not_sorted_for_a_stranger() {
    let sample = signer::twilio_form();
    let form = |fields: usize| Sent {
        body: "a&".repeat(fields).into_bytes(),
        ..sample.sent.clone()
    };
    let verify = |sent: Sent| sent.verify(&sample.source, THEN);
    assert_eq!(verify(form(1_000)), Err(Reject::WrongSignature));
    assert_eq!(verify(form(1_001)), Err(Reject::UnreadableBody));
    assert_eq!(verify(form(500_000)), Err(Reject::UnreadableBody));
}

#[test]
fn a_signed_field_without_a_text_is_not_taken_for_one_that_is_empty() {
    let key = [5_u8; 32];
    let source = source(&format!(
        "preset = \"adyen\"\nsecrets = [\"{}\"]\n",
        hex(&key)
    ));
    let signature = base64(&sha256_hmac(&key, &[b"p::m:r:1:EUR:REFUND:true"]));
    let verify = |original: &str| {
        let item = format!(
            r#"{{"additionalData":{{"hmacSignature":"{signature}"}},"amount":{{"currency":"EUR","value":1}},
            "pspReference":"p",{original}"eventCode":"REFUND","merchantAccountCode":"m",
            "merchantReference":"r","success":"true"}}"#
        );
        let body = format!(r#"{{"notificationItems":[{{"NotificationRequestItem":{item}}}]}}"#);
        Sent::post(&[], body).verify(&source, THEN).map(drop)
    };
    for (original, expected) in [
        ("", Ok(())),
        (r#""originalReference":"","#, Ok(())),
        (r#""originalReference":null,"#, Ok(())),
        (
            r#""originalReference":{"psp":"q"},"#,
            Err(Reject::MissingPart),
        ),
        (r#""originalReference":["q"],"#, Err(Reject::MissingPart)),
        (r#""originalReference":"q","#, Err(Reject::WrongSignature)),
    ] {
        assert_eq!(verify(original), expected, "{original}");
    }
}

#[test]
fn every_notification_of_a_batch_is_signed_or_none_is_taken() {
    let sample = signer::adyen();
    let body = String::from_utf8(sample.sent.body.clone()).unwrap();
    let start = body.find("[{").unwrap() + 1;
    let item = &body[start..body.len() - 2];
    let batch = |items: &[&str]| {
        let body = format!(r#"{{"notificationItems":[{}]}}"#, items.join(","));
        Sent::post(&[], body).verify(&sample.source, THEN).map(drop)
    };
    assert_eq!(batch(&[item, item]), Ok(()));
    let forged = item.replace("\"value\":1130", "\"value\":9130");
    assert_eq!(batch(&[item, &forged]), Err(Reject::WrongSignature));
    assert_eq!(batch(&[item, "{}"]), Err(Reject::MissingSignature));
    assert_eq!(batch(&[]), Err(Reject::MissingSignature));
    assert_eq!(batch(&vec![item; 100]), Ok(()));
    assert_eq!(batch(&vec![item; 101]), Err(Reject::TooManySignatures));
}

#[test]
fn a_request_that_no_scheme_is_for_says_so() {
    let source = source(
        "secrets = [\"k\"]\n[[scheme]]\nlabel = \"a\"\nsignature = \"header:s\"\nencoding = \"hex\"\n\
         algorithm = \"hmac-sha256\"\nkey = \"utf8\"\ncontent = \"{raw}\"\nwhen = { \"header:v\" = \"2\" }\n",
    );
    let signature = hex(&sha256_hmac(b"k", &[b"{}"]));
    let sent = Sent::post(&[("s", &signature)], "{}");
    assert_eq!(sent.verify(&source, THEN), Err(Reject::NoScheme));
    assert!(sent.clone().with("v", "2").verify(&source, THEN).is_ok());
    assert_eq!(
        sent.clone().with("v", "1").verify(&source, THEN),
        Err(Reject::NoScheme)
    );
}

#[test]
fn every_reject_has_a_name_a_status_and_a_sentence() {
    let mut names: Vec<_> = Reject::ALL.iter().map(|reject| reject.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Reject::ALL.len());
    for reject in Reject::ALL {
        assert!(matches!(reject.status().as_u16(), 400 | 401 | 503));
        assert!(reject.to_string().is_ascii());
    }
}

#[test]
fn a_header_with_a_secret_in_it_is_not_kept() {
    let gitlab = source("preset = \"gitlab\"\nsecrets = [\"k\"]\n");
    let github = source("preset = \"github\"\nsecrets = [\"k\"]\n");
    let signed = source("preset = \"gitlab-signed\"\nsecrets = [\"whsec_AAAA\"]\n");
    let own = source(
        "preset = \"github\"\nsecrets = [\"k\"]\nevent_type = [\"{header:x-token-event}\"]\n",
    );
    for (source, name, kept) in [
        (&signed, "x-gitlab-token", false),
        (&signed, "webhook-signature", false),
        (&signed, "webhook-id", true),
        (&github, "x-gitlab-token", false),
        (&github, "x-api-key", false),
        (&github, "proxy-authorization", false),
        (&github, "x-forwarded-access-token", false),
        (&github, "cf-access-jwt-assertion", false),
        (&github, "x-hub-signature", false),
        (&github, "i-twilio-idempotency-token", true),
        (&github, "x-event-key", true),
        (&github, "x-github-delivery", true),
        (&github, "x-token-event", false),
        (&own, "x-token-event", true),
        (&gitlab, "idempotency-key", true),
        (&gitlab, "x-gitlab-token", false),
        (&gitlab, "x-gitlab-event", true),
        (&github, "authorization", false),
        (&github, "cookie", false),
        (&github, "x-hub-signature-256", false),
        (&github, "content-type", true),
    ] {
        assert_eq!(source.keeps(&name.parse().unwrap()), kept, "{name}");
    }
}
