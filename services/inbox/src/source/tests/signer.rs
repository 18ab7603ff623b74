//! Partners that sign, written from their documentation and not from the presets, and one sample
//! of each.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};

use super::paypal;
use super::*;
use crate::verify::encoding::hex;

/// A partner's request and what its signature covers.
pub(super) struct Sample {
    pub(super) preset: &'static str,
    pub(super) source: Source,
    pub(super) sent: Sent,
    /// Headers that can't be changed.
    pub(super) headers: Vec<&'static str>,
    pub(super) body: Cover,
    /// Whether the query, the method and the address can't be.
    pub(super) address: bool,
}

/// What of the body can't be changed.
#[derive(Debug, Clone)]
pub(super) enum Cover {
    Everything,
    /// The decoded fields of the form.
    Fields,
    /// These texts, each of which is there once.
    Values(Vec<&'static str>),
}

pub(super) fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub(super) fn hmac(algorithm: ring::hmac::Algorithm, key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let key = ring::hmac::Key::new(algorithm, key);
    ring::hmac::sign(&key, &pieces.concat()).as_ref().to_vec()
}

pub(super) fn sha256_hmac(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    hmac(ring::hmac::HMAC_SHA256, key, pieces)
}

fn sha1_hmac(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    hmac(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key, pieces)
}

/// A sample of every preset; of some, one of each of their schemes.
pub(super) fn samples() -> Vec<Sample> {
    let mut samples = vec![
        adyen(),
        discord(),
        github(),
        gitlab(),
        hubspot(),
        linear(),
        mailgun(),
    ];
    samples.extend([
        meta(),
        paddle(),
        paypal::sample(),
        sendgrid(),
        shopify(),
        slack(),
        square(),
    ]);
    samples.extend([stripe(), twilio_form(), twilio_json(), zoom()]);
    for (preset, prefix) in [
        ("standard-webhooks", "webhook"),
        ("svix", "svix"),
        ("gitlab-signed", "webhook"),
    ] {
        samples.push(standard(preset, prefix));
    }
    for (preset, prefix) in [("standard-webhooks", "webhook"), ("svix", "svix")] {
        samples.push(standard_asymmetric(preset, prefix));
    }
    samples
}

const TS: &str = "1700000000";
const KEY: &[u8] = b"secret of the test";
const EVENT: &str = r#"{"id":"evt_1","type":"invoice.paid","n":1.0,"t":"\u001b"}"#;

fn everything(preset: &'static str, headers: Vec<&'static str>, sent: Sent) -> Sample {
    let block = format!("preset = \"{preset}\"\nsecrets = [\"secret of the test\"]\n");
    Sample {
        preset,
        source: source(&block),
        sent,
        headers,
        body: Cover::Everything,
        address: false,
    }
}

pub(super) fn stripe() -> Sample {
    let signature = hex(&sha256_hmac(KEY, &[TS.as_bytes(), b".", EVENT.as_bytes()]));
    let header = format!("t={TS},v1={signature}");
    let sent = Sent::post(&[("stripe-signature", &header)], EVENT);
    everything("stripe", vec!["stripe-signature"], sent)
}

pub(super) fn github() -> Sample {
    let body = r#"{"action":"opened","number":1}"#;
    let signature = format!("sha256={}", hex(&sha256_hmac(KEY, &[body.as_bytes()])));
    let headers = [
        ("x-hub-signature-256", &*signature),
        ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
        ("x-github-event", "issues"),
    ];
    everything(
        "github",
        vec!["x-hub-signature-256"],
        Sent::post(&headers, body),
    )
}

fn shopify() -> Sample {
    let signature = base64(&sha256_hmac(KEY, &[EVENT.as_bytes()]));
    let headers = [
        ("x-shopify-hmac-sha256", &*signature),
        ("x-shopify-topic", "orders/create"),
    ];
    everything(
        "shopify",
        vec!["x-shopify-hmac-sha256"],
        Sent::post(&headers, EVENT),
    )
}

pub(super) fn slack() -> Sample {
    let body = r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}"#;
    signed_slack(body)
}

