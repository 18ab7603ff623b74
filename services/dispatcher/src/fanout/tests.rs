//! Lanes that fail, against a real nats-server: only from inside can a lane be made to fail.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::TimeDelta;
use hooklane_core::clock::{self, Boot};
use hooklane_core::rules::address::Policy;
use hooklane_core::rules::schedule::Schedule;
use hooklane_core::secrets::{MasterKeyConfig, MasterKeys, generate_master_key};
use hooklane_nats::{Client, Outgoing, Publisher, PullConfig, Puller, inspect, topology};
use hooklane_proto::delivery::{Delivery, DeliveryKey};
use hooklane_proto::event::Event;
use hooklane_proto::id::MessageId;
use hooklane_proto::record::{Batch, Record};
use hooklane_proto::route::{Route, State as RouteState};
use hooklane_proto::subject;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_testkit::nats::Server;
use hooklane_testkit::{Receiver, Reply, wait};
use tokio::time::Instant;

use super::*;
use crate::config::{Config, Restart};
use crate::drain::Haste;
use crate::ownership::Term;
use crate::partition::Partition;
use crate::{Parts, Service};

const SOON: Duration = Duration::from_secs(20);

struct Bench {
    _server: Server,
    nats: Client,
    term: Term,
    partition: Partition,
    config: Config,
    receiver: Receiver,
    route: Route,
    publisher: Publisher,
    puller: Puller,
    next: u64,
}

impl Bench {
    async fn start(max: u32) -> Self {
        let server = Server::start().await.unwrap();
        let nats = Client::connect(&hooklane_nats::Config {
            url: server.url().into(),
            partitions: 1,
            ..hooklane_nats::Config::default()
        })
        .await
        .unwrap();
        topology::ensure(&nats).await.unwrap();
        let keys = MasterKeys::new(&[MasterKeyConfig {
            id: "k1".to_owned(),
            key: generate_master_key(),
        }])
        .unwrap();
        let receiver = Receiver::start().await.unwrap();
        let endpoint = EndpointId::for_test(7);
        let aad = endpoint.to_string();
        let secret = keys.encrypt(&[7; 32], aad.as_bytes()).unwrap();
        let route = Route {
            endpoint,
            consumer: ConsumerId::new("acme").unwrap(),
            version: 1,
            state: RouteState::Active,
            url: receiver.url("/"),
            rate: None,
            burst: 1,
            concurrency: 1,
            timeout_ms: 30_000,
            secrets: vec![STANDARD.encode(secret)],
            headers: None,
            held_until: None,
        };
        let config = Config {
            restart: Restart {
                max,
                ..Restart::default()
            },
            drain_attempts: Duration::from_millis(200),
            not_after: Duration::from_secs(3),
            ..Config::default()
        };
        let parts = Parts {
            nats: nats.clone(),
            keys: Arc::new(keys),
            addresses: Policy::loopback(),
            schedule: Schedule::default(),
        };
        let process = Service::new(config.clone(), parts).unwrap().process;
        process.table.learn(route.clone());
        let term = Term::new(Boot::now().after(Duration::from_secs(600)));
        let durable = subject::RECORDS_DURABLE;
        Self {
            partition: Partition::start(&process, 0, term.clone()).await.unwrap(),
            nats: nats.clone(),
            term,
            publisher: Publisher::new(&nats, 10, 1 << 20),
            puller: Puller::new(&nats, subject::RECORDS, durable, PullConfig::default()),
            _server: server,
            config,
            receiver,
            route,
            next: 1,
        }
    }

    async fn deliver(&mut self) -> MessageId {
        self.next += 1;
        let now = clock::now();
        let message = MessageId::for_test(self.next);
        let delivery = Delivery {
            key: DeliveryKey {
                accepted_at: now,
                message,
                endpoint: self.route.endpoint,
            },
            consumer: self.route.consumer.clone(),
            event_type: EventType::new("a.b").unwrap(),
            content_type: "text/plain".to_owned(),
            series: 1,
            drive: 1,
            attempts: 0,
            counted: 0,
            endpoint_version: 1,
            due_at: now,
            deadline: now + TimeDelta::hours(1),
            not_after: now + TimeDelta::minutes(1),
            trace: None,
            payload: Bytes::from_static(b"x"),
        };
        let outgoing = Outgoing {
            subject: delivery.subject(),
            headers: delivery.headers(),
            payload: delivery.payload,
        };
        let give_up = Instant::now() + SOON;
        self.publisher.publish(outgoing, give_up).await.unwrap();
        message
    }

    async fn publish_event(&self) {
        let now = clock::now();
        let event = Event {
            message: MessageId::for_test(1),
            consumer: self.route.consumer.clone(),
            event_type: EventType::new("a.b").unwrap(),
            content_type: "text/plain".to_owned(),
            accepted_at: now,
            not_after: now + TimeDelta::minutes(1),
            deadline: now + TimeDelta::hours(1),
            part: 0,
            targets: vec![Target {
                endpoint: self.route.endpoint,
                version: 1,
            }],
            trace: None,
            payload: Bytes::from_static(b"x"),
        };
        let outgoing = Outgoing {
            subject: event.subject(),
            headers: event.headers(),
            payload: event.payload,
        };
        let give_up = Instant::now() + SOON;
        self.publisher.publish(outgoing, give_up).await.unwrap();
    }

