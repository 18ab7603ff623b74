//! `hooklane consumer` and `hooklane event-type`.

use crate::bench::Bench;

#[tokio::test]
async fn consumers_are_added_listed_shown_and_rated() {
    let bench = Bench::ledger().await;
    let added = bench.json(&["consumer", "add", "acme", "--name", "Acme", "--rate", "20"]);
    assert_eq!(added["id"], "acme");
    assert_eq!(added["name"], "Acme");
    assert_eq!(added["default_rate"], 20);
    assert_eq!(added["endpoints"], 0);
    bench.ok(&["consumer", "add", "zeta"]);

    // Between them stands the one that is always there.
    let list = bench.json(&["consumer", "list"]);
    assert_eq!(list["consumers"][1]["id"], "hooklane");
    assert_eq!(list["consumers"][2]["id"], "zeta");
    assert_eq!(list["next"], serde_json::Value::Null);
    let page = bench.json(&["consumer", "list", "--limit", "1"]);
    assert_eq!(page["next"], "acme");
    let rest = bench.json(&["consumer", "list", "--limit", "1", "--after", "hooklane"]);
    assert_eq!(rest["consumers"][0]["id"], "zeta");
    assert_eq!(rest["next"], serde_json::Value::Null);

    let text = bench.ok(&["consumer", "show", "acme"]);
    assert!(text.contains("Acme") && text.contains("20"), "{text}");
    let rated = bench.json(&["consumer", "set-rate", "acme", "default"]);
    assert_eq!(rated["default_rate"], serde_json::Value::Null);
}

#[tokio::test]
async fn a_consumer_is_deleted_with_its_keys_once_it_has_no_endpoints() {
    let bench = Bench::ledger().await;
    bench.ok(&["consumer", "add", "acme"]);
    bench.ok(&["event-type", "add", "invoice.paid"]);
    let added = bench.json(&["endpoint", "add", "acme", "https://example.com/"]);
    let endpoint = added["endpoint"]["id"].as_str().unwrap();
    let create = ["api-key", "create", "--name", "shop", "--scope", "publish"];
    let key = bench.json(&[&create[..], &["--consumer", "acme"]].concat());
    let text = bench.fails(65, "conflict", &["consumer", "delete", "acme"]);
    assert!(text.contains("1 endpoint"), "{text}");
    bench.ok(&["endpoint", "delete", endpoint]);
    let deleted = bench.json(&["consumer", "delete", "acme"]);
    assert_eq!(deleted["id"], "acme");
    let revoked = serde_json::json!([key["api_key"]["id"]]);
    assert_eq!(deleted["revoked_keys"], revoked, "{key}");
    bench.fails(65, "not_found", &["consumer", "delete", "acme"]);
    bench.fails(65, "conflict", &["consumer", "delete", "hooklane"]);
    bench.ok(&["consumer", "add", "acme"]);
    let text = bench.ok(&["consumer", "delete", "acme"]);
    assert!(text.contains("deleted acme"), "{text}");
}

#[tokio::test]
async fn consumers_have_clear_refusals() {
    let bench = Bench::ledger().await;
    bench.ok(&["consumer", "add", "acme"]);
    bench.fails(65, "conflict", &["consumer", "add", "acme"]);
    bench.fails(
        65,
        "invalid_data",
        &["consumer", "add", "other", "--rate", "1001"],
    );
    let text = bench.fails(65, "not_found", &["consumer", "show", "nobody"]);
    assert!(text.contains("hooklane consumer list"), "{text}");
    bench.fails(65, "not_found", &["consumer", "set-rate", "nobody", "5"]);
    for bad in ["a.b", "a b", ""] {
        let answer = bench.run(&["consumer", "add", bad]);
        assert_eq!(answer.code, 64, "{answer:?}");
    }
}

#[tokio::test]
async fn a_schema_that_payloads_cant_be_held_against_is_refused() {
    let bench = Bench::ledger().await;
    for (schema, told) in [
        (r#"{"type": "nothing"}"#, "nothing"),
        (
            r#"{"$ref": "https://example.com/other.json"}"#,
            "within the schema",
        ),
    ] {
        let file = bench.file("schema.json", schema);
        let file = file.to_str().unwrap();
        let add = ["event-type", "add", "invoice.paid", "--schema", file];
        let text = bench.fails(65, "invalid_data", &add);
        assert!(text.contains(file) && text.contains(told), "{text}");
    }
    bench.fails(65, "not_found", &["event-type", "show", "invoice.paid"]);
}

#[tokio::test]
async fn event_types_keep_their_schema_as_it_was_written() {
    let bench = Bench::ledger().await;
    let schema = r#"{"type":"object","required":["z","a"],"properties":{"z":{},"a":{}}}"#;
    let file = bench.file("schema.json", schema);
    let file = file.to_str().unwrap();
    bench.ok(&[
        "event-type",
        "add",
        "invoice.paid",
        "--schema",
        file,
        "--description",
        "Paid",
    ]);
    let answer = bench.run(&["--json", "event-type", "show", "invoice.paid"]);
    assert!(answer.stdout.contains(schema), "{answer:?}");

    let marked = bench.json(&["event-type", "deprecate", "invoice.paid"]);
    assert_eq!(marked["deprecated"], true);
    let list = bench.ok(&["event-type", "list"]);
    assert!(list.contains("deprecated"), "{list}");
    let marked = bench.json(&["event-type", "deprecate", "invoice.paid", "--undo"]);
    assert_eq!(marked["deprecated"], false);
}

#[tokio::test]
async fn event_types_have_clear_refusals() {
    let bench = Bench::ledger().await;
    bench.ok(&["event-type", "add", "invoice.paid"]);
    bench.fails(65, "conflict", &["event-type", "add", "invoice.paid"]);
    bench.fails(65, "not_found", &["event-type", "show", "invoice.void"]);
    bench.fails(
        65,
        "not_found",
        &["event-type", "deprecate", "invoice.void"],
    );
    let file = bench.file("bad.json", "{");
    let args = [
        "event-type",
        "add",
        "a.b",
        "--example",
        file.to_str().unwrap(),
    ];
    let text = bench.fails(65, "invalid_data", &args);
    assert!(text.contains("not JSON"), "{text}");
    let answer = bench.run(&["event-type", "add", "a-b"]);
    assert_eq!(answer.code, 64, "{answer:?}");
}
