//! A relay at work, and what is around it.

use std::num::NonZeroU16;
use std::time::Duration;

use bytes::Bytes;
use hooklane_core::rules::partition::partition;
use hooklane_nats::{Client, Incoming, Outgoing, Publisher, PullConfig, Puller};
use hooklane_proto::event::Event;
use hooklane_proto::header::Headers;
use hooklane_proto::id::EndpointId;
use hooklane_proto::subject;
use hooklane_relay::{Config, Handle, Service};
use hooklane_store::outbox::Source;
use hooklane_testkit::Running;
use hooklane_testkit::nats::Server;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::ledger::Ledger;

pub(crate) const BUDGET: Duration = Duration::from_secs(20);

pub(crate) struct Bench {
    pub(crate) ledger: Ledger,
    pub(crate) nats: Server,
    pub(crate) client: Client,
}

/// A relay at work.
pub(crate) type Relay = Running<Handle>;

impl Bench {
    /// A ledger with two consumers, two event types and one endpoint of `acme`, and all streams.
    pub(crate) async fn new() -> Self {
        let ledger = Ledger::new().await;
        ledger.endpoint(1).await;
        ledger
            .sql(
                "INSERT INTO hooklane.consumers (id) VALUES ('other');
                 INSERT INTO hooklane.event_types (name) VALUES ('invoice.paid'), ('user.created')",
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

    pub(crate) fn service(&self, config: Config) -> Service {
        Service::new(config, self.ledger.store.clone(), self.client.clone())
    }

    pub(crate) fn relay(&self, config: Config) -> Relay {
        let service = self.service(config);
        Running::start(service.handle(), |shutdown| service.run(shutdown))
    }

    /// Rows of Hooklane's own table.
    pub(crate) async fn rows(&self, consumer: &str, payloads: &[&str]) {
        let values: Vec<String> = payloads
            .iter()
            .map(|payload| format!("('{consumer}', 'invoice.paid', '{payload}')"))
            .collect();
        self.ledger
            .sql(&format!(
                "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload) VALUES {}",
                values.join(", ")
            ))
            .await;
    }

    /// Publishes to `INTAKE` as a producer does.
    pub(crate) async fn intake(
        &self,
        subject: &str,
        headers: &[(&'static str, &str)],
        payload: &[u8],
    ) {
        let mut all = Headers::new();
        for (name, value) in headers {
            all.push(name, *value);
        }
        let message = Outgoing {
            subject: subject.to_owned(),
            headers: all,
            payload: Bytes::copy_from_slice(payload),
        };
        let publisher = Publisher::new(&self.client, 16, 1 << 20);
        publisher
            .publish(message, Instant::now() + BUDGET)
            .await
            .unwrap();
    }

    /// Reads what was published for a consumer.
    pub(crate) fn events(&self, consumer: &str) -> Events {
        let partitions = NonZeroU16::new(self.client.partitions()).unwrap();
        let durable = subject::fanout_durable(partition(partitions, consumer));
        let puller = Puller::new(
            &self.client,
            subject::EVENTS,
            &durable,
            PullConfig::default(),
        );
        Events(puller)
    }

    /// Waits until SQL says so.
    pub(crate) async fn until_sql(&self, sql: &str, expected: &str) {
        let database = &self.ledger.database;
        database.until(sql, expected, BUDGET).await.unwrap();
    }
}

/// The events of a partition.
pub(crate) struct Events(Puller);

impl Events {
    pub(crate) async fn next(&mut self) -> Event {
        let next = tokio::time::timeout(BUDGET, self.0.next()).await;
        let message: Incoming = next.expect("an event in time");
        let event = Event::read(
            &message.subject,
            |name| message.header(name),
            message.payload.clone(),
        );
        message.token.ack().await;
        event.unwrap()
    }

    /// The next payloads, as text.
    pub(crate) async fn payloads(&mut self, n: usize) -> Vec<String> {
        let mut payloads = Vec::new();
        for _ in 0..n {
            let event = self.next().await;
            payloads.push(String::from_utf8(event.payload.to_vec()).unwrap());
        }
        payloads
    }

    /// Whether nothing more comes for a while.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(500), self.0.next())
            .await
            .is_err()
    }
}

/// The relay's defaults without `INTAKE`.
pub(crate) fn outbox_only() -> Config {
    let mut config = Config::default();
    config.intake.enabled = false;
    config
}

/// `INTAKE` alone.
pub(crate) fn intake_only() -> Config {
    Config {
        sources: Vec::new(),
        ..Config::default()
    }
}

pub(crate) fn source() -> Source {
    Source::default()
}

pub(crate) fn endpoint() -> EndpointId {
    EndpointId::for_test(1)
}
