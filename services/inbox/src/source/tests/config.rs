//! What is wrong with a block.

use std::io::Write as _;

use super::*;

const STRIPE: &str = "preset = \"stripe\"\nsecrets = [\"k\"]\n";

#[test]
fn every_preset_compiles_with_what_it_needs() {
    for name in super::presets() {
        let secret = match name {
            "adyen" => "00ff",
            "discord" => "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "sendgrid" => {
                "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
            }
            _ => "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        };
        let secrets = if name == "paypal" {
            String::new()
        } else {
            format!("\"{secret}\"")
        };
        let (root, _) = paypal::authority("root");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(root.as_bytes()).unwrap();
        let source = source(&format!(
            "preset = \"{name}\"\nsecrets = [{secrets}]\npublic_url = \"https://h.example/in/p\"\n\
             verify_token = \"t\"\nparameters = {{ webhook_id = \"w\" }}\nca_file = \"{}\"\n",
            file.path().display()
        ));
        assert!(source.warnings().is_empty());
        assert_eq!(source.slug(), "partner");
        assert_eq!(source.max_body(), 1 << 20);
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let found = faults(
        r#"
        preset = "strype"
        max_body = 10
        tolerance = "0s"
        methods = ["DELETE"]
        event_id = ["{json:id}"]
        event_type = ["{query:type}"]
        secrets = [" k ", ""]
        secret_files = ["/nowhere/at/all"]
        same_body = { within = "31days" }
        hand_off = { mode = "request", within = "0s" }
        entities = [{ type = "a b", match = [], key = "{", order = "when" }]
        "#,
    );
    let keys: Vec<_> = found
        .iter()
        .map(|fault| fault.split(' ').next().unwrap())
        .collect();
    let expected = [
        "max_body",
        "tolerance",
        "same_body.within",
        "hand_off.within",
        "hand_off.mode",
        "preset",
        "secrets.0",
        "secrets.1",
        "secret_files.0",
        "event_type.0",
        "entities.0.type",
        "entities.0.match",
        "entities.0.key",
        "entities.0.order",
        "event_id.0",
        "methods.0",
    ];
    assert_eq!(keys, expected, "{found:#?}");
}

#[test]
fn a_fault_names_its_key_and_its_fix() {
    for (block, expected) in [
        ("", "preset is not set: give one of adyen, "),
        (
            "preset = \"stripe\"",
            "secrets is empty, so that nobody could be told from the partner: ",
        ),
        (
            "preset = \"square\"\nsecrets = [\"k\"]",
            "public_url is not set, and the partner signs",
        ),
        (
            "preset = \"square\"\nsecrets = [\"k\"]\npublic_url = \"https://h.example/?a=1\"",
            "public_url is no address with http:// or https:// and without a query: ",
        ),
        (
            "preset = \"paypal\"",
            "parameters.webhook_id is not set, and the partner signs it: ",
        ),
        (
            "preset = \"meta\"\nsecrets = [\"k\"]",
            "verify_token is not set: make a token up",
        ),
        (
            "preset = \"adyen\"\nsecrets = [\"xyz\"]",
            "secrets.0 is not hex: ",
        ),
        (
            "preset = \"discord\"\nsecrets = [\"00\"]",
            "secrets.0 is no key for ed25519: ",
        ),
        (
            "preset = \"sendgrid\"\nsecrets = [\"AAAA\"]",
            "secrets.0 is no key for ecdsa-p256: ",
        ),
        (
            "preset = \"standard-webhooks\"\nsecrets = [\"whsk_AAAA\"]",
            "secrets.0 is a private key; the partner's public one is wanted: ",
        ),
        (
            "preset = \"standard-webhooks\"\nsecrets = [\"whsec_\"]",
            "secrets.0 is empty: ",
        ),
        (
            "preset = \"stripe\"\nsecrets = [\"k\\n\"]",
            "secrets.0 has white space around it: ",
        ),
    ] {
        let found = faults(block);
        assert!(
            found.iter().any(|fault| fault.starts_with(expected)),
            "{block}: {found:#?}"
        );
        // A system without root certificates has a fault of its own with PayPal.
        let others = found
            .iter()
            .filter(|fault| !fault.starts_with("scheme.0.certificate "));
        assert_eq!(others.count(), 1, "{block}: {found:#?}");
    }
}

#[test]
fn a_scheme_of_ones_own_is_looked_through() {
    let scheme = |more: &str| {
        let base = "secrets = [\"k\"]\n[[scheme]]\nlabel = \"a\"\nsignature = \"header:s\"\n";
        faults(&format!("{base}{more}\n"))
    };
    let plain = "encoding = \"hex\"\nalgorithm = \"hmac-sha256\"\nkey = \"utf8\"\n";
    for (more, expected) in [
        (format!("{plain}content = \"{{raw}}\""), None),
        (
            format!("{plain}content = \"x\""),
            Some("scheme.0.content says nothing of the body"),
        ),
        (plain.to_owned(), Some("scheme.0.content is not set")),
        (
            format!("{plain}content = \"{{ts}}{{raw}}\""),
            Some("scheme.0.content names `ts`"),
        ),
        (
            format!("{plain}content = \"{{raw}}\"\ndigest = \"header:d\""),
            Some("scheme.0.digest is not signed"),
        ),
        (
            format!("{plain}content = \"{{raw}}\"\ngrammar = \"kv\""),
            Some("scheme.0.name is not set"),
        ),
        (
            format!("{plain}content = \"{{raw}}\"\ngrammar = \"prefix\""),
            Some("scheme.0.prefix is not set"),
        ),
        (
            format!(
                "{plain}content = \"{{raw}}\"\n\
                 timestamp = {{ from = \"header:t\", unit = \"s\", past = \"1m\", future = \"1m\" }}"
            ),
            Some("scheme.0.timestamp.from is not signed"),
        ),
        (
            "algorithm = \"ecdsa-p256\"\nkey = \"utf8\"\nencoding = \"hex\"\ncontent = \"{raw}\""
                .to_owned(),
            Some("scheme.0.key does not go with `ecdsa-p256`"),
        ),
        (
            "algorithm = \"hmac-sha256\"\nkey = \"utf8\"\ncontent = \"{raw}\"".to_owned(),
            Some("scheme.0.encoding is not set"),
        ),
        ("algorithm = \"token\"\nkey = \"utf8\"".to_owned(), None),
        (
            "algorithm = \"token\"\nkey = \"utf8\"\ncontent = \"{raw}\"".to_owned(),
            Some("scheme.0.content is of no use with `token`"),
        ),
    ] {
        let found = scheme(&more);
        let first = found.first().map(String::as_str).unwrap_or_default();
        assert!(
            first.starts_with(expected.unwrap_or_default()),
            "{more}: {found:#?}"
        );
        assert_eq!(found.is_empty(), expected.is_none(), "{more}: {found:#?}");
    }
}

#[test]
fn a_slug_is_a_word_of_an_address_and_of_a_subject() {
    let block: Block = toml::from_str(STRIPE).unwrap();
    let fifty = "a".repeat(50);
    let longer = "a".repeat(51);
    for (slug, fine) in [
        ("stripe", true),
        ("stripe-eu_2", true),
        ("9", true),
        (&fifty, true),
        (&longer, false),
        ("", false),
        ("Stripe", false),
        ("-a", false),
        ("a.b", false),
        ("a/b", false),
        ("a b", false),
        ("*", false),
        ("é", false),
    ] {
        let mut faults = Faults::new();
        assert_eq!(
            Source::compile(slug, &block, &mut faults).is_some(),
            fine,
            "{slug}"
        );
        assert_eq!(faults.is_empty(), fine);
    }
}

#[test]
fn a_way_to_the_adopter_is_whole() {
    for (hand_off, fine) in [
        ("mode = \"stream\"", true),
        ("mode = \"sql\"", true),
        ("mode = \"request\", subject = \"orders.webhooks\"", true),
        (
            "mode = \"request\", url = \"http://10.0.0.7:8080/hooks\"",
            true,
        ),
        ("mode = \"request\"", false),
        (
            "mode = \"request\", subject = \"a\", url = \"http://a.example\"",
            false,
        ),
        ("mode = \"stream\", subject = \"a\"", false),
        ("mode = \"sql\", url = \"http://a.example\"", false),
        ("mode = \"request\", subject = \"a.*\"", false),
        ("mode = \"request\", subject = \"a..b\"", false),
        ("mode = \"request\", subject = \"$JS.API\"", false),
        ("mode = \"request\", url = \"ftp://a.example\"", false),
        (
            "mode = \"request\", url = \"http://u:canary@a.example\"",
            false,
        ),
        (
            "mode = \"request\", url = \"http://canary@a.example\"",
            false,
        ),
    ] {
        let found = faults(&format!("{STRIPE}hand_off = {{ {hand_off} }}\n"));
        assert_eq!(found.is_empty(), fine, "{hand_off}: {found:?}");
        assert!(!format!("{found:?}").contains("canary"));
    }
}

#[test]
fn a_file_holds_one_secret_and_its_line_end_is_no_part_of_it() {
    let file = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    };
    let (ended, bare, blank) = (file("old\r\n"), file("new"), file(" new\n"));
    let source = source(&format!(
        "preset = \"github\"\nsecret_files = [\"{}\", \"{}\"]\n",
        ended.path().display(),
        bare.path().display()
    ));
    let [warning] = source.warnings() else {
        panic!("{:?}", source.warnings())
    };
    assert!(warning.contains(&ended.path().display().to_string()) && !warning.contains("old"));
    for (secret, label) in [(&b"old"[..], "secret_files.0"), (b"new", "secret_files.1")] {
        let signature = crate::verify::encoding::hex(&signer::sha256_hmac(secret, &[b"{}"]));
        let sent = Sent::post(
            &[("x-hub-signature-256", &format!("sha256={signature}"))],
            "{}",
        );
        assert_eq!(sent.verify(&source, THEN).unwrap().key_label, label);
    }
    let big = file(&"a".repeat(20_000));
    let two = file("old\nnew\n");
    for (path, problem) in [
        (blank.path(), "has white space around it"),
        (big.path(), "has more than 16384 bytes"),
        (two.path(), "has more than one line"),
        (std::path::Path::new("/nowhere"), "can't be read"),
    ] {
        let found = faults(&format!(
            "preset = \"github\"\nsecret_files = [\"{}\"]\n",
            path.display()
        ));
        assert!(found.len() == 1 && found[0].contains(problem), "{found:?}");
    }
}

