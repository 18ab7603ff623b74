//! `nats pub intake.<consumer>.<event type>`, the way in that needs nothing but the `nats` command:
//! what it publishes arrives at customers signed, stands in the ledger, and is nowhere lost
//! silently.

use hooklane_testkit::nats::Server as Nats;
use hooklane_testkit::receiver::Recorded;
use hooklane_testkit::wait::until;
use hooklane_testkit::{Receiver, Reply};
use serde_json::Value;

use crate::bench::Bench;
use crate::nats_cli::NatsCli;
use crate::process::Process;
use crate::system::{BUDGET, add_endpoint, ready, status_of, system};

const SUBJECT: &str = "intake.acme.invoice.paid";

/// A running Hooklane with one endpoint, and the command that publishes to its broker.
struct Intake {
    bench: Bench,
    nats: NatsCli,
    receiver: Receiver,
    endpoint: String,
    secret: String,
    // In this order: the process ends before its broker.
    _up: Process,
    _server: Nats,
}

impl Intake {
    async fn start() -> Self {
        let (bench, server, health) = system().await;
        let nats = NatsCli::find(&bench, server.url());
        let receiver = Receiver::start().await.unwrap();
        receiver.fallback(Reply::status(204));
        let (endpoint, secret) = add_endpoint(&bench, &receiver.url("/hook"));
        let up = Process::start(&bench, &["up"]);
        ready(&health).await;
        nats.keep_receipts();
        Self {
            bench,
            nats,
            receiver,
            endpoint,
            secret,
            _up: up,
            _server: server,
        }
    }

    /// Waits for the message's only delivery to be sent.
    async fn sent(&self, message: &str) {
        until("the delivery to be recorded", BUDGET, || async {
            status_of(&self.bench, message).await == "sent"
        })
        .await
        .unwrap();
    }

    /// The message that a request brought.
    async fn arrived(&self, at: usize) -> (Recorded, String) {
        self.receiver.wait_for(at as u64 + 1, BUDGET).await.unwrap();
        let request = self.receiver.requests().remove(at);
        let id = request.header("webhook-id").unwrap().to_owned();
        (request, id)
    }

    /// Waits until so many events are set aside, those that are still tried again among them.
    async fn set_aside(&self, count: usize) -> Vec<Value> {
        let list = || {
            let listed = self.bench.json(&["outbox", "rejected", "--waiting"]);
            listed["rejected"].as_array().unwrap().clone()
        };
        let what = format!("{count} events to be set aside");
        until(&what, BUDGET, || async { list().len() == count })
            .await
            .unwrap();
        list()
    }
}

