//! An endpoint was paused and missed a great deal; the replay of it is killed in the middle.

use std::collections::HashMap;
use std::time::Duration;

use hooklane_nats::Client;
use hooklane_proto::id::MessageId;
use hooklane_store::audit;
use hooklane_testkit::Reply;
use hooklane_testkit::wait::until;
use serde_json::json;

use super::receiver;
use crate::bench::Bench;
use crate::process::Process;
use crate::system::{BUDGET, add_endpoint, count, ready, system, write_rows};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_missed_is_driven_once_although_its_task_is_killed_in_the_middle() {
    // The endpoint is slower than the task, so that the kill finds attempts under way.
    let figures =
        replayed_through_a_kill(3_000, Duration::from_millis(150), Duration::from_secs(60)).await;
    println!("{figures}");
}

/// In numbers that take minutes; best with `--release`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn a_hundred_thousand_missed_are_driven_once_although_their_task_is_killed_in_the_middle() {
    let figures =
        replayed_through_a_kill(100_000, Duration::from_millis(30), Duration::from_secs(600)).await;
    println!("{figures}");
}

async fn replayed_through_a_kill(events: u64, answer_after: Duration, budget: Duration) -> String {
    let (mut bench, nats, health) = system().await;
    // A task takes long enough to be caught in the middle.
    let rows = (events / 30).to_string();
    bench.set("HOOKLANE__SCHEDULER__ROWS_AT_ONCE", rows);
    bench.set("HOOKLANE__SCHEDULER__TASK_PAUSE", "100ms");
    let receiver = receiver(2 * events).await;
    receiver.fallback(Reply::status(204).after(answer_after));
    let (endpoint, _) = add_endpoint(&bench, &receiver.url("/hook"));
    let unlimited = ["--rate", "none", "--concurrency", "64"];
    bench.ok(&[&["endpoint", "update", &endpoint][..], &unlimited].concat());
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    bench.ok(&["endpoint", "pause", &endpoint]);
    write_rows(&bench, events).await;
    let skipped = "SELECT count(*) FROM hooklane.deliveries WHERE status = 'skipped'";
    let all = events.to_string();
    bench.database().until(skipped, &all, budget).await.unwrap();
    bench.ok(&["endpoint", "resume", &endpoint]);

    let missing = ["endpoint", "replay-missing", &endpoint, "--since", "1h"];
    let would = bench.json(&[&missing[..], &["--dry-run"]].concat());
    assert_eq!(
        (&would["found"], &would["due"]),
        (&json!(events), &json!(events))
    );
    let made = bench.json(&missing);
    let task = made["id"].as_str().unwrap();
    until("the middle of the task", budget, || async {
        let half = format!("tasks WHERE due >= {}", events / 2);
        count(&bench, &half).await == 1 && receiver.counts().arrived > events / 50
    })
    .await
    .unwrap();
    up.signal("KILL");
    up.wait(BUDGET).await;
    let config = hooklane_nats::Config {
        url: nats.url().into(),
        partitions: 2,
        ..hooklane_nats::Config::default()
    };
    let client = Client::connect(&config).await.unwrap();
    let under_way = loadtest::broker::unsettled(&client).await.unwrap();
    assert!(!under_way.deliveries.is_empty());
    let seen_before = receiver.counts().arrived;
    let killed = bench.json(&["task", "show", task]);
    assert_eq!(killed["status"], "running", "{killed}");
    assert_eq!(killed["total"], events);
    let due = killed["due"].as_u64().unwrap();
    assert!(due < events, "{killed}");
    assert_eq!(count(&bench, "deliveries WHERE series = 2").await, due);

    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    let done = bench.json(&["task", "watch", task]);
    assert_eq!(done["status"], "done");
    assert_eq!(
        (&done["found"], &done["due"]),
        (&json!(events), &json!(events))
    );
    let sent = "SELECT count(*) FROM hooklane.deliveries WHERE status = 'sent' AND series = 2";
    bench.database().until(sent, &all, budget).await.unwrap();

    let mut arrived: HashMap<MessageId, u64> = HashMap::new();
    for request in receiver.requests() {
        let id = request.header("webhook-id").unwrap().parse().unwrap();
        *arrived.entry(id).or_insert(0) += 1;
    }
    assert_eq!(arrived.len() as u64, events);
    // Twice only what was attempted when the kill came, and not settled.
    let repeated: Vec<_> = arrived.iter().filter(|(_, times)| **times > 1).collect();
    for (id, times) in &repeated {
        let mut caught = under_way.deliveries.iter().map(|(message, _)| message);
        let excused = **times == 2 && caught.any(|message| message == *id);
        assert!(excused, "{id} arrived {times} times");
    }
    let figures = format!(
        "{events} missed; killed with {due} due and {seen_before} arrived, {} in the broker; {} attempted \
         twice; {:.1} s of the task",
        under_way.deliveries.len(),
        repeated.len(),
        seconds(&bench, task)
    );
    let store = bench.store().await;
    let broken = audit::findings(&store).await.unwrap();
    let broken: Vec<_> = broken.iter().filter(|found| !found.excusable).collect();
    assert!(broken.is_empty(), "{broken:?}");
    up.signal("TERM");
    assert_eq!(up.wait(BUDGET).await.code, 0);
    figures
}

/// From the beginning to the end of a task, the kill included.
fn seconds(bench: &Bench, task: &str) -> f64 {
    let shown = bench.json(&["task", "show", task]);
    let at = |name: &str| {
        let text = shown[name].as_str().unwrap();
        chrono::DateTime::parse_from_rfc3339(text).unwrap()
    };
    (at("ended_at") - at("started_at")).as_seconds_f64()
}
