//! `hooklane endpoint`: settings, states, secrets.

use serde_json::{Value, json};

use crate::bench::Bench;

#[tokio::test]
async fn an_endpoint_has_its_settings_and_shows_its_secret_once() {
    let bench = Bench::ledger().await;
    bench.ok(&["consumer", "add", "acme"]);
    bench.ok(&["event-type", "add", "invoice.paid"]);
    let headers = bench.file("headers", "Authorization: canary\nX-Tenant: 7\n");
    let args = [
        "endpoint",
        "add",
        "acme",
        "https://example.com/hook?x=1",
        "--event-type",
        "invoice.paid",
        "--event-type",
        "ticket.*",
        "--rate",
        "20",
        "--burst",
        "40",
        "--concurrency",
        "4",
        "--timeout",
        "5s",
        "--description",
        "billing",
        "--header-file",
        headers.to_str().unwrap(),
    ];
    let added = bench.run(&[&["--json"][..], &args].concat());
    assert!(!added.stdout.contains("canary"), "{added:?}");
    let added = added.json();
    let endpoint = &added["endpoint"];
    assert_eq!(endpoint["event_types"], json!(["ticket.*", "invoice.paid"]));
    assert_eq!(endpoint["rate"], 20);
    assert_eq!(endpoint["burst"], 40);
    assert_eq!(endpoint["concurrency"], 4);
    assert_eq!(endpoint["timeout_ms"], 5000);
    assert_eq!(endpoint["custom_headers"], true);
    assert_eq!(endpoint["state"], "active");
    assert_eq!(added["warnings"][0], "no event type matches ticket.* yet");
    let secret = added["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_"));

    let id = endpoint["id"].as_str().unwrap();
    let shown = bench.ok(&["endpoint", "show", id]);
    assert!(
        shown.contains("billing") && !shown.contains("whsec_"),
        "{shown}"
    );
    let listed = bench.json(&["endpoint", "list", "--consumer", "acme"]);
    assert_eq!(listed["endpoints"][0]["id"], id);
    let revealed = bench.json(&["endpoint", "reveal", id]);
    assert_eq!(revealed["secrets"][0]["secret"], secret);
    assert_eq!(bench.json(&["consumer", "show", "acme"])["endpoints"], 1);
    // At rest neither the secret nor the header can be read.
    let rows = bench
        .database()
        .psql("SELECT encode(sealed, 'escape') FROM hooklane.endpoint_secrets UNION ALL SELECT encode(headers, 'escape') FROM hooklane.endpoints")
        .await
        .unwrap();
    assert!(
        !rows.contains("canary") && !rows.contains(&secret[6..]),
        "{rows}"
    );
}

#[tokio::test]
async fn what_can_not_be_is_refused() {
    let bench = Bench::ledger().await;
    bench.ok(&["consumer", "add", "acme"]);
    let add = |more: &[&'static str]| {
        [&["endpoint", "add", "acme", "https://example.com/"], more].concat()
    };
    let text = bench.fails(65, "not_found", &add(&["--event-type", "invoice.paid"]));
    assert!(text.contains("hooklane event-type add"), "{text}");
    bench.fails(65, "invalid_data", &add(&["--event-type", "in*"]));
    bench.fails(65, "invalid_data", &add(&["--header", "webhook-id: 1"]));
    let text = bench.fails(65, "invalid_data", &add(&["--header", "canary"]));
    assert!(!text.contains("canary"), "{text}");
    bench.fails(65, "invalid_data", &add(&["--concurrency", "257"]));
    bench.fails(65, "invalid_data", &add(&["--timeout", "61s"]));
    bench.fails(
        65,
        "forbidden_address",
        &["endpoint", "add", "acme", "https://10.0.0.1/"],
    );
    bench.fails(
        65,
        "not_found",
        &["endpoint", "add", "nobody", "https://example.com/"],
    );
    let nobody = "ep_00000000-0000-7000-8000-000000000001";
    for command in ["show", "pause", "resume", "delete", "rotate", "reveal"] {
        bench.fails(65, "not_found", &["endpoint", command, nobody]);
    }
    bench.fails(
        65,
        "not_found",
        &["endpoint", "update", nobody, "--rate", "5"],
    );
    let text = bench.fails(65, "not_found", &["endpoint", "list", "--consumer", "nope"]);
    assert!(text.contains("there is no consumer `nope`"), "{text}");
    assert_eq!(bench.json(&["endpoint", "list"])["endpoints"], json!([]));
}

