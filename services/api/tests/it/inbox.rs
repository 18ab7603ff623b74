//! Partners' events over HTTP: listed, shown, replayed and discarded; and refused requests.

use bytes::Bytes;
use hooklane_api::Config;
use hooklane_core::clock;
use hooklane_core::rules::transition::Machine;
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use hooklane_store::Store;
use hooklane_store::inbox::{
    Claimed, Headers, Incoming, Mode, Reader, Reading, Reason, Reject, StepLimits,
};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Client;

const EVENTS: &str = "/v1/inbox/events";
const REJECTS: &str = "/v1/inbox/rejects";

/// Reads events whose body is their type; `?` can't be read.
struct Words;

impl Reader for Words {
    fn read(&self, event: &Claimed) -> Reading {
        match std::str::from_utf8(&event.body) {
            Ok("?") | Err(_) => Reading::Unreadable {
                reason: Reason::Unparseable,
                detail: "it is a question".to_owned(),
            },
            Ok(text) => Reading::Event {
                event_type: text.to_owned(),
                entity: None,
            },
        }
    }

    fn machine(&self, _: &Partner, _: &str) -> Option<&Machine> {
        None
    }

    fn mode(&self, _: &Partner) -> Option<Mode> {
        Some(Mode::Stream)
    }
}

fn partner(name: &str) -> Partner {
    Partner::new(name).unwrap()
}

