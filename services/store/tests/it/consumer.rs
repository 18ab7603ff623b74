//! A consumer's rate on its way to the lanes of endpoints that have none of their own, and its end.

mod delete;

use std::time::Duration;

use hooklane_proto::id::EndpointId;
use hooklane_proto::token::ConsumerId;
use hooklane_store::consumer;
use sqlx::{Connection as _, Executor as _};

use crate::ledger::Ledger;

const BUDGET: Duration = Duration::from_secs(20);

fn acme() -> ConsumerId {
    ConsumerId::new("acme").unwrap()
}

/// Waits until somebody waits for a row that another transaction holds.
async fn somebody_waits(ledger: &Ledger) {
    let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'";
    ledger.database.until(waiting, "1", BUDGET).await.unwrap();
}

#[tokio::test]
async fn a_rate_reaches_the_endpoints_without_their_own_and_no_others() {
    let ledger = Ledger::new().await;
    let (bare, own) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    let set_own = "UPDATE hooklane.endpoints SET rate = 7 WHERE id = '";
    ledger.sql(&format!("{set_own}{}'", own.uuid())).await;
    let published = |routes: Vec<hooklane_proto::route::Route>| async {
        let marks: Vec<_> = routes.iter().map(|r| (r.endpoint, r.version)).collect();
        ledger.store.mark_routed(&marks).await.unwrap();
        let rates = routes.into_iter().map(|route| (route.endpoint, route.rate));
        rates.collect::<Vec<(EndpointId, Option<u32>)>>()
    };
    let first = published(ledger.store.unrouted(50, 10).await.unwrap()).await;
    assert_eq!(first, [(bare, Some(50)), (own, Some(7))]);

    let rated = consumer::set_rate(&ledger.store, &acme(), Some(9))
        .await
        .unwrap();
    assert_eq!(rated.default_rate, Some(9));
    let second = published(ledger.store.unrouted(50, 10).await.unwrap()).await;
    assert_eq!(second, [(bare, Some(9))]);
    consumer::set_rate(&ledger.store, &acme(), None)
        .await
        .unwrap();
    let third = published(ledger.store.unrouted(50, 10).await.unwrap()).await;
    assert_eq!(third, [(bare, Some(50))]);
}

#[tokio::test]
async fn an_endpoint_that_is_being_added_gets_the_new_rate_too() {
    let ledger = Ledger::new().await;
    ledger
        .sql("INSERT INTO hooklane.consumers (id) VALUES ('acme')")
        .await;
    let mut adding = ledger.connect().await;
    let mut tx = adding.begin().await.unwrap();
    // As endpoints are added: the consumer's row is held until the commit.
    tx.execute("SELECT FROM hooklane.consumers WHERE id = 'acme' FOR NO KEY UPDATE")
        .await
        .unwrap();
    let version: i64 = sqlx::query_scalar(
        "INSERT INTO hooklane.endpoints (id, consumer_id, url, filters)
         VALUES (gen_random_uuid(), 'acme', 'https://example.com/', '{*}') RETURNING version",
    )
    .fetch_one(&mut *tx)
    .await
    .unwrap();
    let setting = tokio::spawn({
        let store = ledger.another_store().await;
        async move { consumer::set_rate(&store, &acme(), Some(9)).await }
    });
    somebody_waits(&ledger).await;
    tx.commit().await.unwrap();
    setting.await.unwrap().unwrap();

    // A route with the old rate may have been published meanwhile, so it has to be told anew.
    let routes = ledger.store.unrouted(50, 10).await.unwrap();
    assert!(routes[0].version > version, "{}", routes[0].version);
    assert_eq!(routes[0].rate, Some(9));
}

#[tokio::test]
async fn no_route_is_read_while_the_rate_is_being_set() {
    let ledger = Ledger::new().await;
    ledger.endpoint(1).await;
    let mut setting = ledger.connect().await;
    let mut tx = setting.begin().await.unwrap();
    tx.execute("UPDATE hooklane.consumers SET default_rate = 9")
        .await
        .unwrap();
    let reading = tokio::spawn({
        let store = ledger.another_store().await;
        async move { store.unrouted(50, 10).await }
    });
    somebody_waits(&ledger).await;
    tx.commit().await.unwrap();
    assert_eq!(reading.await.unwrap().unwrap()[0].rate, Some(9));
}
