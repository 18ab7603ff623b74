//! A ledger, a broker with its streams, and a recorder between them.

use std::time::Duration;

use hooklane_nats::{Client, Outgoing, Publisher, inspect, topology};
use hooklane_proto::header::Headers;
use hooklane_proto::record::{Batch, Record};
use hooklane_proto::subject;
use hooklane_recorder::{Config, Handle, Service};
use hooklane_store::Store;
use hooklane_testkit::{nats, wait};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;

pub(crate) const BUDGET: Duration = Duration::from_secs(30);

pub(crate) struct Bench {
    pub(crate) ledger: Ledger,
    pub(crate) client: Client,
    publisher: Publisher,
    _nats: nats::Server,
}

/// A recorder at work; dropping it cuts it off, as a kill would.
pub(crate) struct Recorder {
    pub(crate) handle: Handle,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), hooklane_recorder::Error>>,
}

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
        let nats = nats::Server::start().await.unwrap();
        let config = hooklane_nats::Config {
            url: nats.url().into(),
            ..hooklane_nats::Config::default()
        };
        let client = Client::connect(&config).await.unwrap();
        topology::ensure(&client).await.unwrap();
        let publisher = Publisher::new(&client, 1_000, 8 << 20);
        Self {
            ledger,
            client,
            publisher,
            _nats: nats,
        }
    }

    pub(crate) fn record(&self, config: Config) -> Recorder {
        self.record_into(self.ledger.store.clone(), config)
    }

    pub(crate) fn record_into(&self, store: Store, config: Config) -> Recorder {
        let service = Service::new(config, store, self.client.clone());
        let shutdown = CancellationToken::new();
        Recorder {
            handle: service.handle(),
            shutdown: shutdown.clone(),
            task: tokio::spawn(service.run(shutdown)),
        }
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
        let what = format!("{sql} to give {expected}");
        wait::until(&what, BUDGET, || async {
            self.ledger
                .database
                .psql(sql)
                .await
                .is_ok_and(|rows| rows.trim() == expected)
        })
        .await
        .unwrap();
    }
}

impl Recorder {
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        (&mut self.task).await.unwrap().unwrap();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}