/// Receives events: partner, the partner's id, body.
async fn receive(store: &Store, events: &[(&str, &str, &'static [u8])]) -> Vec<InboxId> {
    let incoming = events.iter().map(|(name, event, body)| Incoming {
        id: InboxId::generate(),
        partner: partner(name),
        partner_event_id: (*event).to_owned(),
        id_signed: true,
        same_body: None,
        signature_verified: true,
        key_label: Some("secrets.0".to_owned()),
        integrity: "full".to_owned(),
        event_type: None,
        content_type: Some("text/plain".to_owned()),
        headers: Headers(vec![("x-request".to_owned(), "one".to_owned())]),
        body: Bytes::from_static(body),
    });
    let incoming: Vec<Incoming> = incoming.collect();
    let mut ids = Vec::new();
    // One at a time, so that none has the time of another.
    for one in &incoming {
        let receipts = store.inbox_receive(clock::now(), std::slice::from_ref(one));
        assert!(receipts.await.unwrap()[0].is_stored(), "{one:?}");
        ids.push(one.id);
    }
    ids
}

async fn decide(store: &Store) {
    let limits = StepLimits::default();
    while store
        .inbox_step(clock::now(), &limits, &Words)
        .await
        .unwrap()
        .more()
    {}
}

async fn ids(client: &mut Client, query: &str) -> Vec<String> {
    let page = client.get(&format!("{EVENTS}{query}")).await;
    assert_eq!(page.status, 200, "{page:?}");
    let events = page.body["data"].as_array().unwrap().iter();
    events
        .map(|event| event["id"].as_str().unwrap().to_owned())
        .collect()
}

fn texts(ids: &[InboxId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_by_what_narrows_them_page_by_page_and_shown() {
    let bench = Bench::new().await;
    let store = &bench.ledger.store;
    let received = receive(
        store,
        &[
            ("shop", "e1", b"order.paid"),
            ("shop", "e2", b"?"),
            ("bank", "e1", b"transfer"),
        ],
    );
    let received = texts(&received.await);
    let [paid, question, transfer] = &received[..] else {
        panic!("three")
    };
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    assert_eq!(ids(&mut client, "?status=PENDING").await.len(), 3);
    decide(store).await;
    let all = [transfer, question, paid].map(String::clone);
    assert_eq!(ids(&mut client, "").await, all);
    for (query, found) in [
        ("?partner=shop", vec![question, paid]),
        ("?partner_event_id=e1", vec![transfer, paid]),
        ("?partner=bank&partner_event_id=e1", vec![transfer]),
        ("?status=PROCESSED", vec![transfer, paid]),
        ("?reason=unparseable", vec![question]),
        ("?event_type=order.paid", vec![paid]),
        ("?partner=nobody", vec![]),
        ("?since=2100-01-01T00:00:00Z", vec![]),
        ("?entity_type=order&entity_key=1", vec![]),
    ] {
        let listed = ids(&mut client, query).await;
        assert_eq!(listed.iter().collect::<Vec<_>>(), found, "{query}");
    }
    let first = client.get(&format!("{EVENTS}?limit=2")).await;
    let next = first.body["next"].as_str().unwrap();
    let rest = ids(&mut client, &format!("?limit=2&cursor={next}")).await;
    assert_eq!(rest, std::slice::from_ref(paid));

    let shown = client.get(&format!("{EVENTS}/{question}")).await;
    let body = &shown.body;
    assert_eq!(shown.status, 200, "{shown:?}");
    assert_eq!(
        (&body["status"], &body["reason"], &body["detail"]),
        (
            &json!("QUARANTINED"),
            &json!("unparseable"),
            &json!("it is a question")
        ),
        "{shown:?}"
    );
    assert_eq!(
        (
            &body["partner_event_id"],
            &body["integrity"],
            &body["bytes"]
        ),
        (&json!("e2"), &json!("full"), &json!(1))
    );
    let header = json!([{ "name": "x-request", "value": "one" }]);
    assert_eq!(
        (&body["headers"], &body["has_body"]),
        (&header, &json!(true))
    );
    let trail = body["trail"].as_array().unwrap();
    assert_eq!(trail.last().unwrap()["action"], "quarantined", "{shown:?}");
    let raw = client.get(&format!("{EVENTS}/{question}/body")).await;
    assert_eq!(raw.status, 200, "{raw:?}");
    assert_eq!(raw.headers["content-type"], "application/octet-stream");
    assert_eq!(raw.headers["x-content-type-options"], "nosniff");
    assert_eq!(raw.headers["content-length"], "1");
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_quarantine_is_replayed_or_discarded_and_audited() {
    let bench = Bench::new().await;
    let store = &bench.ledger.store;
    let events = [
        ("shop", "e1", &b"?"[..]),
        ("shop", "e2", &b"?"[..]),
        ("shop", "e3", &b"order.paid"[..]),
    ];
    let received = texts(&receive(store, &events).await);
    decide(store).await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    for (event, action, status) in [
        (&received[0], "replay", "PENDING"),
        (&received[1], "discard", "DISCARDED"),
    ] {
        let path = format!("{EVENTS}/{event}/{action}");
        let done = client.post(&path, "").await;
        assert_eq!(done.status, 200, "{done:?}");
        assert_eq!(done.body["status"], status, "{done:?}");
        let again = client.post(&path, "").await;
        assert_eq!((again.status.as_u16(), again.code()), (409, "conflict"));
        assert!(again.body["detail"].as_str().unwrap().contains(status));
    }
    let log = client.get("/v1/audit-log").await;
    let entries: Vec<(&Value, &Value)> = log.body["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (&entry["action"], &entry["actor_name"]))
        .collect();
    let by = json!("test");
    let expected = [json!("inbox.discard"), json!("inbox.replay")];
    let expected: Vec<(&Value, &Value)> = expected.iter().map(|action| (action, &by)).collect();
    assert_eq!(entries, expected, "{log:?}");
    decide(store).await;
    let shown = client.get(&format!("{EVENTS}/{}", received[0])).await;
    assert_eq!(shown.body["status"], "QUARANTINED", "nothing was mended");
    let processed = format!("{EVENTS}/{}/replay", received[2]);
    assert_eq!(client.post(&processed, "").await.status, 409);
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_are_listed_and_shown_with_what_is_kept_of_them() {
    let bench = Bench::new().await;
    let store = &bench.ledger.store;
    let reject = |name: &str, body: &'static [u8]| Reject {
        partner: partner(name),
        reason: "wrong_signature".to_owned(),
        remote: Some("192.0.2.1".to_owned()),
        headers: Headers(vec![("x-one".to_owned(), "1".to_owned())]),
        body: Bytes::from_static(body),
        bytes: 9_000_000,
    };
    let rejects = [reject("shop", b"text"), reject("bank", &[0xff, 0x00])];
    store
        .inbox_reject(clock::now(), &rejects, 100)
        .await
        .unwrap();
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let all = client.get(REJECTS).await;
    let partners: Vec<&Value> = all.body["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reject| &reject["partner"])
        .collect();
    assert_eq!(partners, [&json!("bank"), &json!("shop")], "{all:?}");
    let first = client.get(&format!("{REJECTS}?limit=1")).await;
    let next = first.body["next"].as_str().unwrap();
    let rest = client.get(&format!("{REJECTS}?cursor={next}")).await;
    assert_eq!(rest.body["data"][0]["partner"], "shop");
    assert_eq!(rest.body["next"], Value::Null);
    let narrowed = client.get(&format!("{REJECTS}?partner=shop")).await;
    assert_eq!(narrowed.body["data"], rest.body["data"]);

    for (reject, body, base64) in [
        (&rest.body["data"][0], json!("text"), Value::Null),
        (&first.body["data"][0], Value::Null, json!("/wA=")),
    ] {
        let shown = client.get(&format!("{REJECTS}/{}", reject["number"])).await;
        assert_eq!(shown.status, 200, "{shown:?}");
        assert_eq!(
            (&shown.body["body"], &shown.body["body_base64"]),
            (&body, &base64)
        );
        assert_eq!(
            (&shown.body["reason"], &shown.body["bytes"]),
            (&json!("wrong_signature"), &json!(9_000_000))
        );
        assert_eq!(
            shown.body["headers"],
            json!([{ "name": "x-one", "value": "1" }])
        );
    }
    served.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_or_makes_no_sense_is_refused() {
    let bench = Bench::new().await;
    let served = bench.serve(Config::default()).await;
    let mut client = served.connect().await;
    let event = InboxId::for_test(1);
    for (method, path, status) in [
        ("GET", format!("{EVENTS}/{event}"), 404),
        ("GET", format!("{EVENTS}/{event}/body"), 404),
        ("POST", format!("{EVENTS}/{event}/replay"), 404),
        ("POST", format!("{EVENTS}/{event}/discard"), 404),
        ("GET", format!("{REJECTS}/1"), 404),
        ("GET", format!("{REJECTS}/{}", i64::MAX), 404),
        ("GET", format!("{EVENTS}/nonsense"), 400),
        ("GET", format!("{REJECTS}/nonsense"), 400),
        ("GET", format!("{EVENTS}?partner=A"), 400),
        ("GET", format!("{EVENTS}?status=LOST"), 400),
        ("GET", format!("{EVENTS}?entity_type=order"), 422),
        ("GET", format!("{EVENTS}?event_type=%00"), 422),
        (
            "GET",
            format!("{EVENTS}?event_type={}", "x".repeat(256)),
            422,
        ),
        ("GET", format!("{EVENTS}?cursor=AAAA"), 422),
        ("GET", format!("{EVENTS}?limit=201"), 400),
        ("DELETE", format!("{EVENTS}/{event}"), 405),
    ] {
        let answer = client.ask(method, &path, &[], None).await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
    served.running.stop().await;
}
