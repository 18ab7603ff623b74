//! Many requests to a commit, whatever happens on the way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hooklane_api::Config;
use hooklane_testkit::postgres::Server;
use hooklane_testkit::wait;
use tokio::task::JoinSet;

use crate::bench::{BATCH, BUDGET, Bench, MESSAGES, Served};
use crate::ledger::Ledger;

const CLIENTS: usize = 64;

pub(crate) fn keyed(key: &str) -> String {
    format!(r#"{{"event_type": "invoice.paid", "payload": "{key}", "idempotency_key": "{key}"}}"#)
}

/// Has `clients` clients do the same at once; what they return, without order.
pub(crate) async fn together<T: Send + 'static, F>(
    served: &Served,
    clients: usize,
    work: impl Fn(usize, crate::client::Client) -> F,
) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let mut connected = Vec::new();
    for _ in 0..clients {
        connected.push(served.connect().await);
    }
    let mut tasks = JoinSet::new();
    for (at, client) in connected.into_iter().enumerate() {
        tasks.spawn(work(at, client));
    }
    tasks.join_all().await
}

/// Lets no key be taken for a while.
const LOCK: &str =
    "BEGIN; LOCK TABLE hooklane.idempotency_keys IN SHARE MODE; SELECT pg_sleep(2); COMMIT";