/// Verified by the reference library, which also refuses old timestamps.
fn verify(request: &Recorded, secret: &str) {
    let mut headers = http::HeaderMap::new();
    for (name, value) in &request.headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, value.parse().unwrap());
    }
    let webhook = standardwebhooks::Webhook::new(secret).unwrap();
    webhook.verify(&request.body, &headers).unwrap();
    let mut altered = request.body.to_vec();
    altered.push(b' ');
    assert!(webhook.verify(&altered, &headers).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_nats_command_publishes_arrives_signed_and_stands_in_the_ledger() {
    // Spaces, an umlaut, and a number that no float holds: all of it is to come through.
    const PAYLOAD: &str = r#"{"n":  1, "who": "Zoë", "amount": 9007199254740993}"#;
    let intake = Intake::start().await;
    intake.nats.publish(SUBJECT, PAYLOAD, &[]);

    let (request, id) = intake.arrived(0).await;
    assert_eq!((request.method.as_str(), request.path()), ("POST", "/hook"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.body, PAYLOAD.as_bytes());
    verify(&request, &intake.secret);

    intake.sent(&id).await;
    let shown = intake.bench.json(&["message", "show", &id]);
    let message = &shown["messages"][0];
    assert_eq!(message["id"], id);
    assert_eq!(message["consumer"], "acme");
    assert_eq!(message["event_type"], "invoice.paid");
    assert_eq!(message["source"], "intake");
    assert_eq!(message["payload"], PAYLOAD);
    assert_eq!(message["delivery_count"], 1);
    let delivery = &message["deliveries"][0];
    assert_eq!(delivery["endpoint"], *intake.endpoint);
    assert_eq!(delivery["url"], intake.receiver.url("/hook"));
    let tries = delivery["tries"].as_array().unwrap();
    assert_eq!(tries.len(), 1, "{shown}");
    assert_eq!(
        (&tries[0]["number"], &tries[0]["series"]),
        (&1.into(), &1.into())
    );
    assert_eq!(
        (&tries[0]["status"], &tries[0]["verdict"]),
        (&204.into(), &"sent".into())
    );

    let list = ["delivery", "list", "--consumer", "acme", "--status", "sent"];
    let listed = intake.bench.json(&list);
    let deliveries = listed["deliveries"].as_array().unwrap();
    assert_eq!(deliveries.len(), 1, "{listed}");
    let delivery = &deliveries[0];
    assert_eq!(
        (&delivery["message"], &delivery["endpoint"]),
        (&id.into(), &intake.endpoint.clone().into())
    );
    assert_eq!(
        (&delivery["attempts"], &delivery["last_status"]),
        (&1.into(), &204.into())
    );
    assert_eq!(intake.receiver.counts().arrived, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_published_twice_is_one_message_and_the_receipts_say_so() {
    let intake = Intake::start().await;
    let headers = [
        "Hooklane-Idempotency-Key: order-7",
        "Hooklane-Receipt-To: receipts.shop",
    ];
    let publish = |body| intake.nats.publish(SUBJECT, body, &headers);
    publish(r#"{"order":7}"#);
    let first = intake.nats.receipt(1).await;
    let (_, id) = intake.arrived(0).await;
    assert_eq!(first["outcome"], "accepted");
    assert_eq!(
        (&first["message"], &first["key"]),
        (&id.clone().into(), &"order-7".into())
    );

    publish(r#"{"order":7}"#);
    let again = intake.nats.receipt(2).await;
    assert_eq!(again["outcome"], "repeat");
    for same in ["message", "accepted_at", "key"] {
        assert_eq!(again[same], first[same]);
    }

    // The same key for something else is no repetition, and not passed over in silence either.
    publish(r#"{"order":8}"#);
    let conflict = intake.nats.receipt(3).await;
    assert_eq!(
        (&conflict["outcome"], &conflict["reason"]),
        (&"rejected".into(), &"conflict".into())
    );
    assert_eq!(conflict["message"], Value::Null);
    let aside = intake.set_aside(1).await;
    assert_eq!(
        (&aside[0]["source"], &aside[0]["idempotency_key"]),
        (&"intake".into(), &"order-7".into())
    );
    assert_eq!(
        (&aside[0]["standing"], &aside[0]["reason"]),
        (&"rejected".into(), &"conflict".into())
    );

    // What is published last arrives as the second.
    intake.nats.publish(SUBJECT, r#"{"order":9}"#, &[]);
    let (request, other) = intake.arrived(1).await;
    assert_eq!(request.body, r#"{"order":9}"#);
    intake.sent(&other).await;
    intake.sent(&id).await;
    assert_eq!(intake.receiver.counts().arrived, 2);
    let found = intake.bench.json(&["message", "show", "order-7"]);
    assert_eq!(found["messages"].as_array().unwrap().len(), 1);
    assert_eq!(found["messages"][0]["id"], id);
    let listed = intake.bench.json(&["delivery", "list"]);
    assert_eq!(listed["deliveries"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_accepted_is_shown_to_the_operator_until_it_can() {
    let intake = Intake::start().await;
    let to = "Hooklane-Receipt-To: receipts.shop";
    let cases = [
        ("intake.acme.not-a-type", "bad_event_type", "rejected"),
        ("intake.acme", "bad_consumer", "rejected"),
        (
            "intake.acme.invoice.voided",
            "unknown_event_type",
            "waiting",
        ),
        ("intake.globex.invoice.paid", "unknown_consumer", "waiting"),
    ];
    let mut told = Vec::new();
    for (at, (subject, reason, outcome)) in (1..).zip(cases) {
        intake.nats.publish(subject, r#"{"n":1}"#, &[to]);
        let receipt = intake.nats.receipt(at).await;
        assert_eq!(
            (&receipt["outcome"], &receipt["reason"]),
            (&outcome.into(), &reason.into()),
            "{subject}"
        );
        told.push(receipt["detail"].clone());
    }
    let aside = intake.set_aside(4).await;
    for ((row, (subject, reason, standing)), detail) in aside.iter().zip(cases).zip(told) {
        assert_eq!(row["source"], "intake", "{subject}");
        assert_eq!(
            (&row["reason"], &row["standing"]),
            (&reason.into(), &standing.into()),
            "{subject}"
        );
        assert_eq!(
            (&row["detail"], &row["payload_bytes"]),
            (&detail, &7.into()),
            "{subject}"
        );
    }
    assert_eq!(aside[0]["event_type"], "not-a-type");
    assert_eq!(aside[3]["consumer"], "globex");
    let by_themselves = intake.bench.json(&["outbox", "rejected"]);
    assert_eq!(by_themselves["rejected"].as_array().unwrap().len(), 2);
    let table = intake.bench.ok(&["outbox", "rejected", "--waiting"]);
    for word in ["not-a-type", "invoice.voided", "globex", "unknown_consumer"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let status = intake.bench.json(&["outbox", "status"]);
    let counts = status["set_aside"].as_array().unwrap();
    let counted = |reason: &str| {
        let of = counts.iter().find(|count| count["reason"] == reason);
        of.map(|count| (count["source"].clone(), count["count"].clone()))
    };
    for (_, reason, _) in cases {
        assert_eq!(
            counted(reason),
            Some(("intake".into(), 1.into())),
            "{reason}"
        );
    }

    // Once the names are known, what waits for them is taken without anybody's doing.
    intake.bench.ok(&["event-type", "add", "invoice.voided"]);
    let (request, id) = intake.arrived(0).await;
    assert_eq!(request.body, r#"{"n":1}"#);
    verify(&request, &intake.secret);
    intake.sent(&id).await;
    intake.bench.ok(&["consumer", "add", "globex"]);
    let aside = intake.set_aside(2).await;
    assert!(
        aside.iter().all(|row| row["standing"] == "rejected"),
        "{aside:?}"
    );
}
