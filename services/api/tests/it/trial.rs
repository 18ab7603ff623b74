//! Test deliveries that nobody attempts: what the answer says of why.

use std::time::Duration;

use hooklane_api::Config;
use hooklane_nats::Leases;
use serde_json::json;

use crate::bench::{Bench, Served};
use crate::client::Answer;

const ENDPOINTS: &str = "/v1/consumers/acme/endpoints";

/// An endpoint whose attempts are not waited for for long.
async fn endpoint(served: &Served) -> String {
    let body = json!({"url": "https://example.com/", "timeout_ms": 1000});
    let mut client = served.connect().await;
    let added = client.post(ENDPOINTS, body.to_string()).await;
    assert_eq!(added.status, 201, "{added:?}");
    added.body["id"].as_str().unwrap().to_owned()
}

async fn tried(served: &Served, endpoint: &str) -> Answer {
    let mut client = served.connect().await;
    let path = format!("{ENDPOINTS}/{endpoint}/test");
    client
        .post(&path, r#"{"event_type": "invoice.paid"}"#)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_is_not_attempted_says_why() {
    let bench = Bench::new().await;
    bench
        .ledger
        .sql("UPDATE hooklane.event_types SET example = '{\"n\": 1}' WHERE name = 'invoice.paid'")
        .await;
    let served = bench.serve(Config::default()).await;
    let mut endpoints = Vec::new();
    for _ in 0..4 {
        endpoints.push(endpoint(&served).await);
    }
    let [unrouted, unowned, held, paused] = &endpoints[..] else {
        panic!("four endpoints")
    };
    let is = |id: &str| format!("id = '{}'", id.trim_start_matches("ep_"));
    let routed = format!(
        "UPDATE hooklane.endpoints SET routed_version = version WHERE NOT ({});
         UPDATE hooklane.endpoints SET held_until = now() + interval '1 hour' WHERE {}",
        is(unrouted),
        is(held)
    );
    bench.ledger.sql(&routed).await;
    let pausing = async {
        let theirs = is(paused).replace("id =", "endpoint_id =");
        let made = format!("SELECT count(*) FROM hooklane.deliveries WHERE {theirs}");
        bench.until_sql(&made, "1").await;
        let mut client = served.connect().await;
        let answer = client
            .post(&format!("{ENDPOINTS}/{paused}/pause"), "")
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let (answers, ()) = tokio::join!(
        futures::future::join_all(endpoints.iter().map(|id| tried(&served, id))),
        pausing,
    );
    for (answer, reason) in answers
        .iter()
        .zip(["unrouted", "no_dispatcher", "held", "paused"])
    {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body["attempt"].is_null(), "{answer:?}");
        let waiting = &answer.body["waiting"];
        assert_eq!(waiting["reason"], reason, "{answer:?}");
        assert_eq!(waiting["until"].is_string(), reason == "held", "{answer:?}");
        assert!(waiting["detail"].as_str().unwrap().len() > 20, "{answer:?}");
    }

    // Somebody owns every partition, and does nothing.
    let leases = Leases::new(&bench.client);
    let mut owned = Vec::new();
    for partition in 0..16 {
        owned.push(leases.acquire(partition, "idle").await.unwrap().unwrap());
    }
    let renewing = async {
        let mut due = tokio::time::interval(Duration::from_secs(2));
        loop {
            due.tick().await;
            for lease in &mut owned {
                lease.renew().await.unwrap();
            }
        }
    };
    let answer = tokio::select! {
        answer = tried(&served, unowned) => answer,
        () = renewing => unreachable!("it renews for ever"),
    };
    assert_eq!(answer.body["waiting"]["reason"], "on_its_way", "{answer:?}");

    bench.nats.kill9().await.unwrap();
    let answer = tried(&served, unowned).await;
    assert_eq!(answer.body["waiting"]["reason"], "no_broker", "{answer:?}");
    served.running.stop().await;
}
