//! PayPal: a certificate that the request names.

use std::io::Write as _;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use ring::rand::SystemRandom;
use ring::rsa;
use ring::signature::RSA_PKCS1_SHA256;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::signer::{Cover, Sample, base64};
use super::*;
use crate::verify::crc32::crc32;

const TIME: &str = "2023-11-14T22:13:20Z";
const WEBHOOK: &str = "1JE4291016473214C";
const BODY: &str = r#"{"id":"WH-1","event_type":"PAYMENT.CAPTURE.COMPLETED"}"#;
const URL: &str = "https://api.paypal.com/v1/notifications/certs/CERT-1";
/// A key of these tests alone.
const RSA_KEY: &[u8] = include_bytes!("rsa.pem");

pub(super) fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    (certificate, Issuer::new(params, key))
}

fn leaf(issuer: &Issuer<'static, KeyPair>, name: &str, until: i32) -> Vec<u8> {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::from_pem(std::str::from_utf8(RSA_KEY).unwrap()).unwrap();
    params.signed_by(&key, issuer).unwrap().pem().into_bytes()
}

/// A source that trusts this root.
fn trusting(root: &str) -> Source {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(root.as_bytes()).unwrap();
    source(&format!(
        "preset = \"paypal\"\nparameters = {{ webhook_id = \"{WEBHOOK}\" }}\nca_file = \"{}\"\n",
        file.path().display()
    ))
}

fn signed(certificates: Vec<u8>) -> Sent {
    let sum = 2_325_436_976_u32;
    let content = format!("t-1|{TIME}|{WEBHOOK}|{sum}");
    let key = PrivateKeyDer::from_pem_slice(RSA_KEY).unwrap();
    let pair = rsa::KeyPair::from_pkcs8(key.secret_der()).unwrap();
    let mut signature = vec![0; pair.public().modulus_len()];
    let random = SystemRandom::new();
    pair.sign(
        &RSA_PKCS1_SHA256,
        &random,
        content.as_bytes(),
        &mut signature,
    )
    .unwrap();
    let headers = [
        ("paypal-transmission-id", "t-1"),
        ("paypal-transmission-time", TIME),
        ("paypal-transmission-sig", &base64(&signature)),
        ("paypal-auth-algo", "SHA256withRSA"),
        ("paypal-cert-url", URL),
    ];
    let mut sent = Sent::post(&headers, BODY);
    sent.certificates = Some(certificates);
    sent
}

pub(super) fn sample() -> Sample {
    let (root, issuer) = authority("root");
    Sample {
        preset: "paypal",
        source: trusting(&root),
        sent: signed(leaf(&issuer, "messageverificationcerts.paypal.com", 2030)),
        headers: vec![
            "paypal-transmission-id",
            "paypal-transmission-time",
            "paypal-transmission-sig",
            "paypal-auth-algo",
        ],
        body: Cover::Everything,
        address: false,
    }
}

#[test]
fn a_certificate_counts_only_with_its_root_its_time_and_its_name() {
    let (root, issuer) = authority("root");
    let (_, other) = authority("root");
    let partner = "messageverificationcerts.paypal.com";
    let source = trusting(&root);
    for (certificate, expected) in [
        (leaf(&issuer, partner, 2030), Ok(())),
        (leaf(&issuer, "paypal.com", 2030), Ok(())),
        (
            leaf(&issuer, partner, 2023),
            Err(Reject::InvalidCertificate),
        ),
        (leaf(&other, partner, 2030), Err(Reject::InvalidCertificate)),
        (
            leaf(&issuer, "notpaypal.com", 2030),
            Err(Reject::InvalidCertificate),
        ),
        (
            leaf(&issuer, "paypal.com.evil.example", 2030),
            Err(Reject::InvalidCertificate),
        ),
        (b"no certificate".to_vec(), Err(Reject::InvalidCertificate)),
        (Vec::new(), Err(Reject::InvalidCertificate)),
    ] {
        let found = signed(certificate.clone()).verify(&source, THEN).map(drop);
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(&certificate));
    }
}

#[test]
fn a_chain_may_have_a_certificate_between() {
    let (root, issuer) = authority("root");
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "between");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let between = params.signed_by(&key, &issuer).unwrap().pem();
    let leaf = leaf(&Issuer::new(params, key), "api.paypal.com", 2030);
    let source = trusting(&root);
    let whole = [&leaf, between.as_bytes()].concat();
    assert!(signed(whole).verify(&source, THEN).is_ok());
    assert_eq!(
        signed(leaf).verify(&source, THEN),
        Err(Reject::InvalidCertificate)
    );
}