async fn locked(bench: &Bench) {
    let locked = "SELECT count(*) FROM pg_locks WHERE mode = 'ShareLock' AND granted
                  AND relation = 'hooklane.idempotency_keys'::regclass
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    bench.until_sql(locked, "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_from_64_clients_is_one_message_and_a_delivery_an_endpoint() {
    let bench = Bench::new().await;
    for n in 1..=3 {
        bench.ledger.endpoint(n).await;
    }
    for group_commit in [true, false] {
        let mut config = Config::default();
        config.intake.group_commit = group_commit;
        config.intake.commits_at_once = 4;
        let served = bench.serve(config).await;
        for round in 0..10 {
            let key = format!("{group_commit}-{round}");
            let answers = together(&served, CLIENTS, |_, mut client| {
                let body = keyed(&key);
                async move { client.post(MESSAGES, body).await }
            })
            .await;
            assert!(answers.iter().all(|answer| answer.status == 202));
            let ids: BTreeSet<_> = answers.iter().map(|a| a.body["id"].as_str()).collect();
            assert_eq!(ids.len(), 1);
            let first = |a: &&crate::client::Answer| a.body["repeated"] == false;
            assert_eq!(answers.iter().filter(first).count(), 1);
        }
        served.running.stop().await;
    }
    let counted = "SELECT (SELECT count(*) FROM hooklane.messages),
                          (SELECT count(*) FROM hooklane.deliveries)";
    assert_eq!(bench.ledger.sql(counted).await, "20|60");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_share_commits() {
    let bench = Bench::new().await;
    let mut config = Config::default();
    config.intake.commits_at_once = 1;
    let served = bench.serve(config).await;
    // The first one waits for the lock, and the others for the first one.
    let all = async {
        locked(&bench).await;
        together(&served, CLIENTS, |at, mut client| async move {
            client.post(MESSAGES, keyed(&at.to_string())).await
        })
        .await
    };
    let (answers, _) = tokio::join!(all, bench.ledger.sql(LOCK));
    assert!(answers.iter().all(|answer| answer.status == 202));
    // All of a transaction are accepted at the same time.
    let commits = "SELECT count(DISTINCT accepted_at) FROM hooklane.messages";
    let commits: usize = bench.ledger.sql(commits).await.parse().unwrap();
    assert!(
        commits < CLIENTS / 2,
        "{commits} commits for {CLIENTS} messages"
    );
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_neither_loses_nor_stalls_others() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let answers = together(&served, CLIENTS, |at, mut client| async move {
        let mut ids = Vec::new();
        for n in 0..20 {
            let post = client.post(MESSAGES, keyed(&format!("{at}-{n}")));
            if at % 2 == 0 {
                // Gone while it is waiting, being committed, or answered.
                let patience = Duration::from_micros(300 * (n + at as u64 % 7));
                if tokio::time::timeout(patience, post).await.is_err() {
                    return None;
                }
            } else {
                let answer = post.await;
                assert_eq!(answer.status, 202, "{answer:?}");
                ids.push(answer.body["id"].as_str().unwrap().to_owned());
            }
        }
        Some(ids)
    })
    .await;
    let ids: BTreeSet<String> = answers.into_iter().flatten().flatten().collect();
    assert_eq!(ids.len(), CLIENTS / 2 * 20);
    let kept = bench
        .ledger
        .sql("SELECT count(*) FROM hooklane.idempotency_keys WHERE split_part(key, '-', 1)::int % 2 = 1")
        .await;
    assert_eq!(kept, ids.len().to_string());
    // Whose client is gone is in the ledger whole, or not at all.
    let halves = "SELECT count(*) FROM hooklane.idempotency_keys k
                  FULL JOIN hooklane.messages m ON m.id = k.message_id
                  WHERE m.id IS NULL OR k.key IS NULL";
    assert_eq!(bench.ledger.sql(halves).await, "0");
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_202_outlives_the_database() {
    let server = Server::start().await.unwrap();
    let bench = Bench::with(Ledger::on(&server).await).await;
    let served = bench.serve(Config::default()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let load = together(&served, 16, |at, mut client| {
        let stop = Arc::clone(&stop);
        async move {
            let mut taken = Vec::new();
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // Each is sent until it is taken, always with the same key.
                loop {
                    let answer = client.post(MESSAGES, keyed(&format!("{at}-{n}"))).await;
                    if answer.status == 202 {
                        taken.push(answer.body["id"].as_str().unwrap().to_owned());
                        break;
                    }
                    assert!([429, 503].contains(&answer.status.as_u16()), "{answer:?}");
                    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            taken
        }
    });
    let harm = async {
        let some = "SELECT count(*) > 50 FROM hooklane.messages";
        for _ in 0..2 {
            bench.until_sql(some, "t").await;
            server.kill9().await.unwrap();
            server.restart().await.unwrap();
            bench.until_sql("SELECT 1", "1").await;
        }
        let before = bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.messages")
            .await;
        let more = format!("SELECT count(*) > {before} + 50 FROM hooklane.messages");
        bench.until_sql(&more, "t").await;
        stop.store(true, Ordering::Relaxed);
    };
    let (results, ()) = tokio::join!(load, harm);
    let all: Vec<String> = results.into_iter().flatten().collect();
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
    let kept = bench
        .ledger
        .sql("SELECT count(*) FROM hooklane.messages")
        .await;
    assert_eq!(kept, all.len().to_string());
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn intake_goes_on_without_the_broker_up_to_the_limit() {
    let bench = Bench::new().await;
    bench.ledger.endpoint(1).await;
    let mut config = Config::default();
    config.intake.unpublished_limit = 20;
    config.intake.publish_within = Duration::from_secs(1);
    let served = bench.serve(config).await;
    let mut client = served.connect().await;
    bench.nats.kill9().await.unwrap();
    for n in 0..20 {
        let answer = client.post(MESSAGES, keyed(&n.to_string())).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    let mut refused = None;
    wait::until("it is refused", BUDGET, async || {
        let answer = client.post(MESSAGES, keyed("0")).await;
        let busy = answer.status == 429;
        refused = Some(answer);
        busy
    })
    .await
    .unwrap();
    let refused = refused.unwrap();
    assert_eq!(refused.code(), "busy");
    assert!(refused.headers.contains_key("retry-after"));
    bench.nats.restart().await.unwrap();
    wait::until("it is taken again", BUDGET, async || {
        client.post(MESSAGES, keyed("after")).await.status == 202
    })
    .await
    .unwrap();
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_at_the_end_is_committed_and_answered() {
    let bench = Bench::new().await;
    let mut config = Config::default();
    config.intake.commits_at_once = 1;
    let served = bench.serve(config).await;
    let (address, key) = (served.address, served.key.clone());
    let mut tasks = JoinSet::new();
    let end = async {
        locked(&bench).await;
        for at in 0..8 {
            let mut client = crate::client::Client::connect(address, &key).await;
            tasks.spawn(async move { client.post(MESSAGES, keyed(&at.to_string())).await });
        }
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted
                     AND relation = 'hooklane.idempotency_keys'::regclass
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        bench.until_sql(waits, "1").await;
        served.running.stop().await;
    };
    tokio::join!(bench.ledger.sql(LOCK), end);
    let answers = tasks.join_all().await;
    assert!(
        answers.iter().all(|answer| answer.status == 202),
        "{answers:?}"
    );
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.messages")
            .await,
        "8"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_with_common_keys_agree() {
    let bench = Bench::new().await;
    let mut config = Config::default();
    config.intake.commits_at_once = 4;
    let served = bench.serve(config).await;
    let answers = together(&served, 16, |at, mut client| async move {
        // The same keys in another order, and each of them twice.
        let keys = (0..50).map(|n| (n * 7 + at) % 50);
        let messages: Vec<String> = keys
            .clone()
            .chain(keys)
            .map(|n| keyed(&n.to_string()))
            .collect();
        client
            .post(
                BATCH,
                format!(r#"{{"messages": [{}]}}"#, messages.join(",")),
            )
            .await
    })
    .await;
    let (mut ids, mut accepted) = (BTreeSet::new(), 0);
    for answer in &answers {
        assert_eq!(answer.status, 200, "{answer:?}");
        for result in answer.body["results"].as_array().unwrap() {
            assert_ne!(result["status"], "rejected", "{result}");
            accepted += usize::from(result["status"] == "accepted");
            ids.insert(result["id"].as_str().unwrap());
        }
    }
    assert_eq!((ids.len(), accepted), (50, 50));
    served.running.stop().await;
}