    async fn api(&self, request: &str, body: &str) -> serde_json::Value {
        let (subject, body) = (format!("$JS.API.{request}"), body.to_owned().into());
        let answer = self.nats.request(subject, body, SOON).await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert!(answer.get("error").is_none(), "{request}: {answer}");
        answer
    }

    /// Waits until the event was pulled so many times.
    async fn event_came(&self, times: u64) {
        let durable = subject::fanout_durable(0);
        let request = format!("CONSUMER.INFO.{}.{durable}", subject::EVENTS);
        wait::until("the event to come", SOON, || async {
            let info = self.api(&request, "").await;
            info["delivered"]["consumer_seq"].as_u64() >= Some(times)
        })
        .await
        .unwrap();
    }

    async fn records(&mut self, count: usize) -> HashMap<MessageId, Record> {
        let mut records = HashMap::new();
        while records.len() < count {
            let message = tokio::time::timeout(SOON, self.puller.next())
                .await
                .unwrap();
            let batch = Batch::decode(&message.payload).unwrap();
            message.token.ack().await;
            for record in batch.records {
                records.insert(record.drive().key.message, record);
            }
        }
        records
    }

    async fn stop(mut self) {
        let haste = Haste::default();
        haste.shutdown.cancel();
        self.partition.stop(&self.config, &haste).await;
    }

    fn fail_lane(&self) {
        let message = Msg::PanicLane(self.route.endpoint);
        self.partition.fanout.cast(message).unwrap();
    }
}

fn is_fault(record: &Record) -> bool {
    matches!(record, Record::Parked(parked) if parked.reason == ParkReason::Fault)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_lane_held_is_recorded_and_the_next_delivery_starts_it_anew() {
    let mut bench = Bench::start(3).await;
    bench.receiver.script("/", [Reply::hang()]);
    let flying = bench.deliver().await;
    bench.receiver.wait_for(1, SOON).await.unwrap();
    let queued = bench.deliver().await;
    // Both, and the place that is taken before the next message is.
    let held = bench.config.max_held_per_partition as usize - 3;
    wait::until("the second delivery to be held", SOON, || async {
        bench.partition.permits.available_permits() == held
    })
    .await
    .unwrap();
    bench.fail_lane();
    let records = bench.records(2).await;
    match &records[&flying] {
        Record::Attempt(attempt) => {
            assert_eq!(attempt.error.as_deref(), Some("interrupted"));
            assert_eq!(attempt.counted, 0);
        }
        other => panic!("{other:?}"),
    }
    assert!(is_fault(&records[&queued]), "{records:?}");
    let next = bench.deliver().await;
    let records = bench.records(1).await;
    assert!(matches!(&records[&next], Record::Attempt(a) if a.status == Some(200)));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_fails_too_often_stays_down_and_its_deliveries_are_parked() {
    let mut bench = Bench::start(1).await;
    for _ in 0..2 {
        let sent = bench.deliver().await;
        let records = bench.records(1).await;
        assert!(matches!(&records[&sent], Record::Attempt(a) if a.status == Some(200)));
        bench.fail_lane();
    }
    // Its failure and this delivery are different mailboxes' matters; either way it is parked.
    let parked = bench.deliver().await;
    let records = bench.records(1).await;
    if !is_fault(&records[&parked]) {
        let parked = bench.deliver().await;
        assert!(is_fault(&bench.records(1).await[&parked]));
    }
    let arrived = bench.receiver.counts().arrived;
    let parked = bench.deliver().await;
    assert!(is_fault(&bench.records(1).await[&parked]));
    assert_eq!(bench.receiver.counts().arrived, arrived);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_left_to_the_next_owner_once_the_lease_is_gone() {
    let bench = Bench::start(3).await;
    bench.term.revoke();
    bench.publish_event().await;
    bench.event_came(2).await;
    let copies = inspect::stream_state(&bench.nats, subject::DELIVERIES).await;
    assert_eq!(copies.unwrap().last_sequence, 0);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_not_copied_is_left_to_the_next_owner_if_the_lease_went_meanwhile() {
    let bench = Bench::start(3).await;
    let deliveries = subject::DELIVERIES;
    let info = bench.api(&format!("STREAM.INFO.{deliveries}"), "").await;
    let mut full = info["config"].clone();
    full["max_bytes"] = 1.into();
    let update = format!("STREAM.UPDATE.{deliveries}");
    bench.api(&update, &full.to_string()).await;
    bench.publish_event().await;
    bench.event_came(1).await;
    bench.term.revoke();
    bench.event_came(2).await;
    bench.stop().await;
}
