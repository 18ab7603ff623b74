//! A ledger, a broker with its streams, a mover between them, and a lane that never settles.

use std::time::Duration;

use bytes::Bytes;
use hooklane_core::clock;
use hooklane_dlq::{Config, Handle, Service};
use hooklane_nats::stored::{self, Stored};
use hooklane_nats::{Client, Incoming, Outgoing, Publisher, PullConfig, Puller, inspect};
use hooklane_proto::dead_letter::DeadLetter;
use hooklane_proto::delivery::{Delivery, DeliveryKey};
use hooklane_proto::event::{Event, Target};
use hooklane_proto::record::FailureReason;
use hooklane_proto::subject;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_testkit::nats::Server;
use hooklane_testkit::{Running, wait};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::broker::Broker;
use crate::ledger::{Ledger, drive, failed};

pub(crate) const BUDGET: Duration = Duration::from_secs(30);
/// The partition, of 16, of the consumer `acme`.
pub(crate) const PARTITION: u16 = 15;

pub(crate) struct Bench {
    pub(crate) ledger: Ledger,
    pub(crate) client: Client,
    pub(crate) publisher: Publisher,
    pub(crate) nats: Server,
}

/// A mover at work.
pub(crate) type Mover = Running<Handle>;

/// Quick; exhausted messages are not searched for within a test.
pub(crate) fn config() -> Config {
    Config {
        look_every: Duration::from_millis(50),
        search_every: Duration::from_secs(600),
        ..Config::default()
    }
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let broker = Broker::start_with(|config| config.partitions = 16).await;
        let Broker { server, client } = broker.unwrap();
        let publisher = Publisher::new(&client, 1_000, 8 << 20);
        Self {
            ledger: Ledger::new().await,
            client,
            publisher,
            nats: server,
        }
    }

    pub(crate) fn mover(&self, config: Config) -> Mover {
        let service = Service::new(config, self.ledger.store.clone(), self.client.clone());
        Running::start(service.handle(), |shutdown| service.run(shutdown))
    }

    /// Records that the first attempt of a delivery was its last.
    pub(crate) async fn fail(&self, key: DeliveryKey, reason: FailureReason) {
        let records = [failed(drive(key, 1), fresh(), 1, reason)];
        self.ledger.store.apply(&records).await.unwrap();
    }

    /// Waits until a query gives this.
    pub(crate) async fn until(&self, sql: &str, expected: &str) {
        let database = &self.ledger.database;
        database.until(sql, expected, BUDGET).await.unwrap();
    }

    /// Everything in `DLQ`, in its order.
    pub(crate) async fn stored(&self) -> Vec<Stored> {
        let state = inspect::stream_state(&self.client, subject::DLQ).await;
        let state = state.unwrap();
        let mut found = Vec::new();
        for sequence in state.first_sequence.max(1)..=state.last_sequence {
            let message = stored::get(&self.client, subject::DLQ, sequence).await;
            found.extend(message.unwrap());
        }
        found
    }

    /// The deliveries in `DLQ`, in its order.
    pub(crate) async fn letters(&self) -> Vec<DeadLetter> {
        let stored = self.stored().await;
        stored
            .iter()
            .map(|message| {
                let header = |name: &str| message.header(name);
                DeadLetter::read(&message.subject, header, message.payload.clone()).unwrap()
            })
            .collect()
    }

    /// Waits until a stream has so many messages; `false` for a stream that is not there.
    pub(crate) async fn until_count(&self, stream: &str, count: u64) {
        let what = format!("{stream} to have {count} messages");
        wait::until(&what, BUDGET, async || {
            let state = inspect::stream_state(&self.client, stream).await;
            state.is_ok_and(|state| state.messages == count)
        })
        .await
        .unwrap();
    }

    pub(crate) async fn publish(&self, message: Outgoing) {
        let give_up = Instant::now() + BUDGET;
        self.publisher.publish(message, give_up).await.unwrap();
    }

    /// Puts a drive of a delivery into the broker.
    pub(crate) async fn drive(&self, key: DeliveryKey, drive: i32) {
        let event = event(key);
        let late = clock::now() + chrono::TimeDelta::hours(1);
        let delivery = Delivery {
            drive,
            ..Delivery::first(&event, event.targets[0], late)
        };
        let message = Outgoing {
            subject: delivery.subject(),
            headers: delivery.headers(),
            payload: delivery.payload.clone(),
        };
        self.publish(message).await;
    }

    /// Calls the JetStream API.
    pub(crate) async fn api(&self, request: &str, body: &Value) -> Value {
        let body = if body.is_null() {
            Bytes::new()
        } else {
            body.to_string().into()
        };
        let subject = format!("$JS.API.{request}");
        let answer = self.client.request(subject, body, BUDGET).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(answer.get("error").is_none(), "{request}: {answer}");
        answer
    }

    /// Gives lanes 50 ms to settle a message, so that twenty deliveries take a second.
    pub(crate) async fn hurry_lanes(&self) {
        let durable = subject::lanes_durable(PARTITION);
        let request = format!("CONSUMER.INFO.DELIVERIES.{durable}");
        let mut config = self.api(&request, &Value::Null).await["config"].take();
        config["ack_wait"] = 50_000_000.into();
        let request = format!("CONSUMER.DURABLE.CREATE.DELIVERIES.{durable}");
        let body = json!({"stream_name": "DELIVERIES", "config": config, "action": "update"});
        self.api(&request, &body).await;
    }

    fn puller(&self) -> Puller {
        let durable = subject::lanes_durable(PARTITION);
        let config = PullConfig {
            heartbeat: Duration::from_millis(500),
            ..PullConfig::default()
        };
        Puller::new(&self.client, subject::DELIVERIES, &durable, config)
    }

    /// A lane that takes messages and never settles one, until it is dropped.
    pub(crate) fn stuck_lane(&self) -> Stuck {
        let mut puller = self.puller();
        Stuck(tokio::spawn(async move {
            loop {
                let Incoming { token, .. } = puller.next().await;
                // As in a process that dies with it.
                std::mem::forget(token);
            }
        }))
    }

    /// The next message for the lanes.
    pub(crate) async fn next(&self) -> Incoming {
        timeout(BUDGET, self.puller().next()).await.unwrap()
    }
}

pub(crate) struct Stuck(JoinHandle<()>);

impl Drop for Stuck {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn event(key: DeliveryKey) -> Event {
    Event {
        message: key.message,
        consumer: ConsumerId::new("acme").unwrap(),
        event_type: EventType::new("invoice.paid").unwrap(),
        content_type: "application/json".to_owned(),
        accepted_at: key.accepted_at,
        not_after: key.accepted_at,
        deadline: key.accepted_at + chrono::TimeDelta::hours(48),
        part: 0,
        targets: vec![Target {
            endpoint: key.endpoint,
            version: 1,
        }],
        trace: None,
        payload: Bytes::from_static(b"{}"),
    }
}

/// A number that no other attempt of this process has.
fn fresh() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}
