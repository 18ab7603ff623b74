//! `hooklane inbox`: partners' events as an operator lists, shows, replays and discards them.

use bytes::Bytes;
use hooklane_core::clock;
use hooklane_core::config::Faults;
use hooklane_inbox::Sources;
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use hooklane_store::inbox::{Headers, Incoming, Reject, StepLimits};
use serde_json::{Value, json};

use crate::bench::Bench;

/// A partner with a state machine, and one whose signature leaves something out.
const SOURCES: &str = r#"
[inbox.sources.shop]
preset = "stripe"
secrets = ["whsec_canary"]

[[inbox.sources.shop.entities]]
type = "order"
match = ["order.*"]
key = "{json:/data/object/id}"

[inbox.sources.shop.entities.machine]
initial = "new"
terminal = ["shipped"]
transitions = [
  { event = "order.paid", from = ["new"], to = "paid" },
  { event = "order.shipped", from = ["paid"], to = "shipped" },
]

[inbox.sources.mail]
preset = "mailgun"
secrets = ["canary"]
hand_off = { mode = "sql" }
enabled = false
"#;

#[derive(serde::Deserialize)]
struct File {
    inbox: hooklane_inbox::Config,
}

async fn bench() -> Bench {
    let bench = Bench::ledger().await;
    bench.file("hooklane.toml", SOURCES);
    bench
}

fn order(event: &str, kind: &str, key: &str) -> Bytes {
    let body = json!({ "id": event, "type": kind, "data": { "object": { "id": key } } });
    Bytes::from(body.to_string())
}

/// Receives an event of `shop`, as the service would.
async fn receive(bench: &Bench, event: &str, body: impl Into<Bytes>) -> String {
    let incoming = Incoming {
        id: InboxId::generate(),
        partner: Partner::new("shop").unwrap(),
        partner_event_id: event.to_owned(),
        id_signed: true,
        same_body: None,
        signature_verified: true,
        key_label: Some("secrets.0".to_owned()),
        integrity: "full".to_owned(),
        event_type: None,
        content_type: Some("application/json".to_owned()),
        headers: Headers(vec![("x-request".to_owned(), "one".to_owned())]),
        body: body.into(),
    };
    let id = incoming.id.to_string();
    let store = bench.store().await;
    let receipts = store.inbox_receive(clock::now(), &[incoming]).await;
    assert!(receipts.unwrap()[0].is_stored());
    store.close().await;
    id
}

/// Decides about everything that waits.
async fn decide(bench: &Bench) {
    let file: File = toml::from_str(SOURCES).unwrap();
    let mut faults = Faults::new();
    let sources = Sources::compile(&file.inbox.sources, &mut faults);
    assert!(faults.is_empty(), "{faults}");
    let store = bench.store().await;
    let limits = StepLimits::default();
    while store
        .inbox_step(clock::now(), &limits, &sources)
        .await
        .unwrap()
        .more()
    {}
    store.close().await;
}

