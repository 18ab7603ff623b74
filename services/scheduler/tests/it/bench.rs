//! A ledger, a broker with its streams, a scheduler between them, and a stand-in for the owner of a
//! partition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_nats::{Client, Outgoing, Publisher, PullConfig, Puller};
use hooklane_proto::delivery::{Delivery, DeliveryKey};
use hooklane_proto::id::EndpointId;
use hooklane_proto::record::{ParkReason, Record};
use hooklane_proto::room::{Reply, Request, Room};
use hooklane_proto::subject;
use hooklane_scheduler::{Config, Handle, Service};
use hooklane_store::dead_letter::Terms;
use hooklane_testkit::nats::Server;
use hooklane_testkit::{Running, wait};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::broker::Broker;
use crate::ledger::{Ledger, drive, parked};

pub(crate) const BUDGET: Duration = Duration::from_secs(30);
/// The partition, of 16, of the consumer `acme`.
pub(crate) const PARTITION: u16 = 15;

/// Those of the deployment's defaults.
pub(crate) const TERMS: Terms = Terms {
    deadline: Duration::from_secs(48 * 3600),
    retention_days: 35,
};

pub(crate) struct Bench {
    pub(crate) ledger: Ledger,
    pub(crate) client: Client,
    pub(crate) publisher: Publisher,
    pub(crate) nats: Server,
}

/// A scheduler at work.
pub(crate) struct Scheduler(Running<Handle>);

/// Quick, and with a short not-after, so that what is lost is found soon.
pub(crate) fn config() -> Config {
    let millis = Duration::from_millis;
    Config {
        top_up_every: millis(30),
        endings_every: millis(50),
        tasks_every: millis(20),
        task_pause: millis(5),
        sweep_every: millis(50),
        sweep_poll: millis(30),
        sweep_grace: millis(1_000),
        not_after: millis(1_000),
        clock_every: millis(200),
        clock_tolerance: millis(500),
        lead_every: millis(100),
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

    pub(crate) fn schedule(&self) -> Scheduler {
        let service = Service::new(
            config(),
            TERMS,
            self.ledger.store.clone(),
            self.client.clone(),
        );
        let handle = service.handle();
        Scheduler(Running::start(handle, |shutdown| service.run(shutdown)))
    }

    /// Deliveries that wait in the ledger, due one a second up to now, the first the longest.
    pub(crate) async fn stalled(
        &self,
        n: u64,
        first: u64,
        endpoint: EndpointId,
    ) -> Vec<DeliveryKey> {
        let now = clock::now();
        let keys = self
            .ledger
            .deliveries(first..first + n, endpoint, now)
            .await;
        let records: Vec<Record> = (0..)
            .zip(&keys)
            .map(|(i, key)| {
                let due = now - TimeDelta::seconds(i64::try_from(n).unwrap() - i);
                parked(drive(*key, 1), ParkReason::NoRoom, due)
            })
            .collect();
        self.ledger.store.apply(&records).await.unwrap();
        keys
    }

    /// Deliveries in their first drive, which began a minute ago.
    pub(crate) async fn driven_a_minute_ago(
        &self,
        numbers: std::ops::Range<u64>,
        endpoint: EndpointId,
    ) -> Vec<DeliveryKey> {
        let then = clock::now() - TimeDelta::seconds(60);
        let keys = self.ledger.deliveries(numbers, endpoint, then).await;
        self.ledger
            .sql(&format!(
                "UPDATE hooklane.deliveries SET partition = {PARTITION}"
            ))
            .await;
        keys
    }

    pub(crate) async fn publish(&self, message: Outgoing) {
        let give_up = Instant::now() + BUDGET;
        self.publisher.publish(message, give_up).await.unwrap();
    }

    /// Everything in a stream is lost.
    pub(crate) async fn purge(&self, stream: &str) {
        let subject = format!("$JS.API.STREAM.PURGE.{stream}");
        let answer = self
            .client
            .request(subject, Bytes::new(), BUDGET)
            .await
            .unwrap();
        assert!(String::from_utf8_lossy(&answer).contains("\"success\":true"));
    }

    pub(crate) fn lanes(&self) -> Lanes {
        let durable = subject::lanes_durable(PARTITION);
        Lanes(Puller::new(
            &self.client,
            subject::DELIVERIES,
            &durable,
            PullConfig::default(),
        ))
    }

    /// Waits until a query gives this.
    pub(crate) async fn until(&self, sql: &str, expected: &str) {
        let database = &self.ledger.database;
        database.until(sql, expected, BUDGET).await.unwrap();
    }
}

impl Scheduler {
    pub(crate) fn stats(&self) -> hooklane_scheduler::Stats {
        self.0.handle.stats()
    }

    pub(crate) async fn until(
        &self,
        what: &str,
        holds: impl Fn(hooklane_scheduler::Stats) -> bool,
    ) {
        wait::until(what, BUDGET, || async { holds(self.stats()) })
            .await
            .unwrap();
    }

    pub(crate) async fn stop(self) {
        self.0.stop().await;
    }
}

/// Reads what is driven.
pub(crate) struct Lanes(Puller);

impl Lanes {
    /// The next delivery, acknowledged without a record: whoever wants one writes it.
    pub(crate) async fn next(&mut self) -> Delivery {
        let message = timeout(BUDGET, self.0.next()).await.unwrap();
        let header = |name: &str| message.header(name);
        let delivery = Delivery::read(&message.subject, header, message.payload.clone()).unwrap();
        message.token.ack_confirmed().await.unwrap();
        delivery
    }
}

/// Answers for the lanes of [`PARTITION`].
pub(crate) struct Owner {
    rooms: Arc<Mutex<HashMap<EndpointId, u32>>>,
    asked: Arc<Mutex<Vec<Vec<EndpointId>>>>,
    task: JoinHandle<()>,
}

impl Owner {
    pub(crate) async fn of(bench: &Bench) -> Self {
        let rooms: Arc<Mutex<HashMap<EndpointId, u32>>> = Arc::default();
        let asked: Arc<Mutex<Vec<Vec<EndpointId>>>> = Arc::default();
        let mut requests = bench.client.serve(subject::room(PARTITION)).await.unwrap();
        let (told, heard) = (Arc::clone(&rooms), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                let Request { endpoints } = serde_json::from_slice(&request.payload).unwrap();
                let rooms = {
                    let told = told.lock().unwrap();
                    let room = |id: &EndpointId| told.get(id).map(|room| (*id, *room));
                    let known = endpoints.iter().filter_map(room);
                    known
                        .map(|(endpoint, room)| Room { endpoint, room })
                        .collect()
                };
                heard.lock().unwrap().push(endpoints);
                let reply = serde_json::to_vec(&Reply { rooms }).unwrap();
                request.reply(reply.into()).await.unwrap();
            }
        });
        Self { rooms, asked, task }
    }

    pub(crate) fn set_room(&self, endpoint: EndpointId, room: u32) {
        self.rooms.lock().unwrap().insert(endpoint, room);
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Vec<EndpointId>> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.task.abort();
    }
}
