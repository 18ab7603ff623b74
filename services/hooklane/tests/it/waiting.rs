//! Events that no relay has taken yet, as an operator looks for them; and how outboxes stand.

use serde_json::Value;

use crate::bench::Bench;
use crate::messages::{accept, sql};

/// Two outboxes, the first of which is not as it is configured.
const SOURCES: &str = r#"
[[relay.sources]]
name = "broken"
columns = { consumer = "tenant", event_type = "kind", headers = "meta" }

[[relay.sources]]
name = "shop"
table = "public.shop_events"
on_published = "delete"
columns = { id = "no", order = "", consumer = "tenant", event_type = "kind", payload = "body", idempotency_key = "dedup", headers = "", created_at = "", processed_at = "" }
"#;

async fn two_outboxes() -> Bench {
    let bench = Bench::ledger().await;
    bench.file("hooklane.toml", SOURCES);
    sql(
        &bench,
        "CREATE TABLE public.shop_events (no bigint PRIMARY KEY, tenant text, kind text, body text, dedup text);
         INSERT INTO public.shop_events VALUES (41, 'acme', 'invoice.paid', '{}', 'order-41')",
    )
    .await;
    bench
}

#[tokio::test]
async fn an_event_that_no_relay_has_taken_is_found_by_its_key() {
    let bench = Bench::ledger().await;
    sql(
        &bench,
        "INSERT INTO hooklane.outbox_events (event_type, payload, consumer_id, idempotency_key)
         VALUES ('invoice.paid', '{}', 'acme', 'order-9')",
    )
    .await;
    for args in [&["order-9"][..], &["order-9", "--consumer", "acme"]] {
        let shown = bench.json(&[&["message", "show"], args].concat());
        assert_eq!(
            (&shown["found"], &shown["event_type"]),
            (&"pending".into(), &"invoice.paid".into())
        );
    }
    let text = bench.ok(&["message", "show", "order-9"]);
    assert!(text.contains("in the outbox since"), "{text}");
    for other in [&["order-8"][..], &["order-9", "--consumer", "other"]] {
        bench.fails(65, "not_found", &[&["message", "show"], other].concat());
    }
}

#[tokio::test]
async fn a_row_of_ones_own_table_is_found_beside_a_source_that_is_broken() {
    let bench = two_outboxes().await;
    for name in ["41", "shop:41", "order-41"] {
        let shown = bench.json(&["message", "show", name]);
        assert_eq!(
            (&shown["found"], &shown["consumer"], &shown["created_at"]),
            (&"pending".into(), &"acme".into(), &Value::Null),
            "{name}"
        );
    }
    let answer = bench.run(&["message", "show", "41"]);
    let note = "not looked for in `broken`";
    assert!(answer.stderr.contains(note), "{answer:?}");
}

#[tokio::test]
async fn an_event_that_merely_waits_is_not_to_be_requeued() {
    let bench = Bench::ledger().await;
    sql(
        &bench,
        "INSERT INTO hooklane.rejected_events (source, source_id, consumer_id, idempotency_key, payload, reason, detail, waiting_until)
         VALUES ('intake', '1764547200000000000:7', 'acme', 'order-10', '{}', 'unknown_consumer', 'nobody', now() + interval '5 min'),
                ('intake', '1764547200000000000:8', 'acme', 'intake:1764547200000000000:8', '{}', 'unknown_consumer', 'nobody', now() + interval '5 min')",
    )
    .await;
    for (name, number) in [
        ("order-10", 1),
        ("1764547200000000000:7", 1),
        ("1764547200000000000:8", 2),
        ("intake:1764547200000000000:8", 2),
    ] {
        let shown = bench.json(&["message", "show", name]);
        assert_eq!(
            (&shown["found"], &shown["number"]),
            (&"waiting".into(), &number.into()),
            "{name}"
        );
        assert!(shown["waiting_until"].is_string(), "{shown}");
        let text = bench.ok(&["message", "show", name]);
        assert!(
            text.contains("tried again by itself") && !text.contains("requeue"),
            "{text}"
        );
    }
    bench.ok(&["outbox", "requeue", "--all", "--waiting"]);
    let text = bench.ok(&["message", "show", "order-10"]);
    assert!(text.contains("about to try it again"), "{text}");
    sql(
        &bench,
        "UPDATE hooklane.rejected_events SET waiting_until = NULL, requeued_at = NULL",
    )
    .await;
    assert_eq!(
        bench.json(&["message", "show", "order-10"])["found"],
        "rejected"
    );
    let text = bench.ok(&["message", "show", "order-10"]);
    assert!(text.contains("hooklane outbox requeue 1"), "{text}");
}

#[tokio::test]
async fn a_tree_of_one_endpoint_says_nothing_of_narrowing_it() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    bench.ok(&["endpoint", "add", "acme", "https://example.com/second"]);
    let id = accept(&bench, None).await.to_string();
    let whole = bench.ok(&["message", "show", &id, "--limit", "1"]);
    assert!(whole.contains("1 deliveries more; narrow"), "{whole}");
    let one = bench.ok(&["message", "show", &id, "--endpoint", &endpoint]);
    assert!(
        one.contains(&endpoint) && !one.contains("narrow it"),
        "{one}"
    );
    let other = "ep_00000000-0000-7000-8000-000000000001";
    let none = bench.ok(&["message", "show", &id, "--endpoint", other]);
    assert!(
        none.contains(&format!("no delivery to {other}")) && none.contains("2 to others"),
        "{none}"
    );
}

#[tokio::test]
async fn a_source_that_is_broken_hides_none_of_the_others() {
    let bench = two_outboxes().await;
    let answer = bench.run(&["--json", "outbox", "status"]);
    assert_eq!(answer.code, 64, "{answer:?}");
    let status: Value = serde_json::from_str(&answer.stdout).unwrap();
    let sources = status["sources"].as_array().unwrap();
    let names: Vec<&str> = sources
        .iter()
        .map(|source| source["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["broken", "shop", "operational"]);
    assert_eq!(
        (&sources[0]["pending"], &sources[0]["error"]["code"]),
        (&Value::Null, &"config".into())
    );
    let problem = sources[0]["error"]["message"].as_str().unwrap();
    for key in ["columns.consumer", "columns.event_type", "columns.headers"] {
        assert!(problem.contains(key), "{problem}");
    }
    assert_eq!(sources[1]["pending"], 1);
    assert_eq!(
        (&sources[2]["pending"], &sources[2]["error"]),
        (&0.into(), &Value::Null)
    );
    let message = answer.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("`broken`"), "{message}");
    let text = bench.run(&["outbox", "status"]);
    assert!(
        text.stdout.contains("shop") && text.stderr.contains("columns.consumer"),
        "{text:?}"
    );
    let one = bench.json(&["outbox", "status", "--source", "operational"]);
    assert_eq!(one["sources"].as_array().unwrap().len(), 1);
    bench.json(&["outbox", "status", "--source", "shop"]);
}

#[tokio::test]
async fn a_source_that_cant_be_connected_to_names_its_own_key() {
    let bench = Bench::ledger().await;
    bench.file(
        "hooklane.toml",
        "[[relay.sources]]\nname = \"far\"\ndatabase_url = \"postgres://nobody@127.0.0.1:1/none\"\n",
    );
    let text = bench.fails(69, "postgres_unavailable", &["outbox", "status"]);
    assert!(
        text.contains("`far`") && text.contains("`database_url` of this source"),
        "{text}"
    );
    assert!(!text.contains("`database.url`"), "{text}");
}
