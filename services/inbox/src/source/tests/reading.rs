//! What stored events turn out to be.

use super::signer::{self, base64};
use super::*;

const MACHINE: &str = r#"
preset = "stripe"
secrets = ["k"]
[[entities]]
type = "subscription"
match = ["customer.subscription.*"]
key = "{json:/data/object/id}"
order = "json:/created"
[entities.machine]
initial = "none"
terminal = ["canceled"]
transitions = [
  { event = "customer.subscription.created", from = ["none"], to = "incomplete" },
  { event = "customer.subscription.updated", from = ["incomplete", "active"], to_field = "/data/object/status" },
  { event = "customer.subscription.activated", from = ["incomplete"], to = "active" },
  { event = "customer.subscription.deleted", from = ["*"], to = "canceled" },
]
[[entities]]
type = "invoice"
match = ["invoice.paid", "invoice.voided"]
key = "{json:/data/object/id}"
"#;

fn read(source: &Source, body: impl AsRef<[u8]>) -> Reading {
    source.read(Part::Whole, &HeaderMap::new(), body.as_ref())
}

fn event(reading: Reading) -> Event {
    match reading {
        Reading::Event(event) => event,
        other => panic!("{other:?}"),
    }
}

fn reason(reading: &Reading) -> Option<Unreadable> {
    match reading {
        Reading::Unreadable { reason, .. } => Some(*reason),
        _ => None,
    }
}

