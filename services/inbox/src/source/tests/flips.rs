//! Every preset, with every bit of what its signature covers turned over.

use proptest::prelude::*;

use super::signer::{Cover, Sample, samples};
use super::*;
use crate::read::form;

/// Every copy of these bytes with one bit turned over.
fn flipped(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..bytes.len() * 8).map(|bit| {
        let mut copy = bytes.to_vec();
        copy[bit / 8] ^= 1 << (bit % 8);
        copy
    })
}

#[track_caller]
fn refused(sample: &Sample, sent: &Sent, what: &str) {
    let found = sent.verify(&sample.source, THEN);
    assert!(found.is_err(), "{}: {what}: {sent:?}", sample.preset);
}

#[test]
fn every_preset_has_a_sample_that_verifies() {
    let samples = samples();
    for sample in &samples {
        let found = sample.sent.verify(&sample.source, THEN);
        let label = match sample.preset {
            "paypal" => "certificate",
            _ => "secrets.0",
        };
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", sample.preset));
        assert_eq!(found.key_label, label, "{}", sample.preset);
    }
    for name in super::presets() {
        assert!(samples.iter().any(|sample| sample.preset == name), "{name}");
    }
}

#[test]
fn no_bit_of_a_signed_header_can_change() {
    for sample in samples() {
        for name in &sample.headers {
            let value = sample.sent.headers[*name].as_bytes();
            for copy in flipped(value) {
                let Ok(changed) = HeaderValue::from_bytes(&copy) else {
                    continue; // no header that HTTP lets through
                };
                let mut sent = sample.sent.clone();
                sent.headers
                    .insert(name.parse::<HeaderName>().unwrap(), changed);
                if copy.eq_ignore_ascii_case(value) && sent.verify(&sample.source, THEN).is_ok() {
                    // Hex digits of the signature itself may be of either case.
                    assert!(name.contains("signature"), "{}: {name}", sample.preset);
                    continue;
                }
                refused(&sample, &sent, name);
            }
            refused(&sample, &sample.sent.clone().without(name), name);
        }
    }
}

#[test]
fn no_bit_of_what_is_signed_of_the_body_can_change() {
    for sample in samples() {
        let body = &sample.sent.body;
        let ranges: Vec<_> = match &sample.body {
            Cover::Everything | Cover::Fields => std::iter::once(0..body.len()).collect(),
            Cover::Values(values) => values.iter().map(|value| the_one(body, value)).collect(),
        };
        for range in ranges {
            for copy in flipped(&body[range.clone()]) {
                let mut sent = sample.sent.clone();
                sent.body.splice(range.clone(), copy);
                let fields = matches!(sample.body, Cover::Fields);
                if fields && form::fields(&sent.body).eq(form::fields(body)) {
                    continue; // the same form, written in another way
                }
                refused(&sample, &sent, "body");
            }
        }
        if matches!(sample.body, Cover::Everything | Cover::Fields) {
            for longer in [[body, &b" "[..]].concat(), [b" ", &body[..]].concat()] {
                let mut sent = sample.sent.clone();
                sent.body = longer;
                refused(&sample, &sent, "body");
            }
            let mut sent = sample.sent.clone();
            sent.body.pop();
            refused(&sample, &sent, "body");
            sent.body.clear();
            refused(&sample, &sent, "body");
        }
    }
}

/// Where a text stands that is there once.
fn the_one(body: &[u8], text: &str) -> std::ops::Range<usize> {
    let body = std::str::from_utf8(body).unwrap();
    let mut found = body.match_indices(text);
    let at = found.next().unwrap().0;
    assert_eq!(found.next(), None, "{text}");
    at..at + text.len()
}

#[test]
fn no_bit_of_a_signed_address_can_change() {
    for sample in samples().into_iter().filter(|sample| sample.address) {
        let query = sample.sent.query.clone().unwrap();
        for copy in flipped(query.as_bytes()) {
            let Ok(changed) = String::from_utf8(copy) else {
                continue;
            };
            if changed.eq_ignore_ascii_case(&query) && changed.contains('%') {
                continue; // an escape that is undone, with a digit of another case
            }
            refused(&sample, &sample.sent.clone().query(&changed), "query");
        }
        let mut sent = sample.sent.clone();
        sent.query = None;
        refused(&sample, &sent, "query");
    }
}

