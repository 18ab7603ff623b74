//! A whole Hooklane for one test: a ledger, a broker, and the binary's processes on them.

use std::time::Duration;

use hooklane_testkit::nats::Server as Nats;
use hooklane_testkit::receiver::Recorded;
use hooklane_testkit::wait::until;

use crate::bench::{Answer, Bench};
use crate::process::{free_address, http};

/// Time for what takes none on an idle machine.
pub(crate) const BUDGET: Duration = Duration::from_secs(30);

/// A ledger, a broker and an address of its own for health, with deliveries to this machine
/// allowed.
pub(crate) async fn system() -> (Bench, Nats, String) {
    let nats = Nats::start().await.unwrap();
    let mut bench = Bench::ledger().await;
    let health = free_address();
    bench.set("NATS_URL", nats.url());
    bench.set("HOOKLANE__NATS__PARTITIONS", "2");
    bench.set("HOOKLANE__HEALTH__LISTEN", health.as_str());
    bench.set("HOOKLANE__TELEMETRY__FORMAT", "json");
    bench.set("HOOKLANE__ADDRESSES__ALLOW_HTTP", "true");
    bench.set("HOOKLANE__ADDRESSES__ALLOW_CIDRS", r#"["127.0.0.0/8"]"#);
    (bench, nats, health)
}

/// Waits until the process that tells of its health there is ready.
pub(crate) async fn ready(health: &str) {
    until("the process to be ready", BUDGET, || async {
        http(health, "/readyz")
            .await
            .is_some_and(|(status, _)| status == 200)
    })
    .await
    .unwrap();
}

/// Commits an outbox row; its id.
pub(crate) async fn write_row(bench: &Bench) -> String {
    let id = bench
        .database()
        .psql(
            "INSERT INTO hooklane.outbox_events (event_type, payload, consumer_id)
             VALUES ('invoice.paid', '{\"n\":  1}', 'acme') RETURNING id",
        )
        .await
        .unwrap();
    id.lines().next().unwrap().to_owned()
}

/// Commits so many outbox rows for `acme`.
pub(crate) async fn write_rows(bench: &Bench, rows: u64) {
    let write = format!(
        "INSERT INTO hooklane.outbox_events (event_type, payload, consumer_id)
         SELECT 'invoice.paid', '{{}}', 'acme' FROM generate_series(1, {rows})"
    );
    bench.database().psql(&write).await.unwrap();
}

/// A number that the ledger counts.
pub(crate) async fn count(bench: &Bench, from: &str) -> u64 {
    let counted = format!("SELECT count(*) FROM hooklane.{from}");
    let text = bench.database().psql(&counted).await.unwrap();
    text.trim().parse().unwrap()
}

/// Sees to it that in no time there came more than a burst and what the rate, a second, allows.
/// Requests are in the order of their arrival.
pub(crate) fn assert_paced(requests: &[Recorded], burst: f64, rate: f64) {
    for (first, from) in requests.iter().enumerate() {
        for (last, to) in requests.iter().enumerate().skip(first) {
            // What the way to the receiver may shift.
            let seconds = to.at.duration_since(from.at).as_secs_f64() + 0.4;
            let allowed = burst + rate * seconds;
            let came = (last - first + 1) as f64;
            assert!(came <= allowed, "{came} where {allowed} are allowed");
        }
    }
}

/// Where a message's only delivery stands; empty while there is none.
pub(crate) async fn status_of(bench: &Bench, id: &str) -> String {
    let shown = bench.json(&["message", "show", id]);
    let status = &shown["messages"][0]["deliveries"][0]["status"];
    status.as_str().unwrap_or_default().to_owned()
}

/// A consumer `acme` with the event type `invoice.paid` and an endpoint: its id and secret.
pub(crate) fn add_endpoint(bench: &Bench, url: &str) -> (String, String) {
    bench.ok(&["consumer", "add", "acme"]);
    bench.ok(&["event-type", "add", "invoice.paid"]);
    let added = bench.json(&["endpoint", "add", "acme", url]);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    (text(&added["endpoint"]["id"]), text(&added["secret"]))
}

/// `hooklane verify` of a request with a secret, as its receiver would run it.
pub(crate) fn verify(bench: &Bench, request: &Recorded, secret: &str) -> Answer {
    let file = bench.file("secret", secret);
    let header = |name: &str| request.header(name).unwrap().to_owned();
    let args = [
        "verify",
        "--secret-file",
        file.to_str().unwrap(),
        "--id",
        &header("webhook-id"),
        "--timestamp",
        &header("webhook-timestamp"),
        "--signature",
        &header("webhook-signature"),
    ];
    bench.feed(&args, &request.body)
}
