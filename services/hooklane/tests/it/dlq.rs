//! `hooklane dlq`: what failed for good, as an operator lists, shows, replays and discards it.

use std::os::unix::fs::PermissionsExt as _;

use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_testkit::wait::until;
use hooklane_testkit::{Receiver, Reply};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::messages::accept;
use crate::process::Process;
use crate::system::{BUDGET, add_endpoint, ready, status_of, system, write_row};

/// The ledger has a message's delivery as failed.
async fn fail(bench: &Bench, message: &str, reason: &str) {
    let sql = format!(
        "UPDATE hooklane.deliveries SET status = 'failed', failure_reason = '{reason}',
                last_status = 500, attempt_count = 8, counted = 8, settled_at = clock_timestamp()
          WHERE message_id = (SELECT id FROM hooklane.messages WHERE idempotency_key = '{message}')"
    );
    bench.database().psql(&sql).await.unwrap();
}

/// A broker that is not there, which no command here needs.
fn without_broker(bench: &mut Bench) {
    bench.set("NATS_URL", "nats://127.0.0.1:1");
    bench.set("HOOKLANE__NATS__CONNECT_TIMEOUT", "100ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ran_out_of_retries_is_replayed_once_under_the_same_id() {
    let (mut bench, _nats, health) = system().await;
    bench.set("HOOKLANE__RETRY__DELAYS", r#"["50ms"]"#);
    bench.set("HOOKLANE__RETRY__JITTER", "0");
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(500));
    let (endpoint, _) = add_endpoint(&bench, &receiver.url("/hook"));
    let _up = Process::start(&bench, &["up"]);
    ready(&health).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(write_row(&bench).await);
    }
    let list = || bench.json(&["dlq", "list", "--consumer", "acme"]);
    until("three dead letters in the stream", BUDGET, || async {
        let listed = list();
        let letters = listed["dead_letters"].as_array().unwrap();
        letters.len() == 3 && letters.iter().all(|l| l["dead_lettered_at"].is_string())
    })
    .await
    .unwrap();
    let first = &list()["dead_letters"][0];
    assert_eq!(first["reason"], "exhausted");
    assert_eq!(first["attempts"], 2);
    assert_eq!(first["last_status"], 500);
    assert_eq!(first["endpoint"], endpoint.as_str());

    let would = bench.json(&["dlq", "replay", "--endpoint", &endpoint, "--dry-run"]);
    assert_eq!(
        (&would["replayed"], &would["dry_run"]),
        (&json!(3), &json!(true))
    );
    assert_eq!(status_of(&bench, &ids[0]).await, "failed");

    receiver.fallback(Reply::status(204));
    let replayed = bench.json(&["dlq", "replay", "--reason", "exhausted"]);
    assert_eq!(replayed["replayed"], 3, "{replayed}");
    assert_eq!(replayed["removed"], 3, "{replayed}");
    for id in &ids {
        until("the replay to arrive", BUDGET, || async {
            status_of(&bench, id).await == "sent"
        })
        .await
        .unwrap();
        let shown = bench.json(&["message", "show", id]);
        let tries = shown["messages"][0]["deliveries"][0]["tries"]
            .as_array()
            .unwrap()
            .clone();
        let of = |name: &str| {
            tries
                .iter()
                .map(|t| t[name].clone())
                .collect::<Vec<Value>>()
        };
        let mut series = of("series");
        series.sort_by_key(Value::as_i64);
        assert_eq!(series, [json!(1), json!(1), json!(2)]);
        let mut numbers = of("number");
        numbers.sort_by_key(Value::as_i64);
        assert_eq!(numbers, [json!(1), json!(2), json!(3)]);
    }
    let requests = receiver.requests();
    assert_eq!(requests.len(), 9);
    let mut seen: Vec<&str> = requests
        .iter()
        .filter_map(|r| r.header("webhook-id"))
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 3, "the webhook-id stays");
    assert_eq!(list()["dead_letters"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_shown_exported_and_discarded() {
    let mut bench = Bench::ledger().await;
    without_broker(&mut bench);
    bench.endpoint();
    let mut ids = Vec::new();
    for key in ["one", "two", "three"] {
        ids.push(accept(&bench, Some(key)).await.to_string());
        fail(
            &bench,
            key,
            if key == "two" { "poison" } else { "exhausted" },
        )
        .await;
    }
    let shown = bench.ok(&["dlq", "show", &ids[0]]);
    assert!(
        shown.contains("exhausted") && shown.contains("{\"n\":  1}"),
        "{shown}"
    );
    let table = bench.ok(&["dlq", "list", "--limit", "2"]);
    assert!(
        table.contains(&ids[2]) && !table.contains(&ids[0]),
        "{table}"
    );
    let page = bench.json(&["dlq", "list", "--limit", "2"]);
    let next = page["next"].as_str().unwrap();
    let rest = bench.json(&["dlq", "list", "--after", next]);
    assert_eq!(rest["dead_letters"][0]["message"], ids[0].as_str());
    assert_eq!(rest["next"], Value::Null);

    let lines = bench.ok(&["dlq", "export", "--since", "1h"]);
    let exported: Vec<Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let found: Vec<&str> = exported
        .iter()
        .filter_map(|l| l["message"].as_str())
        .collect();
    assert_eq!(found, ids);
    assert_eq!(exported[0]["payload"], "{\"n\":  1}");
    let listed = bench.json(&["dlq", "list"])["dead_letters"][2].clone();
    for (field, value) in listed.as_object().unwrap() {
        assert_eq!(&exported[0][field], value, "{field}");
    }
    let file = bench.dir().join("letters.jsonl");
    let path = file.to_str().unwrap();
    let export = ["dlq", "export", "--reason", "poison", "--output", path];
    assert_eq!(bench.json(&export)["exported"], 1);
    let once = std::fs::read_to_string(&file).unwrap();
    assert!(once.contains(&ids[1]));
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "payloads are their owner's alone");
    let all = ["dlq", "export", "--output", path];
    let refused = bench.fails(65, "conflict", &all);
    assert!(refused.contains("--force"), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), once);
    assert_eq!(
        bench.json(&[&all[..], &["--force"]].concat())["exported"],
        3
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), lines);

    let would = bench.json(&["dlq", "discard", "--reason", "poison", "--dry-run"]);
    assert_eq!(would["discarded"], 1);
    let done = bench.json(&["dlq", "discard", "--reason", "poison"]);
    assert_eq!(
        (&done["discarded"], &done["removed"]),
        (&json!(1), &json!(0))
    );
    let left = bench.json(&["dlq", "list"]);
    assert_eq!(left["dead_letters"].as_array().unwrap().len(), 2);
    bench.fails(65, "not_found", &["dlq", "show", &ids[1]]);
    bench.fails(65, "not_found", &["dlq", "discard", &ids[1]]);
    let shown = bench.json(&["message", "show", &ids[1]]);
    assert_eq!(shown["messages"][0]["deliveries"][0]["status"], "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_cannot_be_is_refused_with_the_reason() {
    let mut bench = Bench::ledger().await;
    without_broker(&mut bench);
    let endpoint = bench.endpoint();
    let id = accept(&bench, Some("one")).await.to_string();
    fail(&bench, "one", "exhausted").await;
    for everything in ["replay", "discard"] {
        bench.fails(64, "usage", &["dlq", everything]);
    }
    bench.ok(&["endpoint", "pause", &endpoint]);
    let text = bench.fails(65, "conflict", &["dlq", "replay", &id]);
    assert!(text.contains("paused"), "{text}");
    let fix = format!("hooklane endpoint resume {endpoint}");
    assert!(text.contains(&fix), "{text}");
    let refused = bench.run(&["--json", "dlq", "replay", "--all"]);
    assert_eq!(
        (refused.code, &refused.error()["code"]),
        (65, &json!("conflict"))
    );
    let all: Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!(
        (&all["replayed"], &all["refused"]),
        (&json!(0), &json!({"paused": 1}))
    );
    assert_eq!(all["refusals"][0]["message"], id.as_str());
    // To count is what a dry run is for.
    let would = bench.json(&["dlq", "replay", "--all", "--dry-run"]);
    assert_eq!(would["refused"], json!({"paused": 1}));
    bench.ok(&["endpoint", "resume", &endpoint]);

    let old = clock::now() - TimeDelta::days(20);
    bench.store().await.ensure_days([old]).await.unwrap();
    for table in ["messages", "deliveries"] {
        let age =
            format!("UPDATE hooklane.{table} SET accepted_at = accepted_at - interval '20 days'");
        bench.database().psql(&age).await.unwrap();
    }
    bench.set("HOOKLANE__RECORDER__RETENTION_DAYS", "20");
    let text = bench.fails(65, "conflict", &["dlq", "replay", &id]);
    assert!(text.contains("expire"), "{text}");
    bench.unset("HOOKLANE__RECORDER__RETENTION_DAYS");
    assert_eq!(bench.json(&["dlq", "replay", &id])["replayed"], 1);
    bench.fails(65, "not_found", &["dlq", "replay", &id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_refused_is_counted_and_the_rest_is_replayed() {
    let mut bench = Bench::ledger().await;
    without_broker(&mut bench);
    let endpoint = bench.endpoint();
    bench.ok(&["endpoint", "add", "acme", "https://example.com/second"]);
    accept(&bench, Some("one")).await;
    fail(&bench, "one", "exhausted").await;
    bench.ok(&["endpoint", "pause", &endpoint]);
    let replayed = bench.json(&["dlq", "replay", "--all"]);
    assert_eq!(
        (&replayed["replayed"], &replayed["refused"]),
        (&json!(1), &json!({"paused": 1}))
    );
    let left = bench.run(&["dlq", "replay", "--all", "--dry-run"]);
    let fix = format!("hooklane endpoint resume {endpoint}");
    assert!(left.stdout.contains(&fix), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slip_of_the_hand_is_told_from_a_search_that_finds_nothing() {
    let mut bench = Bench::ledger().await;
    without_broker(&mut bench);
    let endpoint = bench.endpoint();
    let nobody = "ep_00000000-0000-7000-8000-000000000009";
    let lists = [&["dlq", "list"][..], &["delivery", "list"]];
    let acts = [
        &["dlq", "replay"][..],
        &["dlq", "discard"],
        &["dlq", "export"],
    ];
    for command in lists.iter().chain(&acts) {
        for unknown in [["--consumer", "acne"], ["--endpoint", nobody]] {
            let text = bench.fails(65, "not_found", &[*command, &unknown[..]].concat());
            assert!(text.contains(unknown[1]), "{text}");
        }
        let to_come = ["--since", "2999-01-01T00:00:00Z"];
        bench.fails(64, "usage", &[*command, &to_come[..]].concat());
        bench.ok(&[*command, &["--endpoint", &endpoint, "--since", "-1h"][..]].concat());
    }
    for command in acts.iter().chain(&lists[..1]) {
        let typo = ["--event-type", "invoice.payed"];
        bench.fails(65, "not_found", &[*command, &typo[..]].concat());
        let backwards = ["--since", "1h", "--until", "2h"];
        let text = bench.fails(64, "usage", &[*command, &backwards[..]].concat());
        assert!(text.contains("nothing is in between"), "{text}");
    }
    // Where there is nothing to remove from the stream, nobody misses it.
    let nothing = bench.run(&["dlq", "replay", "--all"]);
    assert_eq!(
        (
            nothing.code,
            nothing.stdout.as_str(),
            nothing.stderr.as_str()
        ),
        (0, "0 replayed\n", "")
    );
}