fn events(list: &Value) -> Vec<&str> {
    let events = list["events"].as_array().unwrap().iter();
    events
        .map(|event| event["partner_event_id"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_by_what_narrows_them_and_shown_with_their_history() {
    let bench = bench().await;
    let shipped = receive(&bench, "shipped", order("shipped", "order.shipped", "a/1")).await;
    decide(&bench).await;
    let body = order("paid", "order.paid", "a/1");
    receive(&bench, "paid", body).await;
    receive(&bench, "bad", &b"\xff{"[..]).await;
    decide(&bench).await;

    let list = |args: &[&str]| bench.json(&[&["inbox", "list"], args].concat());
    assert_eq!(events(&list(&[])), ["bad", "paid", "shipped"]);
    for (args, found) in [
        (&["--partner", "shop"][..], &["bad", "paid", "shipped"][..]),
        (&["--partner-event", "paid"], &["paid"]),
        (&["--status", "QUARANTINED"], &["bad"]),
        (&["--reason", "unparseable"], &["bad"]),
        (&["--event-type", "order.paid"], &["paid"]),
        (&["--entity", "order/a/1"], &["paid", "shipped"]),
        (&["--entity", "order/a/2"], &[]),
        (&["--since", "1h"], &["bad", "paid", "shipped"]),
        (&["--since", "2h", "--until", "1h"], &[]),
    ] {
        assert_eq!(events(&list(args)), found, "{args:?}");
    }
    let page = list(&["--limit", "2"]);
    let rest = list(&["--after", page["next"].as_str().unwrap()]);
    assert_eq!(
        (events(&rest), &rest["next"]),
        (vec!["shipped"], &Value::Null)
    );
    let table = bench.ok(&["inbox", "list"]);
    assert!(
        table.contains(&shipped) && table.contains("order/a/1"),
        "{table}"
    );

    let shown = bench.json(&["inbox", "show", &shipped]);
    assert_eq!(
        (&shown["status"], &shown["sequence"], &shown["entity_key"]),
        (&json!("PROCESSED"), &json!(2), &json!("a/1"))
    );
    let actions: Vec<&Value> = shown["trail"]
        .as_array()
        .unwrap()
        .iter()
        .map(|decision| &decision["action"])
        .collect();
    assert!(
        actions.starts_with(&[&json!("deferred")]) && actions.contains(&&json!("applied")),
        "{shown}"
    );
    let text = bench.ok(&["inbox", "show", &shipped]);
    for part in [
        "what was decided:",
        "paid → shipped",
        "x-request",
        "order.paid",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let exact = bench.ok(&["inbox", "show", &shipped, "--body"]);
    assert_eq!(exact.as_bytes(), order("shipped", "order.shipped", "a/1"));

    let entity = bench.json(&["inbox", "entity", "shop", "order/a/1"]);
    assert_eq!(
        (&entity["state"], &entity["sequence"], &entity["deferred"]),
        (&json!("shipped"), &json!(2), &json!(0))
    );
    let id = InboxId::for_test(1).to_string();
    for args in [
        &["inbox", "show", &id][..],
        &["inbox", "entity", "shop", "order/none"],
        &["inbox", "list", "--partner", "shopp"],
    ] {
        bench.fails(65, "not_found", args);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_quarantine_is_replayed_or_discarded_by_id_and_by_filter() {
    let bench = bench().await;
    let mut ids = Vec::new();
    for event in ["one", "two", "three"] {
        ids.push(receive(&bench, event, &b"no json"[..]).await);
    }
    let good = receive(&bench, "good", order("good", "invoice.paid", "1")).await;
    decide(&bench).await;
    let status = |id: &str| bench.json(&["inbox", "show", id])["status"].clone();
    assert_eq!(status(&ids[0]), "QUARANTINED");

    bench.fails(64, "usage", &["inbox", "replay"]);
    let both = ["inbox", "replay", &ids[0], "--reason", "unparseable"];
    bench.fails(64, "usage", &both);
    let told = bench.fails(64, "usage", &["inbox", "replay", "--reason", "unparseable"]);
    assert!(
        told.contains("3 events") && told.contains("--yes"),
        "{told}"
    );
    assert_eq!(status(&ids[0]), "QUARANTINED", "nobody said yes");

    let done = bench.json(&["inbox", "replay", &ids[0], &good]);
    assert_eq!(
        (&done["replayed"], &done["left"]),
        (&json!(1), &json!({ "PROCESSED": 1 }))
    );
    assert_eq!(status(&ids[0]), "PENDING");
    let told = bench.fails(65, "conflict", &["inbox", "replay", &ids[0]]);
    assert!(told.contains("only events in quarantine"), "{told}");
    let unknown = InboxId::for_test(1).to_string();
    bench.fails(65, "not_found", &["inbox", "discard", &unknown]);

    let rest = ["inbox", "replay", "--all", "--yes", "--rate", "10000"];
    assert_eq!(bench.json(&rest)["replayed"], 2);
    assert_eq!(bench.json(&rest)["replayed"], 0, "nothing is left to do");
    decide(&bench).await;
    let done = bench.ok(&["inbox", "discard", "--partner", "shop", "--yes"]);
    assert!(done.starts_with("3 discarded"), "{done}");
    assert_eq!(status(&ids[2]), "DISCARDED");
    let listed = bench.json(&["audit", "list", "--action", "inbox.replay"]);
    assert!(
        !listed["entries"].as_array().unwrap().is_empty(),
        "{listed}"
    );
    bench.fails(
        65,
        "not_found",
        &["inbox", "replay", "--partner", "nobody", "--yes"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_would_happen_now_and_does_nothing() {
    let bench = bench().await;
    let shipped = receive(&bench, "s", order("s", "order.shipped", "1")).await;
    let bad = receive(&bench, "b", &b"no json"[..]).await;
    let before = bench.json(&["inbox", "list"]);
    let run = |id: &str| bench.json(&["inbox", "dry-run", id]);
    let early = run(&shipped);
    assert_eq!(
        (&early["outcome"], &early["entity_key"]),
        (&json!("defer"), &json!("1"))
    );
    assert!(
        early["missing"].as_str().unwrap().contains("order.paid"),
        "{early}"
    );
    let unreadable = run(&bad);
    assert_eq!(
        (&unreadable["outcome"], &unreadable["reason"]),
        (&json!("quarantine"), &json!("unparseable"))
    );
    assert_eq!(bench.json(&["inbox", "list"]), before);
    receive(&bench, "p", order("p", "order.paid", "1")).await;
    decide(&bench).await;
    assert_eq!(run(&shipped)["outcome"], "closed");
    let text = bench.ok(&["inbox", "dry-run", &shipped]);
    assert!(text.contains("PROCESSED"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_are_listed_and_shown() {
    let bench = bench().await;
    let store = bench.store().await;
    let rejects: Vec<Reject> = (0..3)
        .map(|n| Reject {
            partner: Partner::new("shop").unwrap(),
            reason: "wrong_signature".to_owned(),
            remote: Some("192.0.2.1".to_owned()),
            headers: Headers(vec![("x-n".to_owned(), n.to_string())]),
            body: Bytes::from_static(b"{\"n\": 1}"),
            bytes: 100,
        })
        .collect();
    store
        .inbox_reject(clock::now(), &rejects, 10)
        .await
        .unwrap();
    store.close().await;
    let page = bench.json(&["inbox", "rejects", "--limit", "2"]);
    assert_eq!(page["rejects"].as_array().unwrap().len(), 2);
    let after = page["next"].to_string();
    let rest = bench.json(&["inbox", "rejects", "--partner", "shop", "--after", &after]);
    assert_eq!(rest["rejects"].as_array().unwrap().len(), 1);
    let number = page["rejects"][0]["number"].to_string();
    let shown = bench.json(&["inbox", "rejects", &number]);
    assert_eq!(
        (&shown["body"], &shown["kept_bytes"], &shown["bytes"]),
        (&json!("{\"n\": 1}"), &json!(8), &json!(100))
    );
    let text = bench.ok(&["inbox", "rejects", &number]);
    assert!(
        text.contains("wrong_signature") && text.contains("x-n"),
        "{text}"
    );
    bench.fails(65, "not_found", &["inbox", "rejects", "999999"]);
}

#[test]
fn sources_say_what_their_signature_covers_and_no_secret() {
    let bench = Bench::bare();
    bench.file("hooklane.toml", SOURCES);
    let sources = bench.json(&["inbox", "sources"]);
    assert!(!sources.to_string().contains("canary"), "{sources}");
    let [mail, shop] = &sources["sources"].as_array().unwrap()[..] else {
        panic!("{sources}")
    };
    assert_eq!(
        (
            &shop["partner"],
            &shop["path"],
            &shop["preset"],
            &shop["hand_off"]
        ),
        (
            &json!("shop"),
            &json!("/in/shop"),
            &json!("stripe"),
            &json!("stream")
        )
    );
    assert_eq!(shop["entities"], json!(["order"]));
    assert_eq!(
        (&mail["enabled"], &mail["hand_off"]),
        (&json!(false), &json!("sql"))
    );
    assert_eq!(mail["integrity"]["full"], false, "its body is not signed");
    assert!(
        !mail["integrity"]["not_covered"]
            .as_str()
            .unwrap()
            .is_empty()
    );
    let text = bench.ok(&["inbox", "sources"]);
    assert!(
        text.contains("/in/mail") && !text.contains("canary"),
        "{text}"
    );

    bench.file(
        "hooklane.toml",
        "[inbox.sources.shop]\npreset = \"strip\"\n",
    );
    let answer = bench.run(&["inbox", "sources"]);
    assert_eq!(answer.code, 64, "{answer:?}");
    assert!(
        answer.stderr.contains("inbox.sources.shop.preset"),
        "{answer:?}"
    );
}
