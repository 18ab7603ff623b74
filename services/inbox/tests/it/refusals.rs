//! What is not taken, and how that is said.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{Method, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::bench::{BUDGET, Bench, Served, config};
use crate::client::{Event, SHOP};

/// Sends bytes as they are and reads until the connection ends.
async fn raw(served: &Served, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    timeout(BUDGET, stream.read_to_end(&mut answer))
        .await
        .unwrap()
        .unwrap();
    String::from_utf8(answer).unwrap()
}

async fn rows(bench: &Bench) -> String {
    bench
        .ledger
        .sql("SELECT count(*) FROM hooklane.webhook_inbox")
        .await
}

#[tokio::test]
async fn unknown_and_disabled_sources_and_odd_paths_are_one_and_the_same_404() {
    let bench = Bench::new().await;
    let mut config = config("");
    let mut off = config.sources["shop"].clone();
    off.enabled = false;
    config.sources.insert("off".to_owned(), off);
    let served = bench.serve(config).await;
    let mut bodies = Vec::new();
    let paths = [
        "/in/nobody",
        "/in/off",
        "/in/",
        "/in/SHOP",
        "/in/shop/",
        "/in/../in/shop",
        "/",
    ];
    for path in paths {
        for method in [Method::POST, Method::GET] {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", "x");
            let answer = served
                .connect()
                .await
                .ask(request.body(Body::empty()).unwrap())
                .await;
            assert_eq!(answer.status, 404, "{path}");
            bodies.push(answer.body);
        }
    }
    assert!(
        bodies.windows(2).all(|pair| pair[0] == pair[1]),
        "{bodies:?}"
    );
    let other = Request::delete(SHOP).header("host", "x");
    let answer = served
        .connect()
        .await
        .ask(other.body(Body::empty()).unwrap())
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("allow")),
        (405, "POST")
    );
    served.running.stop().await;
}

