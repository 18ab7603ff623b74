//! `hooklane api-key` and `hooklane audit`.

use serde_json::{Value, json};

use crate::bench::Bench;

#[tokio::test]
async fn the_first_key_is_made_shown_once_and_revoked() {
    let bench = Bench::ledger().await;
    let text = bench.ok(&["api-key", "create", "--name", "first", "--scope", "admin"]);
    let shown = text
        .split_whitespace()
        .find(|word| word.starts_with("hlk_"));
    let first = shown.unwrap_or_else(|| panic!("{text}")).to_owned();
    let made = bench.json(&[
        "api-key",
        "create",
        "--name",
        "second",
        "--scope",
        "publish",
        "--expires-in",
        "90d",
        "--rate-limit",
        "50",
    ]);
    let (second, key) = (made["key"].as_str().unwrap(), &made["api_key"]);
    assert_eq!(key["scope"], "publish");
    assert_eq!(key["status"], "active");
    assert_eq!(key["rate_limit"], 50);
    assert_eq!(key["created_by"], "cli");
    assert_eq!(key["consumer"], Value::Null);
    assert!(second.ends_with(key["hint"].as_str().unwrap()), "{key}");

    let id = key["id"].as_str().unwrap();
    let revoked = bench.json(&["api-key", "revoke", id]);
    assert_eq!(revoked["status"], "revoked");
    let list = bench.json(&["api-key", "list"]);
    assert_eq!(list["api_keys"][0]["name"], "first");
    assert_eq!(list["api_keys"][1], revoked);
    assert_eq!(list["next"], Value::Null);
    let listed = bench.ok(&["api-key", "list"]);
    let audit = bench.run(&["--json", "audit", "list"]);
    for text in [listed, list.to_string(), audit.stdout, audit.stderr] {
        for key in [first.as_str(), second] {
            assert!(!text.contains(&key[..20]), "{text}");
        }
    }
}

#[tokio::test]
async fn keys_have_clear_refusals() {
    let bench = Bench::ledger().await;
    let create = |more: &[&str]| -> Vec<String> {
        let words = [&["api-key", "create", "--name", "x"], more].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    for (code, more) in [
        ("invalid_data", &["--scope", "consumer"][..]),
        (
            "not_found",
            &["--scope", "consumer", "--consumer", "nobody"],
        ),
        (
            "invalid_data",
            &["--scope", "admin", "--consumer", "nobody"],
        ),
        ("invalid_data", &["--scope", "admin", "--rate-limit", "0"]),
        ("invalid_data", &["--scope", "admin", "--expires-in", "0s"]),
        (
            "invalid_data",
            &["--scope", "admin", "--expires-in", "11years"],
        ),
        (
            "invalid_data",
            &["--scope", "admin", "--expires-in", "900000000years"],
        ),
    ] {
        let words = create(more);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        bench.fails(65, code, &words);
    }
    let words = create(&["--scope", "root"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(bench.run(&words).code, 64);
    let unknown = "key_019a0000-0000-7000-8000-000000000000";
    let text = bench.fails(65, "not_found", &["api-key", "revoke", unknown]);
    assert!(text.contains("hooklane api-key list"), "{text}");
}

#[tokio::test]
async fn what_is_done_at_the_command_line_is_audited() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    bench.ok(&["endpoint", "update", &endpoint, "--rate", "7"]);
    bench.ok(&["endpoint", "pause", &endpoint]);
    bench.ok(&["endpoint", "pause", &endpoint]);
    let log = bench.json(&["audit", "list", "--consumer", "acme"]);
    let entries = log["entries"].as_array().unwrap();
    let actions: Vec<_> = entries
        .iter()
        .map(|entry| entry["action"].clone())
        .collect();
    let expected = [
        "endpoint.pause",
        "endpoint.update",
        "endpoint.create",
        "consumer.create",
    ];
    assert_eq!(actions, expected);
    assert_eq!(entries[1]["actor"], "cli");
    assert_eq!(entries[1]["subject"], endpoint.as_str());
    assert_eq!(entries[1]["detail"], json!({ "changed": ["rate"] }));

    let page = bench.json(&["audit", "list", "--limit", "2"]);
    let next = page["next"].as_str().unwrap();
    let rest = bench.json(&["audit", "list", "--after", next, "--actor", "cli"]);
    assert_eq!(rest["entries"].as_array().unwrap().len(), 3);
    let one = bench.ok(&[
        "audit",
        "list",
        "--action",
        "event_type.create",
        "--since",
        "1h",
    ]);
    assert!(
        one.contains("invoice.paid") && !one.contains("acme"),
        "{one}"
    );
    assert_eq!(bench.run(&["audit", "list", "--actor", "me"]).code, 64);
    bench.fails(65, "not_found", &["audit", "list", "--consumer", "nobody"]);
}
