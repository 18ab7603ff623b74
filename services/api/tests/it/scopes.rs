//! Every route with every kind of key: let through or refused, and no route left out.

use std::collections::BTreeSet;

use hooklane_api::Config;
use hooklane_proto::token::ConsumerId;
use hooklane_store::api_key::{self, New, Scope};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use crate::bench::Bench;
use crate::client::Client;

/// Who may, beside `admin`: p publishes, c is the consumer's own, r reads.
const MATRIX: &[(&str, &str, &str)] = &[
    ("POST", "/v1/consumers/{consumer}/messages", "p"),
    ("POST", "/v1/consumers/{consumer}/messages/batch", "p"),
    ("GET", "/v1/consumers/{consumer}/messages/{message}", "cr"),
    (
        "GET",
        "/v1/consumers/{consumer}/messages/{message}/payload",
        "cr",
    ),
    (
        "POST",
        "/v1/consumers/{consumer}/messages/{message}/replay",
        "c",
    ),
    ("GET", "/v1/consumers/{consumer}/deliveries", "cr"),
    (
        "GET",
        "/v1/consumers/{consumer}/deliveries/{message}/{endpoint}",
        "cr",
    ),
    (
        "POST",
        "/v1/consumers/{consumer}/deliveries/{message}/{endpoint}/retry",
        "c",
    ),
    (
        "POST",
        "/v1/consumers/{consumer}/deliveries/{message}/{endpoint}/cancel",
        "c",
    ),
    ("GET", "/v1/event-types", "cr"),
    ("POST", "/v1/event-types", ""),
    ("GET", "/v1/event-types/{event_type}", "cr"),
    ("PATCH", "/v1/event-types/{event_type}", ""),
    ("GET", "/v1/consumers", "r"),
    ("POST", "/v1/consumers", ""),
    ("GET", "/v1/consumers/{consumer}", "cr"),
    ("PATCH", "/v1/consumers/{consumer}", ""),
    ("DELETE", "/v1/consumers/{consumer}", ""),
    ("GET", "/v1/endpoints", "r"),
    ("GET", "/v1/endpoints/failing", "r"),
    (
        "GET",
        "/v1/consumers/{consumer}/endpoints/{endpoint}/statistics",
        "cr",
    ),
    (
        "POST",
        "/v1/consumers/{consumer}/endpoints/{endpoint}/test",
        "c",
    ),
    ("GET", "/v1/consumers/{consumer}/messages", "cr"),
    ("GET", "/v1/consumers/{consumer}/attempts", "cr"),
    ("GET", "/v1/consumers/{consumer}/attempts/{attempt}", "cr"),
    ("GET", "/v1/consumers/{consumer}/endpoints", "cr"),
    ("POST", "/v1/consumers/{consumer}/endpoints", "c"),
    ("GET", "/v1/consumers/{consumer}/endpoints/{endpoint}", "cr"),
    (
        "PATCH",
        "/v1/consumers/{consumer}/endpoints/{endpoint}",
        "c",
    ),
    (
        "DELETE",
        "/v1/consumers/{consumer}/endpoints/{endpoint}",
        "c",
    ),
    (
        "POST",
        "/v1/consumers/{consumer}/endpoints/{endpoint}/pause",
        "c",
    ),
    (
        "POST",
        "/v1/consumers/{consumer}/endpoints/{endpoint}/resume",
        "c",
    ),
    (
        "GET",
        "/v1/consumers/{consumer}/endpoints/{endpoint}/secrets",
        "",
    ),
    (
        "POST",
        "/v1/consumers/{consumer}/endpoints/{endpoint}/secrets/rotate",
        "c",
    ),
    (
        "POST",
        "/v1/consumers/{consumer}/endpoints/{endpoint}/recover",
        "c",
    ),
    (
        "POST",
        "/v1/consumers/{consumer}/endpoints/{endpoint}/replay-missing",
        "c",
    ),
    ("GET", "/v1/consumers/{consumer}/dead-letters", "cr"),
    ("POST", "/v1/consumers/{consumer}/dead-letters/replay", "c"),
    ("POST", "/v1/consumers/{consumer}/dead-letters/discard", "c"),
    ("GET", "/v1/dead-letters", "r"),
    ("GET", "/v1/consumers/{consumer}/tasks", "cr"),
    ("GET", "/v1/consumers/{consumer}/tasks/{task}", "cr"),
    ("POST", "/v1/consumers/{consumer}/tasks/{task}/cancel", "c"),
    ("GET", "/v1/tasks", "r"),
    ("GET", "/v1/api-keys", ""),
    ("POST", "/v1/api-keys", ""),
    ("GET", "/v1/api-keys/{key}", ""),
    ("DELETE", "/v1/api-keys/{key}", ""),
    ("GET", "/v1/audit-log", ""),
    ("GET", "/v1/inbox/events", "r"),
    ("GET", "/v1/inbox/events/{event}", "r"),
    ("GET", "/v1/inbox/events/{event}/body", "r"),
    ("POST", "/v1/inbox/events/{event}/replay", ""),
    ("POST", "/v1/inbox/events/{event}/discard", ""),
    ("GET", "/v1/inbox/rejects", "r"),
    ("GET", "/v1/inbox/rejects/{reject}", "r"),
];

