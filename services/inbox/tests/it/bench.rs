//! An inbox at work, and what is around it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_inbox::{Clock, Config, Handle, Service};
use hooklane_nats::stored::{self, Stored};
use hooklane_nats::{Client, inspect};
use hooklane_proto::subject;
use hooklane_testkit::nats::Server;
use hooklane_testkit::{Running, wait};

use crate::broker::Broker;
use crate::client::{Partner, SECRET};
use crate::ledger::Ledger;

pub(crate) const BUDGET: Duration = Duration::from_secs(30);

/// A ledger and all streams.
pub(crate) struct Bench {
    pub(crate) ledger: Ledger,
    pub(crate) client: Client,
    /// Ends with the test.
    _nats: Server,
    pub(crate) clock: TestClock,
}

/// An inbox at work.
pub(crate) struct Served {
    pub(crate) running: Running<Handle>,
    pub(crate) address: SocketAddr,
}

/// A clock that stands still until it is put forward.
#[derive(Clone)]
pub(crate) struct TestClock {
    start: DateTime<Utc>,
    ahead: Arc<AtomicI64>,
}

impl TestClock {
    fn new() -> Self {
        Self {
            start: clock::now(),
            ahead: Arc::default(),
        }
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.start + TimeDelta::seconds(self.ahead.load(Ordering::SeqCst))
    }

    pub(crate) fn forward(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::SeqCst);
    }
}

/// A source `shop` with orders that are paid before they are shipped, and settings besides. What is due
/// by the clock is looked for at once, where the clock can be put forward.
pub(crate) fn config(more: &str) -> Config {
    let text = format!(
        r#"
        worker.poll = "20ms"
        hand_off.poll = "20ms"
        hand_off.lead_every = "50ms"
        {more}

        [sources.shop]
        preset = "standard-webhooks"
        secrets = ["{SECRET}"]

        [[sources.shop.entities]]
        type = "order"
        match = ["order.*"]
        key = "{{json:/order}}"

        [sources.shop.entities.machine]
        initial = "new"
        terminal = ["shipped"]
        transitions = [
            {{ event = "order.paid", from = ["new"], to = "paid" }},
            {{ event = "order.shipped", from = ["paid"], to = "shipped" }},
        ]
        "#
    );
    let mut config: Config = toml::from_str(&text).unwrap();
    config.listen = (Ipv4Addr::LOCALHOST, 0).into();
    config
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(Ledger::new().await).await
    }

    pub(crate) async fn with(ledger: Ledger) -> Self {
        let Broker { server, client } = Broker::start().await.unwrap();
        Self {
            ledger,
            client,
            _nats: server,
            clock: TestClock::new(),
        }
    }

    pub(crate) async fn serve(&self, config: Config) -> Served {
        let clock = self.clock.clone();
        let service = Service::bind(config, self.ledger.store.clone(), self.client.clone());
        let service = service.await.unwrap();
        let service = service.with_clock(Clock::new(move || clock.now()));
        Served {
            address: service.address().unwrap(),
            running: Running::start(service.handle(), |shutdown| service.run(shutdown)),
        }
    }

    /// Waits until SQL says so.
    pub(crate) async fn until_sql(&self, sql: &str, expected: &str) {
        let database = &self.ledger.database;
        database.until(sql, expected, BUDGET).await.unwrap();
    }

    /// Waits until events have these statuses, `<partner's id>=<status>` in the order of the ids.
    pub(crate) async fn until_statuses(&self, expected: &str) {
        let sql =
            "SELECT string_agg(partner_event_id || '=' || status, ' ' ORDER BY partner_event_id)
                     FROM hooklane.webhook_inbox";
        self.until_sql(sql, expected).await;
    }

    /// Waits for so many messages in `INBOX`, and gives them in their order.
    pub(crate) async fn published(&self, count: u64) -> Vec<Stored> {
        let stream = subject::INBOX;
        wait::until(
            &format!("{count} messages in {stream}"),
            BUDGET,
            async || {
                let state = inspect::stream_state(&self.client, stream).await;
                state.is_ok_and(|state| state.messages >= count)
            },
        )
        .await
        .unwrap();
        let state = inspect::stream_state(&self.client, stream).await.unwrap();
        let mut found = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stored::get(&self.client, stream, sequence).await;
            found.extend(message.unwrap());
        }
        assert_eq!(found.len() as u64, count, "{found:?}");
        found
    }
}

impl Served {
    pub(crate) async fn connect(&self) -> Partner {
        Partner::connect(self.address).await
    }

    /// Requests whose event is in the ledger.
    pub(crate) fn stored(&self) -> u64 {
        let stats = self.running.handle.stats();
        stats.received + stats.repeated
    }
}