#[test]
fn no_more_secrets_are_taken_than_are_worth_trying() {
    let found = faults(&format!(
        "preset = \"stripe\"\nsecrets = [{}]\n",
        "\"k\",".repeat(9)
    ));
    assert_eq!(
        found,
        ["secrets and `secret_files` are 9: give at most 8 together"]
    );
}

#[test]
fn nothing_shows_a_secret() {
    let canary = "canary-3f9d";
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(format!("{canary}-file").as_bytes()).unwrap();
    let text = format!(
        "preset = \"meta\"\nsecrets = [\"{canary}\"]\nverify_token = \"{canary}\"\nsecret_files = [\"{}\"]\n",
        file.path().display()
    );
    let block: Block = toml::from_str(&text).unwrap();
    let source = source(&text);
    let sent = Sent::post(&[("x-hub-signature-256", "sha256=00")], "{}");
    let reject = sent.verify(&source, THEN).unwrap_err();
    let shown = format!(
        "{block:?} {} {source:?} {:?} {:?} {:?} {reject} {:?}",
        toml::to_string(&block).unwrap(),
        source.schemes,
        source.challenges,
        source.rules,
        faults(&text.replace(canary, " canary-3f9d")),
    );
    assert!(!shown.contains("canary-3f9d"), "{shown}");
    for (preset, secret) in [
        ("adyen", "canary-3f9d"),
        ("discord", "canary-3f9d"),
        ("sendgrid", "canary-3f9d"),
        ("standard-webhooks", "whsec_canary-3f9d"),
        ("standard-webhooks", "whsk_canary-3f9d"),
    ] {
        let found = faults(&format!(
            "preset = \"{preset}\"\nsecrets = [\"{secret}\"]\n"
        ));
        assert!(
            !found.is_empty() && !found.concat().contains("canary"),
            "{found:?}"
        );
    }
}

#[test]
fn a_block_that_is_written_down_reads_back() {
    let text = r#"
        preset = "stripe"
        secrets = ["k"]
        tolerance = "1m"
        hand_off = { mode = "request", url = "http://a.example/", within = "2s" }
        [[entities]]
        type = "subscription"
        match = ["customer.subscription.*"]
        key = "{json:/data/object/id}"
        order = "json:/created"
    "#;
    let block: Block = toml::from_str(text).unwrap();
    let again: Block = toml::from_str(&toml::to_string(&block).unwrap()).unwrap();
    assert_eq!(format!("{block:?}"), format!("{again:?}"));
    assert!(toml::from_str::<Block>("presett = \"stripe\"").is_err());
}