#[test]
fn another_secret_verifies_nothing() {
    for sample in samples() {
        let block = match sample.preset {
            // Needs a certificate instead.
            "paypal" => continue,
            "adyen" => "secrets = [\"aa\"]".to_owned(),
            "discord" => format!("secrets = [\"{}\"]", "d7".repeat(32)),
            "sendgrid" => "secrets = [\"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==\"]".to_owned(),
            "standard-webhooks" | "svix" => "secrets = [\"whsec_AAAA\", \"whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=\"]".to_owned(),
            "gitlab-signed" => "secrets = [\"whsec_AAAA\"]".to_owned(),
            _ => "secrets = [\"secret of the tess\", \"secret of the testt\"]".to_owned(),
        };
        let other = source(&format!(
            "preset = \"{}\"\n{block}\npublic_url = \"https://hooks.example/in/partner\"\n\
             verify_token = \"t\"\n",
            sample.preset
        ));
        let found = sample.sent.verify(&other, THEN);
        assert_eq!(found, Err(Reject::WrongSignature), "{}", sample.preset);
    }
}

#[test]
fn what_a_preset_says_of_its_cover_is_so() {
    let partial = ["adyen", "gitlab", "mailgun", "paypal", "twilio"];
    for sample in samples() {
        let integrity = sample.source.integrity();
        assert_eq!(
            integrity.full,
            !partial.contains(&sample.preset),
            "{}",
            sample.preset
        );
        let header = integrity.to_string();
        assert!(HeaderValue::from_str(&header).is_ok(), "{header}");
        assert_eq!(header == "full", integrity.full);
        if matches!(sample.body, Cover::Values(_)) && sample.preset != "paypal" {
            let mut sent = sample.sent.clone();
            let end = sent.body.len() - 1;
            sent.body.splice(end..end, *b",\"more\":1");
            assert!(
                sent.verify(&sample.source, THEN).is_ok(),
                "{}",
                sample.preset
            );
        }
    }
}

/// Whatever is asked of a source has an answer for whatever comes.
fn ask_everything(sample: &Sample, sent: &Sent) {
    let source = &sample.source;
    let request = sent.request();
    let _ = source.certificate_url(&request);
    let _ = source.challenge(&request, None);
    let verified = source.verify(&request, at(THEN));
    // What comes after the check, as if it had passed.
    let passed = verified
        .or_else(|_| sample.sent.verify(source, THEN))
        .unwrap();
    let _ = source.challenge(&request, Some(&passed));
    let id = source.identify(&request, &passed).id;
    assert!(
        (1..=100).contains(&id.chars().count()) && !id.chars().any(char::is_control),
        "{id:?}"
    );
    for part in [Part::Whole, Part::Item] {
        match source.read(part, &sent.headers, &sent.body) {
            Reading::Event(event) => {
                assert!((1..=255).contains(&event.event_type.chars().count()));
            }
            Reading::Items(items) => {
                assert!(
                    items
                        .iter()
                        .all(|item| sent.body.get(item.range.clone()).is_some())
                );
            }
            Reading::Unreadable { detail, .. } => assert!(detail.chars().count() <= 300),
        }
    }
}

/// A body with some of its bytes exchanged.
fn bodies() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_request_is_too_strange(
        changes in bodies(),
        query in proptest::option::of("[ -~]{0,40}"),
        header in prop::collection::vec(any::<u8>(), 0..60),
        cut in any::<prop::sample::Index>(),
    ) {
        for sample in samples() {
            let mut sent = sample.sent.clone();
            for (index, byte) in &changes {
                let at = index.index(sent.body.len());
                sent.body[at] = *byte;
            }
            ask_everything(&sample, &sent);
            sent.body.truncate(cut.index(sent.body.len()));
            sent.query.clone_from(&query);
            ask_everything(&sample, &sent);
            if let Ok(value) = HeaderValue::from_bytes(&header) {
                for name in &sample.headers {
                    let mut sent = sample.sent.clone();
                    sent.headers.insert(name.parse::<HeaderName>().unwrap(), value.clone());
                    ask_everything(&sample, &sent);
                }
            }
        }
    }
}