#[test]
fn a_certificate_that_could_not_be_fetched_is_ours_to_try_again() {
    let (root, _) = authority("root");
    let mut sent = signed(Vec::new());
    sent.certificates = None;
    let found = sent.verify(&trusting(&root), THEN).unwrap_err();
    assert_eq!(found, Reject::CertificateMissing);
    assert_eq!(found.status(), http::StatusCode::SERVICE_UNAVAILABLE);
}

#[test]
fn only_the_partners_addresses_are_fetched() {
    let (root, _) = authority("root");
    let source = trusting(&root);
    let ask = |url: &str| {
        let sent = signed(Vec::new()).set("paypal-cert-url", url);
        source.certificate_url(&sent.request())
    };
    for url in [
        URL,
        "https://paypal.com/c",
        "https://API.PayPal.com/c",
        "https://api.paypal.com:443/c",
    ] {
        assert!(ask(url).unwrap().is_some(), "{url}");
    }
    for url in [
        "http://api.paypal.com/c",
        "https://api.paypal.com:8443/c",
        "https://api.paypal.com.evil.example/c",
        "https://notpaypal.com/c",
        "https://evil.example/api.paypal.com",
        "https://api.paypal.com@evil.example/c",
        "https://evil.example\\@api.paypal.com/c",
        "https://evil.example\\.paypal.com/c",
        "https://user@api.paypal.com/c",
        "https://127.0.0.1/c",
        "https://[::1]/c",
        "https:api.paypal.com/c",
        "https:///api.paypal.com/c",
        "HTTPS://api.paypal.com/c",
        "https://api.paypal.com/c d",
        "https://api.pаypal.com/c", // a Cyrillic letter
        "//api.paypal.com/c",
        "file:///etc/passwd",
        "",
    ] {
        assert_eq!(ask(url), Err(Reject::CertificateAddress), "{url}");
    }
    let twice = signed(Vec::new()).with("paypal-cert-url", URL);
    assert_eq!(
        source.certificate_url(&twice.request()),
        Err(Reject::CertificateAddress)
    );
    let none = signed(Vec::new()).without("paypal-cert-url");
    assert_eq!(
        source.certificate_url(&none.request()),
        Err(Reject::MissingPart)
    );
}

#[test]
fn another_algorithm_is_refused_before_anything_is_checked_with_it() {
    let sample = sample();
    for name in ["SHA1withRSA", "sha256withrsa", "none", ""] {
        let sent = sample.sent.clone().set("paypal-auth-algo", name);
        let found = sent.verify(&sample.source, THEN);
        assert_eq!(found, Err(Reject::RefusedAlgorithm), "{name}");
    }
}

/// Another body with the same CRC-32 verifies: what the preset's integrity says.
#[test]
fn a_body_with_the_same_checksum_verifies_and_the_integrity_says_so() {
    let sample = sample();
    let target = 2_325_436_976_u32;
    let mut body =
        br#"{"id":"WH-2","event_type":"PAYMENT.CAPTURE.COMPLETED","x":"forged"}    "#.to_vec();
    // CRC-32 is affine: turn over those of the last 32 bits that lead to the target.
    let sum = crc32(&body);
    let end = body.len() - 4;
    let effect = |bit: usize| {
        let mut other = body.clone();
        other[end + bit / 8] ^= 1 << (bit % 8);
        crc32(&other) ^ sum
    };
    let mut rows: Vec<(u32, u32)> = (0..32).map(|bit| (effect(bit), 1 << bit)).collect();
    let (mut rest, mut chosen) = (sum ^ target, 0_u32);
    for bit in 0..32 {
        let at = (bit..32).find(|at| rows[*at].0 >> bit & 1 == 1).unwrap();
        rows.swap(bit, at);
        let pivot = rows[bit];
        for (other, row) in rows.iter_mut().enumerate() {
            if other != bit && row.0 >> bit & 1 == 1 {
                *row = (row.0 ^ pivot.0, row.1 ^ pivot.1);
            }
        }
    }
    for (bit, row) in rows.iter().enumerate() {
        if rest >> bit & 1 == 1 {
            rest ^= row.0;
            chosen ^= row.1;
        }
    }
    assert_eq!(rest, 0);
    for (byte, turned) in body[end..].iter_mut().zip(chosen.to_le_bytes()) {
        *byte ^= turned;
    }
    let mut sent = sample.sent.clone();
    sent.body = body;
    assert!(sent.verify(&sample.source, THEN).is_ok());
    assert!(!sample.source.integrity().full);
    assert!(!sample.sent.identify(&sample.source, THEN).signed);
}