#[tokio::test]
async fn an_update_changes_what_is_named_and_nothing_else() {
    let bench = Bench::ledger().await;
    let id = bench.endpoint();
    let before = bench.json(&["endpoint", "show", &id]);
    let text = bench.fails(64, "usage", &["endpoint", "update", &id]);
    assert!(text.contains("nothing to change"), "{text}");
    assert_eq!(bench.json(&["endpoint", "show", &id]), before);
    let args = [
        "endpoint", "update", &id, "--rate", "none", "--header", "X-A: b",
    ];
    let after = bench.json(&args)["endpoint"].clone();
    assert_eq!(after["unlimited"], true);
    assert_eq!(after["custom_headers"], true);
    assert!(after["version"].as_i64() > before["version"].as_i64());
    for same in [
        "url",
        "event_types",
        "concurrency",
        "timeout_ms",
        "description",
        "state",
    ] {
        assert_eq!(after[same], before[same], "{same}");
    }
    let args = [
        "endpoint",
        "update",
        &id,
        "--rate",
        "default",
        "--no-headers",
        "--url",
        "https://example.org/",
        "--event-type",
        "invoice.paid",
    ];
    let after = bench.json(&args)["endpoint"].clone();
    assert_eq!(
        (&after["unlimited"], &after["rate"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(after["custom_headers"], false);
    assert_eq!(after["url"], "https://example.org/");
    assert_eq!(after["event_types"], json!(["invoice.paid"]));
    bench.fails(
        65,
        "forbidden_address",
        &["endpoint", "update", &id, "--url", "https://10.0.0.1/"],
    );
}

#[tokio::test]
async fn auto_disable_is_the_deployments_unless_an_endpoint_says_otherwise() {
    let bench = Bench::ledger().await;
    let id = bench.endpoint();
    let shown = bench.json(&["endpoint", "show", &id]);
    assert_eq!(shown["auto_disable"], Value::Null);
    assert_eq!(shown["failures_24h"], 0);
    for (word, expected) in [
        ("on", json!(true)),
        ("off", json!(false)),
        ("default", Value::Null),
    ] {
        let args = ["endpoint", "update", &id, "--auto-disable", word];
        assert_eq!(bench.json(&args)["endpoint"]["auto_disable"], expected);
        // Another setting leaves it.
        let args = ["endpoint", "update", &id, "--rate", "5"];
        assert_eq!(bench.json(&args)["endpoint"]["auto_disable"], expected);
    }
    let args = [
        "endpoint",
        "add",
        "acme",
        "https://example.com/",
        "--auto-disable",
        "on",
    ];
    assert_eq!(bench.json(&args)["endpoint"]["auto_disable"], true);
    let answer = bench.run(&["endpoint", "update", &id, "--auto-disable", "maybe"]);
    assert_eq!(answer.code, 64, "{answer:?}");
}

#[tokio::test]
async fn the_built_in_consumer_is_there_and_takes_endpoints_of_operational_events() {
    let bench = Bench::ledger().await;
    bench.fails(65, "conflict", &["consumer", "add", "hooklane"]);
    bench.fails(65, "invalid_data", &["event-type", "add", "hooklane.mine"]);
    let add = |filter: &'static str| {
        let to = [
            "endpoint",
            "add",
            "hooklane",
            "https://example.com/",
            "--event-type",
            filter,
        ];
        bench.json(&to)
    };
    let added = add("hooklane.endpoint.disabled");
    assert_eq!(added["warnings"], json!([]));
    let added = add("hooklane.delivery.*");
    assert_eq!(added["warnings"], json!([]));
}

#[tokio::test]
async fn states_follow_pause_resume_and_delete() {
    let bench = Bench::ledger().await;
    let id = bench.endpoint();
    let paused = bench.json(&["endpoint", "pause", &id]);
    assert_eq!(paused["endpoint"]["state"], "paused");
    assert_eq!(paused["changed"], true);
    let again = bench.json(&["endpoint", "pause", &id]);
    assert_eq!(again["changed"], false);
    assert_eq!(again["endpoint"]["version"], paused["endpoint"]["version"]);
    let listed = bench.json(&["endpoint", "list", "--state", "paused"]);
    assert_eq!(listed["endpoints"][0]["id"], *id);
    assert_eq!(bench.json(&["endpoint", "resume", &id])["state"], "active");

    bench
        .database()
        .psql(
            "UPDATE hooklane.endpoints SET state = 'disabled';
             UPDATE hooklane.endpoint_health
                SET consecutive_failures = 100, failing_since = now(), last_failure_at = now()",
        )
        .await
        .unwrap();
    bench.fails(65, "conflict", &["endpoint", "pause", &id]);
    let resumed = bench.json(&["endpoint", "resume", &id]);
    assert_eq!(resumed["state"], "active");
    assert_eq!(resumed["consecutive_failures"], 0);
    assert_eq!(resumed["failing_since"], Value::Null);

    let deleted = bench.json(&["endpoint", "delete", &id]);
    assert_eq!(deleted["endpoint"]["state"], "deleted");
    assert_eq!(bench.json(&["endpoint", "delete", &id])["changed"], false);
    assert_eq!(bench.json(&["endpoint", "list"])["endpoints"], json!([]));
    for command in ["pause", "resume", "rotate", "reveal"] {
        let text = bench.fails(65, "conflict", &["endpoint", command, &id]);
        assert!(text.contains("deleted"), "{text}");
    }
    let kept = bench
        .database()
        .psql("SELECT count(*) FROM hooklane.endpoint_secrets")
        .await
        .unwrap();
    assert_eq!(kept.trim(), "0");
}

#[tokio::test]
async fn a_rotated_secret_signs_along_for_its_grace() {
    let bench = Bench::ledger().await;
    let id = bench.endpoint();
    let first = bench.json(&["endpoint", "reveal", &id])["secrets"][0]["secret"].clone();
    let rotated = bench.json(&["endpoint", "rotate", &id]);
    assert_ne!(rotated["secret"], first);
    let until = rotated["old_secret_until"].as_str().unwrap();
    let until = chrono::DateTime::parse_from_rfc3339(until)
        .unwrap()
        .to_utc();
    let left = until - hooklane_core::clock::now();
    assert!((23..=24).contains(&left.num_hours()), "{left}");
    let secrets = bench.json(&["endpoint", "reveal", &id])["secrets"].clone();
    assert_eq!(secrets[0]["secret"], rotated["secret"]);
    assert_eq!(secrets[1]["secret"], first);

    // One that leaked ends at once, and every one before it.
    let file = bench.file("secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
    let args = [
        "endpoint",
        "rotate",
        &id,
        "--grace",
        "0s",
        "--secret-file",
        file.to_str().unwrap(),
    ];
    let rotated = bench.json(&args);
    assert_eq!(rotated["old_secret_until"], Value::Null);
    let secrets = bench.json(&["endpoint", "reveal", &id])["secrets"].clone();
    assert_eq!(secrets.as_array().unwrap().len(), 1, "{secrets}");
    assert_eq!(
        secrets[0]["secret"],
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    );
}

#[tokio::test]
async fn secrets_that_sign_along_are_bounded() {
    let bench = Bench::ledger().await;
    let id = bench.endpoint();
    for _ in 1..8 {
        bench.ok(&["endpoint", "rotate", &id]);
    }
    let text = bench.fails(65, "limit_exceeded", &["endpoint", "rotate", &id]);
    assert!(text.contains("--grace 0s"), "{text}");
    bench.ok(&["endpoint", "rotate", &id, "--grace", "0s"]);
}

#[tokio::test]
async fn an_old_secret_signs_along_for_a_month_at_the_most() {
    let bench = Bench::ledger().await;
    let id = bench.endpoint();
    for grace in ["31days", "99999years"] {
        let text = bench.fails(64, "usage", &["endpoint", "rotate", &id, "--grace", grace]);
        assert!(text.contains("30days"), "{text}");
    }
    let rotated = bench.json(&["endpoint", "rotate", &id, "--grace", "30days"]);
    let until = rotated["old_secret_until"].as_str().unwrap();
    let until = chrono::DateTime::parse_from_rfc3339(until).unwrap();
    let left = until.to_utc() - hooklane_core::clock::now();
    assert!((29..=30).contains(&left.num_days()), "{left}");
}

#[tokio::test]
async fn deprecated_types_are_warned_of() {
    let bench = Bench::ledger().await;
    bench.ok(&["consumer", "add", "acme"]);
    bench.ok(&["event-type", "add", "invoice.paid"]);
    bench.ok(&["event-type", "deprecate", "invoice.paid"]);
    let args = [
        "endpoint",
        "add",
        "acme",
        "https://example.com/",
        "--event-type",
        "invoice.paid",
    ];
    let answer = bench.run(&args);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(
        answer
            .stderr
            .contains("warning: the event type invoice.paid is deprecated")
    );
}

#[tokio::test]
async fn a_consumers_rate_reaches_the_endpoints_without_their_own() {
    let bench = Bench::ledger().await;
    let id = bench.endpoint();
    let own = bench.json(&[
        "endpoint",
        "add",
        "acme",
        "https://example.com/",
        "--rate",
        "7",
    ]);
    let own = own["endpoint"].clone();
    let version = |id: &str| bench.json(&["endpoint", "show", id])["version"].as_i64();
    let before = version(&id);
    bench.ok(&["consumer", "set-rate", "acme", "9"]);
    assert!(version(&id) > before);
    assert_eq!(
        version(own["id"].as_str().unwrap()),
        own["version"].as_i64()
    );
}

#[tokio::test]
async fn a_consumer_has_at_most_ten_thousand_endpoints() {
    let bench = Bench::ledger().await;
    let id = bench.endpoint();
    bench
        .database()
        .psql(
            "INSERT INTO hooklane.endpoints (id, consumer_id, url, filters)
             SELECT gen_random_uuid(), 'acme', 'https://example.com/', '{*}' FROM generate_series(2, 10000)",
        )
        .await
        .unwrap();
    let add = ["endpoint", "add", "acme", "https://example.com/"];
    bench.fails(65, "limit_exceeded", &add);
    bench.ok(&["endpoint", "delete", &id]);
    bench.ok(&add);
}

#[tokio::test]
async fn a_customer_can_bring_a_secret() {
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let bench = Bench::ledger().await;
    bench.ok(&["consumer", "add", "acme"]);
    let add = [
        "--json",
        "endpoint",
        "add",
        "acme",
        "https://example.com/",
        "--secret-file",
        "-",
    ];
    let added = bench.feed(&add, SECRET.as_bytes()).json();
    assert_eq!(added["secret"], SECRET);
    let id = added["endpoint"]["id"].as_str().unwrap();
    assert_eq!(
        bench.json(&["endpoint", "reveal", id])["secrets"][0]["secret"],
        SECRET
    );
    let refused = bench.feed(&add, b"canary");
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(!refused.stderr.contains("canary"), "{refused:?}");
}
