//! `hooklane up` and the single services: starting, delivering, telling the truth about their
//! health, and stopping.

use std::time::Duration;

use hooklane_testkit::wait::until;
use hooklane_testkit::{Receiver, Reply};

use serde_json::json;
use tokio::time::Instant;

use crate::bench::{Bench, KEY};
use crate::process::{Process, free_address, http};
use crate::system::{BUDGET, add_endpoint, ready, status_of, system, verify, write_row};

#[tokio::test(flavor = "multi_thread")]
async fn up_delivers_a_committed_row_and_stops_in_order() {
    let (bench, _nats, health) = system().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(204));
    let (endpoint, secret) = add_endpoint(&bench, &receiver.url("/hook"));
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    let live = http(&health, "/livez").await.unwrap();
    assert_eq!(live, (200, "{\"live\":true}".to_owned()));
    let (_, body) = http(&health, "/readyz").await.unwrap();
    assert_eq!(
        body,
        r#"{"ready":true,"postgres":"up","nats":"up","stopping":false}"#
    );

    let id = write_row(&bench).await;
    receiver.wait_for(1, BUDGET).await.unwrap();
    until("the delivery to be recorded", BUDGET, || async {
        status_of(&bench, &id).await == "sent"
    })
    .await
    .unwrap();
    let tree = bench.ok(&["message", "show", &id]);
    assert!(tree.contains(&endpoint) && tree.contains("204"), "{tree}");
    let listed = bench.json(&["endpoint", "show", &endpoint]);
    assert_eq!(listed["routed"], true);

    // The operator's own verification of what was received.
    let request = receiver.requests().remove(0);
    let verified = verify(&bench, &request, &secret);
    assert_eq!(verified.code, 0, "{verified:?}");

    up.signal("TERM");
    let ended = up.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
    for service in ["relay", "dispatcher", "recorder", "scheduler", "dlq"] {
        assert!(
            ended.log.contains(service),
            "{service} is not in {}",
            ended.log
        );
    }
    assert!(
        !ended.log.contains(&secret[6..]) && !ended.log.contains(KEY),
        "{}",
        ended.log
    );
    for line in ended.log.lines() {
        serde_json::from_str::<serde_json::Value>(line)
            .unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_for_each_service_delivers_too() {
    let (mut bench, _nats, _) = system().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(204));
    add_endpoint(&bench, &receiver.url("/hook"));
    let mut processes = Vec::new();
    for service in ["record", "dispatch", "schedule", "relay", "dlq run"] {
        let health = free_address();
        bench.set("HOOKLANE__HEALTH__LISTEN", health.as_str());
        bench.set("HOOKLANE__API__LISTEN", "127.0.0.1:0");
        let words: Vec<&str> = service.split(' ').collect();
        processes.push((service, health, Process::start(&bench, &words)));
    }
    for (_, health, _) in &processes {
        ready(health).await;
    }
    let id = write_row(&bench).await;
    until("the delivery to be recorded", BUDGET, || async {
        status_of(&bench, &id).await == "sent"
    })
    .await
    .unwrap();
    for (_, _, process) in &processes {
        process.signal("INT");
    }
    for (service, _, process) in processes {
        let ended = process.wait(BUDGET).await;
        assert_eq!(ended.code, 0, "{service}: {}", ended.log);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_process_at_once() {
    let (bench, _nats, health) = system().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::hang());
    add_endpoint(&bench, &receiver.url("/hook"));
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    write_row(&bench).await;
    receiver.wait_for(1, BUDGET).await.unwrap();
    up.signal("TERM");
    up.wait_for_log("a second signal stops at once", BUDGET)
        .await;
    let before = Instant::now();
    up.signal("TERM");
    let ended = up.wait(BUDGET).await;
    assert_eq!(ended.code, 143, "{}", ended.log);
    assert!(
        before.elapsed() < Duration::from_secs(5),
        "{:?}",
        before.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_in_flight_are_cut_within_the_time_to_stop() {
    let (bench, _nats, health) = system().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::hang());
    let (endpoint, _) = add_endpoint(&bench, &receiver.url("/hook"));
    bench.ok(&["endpoint", "update", &endpoint, "--timeout", "60s"]);
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    write_row(&bench).await;
    receiver.wait_for(1, BUDGET).await.unwrap();
    let before = Instant::now();
    up.signal("TERM");
    until("health to say that it stops", BUDGET, || async {
        let answer = http(&health, "/readyz").await;
        answer.is_some_and(|(status, body)| status == 503 && body.contains(r#""stopping":true"#))
    })
    .await
    .unwrap();
    assert_eq!(http(&health, "/livez").await.unwrap().0, 200);
    let ended = up.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
    assert!(
        before.elapsed() < Duration::from_secs(21),
        "{:?}",
        before.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_goes_from_the_outbox_row_to_the_attempt() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let (mut bench, _nats, health) = system().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(200));
    let collector = Receiver::start().await.unwrap();
    collector.fallback(Reply::status(200));
    let base = format!("http://{}", collector.address());
    bench.set("OTEL_EXPORTER_OTLP_ENDPOINT", base);
    bench.set("OTEL_BSP_SCHEDULE_DELAY", "100");
    add_endpoint(&bench, &receiver.url("/hook"));
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    let id = bench
        .database()
        .psql(&format!(
            "INSERT INTO hooklane.outbox_events (event_type, payload, consumer_id, headers)
             VALUES ('invoice.paid', '{{}}', 'acme', '{{\"traceparent\": \"00-{TRACE}-b7ad6b7169203331-01\"}}')
             RETURNING id"
        ))
        .await
        .unwrap();
    let id = id.lines().next().unwrap();
    until("the delivery to be recorded", BUDGET, || async {
        status_of(&bench, id).await == "sent"
    })
    .await
    .unwrap();
    // The attempt has a span of its own, in the trace that the producer began.
    let shown = bench.json(&["message", "show", id]);
    let attempt = &shown["messages"][0]["deliveries"][0]["tries"][0]["traceparent"];
    let attempt = attempt.as_str().unwrap();
    assert!(attempt.contains(TRACE), "{attempt}");
    assert!(!attempt.contains("b7ad6b7169203331"), "{attempt}");

    up.signal("TERM");
    let ended = up.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
    let exported: Vec<u8> = collector
        .requests_to("/v1/traces")
        .iter()
        .flat_map(|request| request.body.to_vec())
        .collect();
    let id: Vec<u8> = (0..TRACE.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&TRACE[at..at + 2], 16).unwrap())
        .collect();
    let spans = exported
        .windows(id.len())
        .filter(|window| *window == id)
        .count();
    // Acceptance, fan-out, lane and attempt at the least.
    assert!(
        spans >= 4,
        "{spans} spans of the trace, {} bytes",
        exported.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_start_says_why() {
    let (mut bench, _nats, health) = system().await;
    let taken = std::net::TcpListener::bind(&health).unwrap();
    let text = bench.fails(64, "config", &["up"]);
    assert!(text.contains("health.listen"), "{text}");
    drop(taken);
    bench.set("NATS_URL", "nats://127.0.0.1:1");
    bench.set("HOOKLANE__NATS__CONNECT_TIMEOUT", "1s");
    bench.fails(69, "nats_unavailable", &["up"]);
    bench.unset("HOOKLANE__SECRETS__MASTER_KEY_FILE");
    let text = bench.fails(64, "config", &["up"]);
    assert!(text.contains("a fault"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_round_of_the_relay_takes_what_is_there() {
    let (bench, _nats, _) = system().await;
    add_endpoint(&bench, &format!("http://{}/", free_address()));
    let id = write_row(&bench).await;
    let done = bench.json(&["relay", "--once"]);
    assert_eq!(
        (&done["accepted"], &done["published"]),
        (&1.into(), &1.into()),
        "{done}"
    );
    assert_eq!(
        (&done["read"], &done["led_elsewhere"]),
        (&json!(["main", "operational"]), &json!([])),
    );
    assert_eq!(status_of(&bench, &id).await, "received");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_round_beside_a_running_relay_leaves_its_outboxes_to_it() {
    let (bench, _nats, health) = system().await;
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    until("every outbox to be read already", BUDGET, || async {
        let done = bench.json(&["relay", "--once"]);
        done["read"] == json!([]) && done["led_elsewhere"] == json!(["main", "operational"])
    })
    .await
    .unwrap();
    let text = bench.ok(&["relay", "--once"]);
    assert!(text.contains("no configured outbox was read"), "{text}");
    up.signal("TERM");
    assert_eq!(up.wait(BUDGET).await.code, 0);
    assert_eq!(bench.json(&["relay", "--once"])["accepted"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn up_local_brings_its_own_servers_and_keeps_its_data() {
    let mut bench = Bench::bare();
    bench.with_tools();
    let health = free_address();
    bench.set("HOOKLANE__HEALTH__LISTEN", health.as_str());
    bench.set("HOOKLANE__API__LISTEN", "127.0.0.1:0");
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(204));

    let up = Process::start(&bench, &["up", "--local"]);
    ready(&health).await;
    let env = std::fs::read_to_string(bench.dir().join(".hooklane/env")).unwrap();
    for (name, value) in exports(&env) {
        bench.set(&name, value);
    }
    let (endpoint, secret) = add_endpoint(&bench, &receiver.url("/hook"));
    bench.ok(&["outbox", "status"]);
    let text = bench.fails(65, "conflict", &["up", "--local"]);
    assert!(text.contains("in use by another process"), "{text}");
    assert!(!up.log().contains(&secret[6..]));
    up.signal("INT");
    let ended = up.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
    let text = bench.fails(69, "postgres_unavailable", &["consumer", "list"]);
    assert!(text.contains("unset DATABASE_URL NATS_URL"), "{text}");

    // In the same shell, where all of that is still set.
    let up = Process::start(&bench, &["up", "--local"]);
    ready(&health).await;
    let env = std::fs::read_to_string(bench.dir().join(".hooklane/env")).unwrap();
    for (name, value) in exports(&env) {
        bench.set(&name, value);
    }
    let revealed = bench.json(&["endpoint", "reveal", &endpoint]);
    assert_eq!(revealed["secrets"][0]["secret"], *secret);
    up.signal("TERM");
    let ended = up.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
}

/// What a shell would set that reads the file in.
fn exports(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| line.strip_prefix("export ")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.trim_matches('\'').to_owned()))
        .collect()
}
