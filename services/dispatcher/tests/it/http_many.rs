//! A receiver that leaves every connection open, and a great many requests to it.

use std::sync::Arc;
use std::time::Duration;

use hooklane_dispatcher::{Config, config};
use hooklane_proto::record::{Record, Verdict};
use hooklane_testkit::wait;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::bench::{Bench, SOON};
use crate::raw::{Gauge, Raw, read_head, until_gone};

/// So many connections a receiver that closes none would have in the end, if the dispatcher closed
/// none either (H061). Fewer than 1,000 are ever open, so that no usual limit is met.
const REQUESTS: usize = 10_000;
const IN_FLIGHT: u32 = 128;
const KEPT: usize = 32;

/// Answers every request of a connection, and never closes it. Every second path's answers say
/// that the connection is not to be used again.
async fn serve(mut stream: TcpStream) {
    loop {
        let head = read_head(&mut stream).await;
        let head = String::from_utf8_lossy(&head).into_owned();
        let Some(length) = head.lines().find_map(|line| {
            let value = line.strip_prefix("content-length:")?;
            value.trim().parse::<u64>().ok()
        }) else {
            return;
        };
        let mut body = tokio::io::AsyncReadExt::take(&mut stream, length);
        if tokio::io::copy(&mut body, &mut tokio::io::sink())
            .await
            .is_err()
        {
            return;
        }
        let last = head.contains("/last");
        let close = if last { "connection: close\r\n" } else { "" };
        let answer = format!("HTTP/1.1 200 OK\r\n{close}content-length: 0\r\n\r\n");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        if last {
            until_gone(&mut stream).await;
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_closes_nothing_has_few_connections_open() {
    let gauge = Arc::new(Gauge::default());
    let count = Arc::clone(&gauge);
    let receiver = Raw::start(move |stream| {
        let open = count.open();
        async move {
            let _open = open;
            serve(stream).await;
        }
    })
    .await;
    let bench = Bench::start().await;
    let config = Config {
        max_in_flight: IN_FLIGHT,
        // Nothing is to be parked, however slow the host.
        horizon: Duration::from_secs(60),
        http: config::Http {
            idle_timeout: Duration::from_secs(1),
            max_idle_per_host: KEPT,
            ..config::Http::default()
        },
        ..Config::default()
    };
    let mut deliveries = Vec::new();
    for path in ["kept-1", "last-1", "kept-2", "last-2"] {
        let mut route = bench.route(&format!("{}{path}", receiver.url()));
        route.concurrency = 64;
        bench.routes.put(&route).await.unwrap();
        deliveries.extend((0..REQUESTS / 4).map(|_| bench.delivery(&route)));
    }
    let running = bench.dispatcher(config);
    futures::future::join_all(deliveries.iter().map(|d| bench.publish(d))).await;
    let records = bench.recorded.wait(REQUESTS, SOON * 3).await;
    let sent = |record: &&Record| matches!(record, Record::Attempt(attempt) if attempt.verdict == Verdict::Sent);
    assert_eq!(records.iter().filter(sent).count(), REQUESTS);

    // The half that said so had a connection each.
    assert!(receiver.connections() >= REQUESTS as u64 / 2);
    // The dispatcher's bound, and as much again for what the receiver has yet to notice.
    let bound = 2 * (u64::from(IN_FLIGHT) + KEPT as u64);
    assert!(gauge.peak() <= bound, "{} open at a time", gauge.peak());
    wait::until("every connection to be closed", SOON, || async {
        gauge.now() == 0
    })
    .await
    .unwrap();
    running.stop().await;
}
