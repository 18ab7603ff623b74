//! A nats-server with the streams, a dispatcher on it, and what it recorded.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_core::rules::address::Policy;
use hooklane_core::rules::schedule::Schedule;
use hooklane_core::secrets::{MasterKeyConfig, MasterKeys, generate_master_key};
use hooklane_dispatcher::{Config, Handle, Parts, Service};
use hooklane_nats::{Client, Outgoing, PubAck, Publisher, PullConfig, Puller, Routes};
use hooklane_proto::delivery::{Delivery, DeliveryKey};
use hooklane_proto::event::{Event, Target};
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::record::{Attempt, Batch, Record};
use hooklane_proto::route::{Route, State};
use hooklane_proto::subject;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_testkit::nats::Server;
use hooklane_testkit::wait;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::broker::{self, Broker};

/// Time for things that take none.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// The signing secret of every endpoint, of the reference library's form.
pub(crate) const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// Everything around a dispatcher.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) nats: Client,
    pub(crate) keys: Arc<MasterKeys>,
    pub(crate) routes: Routes,
    pub(crate) recorded: Recorded,
    publisher: Publisher,
    next: AtomicU64,
}

/// A dispatcher at work.
pub(crate) type Running = hooklane_testkit::Running<Handle>;

pub(crate) fn consumer() -> ConsumerId {
    ConsumerId::new("acme").unwrap()
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let broker = Broker::start().await.unwrap();
        let (server, nats) = (broker.server, broker.client);
        let keys = MasterKeys::new(&[MasterKeyConfig {
            id: "k1".to_owned(),
            key: generate_master_key(),
        }])
        .unwrap();
        Self {
            keys: Arc::new(keys),
            routes: Routes::new(&nats),
            recorded: Recorded::follow(&nats),
            publisher: Publisher::new(&nats, 1_000, 64 << 20),
            next: AtomicU64::new(1),
            server,
            nats,
        }
    }

    pub(crate) fn dispatcher(&self, config: Config) -> Running {
        self.dispatcher_with(config, Policy::loopback(), self.nats.clone())
    }

    pub(crate) fn dispatcher_with(
        &self,
        config: Config,
        addresses: Policy,
        nats: Client,
    ) -> Running {
        let parts = Parts {
            nats,
            keys: Arc::clone(&self.keys),
            addresses,
            schedule: Schedule::default(),
        };
        let service = Service::new(config, parts).unwrap();
        Running::start(service.handle(), |shutdown| service.run(shutdown))
    }

    /// Another connection to the same server.
    pub(crate) async fn connect(&self) -> Client {
        Client::connect(&broker::config(&self.server))
            .await
            .unwrap()
    }

    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sealed as the ledger seals it.
    pub(crate) fn sealed(&self, endpoint: EndpointId, plain: &str) -> String {
        let aad = endpoint.to_string();
        let sealed = self.keys.encrypt(plain.as_bytes(), aad.as_bytes()).unwrap();
        STANDARD.encode(sealed)
    }

    /// Settings of a new endpoint, not stored yet.
    pub(crate) fn route(&self, url: &str) -> Route {
        let endpoint = EndpointId::for_test(self.number());
        Route {
            endpoint,
            consumer: consumer(),
            version: 1,
            state: State::Active,
            url: url.to_owned(),
            rate: None,
            burst: 50,
            concurrency: 16,
            timeout_ms: 2_000,
            secrets: vec![self.sealed(endpoint, SECRET)],
            headers: None,
            held_until: None,
        }
    }

    /// Stores a new endpoint that is attempted at `url`.
    pub(crate) async fn endpoint(&self, url: &str) -> Route {
        let route = self.route(url);
        self.routes.put(&route).await.unwrap();
        route
    }

    /// A drive of a new message to an endpoint.
    pub(crate) fn delivery(&self, route: &Route) -> Delivery {
        let now = clock::now();
        let n = self.number();
        Delivery {
            key: DeliveryKey {
                accepted_at: now,
                message: MessageId::for_test(n),
                endpoint: route.endpoint,
            },
            consumer: route.consumer.clone(),
            event_type: EventType::new("invoice.paid").unwrap(),
            content_type: "application/json".to_owned(),
            series: 1,
            drive: 1,
            attempts: 0,
            counted: 0,
            endpoint_version: route.version,
            due_at: now,
            deadline: now + TimeDelta::hours(48),
            not_after: now + TimeDelta::seconds(60),
            trace: None,
            payload: Bytes::from(format!(r#"{{"n": {n}}}"#)),
        }
    }

    pub(crate) async fn publish(&self, delivery: &Delivery) -> PubAck {
        let message = Outgoing {
            subject: delivery.subject(),
            headers: delivery.headers(),
            payload: delivery.payload.clone(),
        };
        let give_up = Instant::now() + SOON;
        self.publisher.publish(message, give_up).await.unwrap()
    }

    /// Publishes a drive of a new message to an endpoint.
    pub(crate) async fn deliver(&self, route: &Route) -> Delivery {
        let delivery = self.delivery(route);
        self.publish(&delivery).await;
        delivery
    }

    /// An event for some endpoints.
    pub(crate) fn event(&self, routes: &[&Route]) -> Event {
        let now = clock::now();
        let n = self.number();
        let target = |route: &&Route| Target {
            endpoint: route.endpoint,
            version: route.version,
        };
        Event {
            message: MessageId::for_test(n),
            consumer: consumer(),
            event_type: EventType::new("invoice.paid").unwrap(),
            content_type: "application/json".to_owned(),
            accepted_at: now,
            not_after: now + TimeDelta::seconds(20),
            deadline: now + TimeDelta::hours(48),
            part: 0,
            targets: routes.iter().map(target).collect(),
            trace: None,
            payload: Bytes::from(format!(r#"{{"n": {n}}}"#)),
        }
    }

    pub(crate) async fn publish_event(&self, event: &Event) -> PubAck {
        let message = Outgoing {
            subject: event.subject(),
            headers: event.headers(),
            payload: event.payload.clone(),
        };
        let give_up = Instant::now() + SOON;
        self.publisher.publish(message, give_up).await.unwrap()
    }

    /// Waits until a stream holds nothing that a durable has not settled.
    pub(crate) async fn settled(&self, stream: &str, durables: &[String]) {
        wait::until("everything to be settled", SOON, || async {
            let state = hooklane_nats::inspect::stream_state(&self.nats, stream)
                .await
                .unwrap();
            for durable in durables {
                let open = hooklane_nats::inspect::unsettled(
                    &self.nats,
                    stream,
                    durable,
                    state.last_sequence,
                );
                if open.await.unwrap() {
                    return false;
                }
            }
            true
        })
        .await
        .unwrap();
    }

    pub(crate) async fn deliveries_settled(&self) {
        let durables: Vec<_> = (0..2).map(subject::lanes_durable).collect();
        self.settled(subject::DELIVERIES, &durables).await;
    }
}

/// Records as they came, in the place of a recorder.
pub(crate) struct Recorded {
    seen: Arc<Mutex<Seen>>,
    _following: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Seen {
    records: Vec<Record>,
    batches: usize,
}

impl Recorded {
    fn follow(nats: &Client) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let following = tokio::spawn({
            let (seen, nats) = (Arc::clone(&seen), nats.clone());
            async move {
                let config = PullConfig::default();
                let durable = subject::RECORDS_DURABLE;
                let mut puller = Puller::new(&nats, subject::RECORDS, durable, config);
                loop {
                    let message = puller.next().await;
                    let batch = Batch::decode(&message.payload).unwrap();
                    message.token.ack().await;
                    let mut seen = seen.lock().unwrap();
                    seen.batches += 1;
                    seen.records.extend(batch.records);
                }
            }
        });
        Self {
            seen,
            _following: AbortOnDropHandle::new(following),
        }
    }

    pub(crate) fn all(&self) -> Vec<Record> {
        self.seen.lock().unwrap().records.clone()
    }

    pub(crate) fn batches(&self) -> usize {
        self.seen.lock().unwrap().batches
    }

    pub(crate) fn of(&self, delivery: &Delivery) -> Vec<Record> {
        let of = |record: &Record| record.drive().key == delivery.key;
        self.all().into_iter().filter(of).collect()
    }

    /// Waits for so many records in all.
    pub(crate) async fn wait(&self, count: usize, budget: Duration) -> Vec<Record> {
        let waited = wait::until(&format!("{count} records"), budget, || async {
            self.seen.lock().unwrap().records.len() >= count
        })
        .await;
        let all = self.all();
        assert!(waited.is_ok(), "{} of {count} records: {all:?}", all.len());
        all
    }

    /// Waits for a delivery's first record.
    pub(crate) async fn first(&self, delivery: &Delivery) -> Record {
        wait::until_some("a record", SOON, || async {
            self.of(delivery).into_iter().next()
        })
        .await
        .unwrap()
    }

    /// Waits for a delivery's first record, which is an attempt.
    pub(crate) async fn attempt(&self, delivery: &Delivery) -> Attempt {
        match self.first(delivery).await {
            Record::Attempt(attempt) => attempt,
            other => panic!("not an attempt: {other:?}"),
        }
    }
}

/// A PEM file that goes with its directory.
pub(crate) fn pem_file(dir: &tempfile::TempDir, pem: &str) -> PathBuf {
    let path = dir.path().join("roots.pem");
    std::fs::write(&path, pem).unwrap();
    path
}
