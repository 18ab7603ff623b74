//! A ledger that can't be reached: refused within seconds, and nothing comes in later.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hooklane_api::Config;
use hooklane_store::Store;
use hooklane_testkit::Running;
use hooklane_testkit::postgres::Server;
use hooklane_testkit::proxy::Proxy;
use hooklane_testkit::wait;
use tokio::time::Instant;

use crate::bench::{BUDGET, Bench, MESSAGES, Served, service};
use crate::commit::{keyed, together};
use crate::ledger::Ledger;

/// Half of what a single wait for a connection may take.
const SECONDS: Duration = Duration::from_secs(5);

/// Has many ask at once for many things, and all of them refused.
async fn everybody_is_refused(served: &Served, round: usize) {
    let answers = together(served, 16, |at, mut client| async move {
        let started = Instant::now();
        let answer = match at % 4 {
            0 => client.get("/v1/consumers").await,
            1 => client.ask("DELETE", "/v1/consumers/acme", &[], None).await,
            _ => {
                let body = keyed(&format!("{round}-{at}"));
                client.post(MESSAGES, body).await
            }
        };
        (started.elapsed(), answer)
    });
    for (took, answer) in answers.await {
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.code(), "postgres_unavailable", "{answer:?}");
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
        assert!(took < SECONDS, "{took:?}: {answer:?}");
    }
}

/// What was taken is what was answered so, and nothing of what was refused.
async fn taken_again(bench: &Bench, served: &Served) {
    let mut client = served.connect().await;
    wait::until("it is taken again", BUDGET, async || {
        client.post(MESSAGES, keyed("after")).await.status == 202
    })
    .await
    .unwrap();
    let keys = "SELECT string_agg(key, ' ' ORDER BY accepted_at) FROM hooklane.idempotency_keys";
    assert_eq!(bench.ledger.sql(keys).await, "before after");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_ledger_every_request_is_refused_within_seconds() {
    let server = Server::start().await.unwrap();
    let bench = Bench::with(Ledger::on(&server).await).await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    assert_eq!(client.post(MESSAGES, keyed("before")).await.status, 202);
    server.stop().await.unwrap();
    // First with the key and the event type in mind, then without; all of one event type.
    for round in 0..3 {
        everybody_is_refused(&served, round).await;
    }
    server.restart().await.unwrap();
    taken_again(&bench, &served).await;
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_hangs_is_like_one_that_is_gone() {
    let bench = Bench::new().await;
    let url = bench.ledger.database.url();
    let place = url.rsplit_once('@').unwrap().1.split_once('/').unwrap().0;
    let target: SocketAddr = place.replace("localhost", "127.0.0.1").parse().unwrap();
    let proxy = Proxy::start((Ipv4Addr::LOCALHOST, 0).into(), target)
        .await
        .unwrap();
    let through = url.replace(place, &proxy.address().to_string());
    let store = Store::connect(&hooklane_store::Config::new(through))
        .await
        .unwrap();
    let (service, key) = service(&store, &bench.client, Config::default()).await;
    let served = Served {
        address: service.address().unwrap(),
        key,
        running: Running::start((), |shutdown| service.run(shutdown)),
    };
    let mut client = served.connect().await;
    assert_eq!(client.post(MESSAGES, keyed("before")).await.status, 202);
    proxy.stall();
    everybody_is_refused(&served, 0).await;
    proxy.resume();
    taken_again(&bench, &served).await;
    served.running.stop().await;
}
