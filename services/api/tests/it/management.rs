//! Consumers, event types and endpoints over HTTP.

use std::collections::BTreeSet;

use hooklane_api::Config;
use serde_json::{Value, json};

use crate::bench::{BATCH, Bench, MESSAGES};
use crate::client::{Answer, Client};

const ENDPOINTS: &str = "/v1/consumers/acme/endpoints";
const MESSAGE: &str = r#"{"event_type": "invoice.paid", "payload": 1}"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_added_changed_paused_and_deleted() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let body = json!({
        "url": "https://example.com/hook", "event_types": ["invoice.*"], "rate": 7,
        "headers": {"x-tenant": "canary-header"}, "description": "first",
    });
    let added = client.post(ENDPOINTS, body.to_string()).await;
    assert_eq!(added.status, 201, "{added:?}");
    assert!(
        added.body["secret"].as_str().unwrap().starts_with("whsec_"),
        "{added:?}"
    );
    let id = added.body["id"].as_str().unwrap().to_owned();
    let one = format!("{ENDPOINTS}/{id}");
    let shown = client.get(&one).await;
    assert_eq!(
        (&shown.body["rate"], &shown.body["state"]),
        (&json!(7), &json!("active"))
    );
    assert_eq!(
        (
            shown.body.get("secret"),
            shown.body["has_headers"].as_bool()
        ),
        (None, Some(true))
    );
    assert!(!shown.body.to_string().contains("canary"), "{shown:?}");
    assert!(shown.headers.contains_key("etag"), "{shown:?}");

    let answer = client
        .ask("PATCH", &one, &[], Some(r#"{"unlimited": false}"#))
        .await;
    assert_eq!(answer.body["rate"], json!(7), "{answer:?}");
    let tag = answer.headers["etag"].to_str().unwrap().to_owned();

    let stale = [("if-match", "\"999999\"")];
    let answer = client
        .ask("PATCH", &one, &stale, Some(r#"{"rate": 9}"#))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (412, "precondition_failed")
    );
    let fresh = [("if-match", tag.as_str())];
    let changes = r#"{"rate": null, "unlimited": true, "concurrency": 3}"#;
    let answer = client.ask("PATCH", &one, &fresh, Some(changes)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        (&answer.body["unlimited"], &answer.body["description"]),
        (&json!(true), &json!("first"))
    );
    let answer = client.ask("PATCH", &one, &fresh, Some(changes)).await;
    assert_eq!(answer.status, 412, "somebody else was faster: {answer:?}");

    for (action, state) in [
        ("pause", "paused"),
        ("pause", "paused"),
        ("resume", "active"),
    ] {
        let answer = client.post(&format!("{one}/{action}"), "").await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["state"]),
            (200, &json!(state))
        );
    }
    let foreign = format!("/v1/consumers/hooklane/endpoints/{id}");
    assert_eq!(client.get(&foreign).await.status, 404, "another consumer's");
    let answer = client.ask("DELETE", &one, &[], None).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(client.get(&one).await.status, 404);

    let log = client.get("/v1/audit-log?consumer=acme").await;
    let actions: Vec<&Value> = log.body["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["action"])
        .collect();
    let expected = [
        "endpoint.delete",
        "endpoint.resume",
        "endpoint.pause",
        "endpoint.update",
        "endpoint.update",
        "endpoint.create",
    ];
    assert_eq!(
        actions,
        expected.map(Value::from).iter().collect::<Vec<_>>(),
        "{log:?}"
    );
    assert!(!log.body.to_string().contains("canary"), "{log:?}");
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_is_deleted_once_its_endpoints_are_and_can_be_added_again() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let one = "/v1/consumers/acme";
    let added = client
        .post(ENDPOINTS, r#"{"url": "https://example.com/"}"#)
        .await;
    let endpoint = format!("{ENDPOINTS}/{}", added.body["id"].as_str().unwrap());
    let key = r#"{"name": "portal", "scope": "consumer", "consumer": "acme"}"#;
    let key = client.post("/v1/api-keys", key).await;
    let mut portal = Client::connect(served.address, key.body["key"].as_str().unwrap()).await;
    assert_eq!(portal.get(one).await.status, 200);
    let sent = client.post(MESSAGES, MESSAGE).await;
    assert_eq!(sent.status, 202, "{sent:?}");

    let refused = client.ask("DELETE", one, &[], None).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (409, "conflict"));
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("1 endpoint"), "{detail}");
    let stale = [("if-match", "\"999999\"")];
    let refused = client.ask("DELETE", &endpoint, &stale, None).await;
    assert_eq!(refused.status, 412, "{refused:?}");
    let kept = client.get(&endpoint).await;
    assert_eq!(kept.body["state"], "active", "{kept:?}");
    let fresh = [("if-match", kept.headers["etag"].to_str().unwrap())];
    let deleted = client.ask("DELETE", &endpoint, &fresh, None).await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    assert_eq!(client.ask("DELETE", one, &stale, None).await.status, 412);
    let tag = client.get(one).await.headers["etag"].clone();
    let fresh = [("if-match", tag.to_str().unwrap())];
    let deleted = client.ask("DELETE", one, &fresh, None).await;
    assert_eq!(deleted.status, 204, "{deleted:?}");

    assert_eq!(portal.get(one).await.status, 401, "its keys end with it");
    let answer = client.ask("DELETE", one, &[], None).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (404, "not_found"));
    for body in [
        MESSAGE.to_owned(),
        format!(r#"{{"messages": [{MESSAGE}]}}"#),
    ] {
        let batch = body.contains("messages");
        let path = if batch { BATCH } else { MESSAGES };
        let answer = client.post(path, body).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, "not_found"));
    }
    for path in [one, MESSAGES, ENDPOINTS, "/v1/consumers/acme/deliveries"] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    let listed = client.get("/v1/consumers").await;
    assert!(!listed.body.to_string().contains("acme"), "{listed:?}");
    let message = format!("{MESSAGES}/{}", sent.body["id"].as_str().unwrap());
    assert_eq!(client.get(&message).await.status, 200, "the ledger has it");
    let built_in = client
        .ask("DELETE", "/v1/consumers/hooklane", &[], None)
        .await;
    assert_eq!(built_in.status, 409, "{built_in:?}");
    let log = client.get("/v1/audit-log?action=consumer.delete").await;
    assert_eq!(log.body["data"].as_array().unwrap().len(), 1, "{log:?}");
    assert_eq!(log.body["data"][0]["subject"], "acme");

    let again = client.post("/v1/consumers", r#"{"id": "acme"}"#).await;
    assert_eq!(again.status, 201, "{again:?}");
    assert_ne!(again.headers["etag"], tag);
    assert_eq!(client.post(MESSAGES, MESSAGE).await.status, 202);
    assert_eq!(
        portal.get(one).await.status,
        401,
        "its old keys don't come back"
    );
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_gets_the_very_next_event_and_none_before() {
    const CONSUMERS: usize = 8;
    const ROUNDS: usize = 125;
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let round = async |client: &mut Client, consumer: &str| {
        let messages = format!("/v1/consumers/{consumer}/messages");
        let endpoints = format!("/v1/consumers/{consumer}/endpoints");
        let before = client.post(&messages, MESSAGE).await;
        assert_eq!(before.status, 202, "{before:?}");
        let added = client
            .post(&endpoints, r#"{"url": "https://example.com/"}"#)
            .await;
        assert_eq!(added.status, 201, "{added:?}");
        let endpoint = added.body["id"].as_str().unwrap().to_owned();
        let sent = client.post(&messages, MESSAGE).await;
        let of = |answer: &Answer| answer.body["id"].as_str().unwrap().to_owned();
        let gone = client
            .ask("DELETE", &format!("{endpoints}/{endpoint}"), &[], None)
            .await;
        assert_eq!(gone.status, 204, "{gone:?}");
        (of(&before), of(&sent), endpoint)
    };
    let work = (0..CONSUMERS).map(|n| {
        let served = &served;
        async move {
            let consumer = format!("c{n}");
            let mut client = served.connect().await;
            let body = json!({"id": consumer});
            assert_eq!(
                client.post("/v1/consumers", body.to_string()).await.status,
                201
            );
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                rounds.push(round(&mut client, &consumer).await);
            }
            rounds
        }
    });
    let rounds: Vec<_> = futures::future::join_all(work)
        .await
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(rounds.len(), 1_000);
    let pairs = bench
        .ledger
        .sql("SELECT 'msg_' || message_id, 'ep_' || endpoint_id FROM hooklane.deliveries")
        .await;
    let pairs: BTreeSet<&str> = pairs.lines().collect();
    let expected: Vec<String> = rounds
        .iter()
        .map(|(_, sent, endpoint)| format!("{sent}|{endpoint}"))
        .collect();
    assert_eq!(
        pairs,
        expected.iter().map(String::as_str).collect(),
        "these and no others"
    );
    assert!(
        rounds
            .iter()
            .all(|(before, ..)| !pairs.iter().any(|pair| pair.starts_with(before)))
    );
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_each_other_without_a_gap() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    for n in 0..5 {
        let body = json!({"name": format!("page.n{n}"), "description": n.to_string()});
        assert_eq!(
            client
                .post("/v1/event-types", body.to_string())
                .await
                .status,
            201
        );
    }
    let mut names = Vec::new();
    let mut path = "/v1/event-types?limit=2".to_owned();
    loop {
        let page = client.get(&path).await;
        assert_eq!(page.status, 200, "{page:?}");
        let entries = page.body["data"].as_array().unwrap();
        names.extend(
            entries
                .iter()
                .map(|entry| entry["name"].as_str().unwrap().to_owned()),
        );
        match page.body["next"].as_str() {
            Some(next) => path = format!("/v1/event-types?limit=2&cursor={next}"),
            None => break,
        }
    }
    let mut sorted = names.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(names, sorted);
    assert_eq!(
        names
            .iter()
            .filter(|name| name.starts_with("page."))
            .count(),
        5
    );
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_rotated_and_shown_to_admins_alone() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let added = client
        .post(ENDPOINTS, r#"{"url": "https://example.com/"}"#)
        .await;
    let first = added.body["secret"].as_str().unwrap().to_owned();
    let secrets = format!("{ENDPOINTS}/{}/secrets", added.body["id"].as_str().unwrap());
    let rotated = client.post(&format!("{secrets}/rotate"), "{}").await;
    assert_eq!(rotated.status, 200, "{rotated:?}");
    assert_eq!(rotated.headers["cache-control"], "no-store");
    let shown = client.get(&secrets).await;
    let standing: Vec<&Value> = shown.body["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["secret"])
        .collect();
    assert_eq!(standing, [&rotated.body["secret"], &json!(first)]);
    let at_once = client
        .post(&format!("{secrets}/rotate"), r#"{"grace_seconds": 0}"#)
        .await;
    let shown = client.get(&secrets).await;
    assert_eq!(shown.body["data"].as_array().unwrap().len(), 1, "{shown:?}");
    assert_eq!(shown.body["data"][0]["secret"], at_once.body["secret"]);
    let log = client.get("/v1/audit-log").await;
    assert!(!log.body.to_string().contains("whsec_"), "{log:?}");
    served.running.stop().await;
}
