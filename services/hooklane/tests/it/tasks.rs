//! `hooklane task` and the commands that start one, without a scheduler.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::messages::accept;

/// What a message's only delivery came to.
async fn end(bench: &Bench, key: &str, status: &str) {
    let sql = format!(
        "UPDATE hooklane.deliveries SET status = '{status}', failure_reason = '{status}',
                settled_at = clock_timestamp()
          WHERE message_id = (SELECT id FROM hooklane.messages WHERE idempotency_key = '{key}')"
    );
    bench.database().psql(&sql).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_delivered_again_is_counted_and_nothing_is_done() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    let mut ids = Vec::new();
    for (key, status) in [
        ("one", "skipped"),
        ("two", "skipped"),
        ("three", "failed"),
        ("four", "sent"),
    ] {
        ids.push(accept(&bench, Some(key)).await.to_string());
        end(&bench, key, status).await;
    }
    let count = |args: &[&str]| bench.json(&[args, &["--dry-run"]].concat());
    let missing = ["endpoint", "replay-missing", &endpoint, "--since", "1h"];
    let expected =
        json!({"dry_run": true, "kind": "replay_missing", "found": 2, "due": 2, "refused": {}});
    assert_eq!(count(&missing), expected);
    let earlier = [&missing[..], &["--until", "30m"]].concat();
    assert_eq!(count(&earlier)["found"], 0);
    let recover = ["endpoint", "recover", &endpoint, "--since", "1h"];
    assert_eq!(count(&recover)["due"], 1);
    assert_eq!(count(&["message", "replay", &ids[3]])["due"], 1);
    let retry = count(&["delivery", "retry", &ids[3], &endpoint]);
    assert_eq!(
        (&retry["kind"], &retry["due"]),
        (&json!("retry"), &json!(1))
    );

    bench.ok(&["endpoint", "pause", &endpoint]);
    let text = bench.ok(&[&missing[..], &["--dry-run"]].concat());
    assert!(text.starts_with("0 of 2 would be delivered again\n2 refused (paused): "));
    assert!(text.contains("hooklane endpoint resume"), "{text}");
    let listed = bench.json(&["task", "list"]);
    assert_eq!(listed, json!({"tasks": [], "next": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_made_listed_shown_and_cancelled() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    let id = accept(&bench, Some("one")).await.to_string();
    end(&bench, "one", "skipped").await;
    let made = bench.json(&["endpoint", "replay-missing", &endpoint, "--since", "1h"]);
    for (name, expected) in [
        ("kind", json!("replay_missing")),
        ("consumer", json!("acme")),
        ("endpoint", json!(endpoint)),
        ("message", Value::Null),
        ("status", json!("waiting")),
        ("total", Value::Null),
        ("due", json!(0)),
        ("error", Value::Null),
    ] {
        assert_eq!(made[name], expected, "{name}");
    }
    // Until it begins, when every lane knows of a resume.
    let time = |name: &str| made[name].as_str().unwrap().parse().unwrap();
    let (until, created_at): (DateTime<Utc>, DateTime<Utc>) = (time("until"), time("created_at"));
    assert_eq!(until - created_at, TimeDelta::seconds(2));
    let task = made["id"].as_str().unwrap();
    assert!(task.starts_with("task_"), "{task}");
    assert_eq!(bench.json(&["task", "show", task]), made);

    let replay = bench.json(&["message", "replay", &id]);
    let listed = bench.json(&["task", "list", "--limit", "1"]);
    assert_eq!(listed["tasks"], json!([replay]));
    let next = listed["next"].as_str().unwrap();
    let rest = bench.json(&["task", "list", "--after", next]);
    assert_eq!(
        (&rest["tasks"], &rest["next"]),
        (&json!([made]), &Value::Null)
    );

    let cancelled = bench.json(&["task", "cancel", task]);
    assert_eq!(cancelled["status"], "cancelled");
    let text = bench.fails(65, "conflict", &["task", "cancel", task]);
    assert!(text.contains("ended already"), "{text}");
    let table = bench.ok(&["task", "list", "--status", "cancelled"]);
    assert!(
        table.contains(task) && !table.contains("waiting"),
        "{table}"
    );
    // Whoever waits for it is told how it ended.
    let watched = bench.run(&["--json", "task", "watch", task]);
    assert_eq!(watched.code, 65, "{watched:?}");
    assert_eq!(watched.error()["code"], "conflict");
    assert!(watched.stdout.contains("cancelled"), "{watched:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_delivered_again_is_refused_with_the_fix() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    let id = accept(&bench, Some("one")).await.to_string();
    let retry = ["delivery", "retry", &id, &endpoint];
    let text = bench.fails(65, "conflict", &retry);
    assert!(text.contains("under way"), "{text}");
    bench.ok(&["endpoint", "pause", &endpoint]);
    end(&bench, "one", "skipped").await;
    for command in [
        &retry[..],
        &["endpoint", "recover", &endpoint, "--since", "1h"],
        &["endpoint", "replay-missing", &endpoint, "--since", "1h"],
    ] {
        let text = bench.fails(65, "conflict", command);
        assert!(text.contains("hooklane endpoint resume"), "{text}");
    }
    bench.ok(&["endpoint", "resume", &endpoint]);
    let backwards = ["--since", "1h", "--until", "2h"];
    let recover = [&["endpoint", "recover", &endpoint][..], &backwards].concat();
    bench.fails(65, "invalid_data", &recover);
    let nobody = "ep_00000000-0000-7000-8000-000000000009";
    let unknown = ["endpoint", "recover", nobody, "--since", "1h"];
    bench.fails(65, "not_found", &unknown);
    bench.fails(65, "not_found", &["delivery", "retry", &id, nobody]);
    let nothing = "msg_00000000-0000-7000-8000-000000000009";
    bench.fails(65, "not_found", &["message", "replay", nothing]);
    let text = bench.fails(
        65,
        "not_found",
        &["task", "show", "task_00000000-0000-7000-8000-000000000009"],
    );
    assert!(text.contains("hooklane task list"), "{text}");
    // Without a time it would be everything.
    assert_eq!(bench.run(&["endpoint", "recover", &endpoint]).code, 64);
}
