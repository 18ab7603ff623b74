//! The `ROUTES` bucket.

use std::collections::BTreeMap;

use anyhow::Result;
use hooklane_nats::{Put, RouteUpdate, RouteUpdates, Routes};
use hooklane_proto::id::EndpointId;
use hooklane_proto::route::{Route, State};
use hooklane_proto::token::ConsumerId;
use hooklane_testkit::wait;
use tokio::time::timeout;

use crate::broker::{Broker, SOON};

fn route(endpoint: u64, version: i64) -> Route {
    let consumer = ConsumerId::new("acme").unwrap_or_else(|error| panic!("{error}"));
    Route {
        endpoint: EndpointId::for_test(endpoint),
        consumer,
        version,
        state: State::Active,
        url: "https://example.com/hooks".to_owned(),
        rate: Some(50),
        burst: 50,
        concurrency: 16,
        timeout_ms: 15_000,
        secrets: vec!["sealed".to_owned()],
        headers: None,
        held_until: None,
    }
}

#[tokio::test]
async fn a_stale_route_never_overwrites_a_newer_one() -> Result<()> {
    let broker = Broker::start().await?;
    let routes = Routes::new(&broker.client);
    assert_eq!(routes.put(&route(1, 5)).await?, Put::Stored);
    assert_eq!(routes.put(&route(1, 5)).await?, Put::Known);
    assert_eq!(routes.put(&route(1, 4)).await?, Put::Known);
    // Twenty writers at once, the newest somewhere in the middle.
    let versions = (6..26).map(|n| if n == 15 { 100 } else { n });
    let puts = versions.map(|version| {
        let routes = routes.clone();
        async move { routes.put(&route(1, version)).await }
    });
    for put in futures::future::join_all(puts).await {
        put?;
    }
    let acme = ConsumerId::new("acme")?;
    let stored = routes.get(&acme, EndpointId::for_test(1)).await?.unwrap();
    assert_eq!(stored, route(1, 100));
    assert_eq!(routes.get(&acme, EndpointId::for_test(2)).await?, None);
    Ok(())
}

/// Follows a watch until it is current, then until `done`.
async fn follow(
    updates: &mut RouteUpdates,
    known: &mut BTreeMap<EndpointId, i64>,
    mut done: impl FnMut(&BTreeMap<EndpointId, i64>, &RouteUpdate) -> bool,
) -> Result<()> {
    loop {
        let update = timeout(SOON, updates.next()).await?;
        if let RouteUpdate::Route(route) = &update {
            known.insert(route.endpoint, route.version);
        }
        if done(known, &update) {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn a_watch_tells_all_then_changes() -> Result<()> {
    let broker = Broker::start().await?;
    let routes = Routes::new(&broker.client);
    let mut updates = routes.watch_all();
    let mut known = BTreeMap::new();
    let begin = timeout(SOON, updates.next()).await?;
    assert_eq!(
        begin,
        RouteUpdate::Begin {
            created: routes.created().await?
        }
    );
    assert_eq!(timeout(SOON, updates.next()).await?, RouteUpdate::Current);

    for n in 0..600 {
        routes.put(&route(n, 1)).await?;
    }
    follow(&mut updates, &mut known, |known, _| known.len() == 600).await?;
    routes.put(&route(3, 2)).await?;
    follow(&mut updates, &mut known, |known, _| {
        known[&EndpointId::for_test(3)] == 2
    })
    .await?;

    let mut second = routes.watch_all();
    let mut seen = BTreeMap::new();
    follow(&mut second, &mut seen, |_, update| {
        *update == RouteUpdate::Current
    })
    .await?;
    assert_eq!(seen, known);
    Ok(())
}

#[tokio::test]
async fn a_watch_survives_a_killed_server() -> Result<()> {
    let broker = Broker::start().await?;
    let routes = Routes::new(&broker.client);
    routes.put(&route(1, 1)).await?;
    let mut updates = routes.watch_all();
    let mut known = BTreeMap::new();
    follow(&mut updates, &mut known, |_, update| {
        *update == RouteUpdate::Current
    })
    .await?;
    broker.server.kill9().await?;
    broker.server.restart().await?;
    put_in_time(&routes, &route(2, 1)).await?;
    follow(&mut updates, &mut known, |known, _| known.len() == 2).await
}

#[tokio::test]
async fn a_watch_survives_a_bucket_made_anew_and_says_so() -> Result<()> {
    let broker = Broker::start().await?;
    let routes = Routes::new(&broker.client);
    routes.put(&route(1, 7)).await?;
    let mut updates = routes.watch_all();
    let mut known = BTreeMap::new();
    follow(&mut updates, &mut known, |_, update| {
        *update == RouteUpdate::Current
    })
    .await?;
    let created = routes.created().await?;

    // Deleted under a living connection.
    broker.jetstream().await?.delete_stream("KV_ROUTES").await?;
    let anew = begin(&mut updates).await?;
    assert!(anew > created);
    put_in_time(&routes, &route(2, 1)).await?;
    follow(&mut updates, &mut known, |known, _| known.len() == 2).await?;

    // Lost with the whole store.
    broker.server.wipe_store().await?;
    assert!(begin(&mut updates).await? > anew);
    put_in_time(&routes, &route(3, 1)).await?;
    follow(&mut updates, &mut known, |known, _| known.len() == 3).await
}

async fn begin(updates: &mut RouteUpdates) -> Result<chrono::DateTime<chrono::Utc>> {
    loop {
        if let RouteUpdate::Begin { created } = timeout(SOON, updates.next()).await? {
            return Ok(created);
        }
    }
}

async fn put_in_time(routes: &Routes, route: &Route) -> Result<()> {
    wait::until("a put", SOON, || async { routes.put(route).await.is_ok() }).await
}