pub(super) fn signed_slack(body: &str) -> Sample {
    let signature = sha256_hmac(KEY, &[b"v0:", TS.as_bytes(), b":", body.as_bytes()]);
    let signature = format!("v0={}", hex(&signature));
    let headers = [
        ("x-slack-signature", &*signature),
        ("x-slack-request-timestamp", TS),
    ];
    let signed = vec!["x-slack-signature", "x-slack-request-timestamp"];
    everything("slack", signed, Sent::post(&headers, body))
}

fn zoom() -> Sample {
    signed_zoom(r#"{"event":"meeting.started","event_ts":1700000000000,"payload":{}}"#)
}

pub(super) fn signed_zoom(body: &str) -> Sample {
    let signature = sha256_hmac(KEY, &[b"v0:", TS.as_bytes(), b":", body.as_bytes()]);
    let signature = format!("v0={}", hex(&signature));
    let headers = [
        ("x-zm-signature", &*signature),
        ("x-zm-request-timestamp", TS),
    ];
    let signed = vec!["x-zm-signature", "x-zm-request-timestamp"];
    everything("zoom", signed, Sent::post(&headers, body))
}

fn paddle() -> Sample {
    let body = r#"{"event_id":"evt_1","event_type":"transaction.paid"}"#;
    let signature = hex(&sha256_hmac(KEY, &[TS.as_bytes(), b":", body.as_bytes()]));
    let header = format!("ts={TS};h1={signature}");
    let sent = Sent::post(&[("paddle-signature", &header)], body);
    everything("paddle", vec!["paddle-signature"], sent)
}

pub(super) fn linear() -> Sample {
    let body = r#"{"type":"Issue","action":"update","webhookTimestamp":1700000000000}"#;
    let signature = hex(&sha256_hmac(KEY, &[body.as_bytes()]));
    let headers = [
        ("linear-signature", &*signature),
        ("linear-delivery", "d-1"),
    ];
    everything(
        "linear",
        vec!["linear-signature"],
        Sent::post(&headers, body),
    )
}

fn meta() -> Sample {
    let body = r#"{"object":"page","entry":[{"id":"1","changes":[{"field":"feed","value":{}}]}]}"#;
    let signature = format!("sha256={}", hex(&sha256_hmac(KEY, &[body.as_bytes()])));
    let block = "preset = \"meta\"\nsecrets = [\"secret of the test\"]\nverify_token = \"t\"\n";
    Sample {
        source: source(block),
        preset: "meta",
        sent: Sent::post(&[("x-hub-signature-256", &signature)], body),
        headers: vec!["x-hub-signature-256"],
        body: Cover::Everything,
        address: false,
    }
}

fn gitlab() -> Sample {
    let token = "secret of the test";
    let headers = [("x-gitlab-token", token), ("idempotency-key", "k-1")];
    let mut sample = everything(
        "gitlab",
        vec!["x-gitlab-token"],
        Sent::post(&headers, r#"{"object_kind":"push"}"#),
    );
    sample.body = Cover::Values(Vec::new());
    sample
}

pub(super) fn standard(preset: &'static str, prefix: &str) -> Sample {
    let key = [7_u8; 32];
    let content = [b"msg_1.", TS.as_bytes(), b".", EVENT.as_bytes()];
    let signature = format!("v1,{}", base64(&sha256_hmac(&key, &content)));
    with_standard_headers(
        preset,
        prefix,
        &format!("whsec_{}", base64(&key)),
        &signature,
    )
}

fn standard_asymmetric(preset: &'static str, prefix: &str) -> Sample {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
    let content = ["msg_1.", TS, ".", EVENT].concat();
    let signature = format!("v1a,{}", base64(pair.sign(content.as_bytes()).as_ref()));
    let public = format!("whpk_{}", base64(pair.public_key().as_ref()));
    with_standard_headers(preset, prefix, &public, &signature)
}

fn with_standard_headers(
    preset: &'static str,
    prefix: &str,
    secret: &str,
    signature: &str,
) -> Sample {
    let name = |name: &str| format!("{prefix}-{name}");
    let headers = [
        (&*name("id"), "msg_1"),
        (&*name("timestamp"), TS),
        (&*name("signature"), signature),
    ];
    let headers = match prefix {
        "svix" => (
            Sent::post(&headers, EVENT),
            vec!["svix-id", "svix-timestamp", "svix-signature"],
        ),
        _ => (
            Sent::post(&headers, EVENT),
            vec!["webhook-id", "webhook-timestamp", "webhook-signature"],
        ),
    };
    Sample {
        preset,
        source: source(&format!(
            "preset = \"{preset}\"\nsecrets = [\"{secret}\"]\n"
        )),
        sent: headers.0,
        headers: headers.1,
        body: Cover::Everything,
        address: false,
    }
}

fn discord() -> Sample {
    signed_discord(r#"{"type":1,"event":{"type":"ENTITLEMENT_CREATE"}}"#)
}

pub(super) fn signed_discord(body: &str) -> Sample {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[3; 32]).unwrap();
    let signature = hex(pair.sign([TS, body].concat().as_bytes()).as_ref());
    let public = hex(pair.public_key().as_ref());
    Sample {
        preset: "discord",
        source: source(&format!("preset = \"discord\"\nsecrets = [\"{public}\"]\n")),
        sent: Sent::post(
            &[
                ("x-signature-ed25519", &signature),
                ("x-signature-timestamp", TS),
            ],
            body,
        ),
        headers: vec!["x-signature-ed25519", "x-signature-timestamp"],
        body: Cover::Everything,
        address: false,
    }
}

pub(super) fn sendgrid() -> Sample {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
    // SubjectPublicKeyInfo of a P-256 key is this head and the point.
    let head = "3059301306072a8648ce3d020106082a8648ce3d030107034200";
    let mut spki = crate::verify::encoding::Encoding::Hex.decode(head).unwrap();
    spki.extend_from_slice(pair.public_key().as_ref());
    let body = "[{\"sg_event_id\":\"a\",\"event\":\"open\"},{\"sg_event_id\":\"b\",\"event\":\"click\"}]\r\n";
    let signature = pair.sign(&random, [TS, body].concat().as_bytes()).unwrap();
    let signature = base64(signature.as_ref());
    let headers = [
        ("x-twilio-email-event-webhook-signature", &*signature),
        ("x-twilio-email-event-webhook-timestamp", TS),
    ];
    Sample {
        preset: "sendgrid",
        source: source(&format!(
            "preset = \"sendgrid\"\nsecrets = [\"{}\"]\n",
            base64(&spki)
        )),
        sent: Sent::post(&headers, body),
        headers: headers.iter().map(|(name, _)| *name).collect(),
        body: Cover::Everything,
        address: false,
    }
}

fn with_address(preset: &'static str, headers: Vec<&'static str>, sent: Sent) -> Sample {
    let block = format!(
        "preset = \"{preset}\"\nsecrets = [\"secret of the test\"]\n\
         public_url = \"https://hooks.example/in/partner\"\n"
    );
    Sample {
        preset,
        source: source(&block),
        sent,
        headers,
        body: Cover::Everything,
        address: true,
    }
}

fn square() -> Sample {
    let body = r#"{"event_id":"e1","type":"payment.updated"}"#;
    let url = b"https://hooks.example/in/partner?shop=1";
    let signature = base64(&sha256_hmac(KEY, &[url, body.as_bytes()]));
    let header = "x-square-hmacsha256-signature";
    let sent = Sent::post(&[(header, &signature)], body).query("shop=1");
    with_address("square", vec![header], sent)
}

pub(super) fn hubspot() -> Sample {
    let body =
        r#"[{"eventId":1,"subscriptionId":2,"occurredAt":3,"subscriptionType":"deal.creation"}]"#;
    let url = b"https://hooks.example/in/partner?a=1:2";
    let ts = b"1700000000000";
    let signature = base64(&sha256_hmac(KEY, &[b"POST", url, body.as_bytes(), ts]));
    let headers = [
        ("x-hubspot-signature-v3", &*signature),
        ("x-hubspot-request-timestamp", "1700000000000"),
    ];
    let signed = headers.iter().map(|(name, _)| *name).collect();
    with_address(
        "hubspot",
        signed,
        Sent::post(&headers, body).query("a=1%3A2"),
    )
}

pub(super) fn twilio_form() -> Sample {
    let body =
        "To=%2B18005551212&Body=Hello+there&From=%2B14158675310&MessageSid=SM1&SmsStatus=received";
    let content = b"https://hooks.example/in/partner?a=1BodyHello thereFrom+14158675310\
                    MessageSidSM1SmsStatusreceivedTo+18005551212";
    let signature = base64(&sha1_hmac(KEY, &[content]));
    let headers = [
        ("x-twilio-signature", &*signature),
        (
            "content-type",
            "application/x-www-form-urlencoded; charset=utf-8",
        ),
    ];
    let sent = Sent::post(&headers, body).query("a=1");
    let mut sample = with_address("twilio", vec!["x-twilio-signature"], sent);
    sample.body = Cover::Fields;
    sample
}

pub(super) fn twilio_json() -> Sample {
    let body = r#"{"type":"com.twilio.event","id":"EZ1"}"#;
    let digest = ring::digest::digest(&ring::digest::SHA256, body.as_bytes());
    let query = format!("bodySHA256={}", hex(digest.as_ref()));
    let url = format!("https://hooks.example/in/partner?{query}");
    let signature = base64(&sha1_hmac(KEY, &[url.as_bytes()]));
    let headers = [
        ("x-twilio-signature", &*signature),
        ("content-type", "application/json"),
    ];
    with_address(
        "twilio",
        vec!["x-twilio-signature"],
        Sent::post(&headers, body).query(&query),
    )
}

pub(super) fn mailgun() -> Sample {
    let token = "c4ca4238a0b923820dcc509a6f75849b";
    let signature = hex(&sha256_hmac(KEY, &[TS.as_bytes(), token.as_bytes()]));
    let body = format!(
        r#"{{"signature":{{"timestamp":"{TS}","token":"{token}","signature":"{signature}"}},"event-data":{{"id":"m-1","event":"opened"}}}}"#
    );
    let mut sample = everything("mailgun", Vec::new(), Sent::post(&[], body));
    sample.body = Cover::Values(vec![TS, token]);
    sample
}

pub(super) fn adyen() -> Sample {
    let key = [5_u8; 32];
    let content = b"7914073381342284:psp-0:TestMerchant:order-1:1130:EUR:AUTHORISATION:true";
    let signature = base64(&sha256_hmac(&key, &[content]));
    let body = format!(
        r#"{{"live":"false","notificationItems":[{{"NotificationRequestItem":{{"additionalData":{{"hmacSignature":"{signature}"}},"amount":{{"currency":"EUR","value":1130}},"pspReference":"7914073381342284","originalReference":"psp-0","eventCode":"AUTHORISATION","merchantAccountCode":"TestMerchant","merchantReference":"order-1","reason":"ok","success":"true"}}}}]}}"#
    );
    let values = [
        "7914073381342284",
        "psp-0",
        "TestMerchant",
        "order-1",
        "1130",
        "EUR",
    ];
    let mut values = values.to_vec();
    values.extend(["AUTHORISATION", "true"]);
    Sample {
        preset: "adyen",
        source: source(&format!(
            "preset = \"adyen\"\nsecrets = [\"{}\"]\n",
            hex(&key)
        )),
        sent: Sent::post(&[], body),
        headers: Vec::new(),
        body: Cover::Values(values),
        address: false,
    }
}
