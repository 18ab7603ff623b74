//! What surrounds a process and is not its endpoints' fault: limits of the host, variables that
//! other programs heed.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

use hooklane_testkit::nats::Server as Nats;
use hooklane_testkit::wait::until;
use hooklane_testkit::{Receiver, Reply};

use crate::bench::Bench;
use crate::process::{Process, free_address};
use crate::system::{BUDGET, add_endpoint, count, ready, system, write_rows};

/// Every service in a process of its own, the dispatcher's after `ulimit` with these words.
async fn with_limit(ulimit: &str) -> (Bench, Nats, Vec<Process>) {
    let (mut bench, nats, _) = system().await;
    let mut processes = Vec::new();
    for service in ["record", "dispatch", "schedule", "relay"] {
        let health = free_address();
        bench.set("HOOKLANE__HEALTH__LISTEN", health.as_str());
        bench.set("HOOKLANE__API__LISTEN", "127.0.0.1:0");
        let command = match service {
            "dispatch" => bench.limited(ulimit, &[service]),
            _ => bench.command(&[service]),
        };
        processes.push(Process::of(&bench, command));
        ready(&health).await;
    }
    (bench, nats, processes)
}

/// An endpoint at which many attempts may be in flight.
fn add_wide_endpoint(bench: &Bench, receiver: &Receiver) -> String {
    let (endpoint, _) = add_endpoint(bench, &receiver.url("/hook"));
    let wide = ["--concurrency", "256", "--rate", "none"];
    bench.ok(&[&["endpoint", "update", &endpoint][..], &wide].concat());
    endpoint
}

/// Stops them in order; their logs.
async fn stop(processes: Vec<Process>) -> Vec<String> {
    let mut logs = Vec::new();
    for process in processes {
        process.signal("TERM");
        let ended = process.wait(BUDGET).await;
        assert_eq!(ended.code, 0, "{}", ended.log);
        logs.push(ended.log);
    }
    logs
}

#[tokio::test(flavor = "multi_thread")]
async fn running_out_of_file_descriptors_counts_against_no_endpoint() {
    const ROWS: u64 = 80;
    let (bench, _nats, processes) = with_limit("-n 64").await;
    let receiver = Receiver::start().await.unwrap();
    // Long enough for every attempt to begin before the first connection is free again.
    receiver.fallback(Reply::status(200).after(Duration::from_secs(6)));
    let endpoint = add_wide_endpoint(&bench, &receiver);
    write_rows(&bench, ROWS).await;

    const OURS: &str = "attempts WHERE error = 'own_fault'";
    until("attempts without a descriptor", BUDGET, || async {
        count(&bench, OURS).await >= 10
    })
    .await
    .unwrap();
    // Nothing has succeeded so far that could hide a failure.
    assert_eq!(count(&bench, "attempts WHERE verdict = 'sent'").await, 0);
    let shown = bench.json(&["endpoint", "show", &endpoint]);
    assert_eq!(shown["state"], "active", "{shown}");
    assert_eq!(shown["consecutive_failures"], 0, "{shown}");

    let sent = "deliveries WHERE status = 'sent'";
    until("everything to be sent", BUDGET * 2, || async {
        count(&bench, sent).await == ROWS
    })
    .await
    .unwrap();
    // Each was attempted once, as far as its endpoint is concerned.
    assert_eq!(count(&bench, "deliveries WHERE counted <> 1").await, 0);
    assert!(count(&bench, "deliveries WHERE attempt_count > 1").await >= 10);
    assert_eq!(receiver.counts().arrived, ROWS);
    assert_eq!(
        count(&bench, "attempts WHERE error <> 'own_fault'").await,
        0
    );
    let logs = stop(processes).await;
    let warned = "attempts may find no file descriptor";
    assert_eq!(logs.iter().filter(|log| log.contains(warned)).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_file_descriptors_that_may_be_raised_is_raised() {
    const ROWS: u64 = 80;
    let (bench, _nats, processes) = with_limit("-S -n 64").await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(200).after(Duration::from_secs(6)));
    add_wide_endpoint(&bench, &receiver);
    write_rows(&bench, ROWS).await;
    // All of them at once, which is more than the limit at first.
    until("every attempt to be under way", BUDGET, || async {
        receiver.counts().in_flight == ROWS
    })
    .await
    .unwrap();
    let sent = "deliveries WHERE status = 'sent' AND attempt_count = 1";
    until("everything to be sent", BUDGET, || async {
        count(&bench, sent).await == ROWS
    })
    .await
    .unwrap();
    let logs = stop(processes).await;
    assert!(logs.iter().any(|log| log.contains("raised the limit")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_of_the_environment_is_never_used() {
    let (mut bench, _nats, health) = system().await;
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        bench.set(name, address.as_str());
        bench.set(&name.to_lowercase(), address.as_str());
    }
    let plain = Receiver::start().await.unwrap();
    let tls = Receiver::start_tls().await.unwrap();
    let roots = bench.file("roots.pem", tls.ca_pem().unwrap());
    bench.set(
        "HOOKLANE__DISPATCHER__HTTP__EXTRA_ROOTS",
        roots.display().to_string(),
    );
    bench.set("HOOKLANE__ADDRESSES__ALLOW_NAMES", r#"["localhost"]"#);
    add_endpoint(&bench, &plain.url("/"));
    bench.ok(&["endpoint", "add", "acme", &tls.url("/")]);
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    write_rows(&bench, 1).await;

    until("both deliveries to be sent", BUDGET, || async {
        count(&bench, "deliveries WHERE status = 'sent'").await == 2
    })
    .await
    .unwrap();
    assert_eq!((plain.counts().arrived, tls.counts().arrived), (1, 1));
    up.signal("TERM");
    let ended = up.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
    // Whoever had connected would stand in its queue.
    proxy.set_nonblocking(true).unwrap();
    let nobody = proxy.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(nobody, Err(ErrorKind::WouldBlock));
}