/// A kind of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Publish,
    PublishOwn,
    PublishOther,
    Own,
    Other,
    Read,
    Admin,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Publish,
        Self::PublishOwn,
        Self::PublishOther,
        Self::Own,
        Self::Other,
        Self::Read,
        Self::Admin,
    ];

    fn key(self) -> (Scope, Option<&'static str>) {
        match self {
            Self::Publish => (Scope::Publish, None),
            Self::PublishOwn => (Scope::Publish, Some("acme")),
            Self::PublishOther => (Scope::Publish, Some("other")),
            Self::Own => (Scope::Consumer, Some("acme")),
            Self::Other => (Scope::Consumer, Some("other")),
            Self::Read => (Scope::Read, None),
            Self::Admin => (Scope::Admin, None),
        }
    }

    fn may(self, path: &str, who: &str) -> bool {
        let of_nobody = path.starts_with("/v1/event-types");
        match self {
            Self::Publish | Self::PublishOwn => who.contains('p'),
            Self::Own => who.contains('c'),
            Self::Other => who.contains('c') && of_nobody,
            Self::PublishOther => false,
            Self::Read => who.contains('r'),
            Self::Admin => true,
        }
    }
}

fn filled(path: &str) -> String {
    let id = "01987c3e-9d6a-7000-8000-000000000001";
    path.replace("{consumer}", "acme")
        .replace("{event_type}", "invoice.paid")
        .replace("{message}", &format!("msg_{id}"))
        .replace("{endpoint}", &format!("ep_{id}"))
        .replace("{attempt}", &format!("att_{id}"))
        .replace("{task}", &format!("task_{id}"))
        .replace("{key}", &format!("key_{id}"))
        .replace("{event}", &format!("inb_{id}"))
        .replace("{reject}", "1")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_takes_the_keys_that_may_and_refuses_the_others() {
    let bench = Bench::new().await;
    bench
        .ledger
        .sql("INSERT INTO hooklane.consumers (id) VALUES ('other')")
        .await;
    let served = bench.serve(Config::default()).await;
    for kind in Kind::ALL {
        let (scope, consumer) = kind.key();
        let new = New {
            name: format!("{kind:?}"),
            scope,
            consumer: consumer.map(|id| ConsumerId::new(id).unwrap()),
            expires_at: None,
            rate_limit: None,
        };
        let created = api_key::create(&bench.ledger.store, &new).await.unwrap();
        let mut client = Client::connect(served.address, created.secret.expose_secret()).await;
        for (method, path, who) in MATRIX {
            let body = (*method != "GET" && *method != "DELETE").then_some("{}");
            let answer = client.ask(method, &filled(path), &[], body).await;
            let refused = answer.status == 403;
            assert_eq!(
                !refused,
                kind.may(path, who),
                "{kind:?} {method} {path}: {answer:?}"
            );
            assert_ne!(answer.status, 401, "{kind:?} {method} {path}");
            assert!(
                answer.status.as_u16() < 500,
                "{kind:?} {method} {path}: {answer:?}"
            );
        }
    }
    for key in ["", "hlk_nonsense", "nonsense"] {
        let mut client = Client::connect(served.address, key).await;
        for (method, path, _) in MATRIX {
            let answer = client.ask(method, &filled(path), &[], None).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (401, "unauthenticated"),
                "{path}"
            );
        }
    }
    served.running.stop().await;
}

#[test]
fn the_matrix_leaves_no_route_out() {
    let document: Value = serde_json::from_str(&hooklane_api::openapi()).unwrap();
    let mut served = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            served.insert((method.to_uppercase(), path.clone()));
        }
    }
    let listed = MATRIX
        .iter()
        .map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned()));
    assert_eq!(served, listed.collect());
}

#[test]
fn the_guide_lists_every_route_with_its_scopes() {
    let document: Value = serde_json::from_str(&hooklane_api::openapi()).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let mut rows = Vec::new();
    for (method, path, who) in MATRIX {
        let operation = &document["paths"][path][method.to_lowercase()];
        let summary = operation["summary"].as_str().unwrap().trim_end_matches('.');
        let mut scopes = Vec::new();
        for (letter, name) in [('p', "`publish`"), ('c', "`consumer`"), ('r', "`read`")] {
            scopes.extend(who.contains(letter).then_some(name));
        }
        scopes.push("`admin`");
        rows.push(format!(
            "| `{method} {path}` | {summary} | {} |",
            scopes.join(", ")
        ));
    }
    let missing = rows
        .iter()
        .any(|row| !guide.lines().any(|line| line == row));
    let listed = guide
        .lines()
        .filter(|line| line.starts_with("| `") && line.contains("/v1/"))
        .count();
    assert!(
        !missing && listed == rows.len(),
        "the table should be:\n{}",
        rows.join("\n")
    );
}
