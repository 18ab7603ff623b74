//! Every row of `cases/signing.json` that is a matter of signing alone. Its rotation rows are
//! about an endpoint's set of secrets and are tested where that is kept.

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::*;

const CASES: &str = include_str!("../../../../cases/signing.json");

#[derive(Deserialize)]
struct Cases {
    vectors: Vec<Vector>,
    verify_cases: Vec<Verification>,
    secret_format_cases: Vec<Format>,
    attacks: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Vector {
    id: String,
    alg: String,
    secret: String,
    webhook_id: String,
    timestamp: i64,
    body_utf8: String,
    body_len: Option<usize>,
    body_sha256: Option<String>,
    signature: String,
}

#[derive(Deserialize)]
struct Verification {
    id: String,
    secret: String,
    now: i64,
    headers: std::collections::BTreeMap<String, OneOrMore>,
    body_utf8: String,
    expect: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Deserialize)]
struct Format {
    secret: String,
    expect: String,
    note: String,
}

fn cases() -> Cases {
    serde_json::from_str(CASES).unwrap()
}

fn sent(case: &Verification) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, values) in &case.headers {
        let values = match values {
            OneOrMore::One(value) => std::slice::from_ref(value),
            OneOrMore::More(values) => values,
        };
        for value in values {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
    }
    headers
}

#[test]
fn every_vector_signs_as_published() {
    let mut skipped = Vec::new();
    for vector in cases().vectors {
        if vector.alg == "v1a" {
            // ed25519 is not offered: the key is refused, so that nothing can be signed with it.
            let refused = Secret::parse(&vector.secret).unwrap_err();
            assert_eq!(refused, InvalidSecret::Asymmetric);
            skipped.push(vector.id);
            continue;
        }
        let body = vector.body_utf8.as_bytes();
        assert_eq!(Some(body.len()), vector.body_len, "{}", vector.id);
        let digest: String = Sha256::digest(body)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(Some(digest), vector.body_sha256, "{}", vector.id);
        let keys = [key(&vector.secret)];
        let signature = sign(&vector.webhook_id, vector.timestamp, body, &keys);
        assert_eq!(signature, Ok(vector.signature), "{}", vector.id);
    }
    assert_eq!(skipped, ["sig-pub-3"]);
}

#[test]
fn every_verification_ends_as_it_says() {
    for case in cases().verify_cases {
        // Where the table leaves it open: digits only, and all lines of a repeated header.
        let accept = match (case.expect.as_str(), case.id.as_str()) {
            ("accept", _) | ("policy", "ver-dup-header") => true,
            ("reject", _) | ("policy", "ver-ts-3") => false,
            other => panic!("undecided: {other:?}"),
        };
        let result = verify(
            &sent(&case),
            case.body_utf8.as_bytes(),
            &[key(&case.secret)],
            case.now,
            DEFAULT_TOLERANCE,
        );
        assert_eq!(result.is_ok(), accept, "{}: {result:?}", case.id);
    }
}

#[test]
fn the_order_of_repeated_signature_lines_does_not_matter() {
    let cases = cases().verify_cases;
    let case = cases.iter().find(|c| c.id == "ver-dup-header").unwrap();
    let mut headers = sent(case);
    let lines: Vec<HeaderValue> = headers.get_all(HEADER_SIGNATURE).iter().cloned().collect();
    headers.remove(HEADER_SIGNATURE);
    for line in lines.into_iter().rev() {
        headers.append(HEADER_SIGNATURE, line);
    }
    let body = case.body_utf8.as_bytes();
    let keys = [key(&case.secret)];
    assert_eq!(
        verify(&headers, body, &keys, case.now, DEFAULT_TOLERANCE),
        Ok(())
    );
    headers.append(HEADER_ID, HeaderValue::from_static("another"));
    assert_eq!(
        verify(&headers, body, &keys, case.now, DEFAULT_TOLERANCE),
        Err(Rejection::Repeated(HEADER_ID))
    );
}

#[test]
fn every_secret_format_is_decided() {
    for case in cases().secret_format_cases {
        let parsed = Secret::parse(&case.secret);
        let expected = match (case.expect.as_str(), case.secret.as_str()) {
            // A verifier's ed25519 key: the table takes it for a sender of v1a, which we are not.
            ("accept", text) if text.starts_with("whpk_") => Err(InvalidSecret::Asymmetric),
            ("accept", _) => Ok(()),
            ("policy", text) if text.contains('\n') => Err(InvalidSecret::Blank),
            ("policy", _) => Err(InvalidSecret::Prefix),
            ("reject", _) => {
                assert!(parsed.is_err(), "{}", case.note);
                continue;
            }
            other => panic!("undecided: {other:?}"),
        };
        assert_eq!(parsed.map(|_| ()), expected, "{}", case.note);
    }
}

#[test]
fn the_attack_by_dots_is_refused_at_signing() {
    assert_eq!(cases().attacks.len(), 1);
    let keys = [key(SECRET)];
    assert!(sign("msg_1", AT, b"1614265330.x", &keys).is_ok());
    assert_eq!(
        sign("msg_1.1614265330", AT, b"x", &keys),
        Err(CannotSign::Id)
    );
}
