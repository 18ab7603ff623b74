//! A migrated database of one test, rows to begin with, and records to write into them.
//!
//! Names no database driver, so that the services' tests can use this file too.

use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{AttemptId, EndpointId, MessageId};
use hooklane_proto::record::{
    Attempt, Drive, FailureReason, ParkReason, Parked, Record, SkipReason, Skipped, Verdict,
};
use hooklane_store::{Config, Store};
use hooklane_testkit::postgres::{Database, Server};

/// A database and two ways into it: ours, and plain SQL to look behind it.
pub(crate) struct Ledger {
    pub(crate) store: Store,
    pub(crate) database: Database,
}

/// Noon of a day long before any clock that tests run under.
pub(crate) fn noon() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 3, 1, 12, 0, 0).unwrap()
}

/// Noon and some seconds.
pub(crate) fn at(seconds: i64) -> DateTime<Utc> {
    noon() + TimeDelta::seconds(seconds)
}

impl Ledger {
    /// On the server that all tests share.
    pub(crate) async fn new() -> Self {
        Self::on(&Server::shared().await.unwrap()).await
    }

    /// On a server that the test may harm.
    pub(crate) async fn on(server: &Server) -> Self {
        let migrate = |url: String| async move {
            let store = Store::connect(&Config::new(url)).await?;
            store.migrate().await?;
            store.close().await;
            Ok::<_, hooklane_store::Error>(())
        };
        let database = server.database("ledger", migrate).await.unwrap();
        let store = Store::connect(&Config::new(database.url())).await.unwrap();
        Self { store, database }
    }

    /// Another process' way in: it shares nothing with the first but the database.
    pub(crate) async fn another_store(&self) -> Store {
        Store::connect(&Config::new(self.database.url()))
            .await
            .unwrap()
    }

    /// Runs SQL; rows come a line each, columns separated by `|`.
    pub(crate) async fn sql(&self, sql: &str) -> String {
        self.database.psql(sql).await.unwrap().trim().to_owned()
    }

    /// An active endpoint of the consumer `acme`.
    pub(crate) async fn endpoint(&self, n: u64) -> EndpointId {
        let id = EndpointId::for_test(n);
        self.sql(&format!(
            "INSERT INTO hooklane.consumers (id) VALUES ('acme') ON CONFLICT DO NOTHING;
             INSERT INTO hooklane.endpoints (id, consumer_id, url, filters)
             VALUES ('{}', 'acme', 'https://example.com/', '{{*}}')",
            id.uuid()
        ))
        .await;
        id
    }

    /// A message accepted at `accepted_at` and its delivery to `endpoint`: `received`, in series 1
    /// and drive 1, due at acceptance, with 20 s to reach the broker and 48 h to be delivered.
    pub(crate) async fn delivery(
        &self,
        n: u64,
        endpoint: EndpointId,
        accepted_at: DateTime<Utc>,
    ) -> DeliveryKey {
        self.deliveries(n..n + 1, endpoint, accepted_at).await[0]
    }

    /// As [`Ledger::delivery`], one for each number.
    pub(crate) async fn deliveries(
        &self,
        numbers: std::ops::Range<u64>,
        endpoint: EndpointId,
        accepted_at: DateTime<Utc>,
    ) -> Vec<DeliveryKey> {
        self.store.ensure_days([accepted_at]).await.unwrap();
        let keys: Vec<DeliveryKey> = numbers
            .map(|n| DeliveryKey {
                accepted_at,
                message: MessageId::for_test(n),
                endpoint,
            })
            .collect();
        let ids: Vec<String> = keys
            .iter()
            .map(|key| key.message.uuid().to_string())
            .collect();
        let ids = ids.join(",");
        let (at, endpoint) = (accepted_at.to_rfc3339(), endpoint.uuid());
        self.sql(&format!(
            "INSERT INTO hooklane.messages (accepted_at, id, consumer_id, event_type, payload, source)
             SELECT '{at}', id::uuid, 'acme', 'invoice.paid', '{{}}', 'api'
               FROM unnest(string_to_array('{ids}', ',')) id
             ON CONFLICT DO NOTHING;
             INSERT INTO hooklane.deliveries (accepted_at, message_id, endpoint_id, consumer_id,
                 partition, status, driven_at, not_after, next_attempt_at, deadline)
             SELECT a, id::uuid, '{endpoint}', 'acme', 7, 'received', a, a + '20 s'::interval, a,
                    a + '48 h'::interval
               FROM unnest(string_to_array('{ids}', ',')) id, (SELECT '{at}'::timestamptz) t (a)",
        ))
        .await;
        keys
    }
}

/// A drive of series 1.
pub(crate) fn drive(key: DeliveryKey, drive: i32) -> Drive {
    Drive {
        key,
        series: 1,
        drive,
    }
}

/// An attempt with the id `id`, started at [`noon`].
pub(crate) fn attempt(drive: Drive, id: u64, number: i32, verdict: Verdict) -> Attempt {
    let (status, error) = match &verdict {
        Verdict::Sent => (Some(200), None),
        Verdict::Failed {
            reason: FailureReason::Gone,
        } => (Some(410), None),
        Verdict::Failed { .. } => (Some(500), None),
        Verdict::Retry { .. } => (None, Some("timeout".to_owned())),
    };
    Attempt {
        drive,
        id: AttemptId::for_test(id),
        number,
        counted: number,
        started_at: noon(),
        duration_us: 1_500,
        status,
        headers: Vec::new(),
        body: Vec::new(),
        error,
        detail: None,
        verdict,
        hold_until: None,
        trace: None,
    }
}

pub(crate) fn sent(drive: Drive, id: u64, number: i32) -> Record {
    Record::Attempt(attempt(drive, id, number, Verdict::Sent))
}

pub(crate) fn failed(drive: Drive, id: u64, number: i32, reason: FailureReason) -> Record {
    Record::Attempt(attempt(drive, id, number, Verdict::Failed { reason }))
}

pub(crate) fn retry(drive: Drive, id: u64, number: i32, next: DateTime<Utc>) -> Record {
    let verdict = Verdict::Retry {
        next_attempt_at: next,
    };
    Record::Attempt(attempt(drive, id, number, verdict))
}

pub(crate) fn parked(drive: Drive, reason: ParkReason, next: DateTime<Utc>) -> Record {
    Record::Parked(Parked {
        drive,
        reason,
        next_attempt_at: next,
    })
}

pub(crate) fn skipped(drive: Drive, reason: SkipReason) -> Record {
    Record::Skipped(Skipped { drive, reason })
}
