//! Receivers that answer: status codes, `Retry-After`, redirects, bodies, headers.

use std::time::Duration;

use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_dispatcher::Config;
use hooklane_proto::record::{Attempt, FailureReason, Record, SkipReason, Verdict};
use hooklane_testkit::Receiver;
use hooklane_testkit::receiver::{Body, Reply};

use crate::bench::{Bench, SOON};
use crate::raw::Raw;
use crate::rows::{Expect, Row, attempt_all, of};

/// Every retriable status of the tables.
const RETRIED: [u16; 46] = [
    400, 401, 403, 404, 405, 406, 407, 408, 409, 411, 413, 414, 415, 418, 421, 422, 423, 425, 426,
    428, 431, 451, 500, 501, 502, 504, 505, 507, 508, 511, 520, 521, 522, 523, 524, 525, 526, 527,
    530, 598, 599, 600, 999, 300, 304, 305,
];

fn path(id: &str) -> String {
    format!("/{}", id.replace(' ', "_"))
}

fn row(receiver: &Receiver, id: &str, reply: Reply, expect: Expect) -> Row {
    receiver.always(&path(id), reply);
    Row::new(id, receiver.url(&path(id)), expect)
}

#[tokio::test(flavor = "multi_thread")]
async fn status_codes_have_their_classes() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let mut rows = vec![
        row(&receiver, "H001", Reply::status(200), Expect::Sent(200)),
        row(
            &receiver,
            "H002",
            Reply::status(200).body(r#"{"ok":false}"#),
            Expect::Sent(200),
        ),
        row(&receiver, "H004 201", Reply::status(201), Expect::Sent(201)),
        row(
            &receiver,
            "H004 204",
            Reply::raw("HTTP/1.1 204 No Content\r\n\r\n"),
            Expect::Sent(204),
        ),
        row(&receiver, "H004 299", Reply::status(299), Expect::Sent(299)),
        row(&receiver, "H009", Reply::status(410), Expect::Gone),
    ];
    for status in RETRIED {
        let raw = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nno");
        let id = format!("H006 H011 H012 {status}");
        rows.push(row(&receiver, &id, Reply::raw(raw), Expect::Retry(status)));
    }
    let reason = "x".repeat(1 << 20);
    let long = format!("HTTP/1.1 200 {reason}\r\nContent-Length: 0\r\n\r\n");
    rows.push(row(
        &receiver,
        "H014",
        Reply::raw(long),
        Expect::Error("bad_response"),
    ));
    let asks = Reply::status(401).header("WWW-Authenticate", "Basic realm=x");
    rows.push(row(&receiver, "H084", asks, Expect::Retry(401)));
    let count = rows.len() as u64;

    let running = bench.dispatcher(Config::default());
    let attempts = attempt_all(&bench, rows).await;
    assert_eq!(of(&attempts, "H002").body, br#"{"ok":false}"#);
    assert_eq!(receiver.counts().arrived, count, "nobody was asked twice");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_a_body_leave_the_connection_usable() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/h004",
        [Reply::status(204), Reply::status(205), Reply::status(200)],
    );
    let mut route = bench.route(&receiver.url("/h004"));
    route.concurrency = 1;
    bench.routes.put(&route).await.unwrap();
    let running = bench.dispatcher(Config::default());
    for _ in 0..3 {
        let delivery = bench.deliver(&route).await;
        assert_eq!(
            bench.recorded.attempt(&delivery).await.verdict,
            Verdict::Sent
        );
    }
    let connections: Vec<_> = receiver.requests().iter().map(|r| r.connection).collect();
    assert_eq!(connections, [1, 1, 1]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_delivery_succeeds_on_its_next_drive() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/h007", Reply::statuses([404, 200]));
    let route = bench.endpoint(&receiver.url("/h007")).await;
    let running = bench.dispatcher(Config::default());
    let mut delivery = bench.deliver(&route).await;
    let first = bench.recorded.attempt(&delivery).await;
    assert!(matches!(first.verdict, Verdict::Retry { .. }));
    delivery.drive = 2;
    delivery.attempts = first.number;
    delivery.counted = first.counted;
    bench.publish(&delivery).await;
    let records = bench.recorded.wait(2, SOON).await;
    let Record::Attempt(second) = &records[1] else {
        panic!("{records:?}");
    };
    assert_eq!(
        (second.number, second.counted, second.drive.drive),
        (2, 2, 2)
    );
    assert_eq!(second.verdict, Verdict::Sent);
    let ids: Vec<_> = receiver
        .requests()
        .iter()
        .map(|r| r.header("webhook-id").unwrap().to_owned())
        .collect();
    assert_eq!(ids[0], ids[1]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_410_disables_the_lane_for_all_that_wait() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let slow = Reply::status(410).after(Duration::from_millis(500));
    receiver.script("/h009", [slow]);
    let mut route = bench.route(&receiver.url("/h009"));
    route.concurrency = 1;
    bench.routes.put(&route).await.unwrap();
    let running = bench.dispatcher(Config::default());
    let gone = bench.deliver(&route).await;
    receiver.wait_for_path("/h009", 1, SOON).await.unwrap();
    for _ in 0..20 {
        bench.deliver(&route).await;
    }
    let records = bench.recorded.wait(21, SOON).await;
    let skipped = |r: &&Record| matches!(r, Record::Skipped(s) if s.reason == SkipReason::Disabled);
    assert_eq!(records.iter().filter(skipped).count(), 20, "{records:?}");
    let reason = FailureReason::Gone;
    assert_eq!(
        bench.recorded.attempt(&gone).await.verdict,
        Verdict::Failed { reason }
    );
    // Until newer settings come.
    let late = bench.deliver(&route).await;
    assert!(matches!(
        bench.recorded.first(&late).await,
        Record::Skipped(_)
    ));
    assert_eq!(receiver.counts().arrived, 1);
    bench.deliveries_settled().await;
    running.stop().await;
}

fn wait_of(attempt: &Attempt) -> Duration {
    match attempt.verdict {
        Verdict::Retry { next_attempt_at } => {
            (next_attempt_at - attempt.started_at).to_std().unwrap()
        }
        ref other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_read_in_all_its_forms() {
    const HOUR: u64 = 3_600;
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let running = bench.dispatcher(Config::default());
    let at = clock::now() + TimeDelta::minutes(10);
    let forms = [
        at.format("%a, %d %b %Y %H:%M:%S GMT").to_string(),
        at.format("%A, %d-%b-%y %H:%M:%S GMT").to_string(),
        at.format("%a %b %e %H:%M:%S %Y").to_string(),
    ];
    // Status, header, counted before, shortest and longest wait in seconds, whether it holds.
    let mut cases: Vec<(u16, String, i32, u64, u64, bool)> = vec![
        (429, "1".into(), 2, 1_800, 2_161, true),
        (503, "7200".into(), 0, HOUR, HOUR + 2, false),
        (429, "7200".into(), 0, HOUR, HOUR + 2, true),
        (503, "7200".into(), 3, 2 * HOUR, 8_641, false),
        (429, "30".into(), 0, 30, 32, true),
        (429, "9223372037".into(), 0, HOUR, HOUR + 2, true),
        (429, "18446744073709551616".into(), 0, HOUR, HOUR + 2, true),
        (429, "9".repeat(40), 0, HOUR, HOUR + 2, true),
    ];
    for form in forms {
        cases.push((429, form, 0, 590, 602, true));
    }
    for garbage in ["-5", "soon", "", "12.5", "300s", "1e3", "0x10", "+5"] {
        cases.push((429, garbage.into(), 0, 5, 7, false));
    }
    for status in [500, 502, 504, 408, 301] {
        cases.push((status, "3000".into(), 0, 5, 7, false));
    }
    let mut made = Vec::new();
    for (n, case) in cases.into_iter().enumerate() {
        let path = format!("/{n}");
        receiver.always(&path, Reply::status(case.0).retry_after(&case.1));
        let route = bench.endpoint(&receiver.url(&path)).await;
        let mut delivery = bench.delivery(&route);
        delivery.counted = case.2;
        delivery.attempts = case.2;
        bench.publish(&delivery).await;
        made.push((case, delivery));
    }
    for ((status, header, _, least, most, holds), delivery) in made {
        let attempt = bench.recorded.attempt(&delivery).await;
        let wait = wait_of(&attempt).as_secs();
        assert!(
            (least..=most).contains(&wait),
            "{status} {header}: {wait} s"
        );
        assert_eq!(attempt.hold_until.is_some(), holds, "{status} {header}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_that_is_not_text_is_ignored() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let raw = b"HTTP/1.1 429 X\r\nRetry-After: \xff\xfe\r\nContent-Length: 0\r\n\r\n";
    receiver.always("/h026", Reply::raw(&raw[..]));
    let running = bench.dispatcher(Config::default());
    let row = Row::new("H026", receiver.url("/h026"), Expect::Retry(429));
    let attempts = attempt_all(&bench, vec![row]).await;
    let attempt = of(&attempts, "H026");
    assert!(wait_of(attempt) < Duration::from_secs(7));
    assert_eq!(attempt.hold_until, None);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_always_asks_for_an_hour_gets_eight_attempts_in_thirty_hours() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(429).retry_after(3_600));
    let running = bench.dispatcher(Config::default());
    let mut waited = Duration::ZERO;
    for counted in 0..8 {
        // An endpoint each, since the lane of the one before is held.
        let route = bench.endpoint(&receiver.url("/h029")).await;
        let mut delivery = bench.delivery(&route);
        delivery.counted = counted;
        delivery.attempts = counted;
        bench.publish(&delivery).await;
        let attempt = bench.recorded.attempt(&delivery).await;
        if counted == 7 {
            let reason = FailureReason::Exhausted;
            assert_eq!(attempt.verdict, Verdict::Failed { reason });
        } else {
            waited += wait_of(&attempt);
        }
    }
    let hours = waited.as_secs_f64() / 3_600.0;
    assert!(
        (30.0..=36.1).contains(&hours),
        "{hours} h, of which jitter adds a fifth at most"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_not_followed() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let canary = Raw::start(|_| async {}).await;
    let mut rows = Vec::new();
    for status in [301, 302, 303, 307, 308] {
        let reply = Reply::status(status).header("Location", canary.url());
        rows.push(row(
            &receiver,
            &format!("H031 {status}"),
            reply,
            Expect::Retry(status),
        ));
    }
    let port = canary.address.port();
    for (n, to) in [
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::1]:{port}/"),
        "/other".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = Reply::status(302).header("Location", to);
        rows.push(row(
            &receiver,
            &format!("H032 {n}"),
            reply,
            Expect::Retry(302),
        ));
    }
    let refresh = Reply::status(200).header("Refresh", format!("0;url={}", canary.url()));
    rows.push(row(&receiver, "refresh", refresh, Expect::Sent(200)));
    rows.push(row(
        &receiver,
        "H034 none",
        Reply::status(302),
        Expect::Retry(302),
    ));
    let long = format!("http://example.com/{}", "x".repeat(64 << 10));
    let long = Reply::status(302).header("Location", long);
    rows.push(row(&receiver, "H034 long", long, Expect::Retry(302)));
    let count = rows.len() as u64;
    let running = bench.dispatcher(Config::default());
    attempt_all(&bench, rows).await;
    assert_eq!(canary.connections(), 0);
    assert_eq!(receiver.counts().arrived, count);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_logged_within_bounds_and_change_nothing() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let huge = Body::CutShort {
        sent: vec![b'x'; 16 << 10].into(),
        announced: 10 << 30,
    };
    let short = Body::CutShort {
        sent: "0123456789".into(),
        announced: 100,
    };
    let slow = Body::Drip {
        chunk: "x".into(),
        every: Duration::from_millis(50),
        times: 1_000,
    };
    let utf16: Vec<u8> = "é".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut rows = vec![
        row(
            &receiver,
            "H044",
            Reply::status(200).body_of(huge),
            Expect::Sent(200),
        ),
        row(
            &receiver,
            "endless",
            Reply::status(500).body_of(Body::Endless),
            Expect::Retry(500),
        ),
        row(
            &receiver,
            "H049",
            Reply::status(200).body_of(short),
            Expect::Sent(200),
        ),
        row(
            &receiver,
            "slow",
            Reply::status(200).body_of(slow),
            Expect::Sent(200),
        )
        .timeout(1_000),
        row(
            &receiver,
            "H046",
            Reply::status(500)
                .header("Content-Encoding", "gzip")
                .body("not gzip"),
            Expect::Retry(500),
        ),
        row(
            &receiver,
            "H086",
            Reply::status(200).body("webhook-signature: v1,echoed"),
            Expect::Sent(200),
        ),
    ];
    for (n, body) in [
        b"\xff\xfe\0".to_vec(),
        b"a\0b".to_vec(),
        utf16,
        b"caf\xe9".to_vec(),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = Reply::status(200).body(body);
        rows.push(row(
            &receiver,
            &format!("H047 {n}"),
            reply,
            Expect::Sent(200),
        ));
    }
    let running = bench.dispatcher(Config::default());
    let attempts = attempt_all(&bench, rows).await;
    assert_eq!(of(&attempts, "H044").body.len(), 4 << 10);
    assert!(
        of(&attempts, "H044")
            .detail
            .as_ref()
            .unwrap()
            .contains("cut")
    );
    assert_eq!(of(&attempts, "endless").body.len(), 4 << 10);
    assert_eq!(of(&attempts, "H049").body, b"0123456789");
    assert!(
        of(&attempts, "H049")
            .detail
            .as_ref()
            .unwrap()
            .contains("broke off")
    );
    assert!(
        of(&attempts, "slow")
            .detail
            .as_ref()
            .unwrap()
            .contains("in time")
    );
    assert!(of(&attempts, "slow").duration_us >= 990_000);
    assert_eq!(of(&attempts, "H046").body, b"not gzip");
    assert_eq!(of(&attempts, "H047 0").body, b"\xff\xfe\0");
    assert_eq!(of(&attempts, "H047 1").body, b"a\0b");
    running.stop().await;
}
