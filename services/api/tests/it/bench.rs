//! An API at work, and what is around it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hooklane_api::{Config, Parts, Service};
use hooklane_core::rules::address::Policy;
use hooklane_core::secrets::{MasterKeyConfig, MasterKeys, generate_master_key};
use hooklane_nats::Client as Nats;
use hooklane_store::Store;
use hooklane_store::api_key::{self, New, Scope};
use hooklane_store::dead_letter::Terms;
use hooklane_testkit::Running;
use hooklane_testkit::nats::Server;
use secrecy::ExposeSecret as _;

use crate::broker::Broker;
use crate::client::Client;
use crate::ledger::Ledger;

pub(crate) const BUDGET: Duration = Duration::from_secs(20);
/// Where messages of `acme` go.
pub(crate) const MESSAGES: &str = "/v1/consumers/acme/messages";
/// Where many of them go at a time.
pub(crate) const BATCH: &str = "/v1/consumers/acme/messages/batch";

/// A ledger with the consumer `acme` and the event type `invoice.paid`, and all streams.
pub(crate) struct Bench {
    pub(crate) ledger: Ledger,
    pub(crate) nats: Server,
    pub(crate) client: Nats,
}

/// An API at work.
pub(crate) struct Served {
    pub(crate) running: Running<()>,
    pub(crate) address: SocketAddr,
    /// A key that may do everything.
    pub(crate) key: String,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(Ledger::new().await).await
    }

    pub(crate) async fn with(ledger: Ledger) -> Self {
        ledger
            .sql(
                "INSERT INTO hooklane.consumers (id) VALUES ('acme') ON CONFLICT DO NOTHING;
                 INSERT INTO hooklane.event_types (name) VALUES ('invoice.paid')",
            )
            .await;
        let broker = Broker::start_with(|config| config.partitions = 16).await;
        let Broker { server, client } = broker.unwrap();
        Self {
            ledger,
            nats: server,
            client,
        }
    }

    pub(crate) async fn serve(&self, config: Config) -> Served {
        let (service, key) = service(&self.ledger.store, &self.client, config).await;
        Served {
            address: service.address().unwrap(),
            key,
            running: Running::start((), |shutdown| service.run(shutdown)),
        }
    }

    /// Waits until SQL says so.
    pub(crate) async fn until_sql(&self, sql: &str, expected: &str) {
        let database = &self.ledger.database;
        database.until(sql, expected, BUDGET).await.unwrap();
    }
}

impl Served {
    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.address, &self.key).await
    }
}

/// An API on a free port, and the text of a key that may do everything.
pub(crate) async fn service(store: &Store, client: &Nats, mut config: Config) -> (Service, String) {
    config.listen = (Ipv4Addr::LOCALHOST, 0).into();
    let keys = MasterKeys::new(&[MasterKeyConfig {
        id: "k1".to_owned(),
        key: generate_master_key(),
    }]);
    let parts = Parts {
        store: store.clone(),
        client: client.clone(),
        keys: Arc::new(keys.unwrap()),
        addresses: Policy::loopback(),
        terms: Terms {
            deadline: Duration::from_secs(48 * 60 * 60),
            retention_days: 35,
        },
    };
    let new = New {
        name: "test".to_owned(),
        scope: Scope::Admin,
        consumer: None,
        expires_at: None,
        rate_limit: None,
    };
    let created = api_key::create(store, &new).await.unwrap();
    let service = Service::bind(config, parts).await.unwrap();
    (service, created.secret.expose_secret().to_owned())
}
