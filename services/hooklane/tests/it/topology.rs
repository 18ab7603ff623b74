//! `hooklane nats` and `hooklane migrate`.

use hooklane_store::ledger;
use hooklane_testkit::nats::Server;
use serde_json::json;

use crate::bench::Bench;
use crate::process::{Process, free_address};
use crate::system::{BUDGET, ready, system};

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_shown_before_they_are_made() {
    let server = Server::start().await.unwrap();
    let mut bench = Bench::ledger().await;
    bench.set("NATS_URL", server.url());
    let shown = bench.run(&["nats", "apply"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.stderr.contains("+ stream EVENTS"), "{shown:?}");
    assert!(shown.stdout.contains("not applied"), "{shown:?}");
    let planned = bench.json(&["nats", "apply"]);
    assert_eq!(planned["applied"], false);

    let missing = bench.fails(65, "topology_drift", &["nats", "apply", "--check"]);
    assert!(missing.contains("hooklane nats apply"), "{missing}");

    let applied = bench.json(&["nats", "apply", "--yes"]);
    assert_eq!(applied["applied"], true);
    assert_eq!(applied["changes"], planned["changes"]);
    let again = bench.json(&["nats", "apply"]);
    assert_eq!(again["changes"], json!([]));

    let sound = bench.json(&["nats", "apply", "--check"]);
    assert_eq!(sound, json!({ "changes": [], "applied": false }));

    bench.set("HOOKLANE__NATS__STREAM_SIZE_PERCENT", "50");
    let drift = bench.run(&["--json", "nats", "apply", "--check"]);
    assert_eq!(drift.code, 65, "{drift:?}");
    assert!(drift.stdout.contains("max_bytes"), "{drift:?}");
    let changed = bench.json(&["nats", "apply"]);
    let change = &changed["changes"][0];
    assert_eq!(change["kind"], "update", "{changed}");
    assert!(
        change["diff"][0].as_str().unwrap().contains("max_bytes"),
        "{changed}"
    );
    bench.set("HOOKLANE__NATS__PARTITIONS", "4");
    let text = bench.fails(64, "topology_conflict", &["nats", "apply", "--yes"]);
    assert!(text.contains("EVENTS"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_broker_serves_one_ledger() {
    let (bench, nats, health) = system().await;
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    let mut other = Bench::ledger().await;
    other.set("NATS_URL", nats.url());
    other.set("HOOKLANE__NATS__PARTITIONS", "2");
    other.set("HOOKLANE__HEALTH__LISTEN", free_address());
    for refused in [
        ["up"].as_slice(),
        &["dispatch"],
        &["relay", "--once"],
        &["nats", "apply", "--yes"],
    ] {
        let text = other.fails(64, "topology_conflict", refused);
        assert!(text.contains("stream INTAKE"), "{text}");
        assert!(text.contains("hooklane nats apply --adopt"), "{text}");
    }
    up.signal("TERM");
    assert_eq!(up.wait(BUDGET).await.code, 0);
    // The same ledger starts again.
    bench.ok(&["relay", "--once"]);

    // A ledger that takes the other one's place takes its streams over.
    let planned = other.json(&["nats", "apply", "--adopt"]);
    assert_eq!(planned["applied"], false);
    let change = planned["changes"][0].to_string();
    assert!(change.contains("metadata.hooklane_ledger"), "{planned}");
    other.ok(&["nats", "apply", "--adopt", "--yes"]);
    other.ok(&["relay", "--once"]);
    bench.fails(64, "topology_conflict", &["relay", "--once"]);
}

#[tokio::test]
async fn a_copy_of_a_ledger_is_another_ledger() {
    let (bench, copy) = (Bench::ledger().await, Bench::ledger().await);
    let id = "UPDATE hooklane.ledger SET id = '0190163d-8694-739b-aea5-966c26f8ad91'";
    for bench in [&bench, &copy] {
        bench.database().psql(id).await.unwrap();
    }
    let (store, copied) = (bench.store().await, copy.store().await);
    let id = ledger::id(&store).await.unwrap();
    assert_eq!(ledger::id(&store).await.unwrap(), id);
    assert_ne!(ledger::id(&copied).await.unwrap(), id);
}

#[tokio::test]
async fn an_absent_broker_is_a_service_that_is_unavailable() {
    let mut bench = Bench::ledger().await;
    bench.set("NATS_URL", "nats://canary@127.0.0.1:1");
    bench.set("HOOKLANE__NATS__CONNECT_TIMEOUT", "1s");
    let text = bench.fails(69, "nats_unavailable", &["nats", "apply"]);
    assert!(!text.contains("canary"), "{text}");
}

#[tokio::test]
async fn migrating_makes_the_schema_and_can_be_repeated() {
    let database = hooklane_testkit::postgres::Server::shared()
        .await
        .unwrap()
        .empty()
        .await
        .unwrap();
    let mut bench = Bench::bare();
    bench.set("DATABASE_URL", database.url());
    let text = bench.fails(69, "schema_outdated", &["consumer", "list"]);
    assert!(text.contains("hooklane migrate"), "{text}");
    assert_eq!(bench.json(&["migrate"])["migrated"], true);
    assert_eq!(bench.json(&["migrate"])["migrated"], true);
    let consumers = bench.json(&["consumer", "list"])["consumers"].clone();
    assert_eq!(consumers.as_array().map(Vec::len), Some(1), "{consumers}");
    assert_eq!(consumers[0]["id"], "hooklane");
}
