//! `hooklane task` and the commands that start one, without a scheduler.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_store::dead_letter::Terms;
use hooklane_testkit::postgres::Server as Postgres;
use hooklane_testkit::wait::until;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::messages::accept;
use crate::process::Process;
use crate::system::BUDGET;

/// No command here needs a scheduler: the test takes the steps of one.
async fn finish_tasks(bench: &Bench) {
    let store = bench.store().await;
    let terms = Terms {
        deadline: Duration::from_secs(48 * 3600),
        retention_days: 35,
    };
    until("the tasks to end", BUDGET, async || {
        while store.step_task(terms, 10).await.unwrap().is_some() {}
        let open = "SELECT count(*) FROM hooklane.tasks WHERE ended_at IS NULL";
        bench.database().psql(open).await.unwrap().trim() == "0"
    })
    .await
    .unwrap();
}

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
    let fix = format!("hooklane endpoint resume {endpoint}");
    assert!(text.contains(&fix), "{text}");
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
        ("moved_on", Value::Null),
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
    let text = bench.fails(65, "conflict", &["message", "replay", &id]);
    assert!(text.contains("hooklane endpoint resume"), "{text}");
    for command in [
        &retry[..],
        &["endpoint", "recover", &endpoint, "--since", "1h"],
        &["endpoint", "replay-missing", &endpoint, "--since", "1h"],
    ] {
        let text = bench.fails(65, "conflict", command);
        let fix = format!("hooklane endpoint resume {endpoint}");
        assert!(text.contains(&fix), "{text}");
    }
    bench.ok(&["endpoint", "resume", &endpoint]);
    let backwards = ["--since", "1h", "--until", "2h"];
    let recover = [&["endpoint", "recover", &endpoint][..], &backwards].concat();
    let text = bench.fails(64, "usage", &recover);
    assert!(text.contains("nothing is in between"), "{text}");
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

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_told_at_once_and_that_no_scheduler_runs() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    accept(&bench, Some("one")).await;
    end(&bench, "one", "skipped").await;
    let missing = ["endpoint", "replay-missing", &endpoint, "--since", "1h"];
    let waiting = [&["--json"], &missing[..], &["--wait"]].concat();
    let programs = Process::start(&bench, &waiting);
    programs.wait_for_log("{\"progress\":{", BUDGET).await;
    let task = bench.json(&["task", "list"])["tasks"][0].clone();
    let (id, log) = (task["id"].as_str().unwrap(), programs.log());
    let progress: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(progress["progress"], task);
    let peoples = Process::start(&bench, &["task", "watch", id]);
    peoples
        .wait_for_log(&format!("{id} is waiting"), BUDGET)
        .await;
    for process in [&programs, &peoples] {
        process.wait_for_log("hooklane schedule", BUDGET).await;
    }
    assert!(programs.log().contains("{\"note\":"), "{}", programs.log());

    // Everything that was asked for is refused.
    bench.ok(&["endpoint", "pause", &endpoint]);
    finish_tasks(&bench).await;
    let fix = format!("hooklane endpoint resume {endpoint}");
    for process in [programs, peoples] {
        let ended = process.wait(BUDGET).await;
        assert_eq!(ended.code, 65, "{ended:?}");
        assert!(ended.log.contains(&fix), "{ended:?}");
    }
    let unknown = "task_00000000-0000-7000-8000-000000000009";
    let text = bench.fails(65, "not_found", &["task", "watch", unknown]);
    assert!(!text.contains("by itself"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_told_what_another_task_was_quicker_with() {
    let bench = Bench::ledger().await;
    let endpoint = bench.endpoint();
    for key in ["one", "two"] {
        accept(&bench, Some(key)).await;
        end(&bench, key, "skipped").await;
    }
    let missing = ["endpoint", "replay-missing", &endpoint, "--since", "1h"];
    let ids = [0, 1].map(|_| bench.json(&missing)["id"].as_str().unwrap().to_owned());
    // Both begin before either of them goes on.
    let now = "UPDATE hooklane.tasks SET turn_at = clock_timestamp()";
    bench.database().psql(now).await.unwrap();
    finish_tasks(&bench).await;
    let moved = ids.each_ref().map(|id| {
        let task = bench.json(&["task", "watch", id]);
        assert_eq!(task["total"], 2, "{task}");
        task["moved_on"].as_u64().unwrap()
    });
    assert_eq!(moved.iter().sum::<u64>(), 2, "{moved:?}");
    let slower = ids
        .iter()
        .zip(moved)
        .find(|(_, moved)| *moved == 2)
        .unwrap();
    let text = bench.ok(&["task", "show", slower.0]);
    assert!(text.contains("2 moved on meanwhile"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_outlasts_a_restart_of_the_ledger_and_is_told_of_a_longer_absence() {
    let postgres = Postgres::start().await.unwrap();
    let mut bench = Bench::ledger().await;
    bench.on(postgres.empty().await.unwrap());
    bench.set("HOOKLANE__DATABASE__ACQUIRE_TIMEOUT", "1s");
    bench.ok(&["migrate"]);
    let endpoint = bench.endpoint();
    accept(&bench, Some("one")).await;
    end(&bench, "one", "failed").await;
    let made = bench.json(&["endpoint", "recover", &endpoint, "--since", "1h"]);
    let id = made["id"].as_str().unwrap();
    let (patient, late) = (
        Process::start(&bench, &["task", "watch", id]),
        Process::start(&bench, &["--json", "task", "watch", id]),
    );
    for process in [&patient, &late] {
        process.wait_for_log(id, BUDGET).await;
    }
    late.signal("STOP");
    postgres.stop().await.unwrap();
    patient.wait_for_log("asking again", BUDGET).await;
    postgres.restart().await.unwrap();
    patient.wait_for_log("answers again", BUDGET).await;
    finish_tasks(&bench).await;
    let ended = patient.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(!ended.log.contains("sqlx"), "{ended:?}");

    postgres.stop().await.unwrap();
    late.signal("CONT");
    let ended = late.wait(BUDGET * 2).await;
    assert_eq!(ended.code, 69, "{ended:?}");
    let again = format!("hooklane task watch {id}");
    assert!(ended.log.contains(&again), "{ended:?}");
    assert!(ended.log.contains("postgres_unavailable"), "{ended:?}");
    assert!(!ended.log.contains("sqlx"), "{ended:?}");
}
