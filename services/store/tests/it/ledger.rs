//! A migrated database of one test, and rows to begin with.

use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{AttemptId, EndpointId, MessageId};
use hooklane_proto::record::{
    Attempt, Drive, FailureReason, ParkReason, Parked, Record, SkipReason, Skipped, Verdict,
};
use hooklane_store::{Config, Store};
use hooklane_testkit::postgres::{self, Database};
use sqlx::PgPool;

/// A database and two ways into it: ours, and plain SQL to look behind it.
pub(crate) struct Ledger {
    pub(crate) store: Store,
    pub(crate) pool: PgPool,
    database: Database,
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
    pub(crate) async fn new() -> Self {
        let database = postgres::database("ledger", |url| async move {
            let store = Store::connect(&Config::new(url)).await?;
            store.migrate().await?;
            store.close().await;
            Ok::<_, hooklane_store::Error>(())
        })
        .await
        .unwrap();
        let store = Store::connect(&Config::new(database.url())).await.unwrap();
        let pool = PgPool::connect(database.url()).await.unwrap();
        Self {
            store,
            pool,
            database,
        }
    }

    /// Another process' way in: it shares nothing with the first but the database.
    pub(crate) async fn another_store(&self) -> Store {
        Store::connect(&Config::new(self.database.url()))
            .await
            .unwrap()
    }

    /// An active endpoint of the consumer `acme`.
    pub(crate) async fn endpoint(&self, n: u64) -> EndpointId {
        let id = EndpointId::for_test(n);
        sqlx::query(
            "WITH c AS (INSERT INTO hooklane.consumers (id) VALUES ('acme') ON CONFLICT DO NOTHING)
             INSERT INTO hooklane.endpoints (id, consumer_id, url, filters)
             VALUES ($1, 'acme', 'https://example.com/', '{*}')",
        )
        .bind(id.uuid())
        .execute(&self.pool)
        .await
        .unwrap();
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
        let key = DeliveryKey {
            accepted_at,
            message: MessageId::for_test(n),
            endpoint,
        };
        self.store.ensure_days([accepted_at]).await.unwrap();
        sqlx::query(
            "WITH m AS (
                 INSERT INTO hooklane.messages (accepted_at, id, consumer_id, event_type, payload, source)
                 VALUES ($1, $2, 'acme', 'invoice.paid', '{}', 'api') ON CONFLICT DO NOTHING)
             INSERT INTO hooklane.deliveries (accepted_at, message_id, endpoint_id, consumer_id,
                 partition, status, driven_at, not_after, next_attempt_at, deadline)
             VALUES ($1, $2, $3, 'acme', 7, 'received', $1, $1 + '20 s'::interval, $1,
                     $1 + '48 h'::interval)",
        )
        .bind(accepted_at)
        .bind(key.message.uuid())
        .bind(endpoint.uuid())
        .execute(&self.pool)
        .await
        .unwrap();
        key
    }

    /// One value by plain SQL.
    pub(crate) async fn one<T>(&self, sql: &'static str) -> T
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
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
