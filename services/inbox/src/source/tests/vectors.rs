//! Known answers: what partners publish, and, where they publish none, what was computed with
//! another implementation.

use super::*;

struct Vector {
    name: &'static str,
    block: &'static str,
    query: Option<&'static str>,
    headers: &'static [(&'static str, &'static str)],
    body: &'static [u8],
    /// When it was signed, in seconds since 1970.
    at: i64,
    /// The event's id.
    id: &'static str,
}

const EVENT: &[u8] = br#"{"id":"evt_test","object":"event"}"#;
/// The SHA-256 of `EVENT`.
const EVENT_ID: &str = "sha256:70f331694dd0fb5dd9931f7fe438b24f670de63b49de7283a68eb02b412c46e3";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// Published by the partners, in their documentation or their libraries' tests.
const PUBLISHED: &[Vector] = &[
    Vector {
        name: "GitHub, documentation",
        block: r#"preset = "github"
            secrets = ["It's a Secret to Everybody"]"#,
        query: None,
        headers: &[
            (
                "X-Hub-Signature-256",
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
            ),
            ("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
        ],
        body: b"Hello, World!",
        at: THEN,
        id: "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    },
    Vector {
        name: "Slack, documentation",
        block: r#"preset = "slack"
            secrets = ["8f742231b10e8888abcd99yyyzzz85a5"]"#,
        query: None,
        headers: &[
            FORM,
            ("X-Slack-Request-Timestamp", "1531420618"),
            (
                "X-Slack-Signature",
                "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
            ),
        ],
        body: b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
        at: 1_531_420_618,
        id: "398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
    },
    Vector {
        name: "Twilio, documentation",
        block: r#"preset = "twilio"
            secrets = ["12345"]
            public_url = "https://example.com/myapp.php""#,
        query: Some("foo=1&bar=2"),
        headers: &[FORM, ("X-Twilio-Signature", "L/OH5YylLD5NRKLltdqwSvS0BnU=")],
        body: b"CallSid=CA1234567890ABCDE&Caller=%2B14158675310&Digits=1234&From=%2B14158675310&To=%2B18005551212",
        at: THEN,
        id: "sha256:158d1c58b61002b045dd240a8e31eccc3e9838e59d7ceb8290c4783c49bec387",
    },
    Vector {
        name: "Square, documentation",
        block: r#"preset = "square"
            secrets = ["asdf1234"]
            public_url = "https://example.com/webhook""#,
        query: None,
        headers: &[(
            "x-square-hmacsha256-signature",
            "2kRE5qRU2tR+tBGlDwMEw2avJ7QM4ikPYD/PJ3bd9Og=",
        )],
        body: br#"{"hello":"world"}"#,
        at: THEN,
        id: "",
    },
    Vector {
        name: "Standard Webhooks, reference libraries",
        block: r#"preset = "standard-webhooks"
            secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]"#,
        query: None,
        headers: &[
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ],
        body: br#"{"test": 2432232314}"#,
        at: 1_614_265_330,
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
    },
    Vector {
        name: "Standard Webhooks, the Rust library, a secret with a plus",
        block: r#"preset = "standard-webhooks"
            secrets = ["C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]"#,
        query: None,
        headers: &[
            ("webhook-id", "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk"),
            ("webhook-timestamp", "1649367553"),
            ("webhook-signature", "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="),
        ],
        body: br#"{"email":"test@example.com","username":"test_user"}"#,
        at: 1_649_367_553,
        id: "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
    },
    Vector {
        name: "Svix, asymmetric",
        block: r#"preset = "svix"
            secrets = ["whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="]"#,
        query: None,
        headers: &[
            ("svix-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("svix-timestamp", "1614265330"),
            (
                "svix-signature",
                "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
            ),
        ],
        body: br#"{"test": 2432232314}"#,
        at: 1_614_265_330,
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
    },
    Vector {
        name: "Adyen, the Java library, one notification",
        block: r#"preset = "adyen"
            secrets = ["9064450A8892A093D9E97EFCC9639DE31B74F3A7803135555A3C96F5A57915D6"]"#,
        query: None,
        headers: &[],
        body: br#"{"notificationItems":[{"NotificationRequestItem":{"pspReference":"test_REPORT_AVAILABLE","merchantAccountCode":"Magento2Rik","merchantReference":"testMerchantRef1","amount":{"value":0,"currency":"EUR"},"eventCode":"REPORT_AVAILABLE","success":"true","additionalData":{"hmacSignature":"NuEkADFmlCC6VgX+wcoPAegIWxVPNBPCuKlM4Hzo5qc="}}}]}"#,
        at: THEN,
        id: "",
    },
    Vector {
        name: "Adyen, the Java library, what nothing escapes",
        block: r#"preset = "adyen"
            secrets = ["74F490DD33F7327BAECC88B2947C011FC02D014A473AAA33A8EC93E4DC069174"]"#,
        query: None,
        headers: &[],
        body: br#"{"notificationItems":[{"NotificationRequestItem":{"pspReference":"ZVWN7D3WSMK2WN82","merchantAccountCode":"AntoniStroinski","merchantReference":"\\:/\\/slashes are fun","amount":{"value":1000,"currency":"EUR"},"eventCode":"AUTHORISATION","success":"true","additionalData":{"hmacSignature":"CZErGCNQaSsxbaQfZaJlakqo7KPP+mIa8a+wx3yNs9A="}}}]}"#,
        at: THEN,
        id: "",
    },
    Vector {
        name: "Adyen, the Java library, a whole body",
        block: r#"secrets = ["9064450A8892A093D9E97EFCC9639DE31B74F3A7803135555A3C96F5A57915D6"]
            scheme = [{ label = "platforms", signature = "header:hmacsignature", encoding = "base64", algorithm = "hmac-sha256", key = "hex", content = "{raw}" }]"#,
        query: None,
        headers: &[("HmacSignature", "YA9/UDjldIO4Gq68X4ATYYoEaPYH4f4k2uzBBzEF1PA=")],
        body: b"TestPayload",
        at: THEN,
        id: "",
    },
    Vector {
        name: "Paddle, the Node library",
        block: r#"preset = "paddle"
            secrets = ["VALID_SECRET"]"#,
        query: None,
        headers: &[(
            "Paddle-Signature",
            "ts=1698796800;h1=a300428748dce5c70e4da19bffd60769591ea969c99dea3105d0ec9612cf43f9",
        )],
        body: br#"{"data": ["1", "2"]}"#,
        at: 1_698_796_800,
        id: "",
    },
    Vector {
        name: "Paddle, the Node library, another body",
        block: r#"preset = "paddle"
            secrets = ["VALID_SECRET"]"#,
        query: None,
        headers: &[(
            "Paddle-Signature",
            "ts=1698796800;h1=28981e941fae76e53db32f3d2a83cb69db41476595e84e1970a1b5d98f62b261",
        )],
        body: br#"{"data": "value"}"#,
        at: 1_698_796_800,
        id: "",
    },
    Vector {
        name: "HubSpot, the Python library",
        block: r#"preset = "hubspot"
            secrets = ["yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy"]
            public_url = "https://www.example.com/webhook_uri""#,
        query: None,
        headers: &[
            ("X-HubSpot-Request-Timestamp", "1693657560000"),
            ("X-HubSpot-Signature-v3", "K36dawei4A+QBNolUOqo7s91KQDWQ5MXZ/QufNYuk/Y="),
        ],
        body: b"{'example_field':'example_value'}",
        at: 1_693_657_560,
        id: "",
    },
    Vector {
        name: "SendGrid, the libraries' tests",
        block: r#"preset = "sendgrid"
            secrets = ["MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="]"#,
        query: None,
        headers: &[
            ("X-Twilio-Email-Event-Webhook-Timestamp", "1600112502"),
            (
                "X-Twilio-Email-Event-Webhook-Signature",
                "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM=",
            ),
        ],
        body: b"[{\"email\":\"hello@world.com\",\"event\":\"dropped\",\"reason\":\"Bounced Address\",\"sg_event_id\":\"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA\",\"sg_message_id\":\"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0\",\"smtp-id\":\"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>\",\"timestamp\":1600112492}]\r\n",
        at: 1_600_112_502,
        id: "",
    },
    Vector {
        name: "WhatsApp, documentation",
        block: r#"preset = "meta"
            secrets = ["secret"]
            verify_token = "t""#,
        query: None,
        headers: &[(
            "X-Hub-Signature-256",
            "sha256=0329a06b62cd16b33eb6792be8c60b158d89a2ee3a876fce9a881ebb488c0914",
        )],
        body: b"test",
        at: THEN,
        id: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    },
];

/// Computed with Python's `hmac`, `hashlib` and `cryptography`.
const COMPUTED: &[Vector] = &[
    Vector {
        name: "Stripe",
        block: r#"preset = "stripe"
            secrets = ["whsec_test_secret"]"#,
        query: None,
        headers: &[(
            "Stripe-Signature",
            "t=1700000000,v1=8042376f6ca064adbe037642a718227dfd59047137eb49497a54c49eb0cfb724",
        )],
        body: EVENT,
        at: THEN,
        id: "evt_test",
    },
    Vector {
        name: "Shopify",
        block: r#"preset = "shopify"
            secrets = ["hush"]"#,
        query: None,
        headers: &[("X-Shopify-Hmac-Sha256", "Z3rSOdt652m4AqThbPp+bkJcHut0VS6qyaNgmDxWvVs=")],
        body: EVENT,
        at: THEN,
        id: EVENT_ID,
    },
    Vector {
        name: "Zoom",
        block: r#"preset = "zoom"
            secrets = ["zoomsecret"]"#,
        query: None,
        headers: &[
            ("x-zm-request-timestamp", "1700000000"),
            (
                "x-zm-signature",
                "v0=493a2dfdab1bef792b7569158668104805ca3027c3423f4d1572be407bb081fc",
            ),
        ],
        body: EVENT,
        at: THEN,
        id: "body.70f331694dd0fb5dd9931f7fe438b24f670de63b49de7283a68eb02b412c46e3",
    },
    Vector {
        name: "a signature over the body in hex, as Linear's",
        block: r#"secrets = ["lin_wh_secret"]
            event_id = ["{json:/id}"]
            scheme = [{ label = "sha256", signature = "header:linear-signature", encoding = "hex", algorithm = "hmac-sha256", key = "utf8", content = "{raw}" }]"#,
        query: None,
        headers: &[(
            "Linear-Signature",
            "29da702e287b5118549c228e7f2cfb2060abee1327fc202b9739a4a3973bee81",
        )],
        body: EVENT,
        at: THEN,
        id: "evt_test",
    },
    Vector {
        name: "Mailgun",
        block: r#"preset = "mailgun"
            secrets = ["key-test"]"#,
        query: None,
        headers: &[],
        body: br#"{"signature":{"timestamp":"1700000000","token":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","signature":"c831b43c5b16fe108131ca2a0ee82b53808fd53255a924f124c12c5aa8b5c2a3"},"event-data":{"id":"Ase7i2zsRYeDXztHGENqRA"}}"#,
        at: THEN,
        id: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    },
    Vector {
        name: "Discord",
        block: r#"preset = "discord"
            secrets = ["03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"]"#,
        query: None,
        headers: &[
            ("X-Signature-Timestamp", "1700000000"),
            (
                "X-Signature-Ed25519",
                "a33e7d945c67d0e09cf88b0f84e6eaed5d52f64af342fa0cc974ee7217771eb0f656b9a184cf824c3772aad7bbbbc6ae02c1b2b9eaf1b1ec12664075681b1f01",
            ),
        ],
        body: EVENT,
        at: THEN,
        id: "evt_test",
    },
    Vector {
        name: "GitLab, signed",
        block: r#"preset = "gitlab-signed"
            secrets = ["whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="]"#,
        query: None,
        headers: &[
            ("webhook-id", "msg_1"),
            ("webhook-timestamp", "1700000000"),
            ("webhook-signature", "v1,87bqe5p71IiEuRfUQ6tpJ7qtCmWaIqoKF9QsrKk4qw8="),
        ],
        body: EVENT,
        at: THEN,
        id: "msg_1",
    },
    Vector {
        name: "Standard Webhooks, an empty body and a secret without padding",
        block: r#"preset = "standard-webhooks"
            secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]"#,
        query: None,
        headers: &[
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1,v48jdbgvh29KJz2Qc+ghw8G6vG3nAKnujWBg8oM/62A="),
        ],
        body: b"",
        at: 1_614_265_330,
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
    },
    Vector {
        name: "Twilio, JSON",
        block: r#"preset = "twilio"
            secrets = ["12345"]
            public_url = "https://example.com/myapp""#,
        query: Some("bodySHA256=5ccde7145dfb8f56479710896586cb9d5911809d83afbe34627818790db0aec9"),
        headers: &[("X-Twilio-Signature", "hPXmLwIy3Fgqv1i9KPmH/HhQ6zo=")],
        body: br#"{"CallSid":"CA1234567890ABCDE","Caller":"+12349013030"}"#,
        at: THEN,
        id: "",
    },
];

#[test]
fn known_answers_verify_with_the_id_of_their_event() {
    for vector in PUBLISHED.iter().chain(COMPUTED) {
        let mut sent = Sent::post(vector.headers, vector.body);
        sent.query = vector.query.map(str::to_owned);
        let source = source(vector.block);
        let found = sent.verify(&source, vector.at);
        assert!(found.is_ok(), "{}: {found:?}", vector.name);
        if !vector.id.is_empty() {
            assert_eq!(
                sent.identify(&source, vector.at).id,
                vector.id,
                "{}",
                vector.name
            );
        }
        sent.body.push(b' ');
        assert!(sent.verify(&source, vector.at).is_err() || !source.integrity().full);
    }
}

/// Wise's example, as a scheme of one's own: RSA with a key in PEM.
#[test]
fn a_key_in_pem_verifies_what_wise_publishes() {
    let key = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAwpb91cEYuyJNQepZAVfP
ZIlPZfNUefH+n6w9SW3fykqKu938cR7WadQv87oF2VuT+fDt7kqeRziTmPSUhqPU
ys/V2Q1rlfJuXbE+Gga37t7zwd0egQ+KyOEHQOpcTwKmtZ81ieGHynAQzsn1We3j
wt760MsCPJ7GMT141ByQM+yW1Bx+4SG3IGjXWyqOWrcXsxAvIXkpUD/jK/L958Cg
nZEgz0BSEh0QxYLITnW1lLokSx/dTianWPFEhMC9BgijempgNXHNfcVirg1lPSyg
z7KqoKUN0oHqWLr2U1A+7kqrl6O2nx3CKs1bj1hToT1+p4kcMoHXA7kA+VBLUpEs
VwIDAQAB
-----END PUBLIC KEY-----
";
    let block = format!(
        "secrets = [\"\"\"{key}\"\"\"]\n[[scheme]]\nlabel = \"rsa\"\nsignature = \"header:x-signature-sha256\"\n\
         encoding = \"base64\"\nalgorithm = \"rsa-pkcs1-sha256\"\nkey = \"spki\"\ncontent = \"{{raw}}\"\n"
    );
    let body = r#"{"data":{"resource":{"id":49983981,"profile_id":16055450,"account_id":14124090,"type":"transfer"},"current_state":"incoming_payment_waiting","previous_state":null,"occurred_at":"2021-08-23T10:12:50Z"},"subscription_id":"90aa8e14-4ef1-4a56-861c-f3c9cde097ea","event_type":"transfers#state-change","schema_version":"2.0.0","sent_at":"2021-08-23T10:12:50Z"}"#;
    let signature = "wKcKCYXAzxNgiu7xmoDm943NUni7Rz33QN8JkEA9dWSGebgndonabgSj18Y4C08OrwVmueGsED2s00M7DtJVcYKOS1i3G4TMVx+mgM3aL9djMBkQtiYNBFUd6wrPI7ZUNHv/TrlKSjTMc+6JFvUvJ7owY3z85e3I4jLRLJowMFvO8kvCJ60+1pY9wDwZvtZ//WS93LrwGjk9Dvwzpmu0w+P4J75tETT5qC3Uv0y5G2yO8SEoO3yNP/tg/BOli02niHb53vEOUWUb9bly6thnfMoXoiV/osoGxgF20R58RlvkAmezyyl1Sv542TfS2DpiwVnmjjjkCyXeSUcKookYLQ==";
    let sent = Sent::post(&[("x-signature-sha256", signature)], body);
    assert!(sent.verify(&source(&block), THEN).is_ok());
    let other = Sent::post(
        &[("x-signature-sha256", signature)],
        body.replace("2.0.0", "2.0.1"),
    );
    assert_eq!(
        other.verify(&source(&block), THEN),
        Err(Reject::WrongSignature)
    );
}
