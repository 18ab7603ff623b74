//! One reader per table, and what happens when it goes.

use std::time::Duration;

use hooklane_store::outbox::{Reader, Source, Wake, status};
use hooklane_testkit::wait;

use super::{PATIENCE, drain, lead, ledger};
use crate::accept::settings;

/// Of this database alone: the server is shared with other tests.
const KILL_LEADER: &str = "SELECT pg_terminate_backend(pid) FROM pg_locks
     WHERE locktype = 'advisory' AND classid = 7261003
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test]
async fn a_second_reader_waits_until_the_first_is_gone() {
    let ledger = ledger().await;
    let source = Source::default();
    assert!(!status(&ledger.store, &source).await.unwrap().led);
    let first = lead(&ledger, &source).await;
    let second = ledger.another_store().await;
    // Whatever the sources are called: it is the same table.
    let other_name = Source {
        name: "other".to_owned(),
        ..source.clone()
    };
    assert!(Reader::lead(&second, &other_name).await.unwrap().is_none());
    assert!(status(&ledger.store, &source).await.unwrap().led);
    drop(first);
    wait::until_some("the lock to be free", Duration::from_secs(5), async || {
        Reader::lead(&second, &source).await.unwrap()
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_leader_whose_session_was_killed_can_neither_read_nor_mark() {
    let ledger = ledger().await;
    let source = Source::default();
    super::row(&ledger, "acme", "invoice.paid", "1").await;
    super::row(&ledger, "acme", "invoice.paid", "2").await;
    let mut old = lead(&ledger, &source).await;
    let batch = old.read().await.unwrap();
    assert_eq!(batch.offers.len(), 2);
    ledger.sql(KILL_LEADER).await;
    let mut new = wait::until_some("the next leader", Duration::from_secs(5), async || {
        Reader::lead(&ledger.store, &source).await.unwrap()
    })
    .await
    .unwrap();
    let error = old.accept(&settings(), PATIENCE, batch).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(old.read().await.is_err());
    assert_eq!(drain(&mut new).await.len(), 2);
}

#[tokio::test]
async fn status_tells_how_a_source_stands() {
    let ledger = ledger().await;
    let source = Source::default();
    super::row(&ledger, "acme", "invoice.paid", "1").await;
    let mut reader = lead(&ledger, &source).await;
    drain(&mut reader).await;
    super::row(&ledger, "acme", "invoice.paid", "2").await;
    let status = status(&ledger.store, &source).await.unwrap();
    assert_eq!((status.pending, status.settled), (1, 1));
    assert!(status.oldest.is_some() && status.led);
}

#[tokio::test]
async fn an_enabled_trigger_wakes_who_listens() {
    let ledger = ledger().await;
    ledger
        .sql("ALTER TABLE hooklane.outbox_events ENABLE TRIGGER outbox_wake")
        .await;
    let mut wake = Wake::new(&ledger.store, &Source::default());
    let heard = tokio::spawn(async move { wake.wait().await });
    wait::until("a listener's waking", Duration::from_secs(5), async || {
        super::row(&ledger, "acme", "invoice.paid", "1").await;
        heard.is_finished()
    })
    .await
    .unwrap();
}
