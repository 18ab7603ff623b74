//! The inbox as a process of its own, and as one service of many.

use std::sync::Arc;
use std::time::Duration;

use hooklane_core::clock;
use hooklane_nats::{Client, inspect};
use hooklane_testkit::wait::until;
use standardwebhooks::Webhook;
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::process::{Process, ask, free_address};
use crate::system::{BUDGET, ready, system};

const CONNECTIONS: usize = 10;
/// A partner's pause before it sends again what was not answered.
const AGAIN: Duration = Duration::from_millis(20);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A bench with one partner, and where it sends to.
async fn with_a_partner() -> (Bench, hooklane_testkit::nats::Server, String, String) {
    let (mut bench, nats, health) = system().await;
    let address = free_address();
    bench.set("HOOKLANE__INBOX__LISTEN", address.as_str());
    let text =
        format!("[inbox.sources.shop]\npreset = \"standard-webhooks\"\nsecrets = [\"{SECRET}\"]\n");
    bench.file("hooklane.toml", &text);
    (bench, nats, health, address)
}

/// Sends an event; the status, or none where there was no answer.
async fn send(address: &str, id: &str) -> Option<u16> {
    let body = r#"{"type": "order.paid", "order": "o1"}"#;
    let at = clock::now().timestamp();
    let signature = Webhook::new(SECRET).unwrap().sign(id, at, body.as_bytes());
    let headers = format!(
        "webhook-id: {id}\r\nwebhook-timestamp: {at}\r\nwebhook-signature: {}\r\n",
        signature.unwrap()
    );
    let (status, _) = ask(address, "POST", "/in/shop", &headers, body).await?;
    Some(status)
}

async fn rows(bench: &Bench) -> String {
    let sql = "SELECT count(*), count(DISTINCT partner_event_id), min(status), max(status)
                 FROM hooklane.webhook_inbox";
    bench.database().psql(sql).await.unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_sent_ten_times_into_a_killed_process_is_one_row_and_one_hand_off() {
    let (bench, nats, health, address) = with_a_partner().await;
    let mut process = Process::start(&bench, &["inbox", "run"]);
    ready(&health).await;
    let kills = [1, 3, 6, 10];
    for (round, answered_first) in (1..).zip(kills) {
        let id = format!("evt_{round}");
        let together = Arc::new(Barrier::new(CONNECTIONS));
        let (answered, mut answers) = mpsc::channel(CONNECTIONS);
        let mut sending = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (address, id) = (address.clone(), id.clone());
            let (together, answered) = (Arc::clone(&together), answered.clone());
            sending.spawn(async move {
                together.wait().await;
                loop {
                    if let Some(status) = send(&address, &id).await {
                        answered.send(status).await.unwrap();
                        return;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
        let mut statuses = Vec::new();
        while statuses.len() < answered_first {
            statuses.extend(answers.recv().await);
        }
        process.signal("KILL");
        process.wait(BUDGET).await;
        process = Process::start(&bench, &["inbox", "run"]);
        while statuses.len() < CONNECTIONS {
            statuses.extend(answers.recv().await);
        }
        assert_eq!(statuses, [200; CONNECTIONS]);
    }
    let (expected, count) = (kills.len().to_string(), kills.len() as u64);
    let all = format!("{expected}|{expected}|PROCESSED|PROCESSED");
    until("every event to be decided", BUDGET, async || {
        rows(&bench).await == all
    })
    .await
    .unwrap();
    let broker = hooklane_nats::Config {
        url: nats.url().into(),
        ..hooklane_nats::Config::default()
    };
    let client = Client::connect(&broker).await.unwrap();
    let waiting = "SELECT count(*) FROM hooklane.inbox_handoffs";
    let database = bench.database();
    database.until(waiting, "0", BUDGET).await.unwrap();
    let state = inspect::stream_state(&client, "INBOX").await.unwrap();
    assert_eq!(state.messages, count);
    process.signal("TERM");
    let ended = process.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
    assert!(!ended.log.contains(&SECRET[6..]), "{}", ended.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn up_runs_the_inbox_where_it_is_enabled_and_says_so_where_it_is_not() {
    let (mut bench, _nats, health, address) = with_a_partner().await;
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    assert_eq!(send(&address, "evt_1").await, None);
    up.signal("TERM");
    let ended = up.wait(BUDGET).await;
    assert!(
        ended.log.contains("inbox.enabled is false"),
        "{}",
        ended.log
    );

    bench.set("HOOKLANE__INBOX__ENABLED", "true");
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    assert_eq!(send(&address, "evt_1").await, Some(200));
    up.signal("TERM");
    let ended = up.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
}
