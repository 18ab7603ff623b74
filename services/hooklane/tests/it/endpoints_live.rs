//! Endpoints under load: what a person changes is in force at the lanes within a second, and what
//! happens to them is told.

use std::time::Duration;

use hooklane_testkit::wait::until;
use hooklane_testkit::{Receiver, Reply};
use serde_json::Value;
use tokio::time::Instant;

use crate::load::{Load, arrived, settled};
use crate::process::Process;
use crate::system::{BUDGET, add_endpoint, count, ready, status_of, system, verify, write_row};

/// Deliveries that were skipped.
const SKIPPED: &str = "deliveries WHERE status = 'skipped'";
/// How soon a change is in force.
const IN_FORCE: Duration = Duration::from_secs(1);

/// How long after `since` requests still came, once `wait` more has passed.
async fn last_request(receiver: &Receiver, since: Instant, wait: Duration) -> Duration {
    let mut last = Duration::ZERO;
    let mut seen = receiver.requests().len();
    until("the time to be over", BUDGET, async || {
        let now = receiver.requests().len();
        if now != seen {
            (seen, last) = (now, since.elapsed());
        }
        since.elapsed() >= wait
    })
    .await
    .unwrap();
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_stops_requests_within_a_second_and_a_resume_sends_none_of_what_was_skipped() {
    let (bench, _nats, health) = system().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(204));
    let (endpoint, _) = add_endpoint(&bench, &receiver.url("/hook"));
    bench.ok(&["endpoint", "update", &endpoint, "--rate", "none"]);
    let _up = Process::start(&bench, &["up"]);
    ready(&health).await;
    let load = Load::start(&bench).await;
    receiver.wait_for(50, BUDGET).await.unwrap();

    // The best of three: the machine may be busy.
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        bench.ok(&["endpoint", "pause", &endpoint]);
        let paused = Instant::now();
        quickest = quickest.min(last_request(&receiver, paused, 3 * IN_FORCE).await);
        let skipped = count(&bench, SKIPPED).await;
        assert!(skipped > 0);
        let before = receiver.requests().len();
        bench.ok(&["endpoint", "resume", &endpoint]);
        let more = u64::try_from(before).unwrap() + 20;
        receiver.wait_for(more, BUDGET).await.unwrap();
        assert!(count(&bench, SKIPPED).await >= skipped);
    }
    assert!(quickest < IN_FORCE, "{quickest:?}");
    drop(load);
    settled(&bench).await;
    // Each was sent or skipped, and what was skipped was never sent.
    let sent = count(&bench, "deliveries WHERE status = 'sent'").await;
    let skipped = count(&bench, SKIPPED).await;
    let rows = count(&bench, "outbox_events").await;
    assert_eq!(sent + skipped, rows);
    let mut ids = arrived(&receiver);
    ids.dedup();
    assert_eq!(u64::try_from(ids.len()).unwrap(), sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_url_and_a_new_secret_are_in_force_within_a_second_and_never_by_halves() {
    let (bench, _nats, health) = system().await;
    let old = Receiver::start().await.unwrap();
    let new = Receiver::start().await.unwrap();
    old.fallback(Reply::status(204));
    new.fallback(Reply::status(204));
    let (endpoint, secret) = add_endpoint(&bench, &old.url("/old"));
    let args = [
        "endpoint",
        "update",
        &endpoint,
        "--rate",
        "none",
        "--header",
        "X-Url: old",
    ];
    bench.ok(&args);
    let _up = Process::start(&bench, &["up"]);
    ready(&health).await;
    let load = Load::start(&bench).await;
    old.wait_for(50, BUDGET).await.unwrap();

    // URL and header change in one step, so each request has both or neither. The best of three:
    // the machine may be busy.
    let mut quickest = Duration::MAX;
    for (from, to, name) in [
        (&old, &new, "new"),
        (&new, &old, "old"),
        (&old, &new, "new"),
    ] {
        let url = to.url(&format!("/{name}"));
        let header = format!("X-Url: {name}");
        let before = to.requests().len();
        let args = [
            "endpoint", "update", &endpoint, "--url", &url, "--header", &header,
        ];
        bench.ok(&args);
        let changed = Instant::now();
        quickest = quickest.min(last_request(from, changed, 2 * IN_FORCE).await);
        assert!(to.requests().len() > before);
    }
    assert!(quickest < IN_FORCE, "{quickest:?}");
    for (receiver, name) in [(&old, "old"), (&new, "new")] {
        for request in receiver.requests() {
            assert_eq!(request.path(), format!("/{name}"));
            assert_eq!(request.header("x-url"), Some(name));
        }
    }

    let rotated = bench.json(&["endpoint", "rotate", &endpoint, "--grace", "0s"]);
    let rotated = rotated["secret"].as_str().unwrap().to_owned();
    let changed = Instant::now();
    let counted = new.requests().len();
    until("requests after the rotation", BUDGET, || async {
        changed.elapsed() > IN_FORCE && new.requests().len() > counted + 20
    })
    .await
    .unwrap();
    drop(load);
    let requests = new.requests();
    let verifies = |request: &_, secret: &str| verify(&bench, request, secret).code == 0;
    assert!(verifies(requests.last().unwrap(), &rotated));
    assert!(!verifies(requests.last().unwrap(), &secret));
    // Each is signed with the one or the other.
    for request in requests.iter().step_by(requests.len() / 10 + 1) {
        let (first, second) = (verifies(request, &secret), verifies(request, &rotated));
        assert!(first != second, "{request:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_told_of_transitions_and_never_of_their_own_endpoints() {
    let (mut bench, _nats, health) = system().await;
    // Three attempts, soon after each other.
    bench.set("HOOKLANE__RETRY__DELAYS", r#"["100ms","100ms"]"#);
    let customer = Receiver::start().await.unwrap();
    let operator = Receiver::start().await.unwrap();
    customer.fallback(Reply::status(500));
    operator.fallback(Reply::status(500));
    let (endpoint, _) = add_endpoint(&bench, &customer.url("/hook"));
    // One that takes them, and one that fails and is itself no news.
    operator.always("/ops", Reply::status(204));
    for path in ["/ops", "/broken"] {
        bench.ok(&["endpoint", "add", "hooklane", &operator.url(path)]);
    }
    let _up = Process::start(&bench, &["up"]);
    ready(&health).await;

    let failing = write_row(&bench).await;
    told(&operator, "hooklane.delivery.exhausted", |data| {
        data["reason"] == "exhausted" && data["attempts"] == 3
    })
    .await;
    told(&operator, "hooklane.endpoint.failing", |data| {
        data["reason"] == "delivery_exhausted" && data["endpoint"] == *endpoint
    })
    .await;
    assert_eq!(status_of(&bench, &failing).await, "failed");
    let shown = bench.json(&["endpoint", "show", &endpoint]);
    assert_eq!(shown["state"], "failing");
    assert_eq!(shown["consecutive_failures"], 3);
    assert_eq!(shown["failures_24h"], 3);
    let listed = bench.ok(&["endpoint", "list", "--state", "failing"]);
    assert!(listed.contains("3 (3)"), "{listed}");

    customer.fallback(Reply::status(200));
    write_row(&bench).await;
    told(&operator, "hooklane.endpoint.recovered", |_| true).await;
    bench.ok(&["endpoint", "pause", &endpoint]);
    told(&operator, "hooklane.endpoint.paused", |_| true).await;
    bench.ok(&["endpoint", "resume", &endpoint]);
    told(&operator, "hooklane.endpoint.resumed", |_| true).await;
    customer.fallback(Reply::status(410));
    until("a 410", BUDGET, || async {
        write_row(&bench).await;
        bench.json(&["endpoint", "show", &endpoint])["state"] == "disabled"
    })
    .await
    .unwrap();
    told(&operator, "hooklane.endpoint.disabled", |data| {
        data["reason"] == "gone"
    })
    .await;

    // The broken one has failed all the time.
    let broken = bench.json(&["endpoint", "list", "--consumer", "hooklane"]);
    let states: Vec<_> = broken["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|endpoint| endpoint["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["active", "failing"], "{broken}");
    let about = "SELECT count(*) FROM hooklane.operational_events
                  WHERE payload->'data'->>'consumer' <> 'acme'";
    assert_eq!(bench.database().psql(about).await.unwrap().trim(), "0");
}

/// Waits until the operator's endpoint has got an event of this type with such data.
async fn told(operator: &Receiver, event_type: &str, is_meant: impl Fn(&Value) -> bool) {
    until(event_type, BUDGET, || async {
        operator.requests_to("/ops").iter().any(|request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            body["type"] == event_type && is_meant(&body["data"])
        })
    })
    .await
    .unwrap();
}
