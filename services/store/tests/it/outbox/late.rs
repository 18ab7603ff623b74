//! Commits that come late: the reason why nobody may read an outbox by "above the last id".

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hooklane_store::outbox::{Columns, Scan, Source};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::{drain, lead, ledger, round};

/// Rows that all writers together commit.
const ENOUGH: usize = 1_500;

/// A writer that commits after a while or not at all, until there is enough; returns the ids that
/// it committed.
async fn write(url: String, seed: u64, total: Arc<AtomicUsize>) -> Vec<Uuid> {
    let mut conn = PgConnection::connect(&url).await.unwrap();
    let mut random = seed;
    let mut next = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % 1000
    };
    let mut committed = Vec::new();
    while total.load(Ordering::Relaxed) < ENOUGH {
        let mut tx = conn.begin().await.unwrap();
        let mut ids = Vec::new();
        for _ in 0..=next() % 3 {
            let id: Uuid = sqlx::query_scalar(
                "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
                 VALUES ('acme', 'invoice.paid', '{}') RETURNING id",
            )
            .fetch_one(&mut *tx)
            .await
            .unwrap();
            ids.push(id);
        }
        // One in fifty holds its position back for long, in the middle of the others' traffic.
        let pause = if next() < 20 {
            400 + next() % 400
        } else {
            next() % 3
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if next() < 30 {
            tx.rollback().await.unwrap();
        } else {
            tx.commit().await.unwrap();
            total.fetch_add(ids.len(), Ordering::Relaxed);
            committed.extend(ids);
        }
    }
    committed
}

/// The reader that must not be: it goes on above the last position that it saw. It shows that the
/// traffic is such that rows can be skipped.
struct Naive {
    conn: PgConnection,
    last: i64,
    seen: HashSet<Uuid>,
}

impl Naive {
    async fn new(url: &str) -> Self {
        Self {
            conn: PgConnection::connect(url).await.unwrap(),
            last: 0,
            seen: HashSet::new(),
        }
    }

    async fn read(&mut self) {
        let rows: Vec<(Uuid, i64)> = sqlx::query_as(
            "SELECT id, position FROM hooklane.outbox_events WHERE position > $1 ORDER BY position",
        )
        .bind(self.last)
        .fetch_all(&mut self.conn)
        .await
        .unwrap();
        for (id, position) in rows {
            self.seen.insert(id);
            self.last = position;
        }
    }
}

async fn no_late_commit_is_skipped(source: Source, scan: Scan) {
    let ledger = ledger().await;
    let mut reader = lead(&ledger, &source).await;
    assert_eq!(reader.scan(), scan, "{:?}", reader.why_plain());
    let total = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (1..=16)
        .map(|seed| {
            let url = ledger.database.url().to_owned();
            tokio::spawn(write(url, seed, Arc::clone(&total)))
        })
        .collect();
    let mut seen = HashSet::new();
    let mut naive = Naive::new(ledger.database.url()).await;
    while total.load(Ordering::Relaxed) < ENOUGH {
        naive.read().await;
        for event in round(&mut reader).await.0 {
            let id = event.message.uuid();
            assert!(seen.insert(id), "{id} came twice");
        }
    }
    let mut committed = HashSet::new();
    for writer in writers {
        committed.extend(writer.await.unwrap());
    }
    naive.read().await;
    assert!(
        committed.difference(&naive.seen).count() > 0,
        "this traffic would not have caught a reader that skips late commits"
    );
    // Without the minute's sweep: the horizon alone has to find them.
    for event in drain(&mut reader).await {
        assert!(
            seen.insert(event.message.uuid()),
            "{} came twice",
            event.message
        );
    }
    assert_eq!(
        seen.difference(&committed).count(),
        0,
        "a rolled back row was accepted"
    );
    let lost: Vec<_> = committed.difference(&seen).collect();
    assert!(
        lost.is_empty(),
        "{} of {} were skipped",
        lost.len(),
        committed.len()
    );
}

#[tokio::test]
async fn late_commits_are_never_skipped_by_the_horizon() {
    no_late_commit_is_skipped(Source::default(), Scan::Horizon).await;
}

#[tokio::test]
async fn late_commits_are_never_skipped_from_the_start() {
    let source = Source {
        columns: Columns {
            order: String::new(),
            ..Columns::default()
        },
        ..Source::default()
    };
    no_late_commit_is_skipped(source, Scan::Plain).await;
}

#[tokio::test]
async fn an_open_transaction_holds_back_nobody_elses_rows() {
    let ledger = ledger().await;
    let mut reader = lead(&ledger, &Source::default()).await;
    let mut conn = PgConnection::connect(ledger.database.url()).await.unwrap();
    let mut open = conn.begin().await.unwrap();
    let insert = "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
                  VALUES ('acme', 'invoice.paid', '\"late\"')";
    sqlx::query(insert).execute(&mut *open).await.unwrap();
    for n in 0..20 {
        super::row(&ledger, "acme", "invoice.paid", &n.to_string()).await;
        assert_eq!(drain(&mut reader).await.len(), 1, "{n}");
    }
    open.commit().await.unwrap();
    let events = drain(&mut reader).await;
    assert_eq!(events.len(), 1);
    assert_eq!(&*events[0].payload, b"\"late\"");
}

#[tokio::test]
async fn a_sequence_that_starts_anew_is_noticed() {
    let ledger = ledger().await;
    let mut reader = lead(&ledger, &Source::default()).await;
    for _ in 0..5 {
        super::row(&ledger, "acme", "invoice.paid", "1").await;
    }
    assert_eq!(drain(&mut reader).await.len(), 5);
    ledger
        .sql("TRUNCATE hooklane.outbox_events RESTART IDENTITY")
        .await;
    super::row(&ledger, "acme", "invoice.paid", "2").await;
    assert_eq!(drain(&mut reader).await.len(), 1);
}

#[tokio::test]
async fn the_first_row_ever_is_found() {
    let ledger = ledger().await;
    let mut reader = lead(&ledger, &Source::default()).await;
    // The sequence says 1 before and after the first draw.
    assert!(drain(&mut reader).await.is_empty());
    super::row(&ledger, "acme", "invoice.paid", "1").await;
    assert_eq!(drain(&mut reader).await.len(), 1);
}