#[test]
fn an_event_says_what_happened_to_what_and_when() {
    let source = source(MACHINE);
    let body = r#"{"type":"customer.subscription.updated","created":1700000000,"data":{"object":{"id":"sub_1","status":"active"}}}"#;
    let expected = Event {
        event_type: "customer.subscription.updated".to_owned(),
        entity: Some(Entity {
            entity_type: "subscription".to_owned(),
            key: "sub_1".to_owned(),
            order: Some(1_700_000_000),
            to_field: Some("active".to_owned()),
        }),
    };
    assert_eq!(event(read(&source, body)), expected);
    let created = body.replace("updated", "created");
    let entity = event(read(&source, created)).entity.unwrap();
    assert_eq!(entity.to_field, None);
    let invoice = r#"{"type":"invoice.paid","data":{"object":{"id":"in_1"}}}"#;
    let entity = event(read(&source, invoice)).entity.unwrap();
    assert_eq!(
        (&*entity.entity_type, &*entity.key, entity.order),
        ("invoice", "in_1", None)
    );
    assert_eq!(
        event(read(&source, r#"{"type":"payout.paid"}"#)).entity,
        None
    );
    assert!(source.machine("subscription").is_some());
    assert!(source.machine("invoice").is_none());
    assert!(source.machine("other").is_none());
}

#[test]
fn an_entity_without_its_key_or_with_an_odd_one_has_an_answer() {
    let source = source(MACHINE);
    let with = |object: &str| {
        read(
            &source,
            format!(r#"{{"type":"invoice.paid","data":{{"object":{object}}}}}"#),
        )
    };
    for object in ["{}", r#"{"id":null}"#, r#"{"id":""}"#, r#"{"id":{}}"#, "[]"] {
        assert_eq!(
            reason(&with(object)),
            Some(Unreadable::EntityMissing),
            "{object}"
        );
    }
    assert_eq!(
        reason(&with(r#"{"id":"a","id":"b"}"#)),
        Some(Unreadable::Ambiguous)
    );
    assert_eq!(
        reason(&with(r#"{"id":"\ud800"}"#)),
        Some(Unreadable::Unparseable)
    );
    let key = |object: &str| event(with(object)).entity.unwrap().key;
    assert_eq!(key(r#"{"id":"a.* >é"}"#), "a.* >é");
    assert_eq!(key(r#"{"id":12}"#), "12");
    assert_eq!(key(r#"{"id":"a\u0000"}"#), hashed(b"a\0"));
    let long = "a".repeat(256);
    assert_eq!(
        key(&format!(r#"{{"id":"{long}"}}"#)),
        hashed(long.as_bytes())
    );
    assert_eq!(key(&format!(r#"{{"id":"{}"}}"#, &long[1..])), long[1..]);
}

#[test]
fn an_order_value_is_a_number_or_a_time() {
    let source = source(MACHINE);
    let order = |value: &str| {
        let reading = read(
            &source,
            format!(
                r#"{{"type":"customer.subscription.created","created":{value},"data":{{"object":{{"id":"s"}}}}}}"#
            ),
        );
        match reading {
            Reading::Event(event) => Ok(event.entity.unwrap().order),
            other => Err(reason(&other).unwrap()),
        }
    };
    for (value, expected) in [
        ("1700000000", Ok(Some(1_700_000_000))),
        ("-5", Ok(Some(-5))),
        ("\"1700000000\"", Ok(Some(1_700_000_000))),
        (
            "\"2023-11-14T22:13:20.5Z\"",
            Ok(Some(1_700_000_000_500_000)),
        ),
        (
            "\"2023-11-15T00:13:20+02:00\"",
            Ok(Some(1_700_000_000_000_000)),
        ),
        ("null", Ok(None)),
        ("\"\"", Ok(None)),
        ("9223372036854775807", Ok(Some(i64::MAX))),
        ("9223372036854775808", Err(Unreadable::Unparseable)),
        ("1.5", Err(Unreadable::Unparseable)),
        ("\"yesterday\"", Err(Unreadable::Unparseable)),
    ] {
        assert_eq!(order(value), expected, "{value}");
    }
}

#[test]
fn what_is_no_json_has_an_answer_and_never_its_bytes_in_it() {
    let source = source(MACHINE);
    for body in [
        &b""[..],
        b"secret",
        b"{\"type\":\"secret\"",
        b"\xEF\xBB\xBF{}",
        b"\xFF\xFE{\0}\0",
        b"{\"a\":\"\xC3\x28\"}",
        b"NaN",
        b"{\"a\":1e131071}",
        b"{} {}",
    ] {
        let reading = read(&source, body);
        assert_eq!(
            reason(&reading),
            Some(Unreadable::Unparseable),
            "{}",
            body.escape_ascii()
        );
        assert!(!format!("{reading:?}").contains("secret"));
    }
    let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
    assert_eq!(reason(&read(&source, deep)), Some(Unreadable::Unparseable));
    // JSON all the same, with nothing to find in it.
    for body in [
        "[]",
        "1",
        "\"a\"",
        "null",
        "{}",
        r#"{"type":null}"#,
        r#"{"type":{}}"#,
    ] {
        assert_eq!(event(read(&source, body)).event_type, "unknown", "{body}");
    }
}

#[test]
fn a_key_that_is_there_twice_counts_where_it_is_looked_for() {
    let source = source(MACHINE);
    for body in [
        r#"{"id":"a","id":"b","type":"payout.paid"}"#,
        r#"{"id":"a","type":"payout.paid","type":"payout.failed"}"#,
        r#"{"id":"a","type":"invoice.paid","data":{"object":{"id":"a"}},"data":{}}"#,
    ] {
        assert_eq!(
            reason(&read(&source, body)),
            Some(Unreadable::Ambiguous),
            "{body}"
        );
    }
    let beside = r#"{"id":"a","type":"payout.paid","note":1,"note":2}"#;
    assert_eq!(event(read(&source, beside)).event_type, "payout.paid");
}

#[test]
fn a_type_that_no_text_can_hold_is_unreadable() {
    let source = source(MACHINE);
    let long = "a".repeat(256);
    for written in ["\\ud800", "a\\u0000", "a\\nb", &long] {
        let reading = read(&source, format!(r#"{{"type":"{written}"}}"#));
        assert_eq!(reason(&reading), Some(Unreadable::Unparseable), "{written}");
    }
    let odd = read(&source, r#"{"type":"a.* >é"}"#);
    assert_eq!(event(odd).event_type, "a.* >é");
}

#[test]
fn types_come_from_where_the_partner_has_them() {
    for (block, headers, body, expected) in [
        (
            "preset = \"github\"",
            &[("x-github-event", "issues")][..],
            r#"{"action":"opened"}"#,
            "issues.opened",
        ),
        (
            "preset = \"github\"",
            &[("x-github-event", "push")],
            "{}",
            "push",
        ),
        (
            "preset = \"github\"",
            &[
                ("x-github-event", "push"),
                ("content-type", "application/x-www-form-urlencoded"),
            ],
            "payload=%7B%7D",
            "push",
        ),
        (
            "preset = \"slack\"",
            &[],
            r#"{"type":"event_callback","event":{"type":"message"}}"#,
            "message",
        ),
        (
            "preset = \"slack\"",
            &[("content-type", "application/x-www-form-urlencoded")],
            "command=%2Fdeploy&text=",
            "/deploy",
        ),
        (
            "preset = \"linear\"",
            &[],
            r#"{"type":"Issue","action":"update"}"#,
            "Issue.update",
        ),
        (
            "preset = \"gitlab\"",
            &[("x-gitlab-event", "Push Hook")],
            "{}",
            "Push Hook",
        ),
        (
            "preset = \"gitlab\"",
            &[],
            r#"{"object_kind":"push"}"#,
            "push",
        ),
    ] {
        let source = source(&format!("{block}\nsecrets = [\"k\"]\n"));
        let sent = Sent::post(headers, body);
        assert_eq!(
            event(sent.read(&source)).event_type,
            expected,
            "{block} {body}"
        );
    }
}

#[test]
fn any_format_takes_what_is_no_json() {
    let source = source(
        "secrets = [\"k\"]\nformat = \"any\"\nevent_type = [\"{json:/type}\", \"{header:x-event}\"]\n\
         [[scheme]]\nlabel = \"a\"\nsignature = \"header:s\"\nencoding = \"hex\"\n\
         algorithm = \"hmac-sha256\"\nkey = \"utf8\"\ncontent = \"{raw}\"\n",
    );
    assert_eq!(
        event(Sent::post(&[("x-event", "a")], "<xml/>").read(&source)).event_type,
        "a"
    );
    assert_eq!(
        event(Sent::post(&[], "<xml/>").read(&source)).event_type,
        "unknown"
    );
    assert_eq!(
        event(Sent::post(&[], r#"{"type":"b"}"#).read(&source)).event_type,
        "b"
    );
}

fn items(reading: Reading) -> Vec<Item> {
    match reading {
        Reading::Items(items) => items,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_is_taken_apart_into_exact_bytes() {
    let sample = signer::sendgrid();
    let body = "[ {\"sg_event_id\":\"a\", \"event\":\"open\",\"n\":1.0} ,{\"event\":\"click\"},\
                {\"sg_event_id\":\"a\",\"sg_event_id\":\"b\",\"event\":\"x\"},7 ]\r\n";
    let items = items(read(&sample.source, body));
    let shown: Vec<_> = items
        .iter()
        .map(|item| (&body[item.range.clone()], &*item.id.id, &*item.event_type))
        .collect();
    let (second, third) = (
        r#"{"event":"click"}"#,
        r#"{"sg_event_id":"a","sg_event_id":"b","event":"x"}"#,
    );
    let expected = [
        (
            "{\"sg_event_id\":\"a\", \"event\":\"open\",\"n\":1.0}",
            "a",
            "open",
        ),
        (second, &*hashed(second.as_bytes()), "click"),
        (third, &*hashed(third.as_bytes()), "x"),
        ("7", &*hashed(b"7"), "unknown"),
    ];
    assert_eq!(shown, expected);
    assert!(items.iter().all(|item| item.id.signed));
    // Each is then read on its own, and one bad item spoils no other.
    let readings: Vec<_> = items
        .iter()
        .map(|item| {
            let bytes = &body.as_bytes()[item.range.clone()];
            sample.source.read(Part::Item, &HeaderMap::new(), bytes)
        })
        .collect();
    assert_eq!(event(readings[0].clone()).event_type, "open");
    assert_eq!(reason(&readings[2]), Some(Unreadable::Ambiguous));
    assert_eq!(event(readings[3].clone()).event_type, "unknown");
}

#[test]
fn a_batch_has_a_limit_and_may_be_empty() {
    let sample = signer::sendgrid();
    let batch = |count: usize| {
        let items: Vec<_> = (0..count)
            .map(|n| format!("{{\"sg_event_id\":\"{n}\"}}"))
            .collect();
        read(&sample.source, format!("[{}]", items.join(",")))
    };
    assert_eq!(items(batch(10_000)).len(), 10_000);
    assert_eq!(reason(&batch(10_001)), Some(Unreadable::Unparseable));
    assert_eq!(event(batch(0)).event_type, "unknown");
    assert_eq!(
        event(read(&sample.source, "{\"event\":\"open\"}")).event_type,
        "open"
    );
}

#[test]
fn an_entry_is_taken_apart_and_what_is_not_known_of_it_is_kept_whole() {
    let source = source("preset = \"meta\"\nsecrets = [\"k\"]\nverify_token = \"t\"\n");
    let body = r#"{"object":"page","entry":[
        {"id":"1","changes":[{"field":"feed","value":1},{"field":"name","value":2}]},
        {"id":"2","messaging":[{"message":{"mid":"m"}}]},
        {"id":"3","changes":[]},
        {"id":"4","standby":[{"a":1}],"changes":[{"field":"feed","value":3}]}]}"#;
    let items = items(read(&source, body));
    let shown: Vec<_> = items
        .iter()
        .map(|item| (&body[item.range.clone()], &*item.event_type))
        .collect();
    let expected = [
        (r#"{"field":"feed","value":1}"#, "feed"),
        (r#"{"field":"name","value":2}"#, "name"),
        (r#"{"message":{"mid":"m"}}"#, "messaging"),
        (r#"{"id":"3","changes":[]}"#, "messaging"),
        (r#"{"field":"feed","value":3}"#, "feed"),
        (r#"{"a":1}"#, "messaging"),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn the_same_change_of_another_entry_is_another_event() {
    let source = source("preset = \"meta\"\nsecrets = [\"k\"]\nverify_token = \"t\"\n");
    let ids = |entries: &str| -> Vec<String> {
        let body = format!(r#"{{"object":"user","entry":[{entries}]}}"#);
        let items = items(read(&source, body)).into_iter();
        items.map(|item| item.id.id).collect()
    };
    let photos = r#"{"field":"photos","value":1}"#;
    let entry = |id: u8, time: u8, changes: &str| {
        ids(&format!(
            r#"{{"id":"{id}","time":{time},"changes":[{changes}]}}"#
        ))
    };
    let first = entry(1, 1, photos);
    assert_ne!(entry(2, 1, photos), first, "another account's");
    assert_ne!(entry(1, 2, photos), first, "another time's");
    assert_eq!(entry(1, 1, photos), first);
    // Sent again with another change beside it, or with both twice.
    let with = format!(r#"{{"field":"name"}},{photos}"#);
    assert_eq!(entry(1, 1, &with)[1], first[0]);
    assert_eq!(entry(1, 1, &format!("{photos},{photos}"))[1], first[0]);
}

#[test]
fn items_ids_are_signed_where_the_whole_body_is() {
    for (sample, id, signed) in [
        (signer::hubspot(), "2.1.3", true),
        (
            signer::adyen(),
            "7914073381342284.AUTHORISATION.true.psp-0",
            false,
        ),
    ] {
        let items = items(sample.sent.read(&sample.source));
        assert_eq!(
            (&*items[0].id.id, items[0].id.signed),
            (id, signed),
            "{}",
            sample.preset
        );
    }
    let own = source(&format!(
        "secrets = [\"{}\"]\nsplit = {{ at = \"/list\", event_id = [\"{{json:/id}}\"] }}\n[[scheme]]\n\
         label = \"a\"\nsignature = \"header:s\"\nencoding = \"hex\"\nalgorithm = \"hmac-sha256\"\n\
         key = \"base64\"\ncontent = \"{{json:/list/0/id}}\"\n",
        base64(&[1; 32])
    ));
    let items = items(read(&own, r#"{"list":[{"id":"a"},{}]}"#));
    assert!(items.iter().all(|item| !item.id.signed));
}
