//! A consumer's default rate, from the command to the lanes.

use hooklane_testkit::receiver::Recorded;
use hooklane_testkit::wait::until;
use hooklane_testkit::{Receiver, Reply};

use crate::bench::Bench;
use crate::process::Process;
use crate::system::{BUDGET, add_endpoint, assert_paced, ready, system, write_rows};

/// Sets the rate and waits until the lanes have been told.
async fn set_rate(bench: &Bench, endpoint: &str, rate: &str) {
    let version = |shown: &serde_json::Value| shown["version"].as_i64().unwrap();
    let before = version(&bench.json(&["endpoint", "show", endpoint]));
    bench.ok(&["consumer", "set-rate", "acme", rate]);
    until("the new rate to be published", BUDGET, || async {
        let shown = bench.json(&["endpoint", "show", endpoint]);
        version(&shown) > before && shown["routed"] == true
    })
    .await
    .unwrap();
}

/// Commits so many events; their requests, in the order of their arrival.
async fn deliver(bench: &Bench, receiver: &Receiver, events: u64) -> Vec<Recorded> {
    let seen = receiver.counts().arrived;
    write_rows(bench, events).await;
    receiver.wait_for(seen + events, BUDGET).await.unwrap();
    receiver
        .requests()
        .split_off(usize::try_from(seen).unwrap())
}

/// Seconds from the first to the last.
fn span(requests: &[Recorded]) -> f64 {
    let (first, last) = (&requests[0], &requests[requests.len() - 1]);
    last.at.duration_since(first.at).as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumers_new_rate_is_kept_by_lanes_that_run() {
    let (bench, _nats, health) = system().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(204));
    let (endpoint, _) = add_endpoint(&bench, &receiver.url("/hook"));
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    // The lane runs, with a full bucket of the rate before.
    deliver(&bench, &receiver, 1).await;

    set_rate(&bench, &endpoint, "2").await;
    let slow = deliver(&bench, &receiver, 8).await;
    // Two at once at the most, and the other six at two a second.
    assert_paced(&slow, 2.0, 2.0);
    assert!(span(&slow) >= 2.5, "{}", span(&slow));

    set_rate(&bench, &endpoint, "default").await;
    let quick = deliver(&bench, &receiver, 20).await;
    // Two a second would take nine seconds.
    assert!(span(&quick) < 7.0, "{}", span(&quick));
    up.signal("TERM");
    let ended = up.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
}
