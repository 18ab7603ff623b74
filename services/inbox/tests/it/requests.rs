//! Handlers that answer, over NATS and over HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hooklane_inbox::Config;
use hooklane_nats::Client;
use hooklane_proto::header;
use hooklane_proto::id::InboxId;
use hooklane_testkit::{Receiver, Reply, wait};

use crate::bench::{BUDGET, Bench, config};
use crate::client::Event;

const SUBJECT: &str = "billing.webhooks";

fn asking(hand_off: &str) -> Config {
    let mut config = config("");
    let shop = config.sources.get_mut("shop").unwrap();
    shop.entities[0].machine = None;
    shop.hand_off = toml::from_str(hand_off).unwrap();
    config
}

/// A handler that fails on `evt_bad` until it is repaired, and notes which attempts it saw of it.
struct Handler {
    attempts: Arc<Mutex<Vec<String>>>,
    repaired: Arc<AtomicBool>,
}

impl Handler {
    async fn start(client: &Client) -> Self {
        let handler = Self {
            attempts: Arc::default(),
            repaired: Arc::default(),
        };
        let (attempts, repaired) = (Arc::clone(&handler.attempts), Arc::clone(&handler.repaired));
        let mut requests = client.serve(SUBJECT.to_owned()).await.unwrap();
        tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                let bad = request.header(header::PARTNER_EVENT) == Some("evt_bad");
                if bad {
                    let attempt = request.header(header::INBOX_ATTEMPT).unwrap().to_owned();
                    attempts.lock().unwrap().push(attempt);
                }
                let answer = match bad && !repaired.load(Ordering::SeqCst) {
                    true => r#"{"outcome":"failed","reason":"no such account"}"#,
                    false => r#"{"outcome":"processed"}"#,
                };
                request.reply(answer.into()).await.unwrap();
            }
        });
        handler
    }

    fn attempts(&self) -> Vec<String> {
        self.attempts.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_failing_event_is_tried_after_1_5_and_15_minutes_then_set_aside_and_replayed() {
    let bench = Bench::new().await;
    let handler = Handler::start(&bench.client).await;
    let hand_off = format!("mode = \"request\"\nsubject = \"{SUBJECT}\"");
    let served = bench.serve(asking(&hand_off)).await;
    let mut partner = served.connect().await;
    // Of one order, so that it could block the others if anything did.
    let mut send = async |id: &str| {
        let event = Event::order(id, "order.changed", "o1", bench.clock.now());
        partner.send(&event).await;
    };
    send("evt_bad").await;
    send("evt_1").await;
    bench
        .until_statuses("evt_1=PROCESSED evt_bad=PENDING")
        .await;
    let failed = "SELECT failures, round(extract(epoch FROM next_at - received_at))
                    FROM hooklane.webhook_inbox WHERE partner_event_id = 'evt_bad'";
    let mut due = 0;
    for (failures, delay) in [(1, 60), (2, 300), (3, 900)] {
        due += delay;
        bench.until_sql(failed, &format!("{failures}|{due}")).await;
        assert_eq!(handler.attempts().len(), failures);
        bench.clock.forward(delay - 1);
        // What comes meanwhile is handed on, and the other is not due.
        send(&format!("evt_later_{failures}")).await;
        let later = format!(
            "SELECT status FROM hooklane.webhook_inbox WHERE partner_event_id = 'evt_later_{failures}'"
        );
        bench.until_sql(&later, "PROCESSED").await;
        assert_eq!(handler.attempts().len(), failures);
        bench.clock.forward(1);
    }
    let aside = "SELECT status, reason, failures FROM hooklane.webhook_inbox
                  WHERE partner_event_id = 'evt_bad'";
    bench.until_sql(aside, "QUARANTINED|handler_failed|4").await;
    assert_eq!(handler.attempts(), ["1", "2", "3", "4"]);
    let told = "SELECT count(*) FROM hooklane.operational_events
                 WHERE event_type = 'hooklane.inbox.quarantined'";
    bench.until_sql(told, "1").await;
    assert_eq!(served.running.handle.stats().quarantined, 1);

    handler.repaired.store(true, Ordering::SeqCst);
    let id = "SELECT id FROM hooklane.webhook_inbox WHERE partner_event_id = 'evt_bad'";
    let id: InboxId = bench.ledger.sql(id).await.parse().unwrap();
    let store = &bench.ledger.store;
    store.inbox_replay(bench.clock.now(), &[id]).await.unwrap();
    let status = "SELECT status FROM hooklane.webhook_inbox WHERE partner_event_id = 'evt_bad'";
    bench.until_sql(status, "PROCESSED").await;
    assert_eq!(handler.attempts().len(), 5);
    served.running.stop().await;
}

#[tokio::test]
async fn a_handler_that_is_not_there_has_not_failed() {
    let bench = Bench::new().await;
    let hand_off = format!("mode = \"request\"\nsubject = \"{SUBJECT}\"");
    let served = bench.serve(asking(&hand_off)).await;
    let now = bench.clock.now();
    let mut partner = served.connect().await;
    partner
        .send(&Event::order("evt_1", "order.changed", "o1", now))
        .await;
    let handle = &served.running.handle;
    wait::until("the handler to be missed", BUDGET, async || {
        handle.stats().unreached > 0
    })
    .await
    .unwrap();
    let failures = "SELECT status, failures FROM hooklane.webhook_inbox";
    bench.until_sql(failures, "PENDING|0").await;

    let handler = Handler::start(&bench.client).await;
    // Its lease ends.
    bench.clock.forward(60);
    bench.until_statuses("evt_1=PROCESSED").await;
    assert_eq!(handler.attempts().len(), 0);
    served.running.stop().await;
}

#[tokio::test]
async fn an_http_handler_answers_by_status_and_body() {
    let bench = Bench::new().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/hook",
        [
            Reply::status(204),
            Reply::status(425),
            Reply::status(500),
            Reply::status(302).header("location", "/elsewhere"),
        ],
    );
    let hand_off = format!("mode = \"request\"\nurl = \"{}\"", receiver.url("/hook"));
    let served = bench.serve(asking(&hand_off)).await;
    let now = bench.clock.now();
    let mut partner = served.connect().await;
    for (n, expected) in (1..).zip(["PROCESSED|0|0", "PENDING|0|1", "PENDING|1|0", "PENDING|1|0"]) {
        let event = Event::order(&format!("evt_{n}"), "order.changed", &format!("o{n}"), now);
        partner.send(&event).await;
        let sql = format!(
            "SELECT status, failures, deferrals FROM hooklane.webhook_inbox
              WHERE partner_event_id = 'evt_{n}'
                AND (failures + deferrals > 0 OR status <> 'PENDING')"
        );
        bench.until_sql(&sql, expected).await;
    }
    let requests = receiver.requests();
    assert_eq!(requests.len(), 4);
    assert_eq!(requests[0].header("hooklane-partner-event"), Some("evt_1"));
    assert_eq!(requests[0].header("hooklane-entity"), Some("order/o1"));
    assert_eq!(requests[0].body, r#"{"type":"order.changed","order":"o1"}"#);
    served.running.stop().await;
}

#[tokio::test]
async fn a_handler_has_only_so_many_requests_at_a_time() {
    let bench = Bench::new().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.always("/hook", Reply::status(200).after(Duration::from_millis(50)));
    let hand_off = format!("mode = \"request\"\nurl = \"{}\"", receiver.url("/hook"));
    let mut config = asking(&hand_off);
    config.hand_off.requests_at_once = 3;
    let served = bench.serve(config).await;
    let now = bench.clock.now();
    let mut partner = served.connect().await;
    for n in 0..20 {
        let event = Event::order(&format!("evt_{n}"), "order.changed", &format!("o{n}"), now);
        partner.send(&event).await;
    }
    let done = "SELECT count(*) FROM hooklane.webhook_inbox WHERE status = 'PROCESSED'";
    bench.until_sql(done, "20").await;
    assert!((2..=3).contains(&receiver.counts().max_in_flight));
    served.running.stop().await;
}
