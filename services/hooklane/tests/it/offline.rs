//! Commands that need no database: signatures, records, addresses.

use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::record::{Batch, Drive, ParkReason, Parked, Record};
use serde_json::Value;

use crate::bench::Bench;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[test]
fn a_signature_is_the_published_one_and_verifies() {
    let mut bench = Bench::bare();
    bench.set("HOOKLANE_SIGNING_SECRET", SECRET);
    // The example of the Standard Webhooks specification.
    let body = br#"{"test": 2432232314}"#;
    let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    let args = ["--json", "sign", "--id", id, "--timestamp", "1614265330"];
    let signed = bench.feed(&args, body).json();
    assert_eq!(
        signed["webhook-signature"],
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    );

    let signed = bench.feed(&["--json", "sign", "--id", id], body).json();
    let timestamp = signed["webhook-timestamp"].as_str().unwrap();
    let signature = signed["webhook-signature"].as_str().unwrap();
    let verify = [
        "verify",
        "--id",
        id,
        "--timestamp",
        timestamp,
        "--signature",
        signature,
    ];
    let answer = bench.feed(&verify, body);
    assert_eq!(
        (answer.code, answer.stdout.trim()),
        (0, "valid"),
        "{answer:?}"
    );

    let forged = bench.feed(&[&["--json"][..], &verify].concat(), b"{}");
    assert_eq!(forged.code, 65, "{forged:?}");
    assert_eq!(forged.error()["code"], "bad_signature");
    let old = [
        "verify",
        "--id",
        id,
        "--timestamp",
        "1614265330",
        "--signature",
        signature,
    ];
    let answer = bench.feed(&old, body);
    assert!(
        answer.code == 65 && answer.stderr.contains("in the past"),
        "{answer:?}"
    );
}

#[test]
fn signing_without_a_sound_secret_is_refused_and_shows_none() {
    let bench = Bench::bare();
    bench.fails(64, "usage", &["sign", "--id", "msg_1"]);
    let args = ["sign", "--id", "msg_1", "--secret", "canary"];
    let text = bench.fails(65, "invalid_data", &args);
    assert!(!text.contains("canary"), "{text}");
    let args = ["sign", "--id", "has.dot", "--secret", SECRET];
    bench.fails(65, "invalid_data", &args);
    let mut bench = bench;
    bench.set("HOOKLANE_SIGNING_SECRET", "canary");
    for args in [["sign", "--help"], ["verify", "--help"]] {
        assert!(!bench.ok(&args).contains("canary"));
    }
}

#[test]
fn records_are_read_as_json_lines() {
    let bench = Bench::bare();
    let record = |n| {
        Record::Parked(Parked {
            drive: Drive {
                key: DeliveryKey {
                    accepted_at: chrono::DateTime::UNIX_EPOCH,
                    message: MessageId::for_test(n),
                    endpoint: EndpointId::for_test(n),
                },
                series: 1,
                drive: 1,
            },
            reason: ParkReason::NoRoom,
            next_attempt_at: chrono::DateTime::UNIX_EPOCH,
        })
    };
    let batch = Batch {
        records: vec![record(1), record(2)],
    };
    let answer = bench.feed(&["decode"], &batch.encode());
    assert_eq!(answer.code, 0, "{answer:?}");
    let lines: Vec<Value> = answer
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["message"], MessageId::for_test(2).to_string());
    assert_eq!(lines[0]["reason"], "no_room");

    let answer = bench.feed(&["decode"], b"{\"not\":\"records\"}");
    assert!(
        answer.code == 65 && answer.stderr.contains("not a batch"),
        "{answer:?}"
    );
    let answer = bench.run(&["decode", "/nonexistent"]);
    assert!(
        answer.code == 65 && answer.stderr.contains("can't be read"),
        "{answer:?}"
    );
}

#[test]
fn urls_are_judged_with_their_addresses() {
    let mut bench = Bench::bare();
    let answer = bench.json(&["check-url", "https://192.0.1.1/hook"]);
    assert_eq!(answer["addresses"][0], "192.0.1.1");
    let answer = bench.json(&["check-url", "https://example.com/", "--no-resolve"]);
    assert_eq!(answer["addresses"], serde_json::json!([]));
    for bad in [
        "http://example.com/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://localhost/",
        "https://user:pw@example.com/",
    ] {
        bench.fails(65, "forbidden_address", &["check-url", bad]);
    }
    bench.set("HOOKLANE__ADDRESSES__ALLOW_HTTP", "true");
    bench.set(
        "HOOKLANE__ADDRESSES__ALLOW_CIDRS",
        r#"["127.0.0.0/8", "::1/128"]"#,
    );
    bench.set("HOOKLANE__ADDRESSES__ALLOW_NAMES", r#"["localhost"]"#);
    let answer = bench.json(&["check-url", "http://localhost:8080/"]);
    assert!(
        !answer["addresses"].as_array().unwrap().is_empty(),
        "{answer}"
    );
    let text = bench.fails(
        65,
        "invalid_data",
        &["check-url", "https://does-not-exist.example.com./"],
    );
    assert!(text.contains("can't be resolved"), "{text}");
}

#[test]
fn bad_usage_is_told_in_json_where_that_is_asked_for() {
    let bench = Bench::bare();
    for (args, told) in [
        (&["no-such-command"][..], "no-such-command"),
        (&["endpoint", "show", "not-an-id"], "not-an-id"),
        (&["message", "show"], "<ID>"),
        (&["consumer"], "command"),
        (&[], "command"),
    ] {
        for args in [[&["--json"], args].concat(), [args, &["--json"]].concat()] {
            let answer = bench.run(&args);
            assert_eq!(answer.code, 64, "{args:?}");
            let error = answer.error();
            assert_eq!(error["code"], "usage", "{args:?}");
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains(told) && !message.contains("Usage:"),
                "{message}"
            );
            assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
        }
    }
    let help = bench.run(&["--json", "endpoint", "--help"]);
    assert_eq!(help.code, 0);
    // What stands behind `--` is no option.
    let plain = bench.run(&["message", "show", "a", "b", "--", "--json"]);
    assert!(plain.stderr.starts_with("error: "), "{plain:?}");
}

#[test]
fn bad_usage_exits_with_64_and_help_with_0() {
    let bench = Bench::bare();
    for args in [
        &["no-such-command"][..],
        &["consumer"],
        &["endpoint", "show", "not-an-id"],
        &["endpoint", "add", "acme", "https://e.com", "--rate", "0"],
        &["delivery", "list", "--status", "lost"],
        &["outbox", "requeue"],
        &[],
    ] {
        assert_eq!(bench.run(args).code, 64, "{args:?}");
    }
    for args in [
        &["--help"][..],
        &["--version"],
        &["endpoint", "add", "--help"],
    ] {
        assert_eq!(bench.run(args).code, 0, "{args:?}");
    }
}

#[test]
fn what_a_usage_error_quotes_does_nothing_to_a_terminal() {
    let bench = Bench::bare();
    for hostile in ["ep_\u{9b}2J\u{7}", "\u{1b}]0;owned\u{7}\u{202e}"] {
        for args in [["endpoint", "show", hostile], ["endpoint", hostile, "x"]] {
            let answer = bench.run(&args);
            assert_eq!(answer.code, 64, "{answer:?}");
            let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!answer.stderr.contains(acts), "{answer:?}");
            assert!(answer.stderr.starts_with("error: "), "{answer:?}");
        }
    }
}
