//! What the inbox takes from 32 connections, beside what the database takes from 32 that insert bodies
//! of the same kind in plain single-row transactions, in turn and on the same server. The inbox decides
//! and publishes meanwhile, as it does at work.
//!
//! `cargo test --release -p hooklane-inbox --test it -- --ignored receive_throughput --nocapture`

use std::net::SocketAddr;
use std::time::Duration;

use hooklane_core::clock;
use hooklane_inbox::Service;
use hooklane_store::Store;
use hooklane_testkit::Running;
use hooklane_testkit::pgbench::Durable;
use ring::digest::{SHA256, digest};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::config;
use crate::broker::Broker;
use crate::client::{Event, Partner};

const CONNECTIONS: usize = 32;
const BODY: usize = 2_048;
const WARM_UP: Duration = Duration::from_secs(1);
const SPAN: Duration = Duration::from_secs(6);
const ROUNDS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for a minute"]
async fn receive_throughput() {
    let postgres = Durable::start().await.unwrap();
    let store = hooklane_store::Config::new(postgres.url());
    let store = Store::connect(&store).await.unwrap();
    store.migrate().await.unwrap();
    postgres
        .run("CREATE TABLE plain (id text PRIMARY KEY, body bytea NOT NULL)")
        .await
        .unwrap();
    let Broker { server, client } = Broker::start().await.unwrap();
    let (mut ratios, mut worst) = (Vec::new(), Duration::ZERO);
    for round in 0..ROUNDS {
        let bound = inserted(&postgres).await;
        let mut config = config("");
        config.worker = hooklane_inbox::Worker::default();
        config.hand_off = hooklane_inbox::HandOff::default();
        config.sources.get_mut("shop").unwrap().entities.clear();
        let service = Service::bind(config, store.clone(), client.clone())
            .await
            .unwrap();
        let address = service.address().unwrap();
        let running = Running::start((), |shutdown| service.run(shutdown));
        let (rate, p99) = received(address).await;
        running.stop().await;
        let ratio = rate / bound;
        println!(
            "round {round}: plain INSERT {bound:.0}/s, received {rate:.0}/s: {ratio:.2} of it, p99 {p99:?}"
        );
        ratios.push(ratio);
        worst = worst.max(p99);
        postgres.run("TRUNCATE plain").await.unwrap();
    }
    drop(server);
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!(
        "{ratios:.2?} of a plain INSERT loop, {median:.2} in the middle, p99 {worst:?} at the worst"
    );
    assert!(median >= 0.7, "{ratios:?}");
    assert!(worst < Duration::from_millis(100), "{worst:?}");
}

/// Rows a second, each with a body in a transaction of its own.
async fn inserted(postgres: &Durable) -> f64 {
    let script = format!(
        "\\set a random(1, 9223372036854775807)
INSERT INTO plain (id, body) VALUES ('evt_' || :a, decode('{}', 'hex')) ON CONFLICT DO NOTHING;
",
        hex(letters().as_bytes())
    );
    postgres.rate(script, CONNECTIONS, SPAN).await.unwrap()
}

/// Letters that PostgreSQL can't compress, unlike repeated ones, of which it would write next to nothing.
fn letters() -> String {
    let digests = (0_u32..).map(|n| digest(&SHA256, &n.to_be_bytes()));
    digests
        .take(BODY.div_ceil(2 * SHA256.output_len()))
        .map(|digest| hex(digest.as_ref()))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Requests answered a second, and how long 99 of 100 took at the most.
async fn received(address: SocketAddr) -> (f64, Duration) {
    let start = Instant::now() + WARM_UP;
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut partner = Partner::connect(address).await;
        let letters = letters();
        tasks.spawn(async move {
            let mut took = Vec::new();
            loop {
                let id = uuid::Uuid::now_v7().to_string();
                let mut event = Event::order(&id, "order.paid", "", clock::now());
                let order = format!(r#""order":"{}"#, &letters[..BODY - event.body.len()]);
                event.body = event.body.replace(r#""order":""#, &order);
                let sent = Instant::now();
                if sent >= start + SPAN {
                    return took;
                }
                partner.send(&event).await;
                if sent >= start {
                    took.push(sent.elapsed());
                }
            }
        });
    }
    let mut took = tasks.join_all().await.concat();
    took.sort_unstable();
    (
        took.len() as f64 / SPAN.as_secs_f64(),
        took[took.len() * 99 / 100],
    )
}
