//! Day partitions.

use std::time::Duration;

use chrono::{NaiveDate, TimeDelta};
use hooklane_store::day::Drop;

use crate::ledger::{Ledger, drive, noon, sent};

const TIMEOUT: Duration = Duration::from_millis(100);

fn day(of: i64) -> NaiveDate {
    (noon() + TimeDelta::days(of)).date_naive()
}

#[tokio::test]
async fn many_may_make_the_same_days_at_once() {
    let ledger = Ledger::new().await;
    let mut stores = Vec::new();
    for _ in 0..6 {
        stores.push(ledger.another_store().await);
    }
    let days = || (0..5).map(|n| noon() + TimeDelta::days(n));
    let made =
        futures::future::join_all(stores.iter().map(|store| store.ensure_days(days()))).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    assert_eq!(
        ledger.store.days().await.unwrap(),
        (0..5).map(day).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn making_a_day_waits_for_no_reader_or_writer() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    ledger.delivery(1, endpoint, noon()).await;
    let mut busy = ledger.connect().await;
    sqlx::raw_sql("BEGIN; UPDATE hooklane.deliveries SET drive = 2; SELECT * FROM hooklane.attempts; SELECT * FROM hooklane.messages")
        .execute(&mut busy)
        .await
        .unwrap();
    let making = ledger.store.ensure_days([noon() + TimeDelta::days(1)]);
    tokio::time::timeout(Duration::from_secs(10), making)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_day_is_dropped_whole_and_only_without_open_deliveries() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let key = ledger.delivery(1, endpoint, noon()).await;
    let store = &ledger.store;
    assert_eq!(store.drop_day(day(0), TIMEOUT).await.unwrap(), Drop::Open);
    store.apply(&[sent(drive(key, 1), 1, 1)]).await.unwrap();
    assert_eq!(
        store.drop_day(day(0), TIMEOUT).await.unwrap(),
        Drop::Dropped
    );
    assert!(store.days().await.unwrap().is_empty());
    // Nothing to drop is dropped.
    assert_eq!(
        store.drop_day(day(0), TIMEOUT).await.unwrap(),
        Drop::Dropped
    );
    // And what comes late makes it anew.
    let late = store.apply(&[sent(drive(key, 1), 2, 1)]).await.unwrap();
    assert_eq!((late.attempts, late.missing), (1, 1));
}

#[tokio::test]
async fn a_day_in_use_is_left_for_later() {
    let ledger = Ledger::new().await;
    ledger.store.ensure_days([noon()]).await.unwrap();
    let mut reader = ledger.connect().await;
    sqlx::raw_sql("BEGIN; SELECT * FROM hooklane.deliveries")
        .execute(&mut reader)
        .await
        .unwrap();
    assert_eq!(
        ledger.store.drop_day(day(0), TIMEOUT).await.unwrap(),
        Drop::Busy
    );
    sqlx::raw_sql("COMMIT").execute(&mut reader).await.unwrap();
    assert_eq!(
        ledger.store.drop_day(day(0), TIMEOUT).await.unwrap(),
        Drop::Dropped
    );
}

#[tokio::test]
async fn several_may_migrate_an_empty_database_at_once() {
    use hooklane_store::{Config, Store};
    use hooklane_testkit::postgres::Server;
    let database = Server::shared().await.unwrap().empty().await.unwrap();
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(Store::connect(&Config::new(database.url())).await.unwrap());
    }
    let migrated = futures::future::join_all(stores.iter().map(Store::migrate)).await;
    assert!(migrated.iter().all(Result::is_ok), "{migrated:?}");
    let applied = database
        .psql("SELECT count(*) > 1 FROM hooklane._migrations")
        .await
        .unwrap();
    assert_eq!(applied.trim(), "t");
}

#[tokio::test]
async fn one_leads_and_another_follows_when_it_is_gone() {
    use hooklane_store::leader::Led;
    let ledger = Ledger::new().await;
    let other = ledger.another_store().await;
    let mut lead = ledger.store.lead(Led::Scheduler).await.unwrap().unwrap();
    assert!(other.lead(Led::Scheduler).await.unwrap().is_none());
    lead.check().await.unwrap();
    ledger
        .sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7261004")
        .await;
    assert!(lead.check().await.is_err());
    hooklane_testkit::wait::until("the next leader", Duration::from_secs(10), || async {
        matches!(other.lead(Led::Scheduler).await, Ok(Some(_)))
    })
    .await
    .unwrap();
}
