//! A ledger, a broker with its streams, and a recorder between them.

use std::time::Duration;

use hooklane_nats::{Client, Outgoing, Publisher, inspect};
use hooklane_proto::header::Headers;
use hooklane_proto::record::{Batch, Record};
use hooklane_proto::subject;
use hooklane_recorder::{Config, Handle, Service};
use hooklane_store::Store;
use hooklane_testkit::nats::Server;
use hooklane_testkit::{Running, wait};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::ledger::Ledger;

pub(crate) const BUDGET: Duration = Duration::from_secs(30);

pub(crate) struct Bench {
    pub(crate) ledger: Ledger,
    pub(crate) client: Client,
    publisher: Publisher,
    _server: Server,
}

/// A recorder at work.
pub(crate) type Recorder = Running<Handle>;

/// One that keeps the tests' days, which are long past.
pub(crate) fn config() -> Config {
    Config {
        retention_days: 3_650,
        ..Config::default()
    }
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(Ledger::new().await).await
    }

    pub(crate) async fn with(ledger: Ledger) -> Self {
        let broker = Broker::start_with(|config| config.partitions = 16).await;
        let Broker { server, client } = broker.unwrap();
        let publisher = Publisher::new(&client, 1_000, 8 << 20);
        Self {
            ledger,
            client,
            publisher,
            _server: server,
        }
    }

    pub(crate) fn record(&self, config: Config) -> Recorder {
        self.record_into(self.ledger.store.clone(), config)
    }

    pub(crate) fn record_into(&self, store: Store, config: Config) -> Recorder {
        let service = Service::new(config, store, self.client.clone());
        Running::start(service.handle(), |shutdown| service.run(shutdown))
    }

    pub(crate) async fn publish(&self, records: Vec<Record>) {
        self.publish_bytes(Batch { records }.encode()).await;
    }

    pub(crate) async fn publish_bytes(&self, bytes: Vec<u8>) {
        let message = Outgoing {
            subject: subject::records(7),
            headers: Headers::new(),
            payload: bytes.into(),
        };
        let give_up = Instant::now() + BUDGET;
        self.publisher.publish(message, give_up).await.unwrap();
    }

    /// Waits until the broker holds no record any more.
    pub(crate) async fn drained(&self) {
        wait::until("RECORDS to be empty", BUDGET, || async {
            let state = inspect::stream_state(&self.client, subject::RECORDS).await;
            state.is_ok_and(|state| state.messages == 0)
        })
        .await
        .unwrap();
    }

    /// Waits until a query gives this.
    pub(crate) async fn until(&self, sql: &str, expected: &str) {
        let database = &self.ledger.database;
        database.until(sql, expected, BUDGET).await.unwrap();
    }
}
