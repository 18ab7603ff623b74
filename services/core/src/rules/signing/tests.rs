use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use standardwebhooks::Webhook;

use super::*;

mod cases;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const AT: i64 = 1_614_265_330;

fn key(text: &str) -> SigningKey {
    Secret::parse(text).unwrap().key()
}

fn headers(id: &str, timestamp: i64, signature: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(HEADER_ID, HeaderValue::from_str(id).unwrap());
    headers.insert(HEADER_TIMESTAMP, HeaderValue::from(timestamp));
    headers.insert(HEADER_SIGNATURE, HeaderValue::from_str(signature).unwrap());
    headers
}

#[test]
fn one_signature_a_key_the_newest_first() {
    let body = br#"{"test": 2432232314}"#;
    let header = sign(ID, AT, body, &[key(SECRET), key(OTHER)]).unwrap();
    assert_eq!(
        header,
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= \
         v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44="
    );
    for one in [SECRET, OTHER] {
        let checked = verify(
            &headers(ID, AT, &header),
            body,
            &[key(one)],
            AT,
            DEFAULT_TOLERANCE,
        );
        assert_eq!(checked, Ok(()));
    }
}

#[test]
fn a_fresh_timestamp_gives_a_fresh_signature_under_the_same_id() {
    let keys = [key(SECRET)];
    let first = sign(ID, AT, b"x", &keys).unwrap();
    assert_ne!(sign(ID, AT + 5, b"x", &keys).unwrap(), first);
    assert_eq!(sign(ID, AT, b"x", &keys).unwrap(), first);
}

#[test]
fn the_header_stays_one_short_line_with_the_most_keys() {
    let keys = vec![key(SECRET); MAX_KEYS];
    let header = sign(ID, AT, b"x", &keys).unwrap();
    assert!(header.len() < 4096);
    assert!(header.bytes().all(|b| b.is_ascii_graphic() || b == b' '));
    let beyond = vec![key(SECRET); MAX_KEYS + 1];
    assert_eq!(sign(ID, AT, b"x", &beyond), Err(CannotSign::TooManyKeys(9)));
    assert_eq!(sign(ID, AT, b"x", &[]), Err(CannotSign::NoKey));
}

#[test]
fn ids_that_could_spell_another_message_are_not_signed() {
    let long = "a".repeat(256);
    for id in ["", "msg_1.1614265330", ".", "a b", "a\nb", "\u{e4}", &long] {
        assert_eq!(
            sign(id, AT, b"x", &[key(SECRET)]),
            Err(CannotSign::Id),
            "{id:?}"
        );
    }
}

#[test]
fn the_tolerance_holds_both_ways_to_the_second() {
    let header = sign(ID, AT, b"x", &[key(SECRET)]).unwrap();
    let headers = headers(ID, AT, &header);
    let at = |now| verify(&headers, b"x", &[key(SECRET)], now, DEFAULT_TOLERANCE);
    assert_eq!(at(AT + 300), Ok(()));
    assert_eq!(at(AT - 300), Ok(()));
    assert_eq!(at(AT + 301), Err(Rejection::TooOld(301)));
    assert_eq!(at(AT - 301), Err(Rejection::TooNew(301)));
    assert!(matches!(at(i64::MAX), Err(Rejection::TooOld(_))));
    assert!(matches!(at(i64::MIN), Err(Rejection::TooNew(_))));
}

#[test]
fn secrets_are_shown_nowhere() {
    let secret = Secret::parse(SECRET).unwrap();
    assert_eq!(format!("{secret:?}"), "Secret([redacted])");
    assert_eq!(format!("{:?}", secret.key()), "SigningKey([redacted])");
    assert_eq!(secret.reveal(), SECRET);
    let canary = "whsec_canary!";
    let error = Secret::parse(canary).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("canary"));
}

#[test]
fn secret_length_has_both_bounds() {
    for (bytes, expected) in [(23, false), (24, true), (64, true), (65, false), (0, false)] {
        assert_eq!(
            Secret::from_bytes(vec![7; bytes]).is_ok(),
            expected,
            "{bytes}"
        );
    }
}

#[test]
fn a_key_signs_the_same_however_often_it_is_used() {
    let key = key(SECRET);
    let first = sign(ID, AT, b"x", std::slice::from_ref(&key)).unwrap();
    let _ = sign("other", AT, b"y", std::slice::from_ref(&key)).unwrap();
    assert_eq!(sign(ID, AT, b"x", &[key]).unwrap(), first);
}

proptest! {
    /// The reference library agrees, both ways, over any secret and any text. (It signs only
    /// UTF-8, and reads the machine's clock.)
    #[test]
    fn the_reference_library_agrees(
        bytes in proptest::collection::vec(any::<u8>(), 24..=64),
        older in proptest::collection::vec(any::<u8>(), 24..=64),
        id in "[A-Za-z0-9_-]{1,40}",
        body in ".{0,200}",
    ) {
        let secret = Secret::from_bytes(bytes).unwrap();
        let old = Secret::from_bytes(older).unwrap();
        let now = crate::clock::now().timestamp();
        let header = sign(&id, now, body.as_bytes(), &[secret.key(), old.key()]).unwrap();
        let sent = headers(&id, now, &header);
        for secret in [&secret, &old] {
            let reference = Webhook::new(&secret.reveal()).unwrap();
            prop_assert!(reference.verify(body.as_bytes(), &sent).is_ok());
            let theirs = reference.sign(&id, now, body.as_bytes()).unwrap();
            prop_assert!(header.split(' ').any(|ours| ours == theirs));
        }
    }

    #[test]
    fn any_bytes_verify_and_any_change_does_not(
        body in proptest::collection::vec(any::<u8>(), 0..100),
        flip in any::<proptest::sample::Index>(),
    ) {
        let keys = [key(SECRET)];
        let header = sign(ID, AT, &body, &keys).unwrap();
        let sent = headers(ID, AT, &header);
        prop_assert_eq!(verify(&sent, &body, &keys, AT, DEFAULT_TOLERANCE), Ok(()));
        let mut changed = body.clone();
        changed.push(0);
        let at = flip.index(changed.len());
        changed[at] ^= 1;
        prop_assert_eq!(verify(&sent, &changed, &keys, AT, DEFAULT_TOLERANCE), Err(Rejection::Signature));
        prop_assert_eq!(verify(&sent, &body, &[key(OTHER)], AT, DEFAULT_TOLERANCE), Err(Rejection::Signature));
    }

    #[test]
    fn no_header_panics(
        id in "[ -~]{0,20}",
        timestamp in "[ -~]{0,25}",
        signature in "(v1,|v1a,| |,|[A-Za-z0-9+/=]){0,30}",
    ) {
        let mut sent = HeaderMap::new();
        sent.insert(HEADER_ID, HeaderValue::from_str(&id).unwrap());
        sent.insert(HEADER_TIMESTAMP, HeaderValue::from_str(&timestamp).unwrap());
        sent.insert(HEADER_SIGNATURE, HeaderValue::from_str(&signature).unwrap());
        prop_assert!(verify(&sent, b"x", &[key(SECRET)], AT, Duration::MAX).is_err());
    }

    #[test]
    fn a_secret_reads_back(bytes in proptest::collection::vec(any::<u8>(), 24..=64)) {
        let text = Secret::from_bytes(bytes).unwrap().reveal();
        prop_assert_eq!(Secret::parse(&text).unwrap().reveal(), text);
    }
}
