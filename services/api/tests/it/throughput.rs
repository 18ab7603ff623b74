//! What the API takes from 64 clients, beside what the database takes at the most in plain single-row
//! transactions: 64 connections of pgbench that insert the same rows.
//!
//! `cargo test --release -p hooklane-api --test it -- --ignored publish_throughput --nocapture`

use std::time::Duration;

use hooklane_api::Config;
use hooklane_nats::Client as Nats;
use hooklane_store::Store;
use hooklane_testkit::Running;
use hooklane_testkit::pgbench::Durable;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench;
use crate::broker::Broker;
use crate::client::Client;

const CLIENTS: usize = 64;
const WARM_UP: Duration = Duration::from_secs(1);
const SPAN: Duration = Duration::from_secs(6);
const ROUNDS: usize = 2;

/// What one configuration did in one round.
#[derive(Debug, Clone, Copy)]
struct Measured {
    rate: f64,
    p50: Duration,
    p99: Duration,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for a minute"]
async fn publish_throughput() {
    let postgres = Durable::start().await.unwrap();
    let store = Store::connect(&hooklane_store::Config::new(postgres.url()))
        .await
        .unwrap();
    store.migrate().await.unwrap();
    store
        .ensure_days([hooklane_core::clock::now()])
        .await
        .unwrap();
    postgres
        .run(
            "INSERT INTO hooklane.consumers (id) VALUES ('acme');
         INSERT INTO hooklane.event_types (name) VALUES ('invoice.paid');
         INSERT INTO hooklane.endpoints (id, consumer_id, url, filters)
         VALUES (gen_random_uuid(), 'acme', 'https://example.com/', '{*}')",
        )
        .await
        .unwrap();
    let broker = Broker::start_with(|config| config.partitions = 16)
        .await
        .unwrap();
    let mut all: Vec<(String, Vec<f64>, Duration)> = Vec::new();
    for round in 0..ROUNDS {
        let bound = bound(&postgres).await;
        println!("round {round}: bound {bound:.0}/s");
        for (group_commit, at_once) in [(true, 1), (true, 2), (true, 4), (false, 2), (false, 16)] {
            let mut config = Config::default();
            config.intake.group_commit = group_commit;
            config.intake.commits_at_once = at_once;
            let measured = served(&store, &broker.client, config).await;
            let ratio = measured.rate / bound;
            let name = format!("group commit {group_commit}, {at_once} at once");
            println!(
                "round {round}: {name}: {:.0}/s, {ratio:.2} of the bound, p50 {:?}, p99 {:?}",
                measured.rate, measured.p50, measured.p99
            );
            match all.iter_mut().find(|(other, ..)| *other == name) {
                Some((_, ratios, worst)) => {
                    ratios.push(ratio);
                    *worst = measured.p99.max(*worst);
                }
                None => all.push((name, vec![ratio], measured.p99)),
            }
        }
    }
    for (name, ratios, worst) in all {
        println!("{name}: {ratios:.2?} of the bound, p99 {worst:?} at the worst");
    }
}

fn payload() -> String {
    format!(
        r#"{{"invoice": "6f1e", "amount": 1250, "note": "{}"}}"#,
        "x".repeat(200)
    )
}

/// Transactions a second that insert a message, its key and its delivery.
async fn bound(postgres: &Durable) -> f64 {
    let script = format!(
        "\\set a random(1, 9223372036854775807)
BEGIN;
INSERT INTO hooklane.idempotency_keys (consumer_id, key, digest, message_id, accepted_at)
VALUES ('acme', 'key-' || to_hex(:a::bigint), sha256('x'),
        lpad(to_hex(:a::bigint), 32, '0')::uuid, now());
INSERT INTO hooklane.messages (accepted_at, id, consumer_id, event_type, payload, content_type, source,
                               idempotency_key)
VALUES (now(), lpad(to_hex(:a::bigint), 32, '0')::uuid, 'acme', 'invoice.paid',
        convert_to('{}', 'UTF8'), 'application/json', 'api', 'key-' || to_hex(:a::bigint));
INSERT INTO hooklane.deliveries (accepted_at, message_id, endpoint_id, consumer_id, partition, status,
                                 driven_at, not_after, next_attempt_at, deadline)
SELECT now(), lpad(to_hex(:a::bigint), 32, '0')::uuid, e.id, 'acme', 7, 'received', now(),
       now() + interval '20 s', now(), now() + interval '48 h'
  FROM hooklane.endpoints e WHERE e.consumer_id = 'acme';
COMMIT;
",
        payload()
    );
    postgres.rate(script, CLIENTS, SPAN).await.unwrap()
}

async fn served(store: &Store, client: &Nats, config: Config) -> Measured {
    let (service, key) = bench::service(store, client, config).await;
    let address = service.address().unwrap();
    let running = Running::start((), |shutdown| service.run(shutdown));
    let start = Instant::now() + WARM_UP;
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(address, &key).await;
        tasks.spawn(async move {
            let mut took = Vec::new();
            loop {
                let body = format!(
                    r#"{{"event_type": "invoice.paid", "idempotency_key": "{}", "payload": {}}}"#,
                    uuid::Uuid::now_v7(),
                    payload()
                );
                let sent = Instant::now();
                if sent >= start + SPAN {
                    return took;
                }
                let answer = client.post(bench::MESSAGES, body).await;
                assert_eq!(answer.status, 202, "{answer:?}");
                if sent >= start {
                    took.push(sent.elapsed());
                }
            }
        });
    }
    let mut took = tasks.join_all().await.concat();
    running.stop().await;
    took.sort_unstable();
    let at = |part: usize| took[took.len() * part / 100];
    Measured {
        rate: took.len() as f64 / SPAN.as_secs_f64(),
        p50: at(50),
        p99: at(99),
    }
}