#[tokio::test]
async fn a_bad_signature_is_401_and_kept_with_its_reason() {
    let bench = Bench::new().await;
    let served = bench.serve(config("")).await;
    let now = bench.clock.now();
    let mut partner = served.connect().await;
    let event = Event::order("evt_1", "order.paid", "o1", now);
    let mut altered = event.request();
    *altered.body_mut() = Body::from(event.body.replace("o1", "o2"));
    altered
        .headers_mut()
        .insert("authorization", "canary".parse().unwrap());
    let mut unsigned = event.request();
    unsigned.headers_mut().remove("webhook-signature");
    let old = Event {
        signed_at: now - chrono::TimeDelta::seconds(3_600),
        ..event.clone()
    };
    for request in [altered, unsigned, old.request()] {
        let answer = partner.ask(request).await;
        assert_eq!(answer.status, 401, "{answer:?}");
        assert_eq!(answer.body, "the signature is not accepted\n");
    }
    let kept = "SELECT string_agg(reason, ' ' ORDER BY id) FROM hooklane.inbox_rejects";
    bench
        .until_sql(kept, "wrong_signature missing_signature too_old")
        .await;
    let page = bench
        .ledger
        .store
        .inbox_rejects(None, None, 10)
        .await
        .unwrap();
    let first = page
        .items
        .iter()
        .find(|reject| reject.reason == "wrong_signature")
        .unwrap();
    assert_eq!(first.remote.as_deref(), Some("127.0.0.1"));
    assert!(first.body.ends_with(br#""o2"}"#));
    assert!(first.headers.0.iter().any(|(name, _)| name == "webhook-id"));
    assert!(first.headers.0.iter().all(|(_, value)| value != "canary"));
    assert_eq!(rows(&bench).await, "0");
    // The connection goes on.
    partner.send(&event).await;
    served.running.stop().await;
}

#[tokio::test]
async fn a_body_at_the_limit_is_taken_and_one_byte_more_is_413_however_it_is_announced() {
    let bench = Bench::new().await;
    let mut config = config("");
    config.sources.get_mut("shop").unwrap().max_body = 100_000;
    let served = bench.serve(config).await;
    let now = bench.clock.now();
    let sized = |bytes: usize| {
        let mut event = Event::order(&format!("evt_{bytes}"), "order.paid", "", now);
        let padding = "x".repeat(bytes - event.body.len());
        event.body = event
            .body
            .replace(r#""order":""#, &format!(r#""order":"{padding}"#));
        event
    };
    served.connect().await.send(&sized(100_000)).await;
    let event = sized(100_001);
    let announced = served.connect().await.ask(event.request()).await;
    let mut chunked = event.request();
    chunked.headers_mut().remove("content-length");
    let chunks: Vec<Bytes> = event
        .body
        .as_bytes()
        .chunks(1_000)
        .map(Bytes::copy_from_slice)
        .collect();
    let chunks = chunks.into_iter().map(Ok::<_, std::convert::Infallible>);
    *chunked.body_mut() = Body::from_stream(stream::iter(chunks));
    let counted = served.connect().await.ask(chunked).await;
    for answer in [announced, counted] {
        assert_eq!(answer.status, 413, "{answer:?}");
        assert_eq!(answer.header("connection"), "close");
    }
    assert_eq!(rows(&bench).await, "1");
    served.running.stop().await;
}

#[tokio::test]
async fn a_body_with_an_encoding_is_415_and_identity_is_none() {
    let bench = Bench::new().await;
    let served = bench.serve(config("")).await;
    let now = bench.clock.now();
    for (n, encoding, status) in [
        (1, "gzip", 415),
        (2, "identity, br", 415),
        (3, "Identity", 200),
    ] {
        let mut request = Event::order(&format!("evt_{n}"), "order.paid", "o", now).request();
        request
            .headers_mut()
            .insert("content-encoding", encoding.parse().unwrap());
        let answer = served.connect().await.ask(request).await;
        assert_eq!(answer.status, status, "{encoding}");
    }
    assert_eq!(rows(&bench).await, "1");
    served.running.stop().await;
}

#[tokio::test]
async fn a_slow_body_is_408_and_a_slow_head_ends_the_connection() {
    let bench = Bench::new().await;
    let served = bench
        .serve(config("body_within = \"300ms\"\nhead_within = \"1s\""))
        .await;
    let started = Instant::now();
    let head = "POST /in/shop HTTP/1.1\r\nhost: x\r\n";
    let slow = raw(
        &served,
        format!("{head}content-length: 10\r\n\r\n12345").as_bytes(),
    )
    .await;
    assert!(slow.starts_with("HTTP/1.1 408 "), "{slow}");
    let endless = raw(
        &served,
        format!("{head}transfer-encoding: chunked\r\n\r\n5\r\n12345\r\n").as_bytes(),
    )
    .await;
    assert!(endless.starts_with("HTTP/1.1 408 "), "{endless}");
    let headless = raw(&served, head.as_bytes()).await;
    assert!(
        headless.is_empty() || headless.starts_with("HTTP/1.1 408 "),
        "{headless}"
    );
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    served.running.stop().await;
}

#[tokio::test]
async fn who_has_sent_all_and_closes_its_side_is_answered_and_who_has_not_is_done_with() {
    let bench = Bench::new().await;
    let served = bench.serve(config("")).await;
    let ask = async |event: &Event, cut: usize| {
        let (head, body) = event.wire("");
        let text = head + &body;
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let sent = &text.as_bytes()[..text.len() - cut];
        stream.write_all(sent).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        let reading = stream.read_to_string(&mut answer);
        timeout(BUDGET, reading).await.unwrap().unwrap();
        answer
    };
    let event = Event::order("evt_1", "order.paid", "o1", bench.clock.now());
    let cut = ask(&event, 1).await;
    assert!(cut.is_empty() || cut.starts_with("HTTP/1.1 400 "), "{cut}");
    assert_eq!(rows(&bench).await, "0");
    let whole = ask(&event, 0).await;
    assert!(whole.starts_with("HTTP/1.1 200 "), "{whole}");
    assert_eq!(rows(&bench).await, "1");
    served.running.stop().await;
}

#[tokio::test]
async fn requests_that_could_be_read_in_two_ways_or_never_end_are_refused() {
    let bench = Bench::new().await;
    let served = bench.serve(config("")).await;
    let both = "POST /in/shop HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let twice =
        "POST /in/shop HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n12345";
    for request in [both, twice] {
        let answer = raw(&served, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let large = format!(
        "POST /in/shop HTTP/1.1\r\nx: {}\r\n\r\n",
        "x".repeat(64 << 10)
    );
    let answer = raw(&served, large.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(rows(&bench).await, "0");
    served.running.stop().await;
}

#[tokio::test]
async fn a_source_takes_so_many_requests_a_second() {
    let bench = Bench::new().await;
    let served = bench.serve(config("rate_limit = 5")).await;
    let now = bench.clock.now();
    let mut statuses = Vec::new();
    for n in 0..20 {
        let event = Event::order(&format!("evt_{n}"), "order.paid", "o", now);
        let answer = served.connect().await.ask(event.request()).await;
        if answer.status == 429 {
            assert_eq!(answer.header("retry-after"), "1");
        }
        statuses.push(answer.status.as_u16());
    }
    assert_eq!(statuses[..5], [200; 5]);
    assert!(statuses.contains(&429), "{statuses:?}");
    served.running.stop().await;
}

#[tokio::test]
async fn strangers_use_up_nothing_of_what_a_partner_may_send() {
    let bench = Bench::new().await;
    let served = bench.serve(config("rate_limit = 1")).await;
    let event = Event::order("evt_1", "order.paid", "o", bench.clock.now());
    let mut partner = served.connect().await;
    for _ in 0..20 {
        let mut forged = event.request();
        let signature = "v1,AAAA".parse().unwrap();
        forged.headers_mut().insert("webhook-signature", signature);
        assert_eq!(partner.ask(forged).await.status, 401);
    }
    partner.send(&event).await;
    served.running.stop().await;
}

#[tokio::test]
async fn the_same_event_again_and_the_same_id_with_another_body_are_200() {
    let bench = Bench::new().await;
    let served = bench.serve(config("")).await;
    let now = bench.clock.now();
    let mut partner = served.connect().await;
    let event = Event::order("evt_1", "order.paid", "o1", now);
    let other = Event::order("evt_1", "order.paid", "o2", now);
    for event in [&event, &event, &other] {
        partner.send(event).await;
    }
    let stats = served.running.handle.stats();
    assert_eq!((stats.received, stats.repeated, stats.conflicts), (1, 1, 1));
    assert_eq!(rows(&bench).await, "1");
    served.running.stop().await;
}
