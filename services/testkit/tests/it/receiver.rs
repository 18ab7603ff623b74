//! Every reply as a real client sees it.

use std::time::Duration;

use hooklane_testkit::receiver::{Body, Options};
use hooklane_testkit::{Receiver, Reply};
use reqwest::{Certificate, Client, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

const BUDGET: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);

fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

async fn post(receiver: &Receiver, path: &str, body: &'static str) -> reqwest::Result<Response> {
    client()
        .post(receiver.url(path))
        .timeout(BUDGET)
        .body(body)
        .send()
        .await
}

#[tokio::test]
async fn replies_come_in_the_scripted_order_then_the_path_s_own_then_the_fallback() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/a", Reply::statuses([500, 503]));
    receiver.always("/a", Reply::status(202));
    receiver.fallback(Reply::status(404));
    let mut seen = Vec::new();
    for path in ["/a", "/a?x=1", "/a", "/a", "/b"] {
        seen.push(post(&receiver, path, "").await.unwrap().status().as_u16());
    }
    assert_eq!(seen, [500, 503, 202, 202, 404]);
    receiver.reset("/a");
    assert_eq!(post(&receiver, "/a", "").await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_request_is_recorded_byte_for_byte() {
    let receiver = Receiver::start().await.unwrap();
    let body: &[u8] = b"{\"a\": 1.0,\r\n \xff\0}";
    client()
        .post(receiver.url("/hook?q=1"))
        .header("X-Twice", "one")
        .header("X-Twice", "two")
        .body(body)
        .send()
        .await
        .unwrap();
    let requests = receiver.wait_for_path("/hook", 1, BUDGET).await.unwrap();
    let request = &requests[0];
    assert_eq!(
        (request.method.as_str(), request.target.as_str()),
        ("POST", "/hook?q=1")
    );
    assert_eq!(request.body, body);
    assert!(request.complete);
    assert_eq!(request.headers_named("x-twice"), ["one", "two"]);
    assert_eq!(request.header("Content-Length"), Some("16"));
}

#[tokio::test]
async fn connections_are_kept_alive_unless_the_reply_closes() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/",
        [
            Reply::status(200),
            Reply::status(200).closing(),
            Reply::status(200),
        ],
    );
    let client = client();
    for _ in 0..3 {
        let answer = client.post(receiver.url("/")).send().await.unwrap();
        answer.bytes().await.unwrap();
    }
    let used: Vec<u64> = receiver.requests().iter().map(|r| r.connection).collect();
    assert_eq!(used, [1, 1, 2]);
    assert_eq!(receiver.counts().connections, 2);
}

#[tokio::test]
async fn delay_hang_and_drip_take_their_time() {
    let receiver = Receiver::start().await.unwrap();
    receiver.always("/delay", Reply::status(200).after(SHORT));
    receiver.always("/hang", Reply::hang());
    let drip = Body::Drip {
        chunk: "ab".into(),
        every: SHORT / 3,
        times: 3,
    };
    receiver.always("/drip", Reply::status(200).body_of(drip));

    let started = Instant::now();
    post(&receiver, "/delay", "x").await.unwrap();
    assert!(started.elapsed() >= SHORT);

    let started = Instant::now();
    let answer = post(&receiver, "/drip", "x").await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "ababab");
    assert!(started.elapsed() >= SHORT);

    let hung = client()
        .post(receiver.url("/hang"))
        .timeout(SHORT)
        .send()
        .await
        .unwrap_err();
    assert!(hung.is_timeout());
    receiver.wait_idle(BUDGET).await.unwrap();
    assert_eq!(receiver.counts_of("/hang").broken, 1);
}

#[tokio::test]
async fn broken_answers_are_errors_to_the_client() {
    let receiver = Receiver::start().await.unwrap();
    let cut = Body::CutShort {
        sent: "abc".into(),
        announced: 10,
    };
    receiver.always("/reset", Reply::reset());
    receiver.always("/close", Reply::close());
    receiver.always("/unread", Reply::close_unread());
    receiver.always("/raw", Reply::raw("SSH-2.0-OpenSSH_9.6\r\n"));
    receiver.always("/half", Reply::half_close("HTTP/1.1 200 OK\r\nContent-Le"));
    receiver.always("/cut", Reply::status(200).body_of(cut));
    for path in ["/reset", "/close", "/unread", "/raw", "/half"] {
        assert!(post(&receiver, path, "body").await.is_err(), "{path}");
    }
    let answer = post(&receiver, "/cut", "body").await.unwrap();
    assert!(answer.bytes().await.is_err());
    // What was asked for arrived all the same, except where the body wasn't read.
    for request in receiver.requests() {
        assert_eq!(request.complete, request.path() != "/unread", "{request:?}");
    }
}

#[tokio::test]
async fn a_half_close_after_a_whole_answer_is_an_answer() {
    let receiver = Receiver::start().await.unwrap();
    let whole = "HTTP/1.1 201 Made\r\nContent-Length: 2\r\n\r\nok";
    receiver.always("/", Reply::half_close(whole));
    let answer = post(&receiver, "/", "body").await.unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.text().await.unwrap(), "ok");
}

#[tokio::test]
async fn an_endless_body_lasts_until_the_client_leaves() {
    let receiver = Receiver::start().await.unwrap();
    receiver.always("/", Reply::status(200).body_of(Body::Endless));
    let mut answer = post(&receiver, "/", "").await.unwrap();
    let mut got = 0;
    while got < 1 << 20 {
        got += answer.chunk().await.unwrap().unwrap().len();
    }
    drop(answer);
    receiver.wait_idle(BUDGET).await.unwrap();
    assert_eq!(receiver.counts().answered, 0);
}

#[tokio::test]
async fn an_early_answer_comes_before_the_body_is_sent() {
    let receiver = Receiver::start().await.unwrap();
    receiver.always("/", Reply::status(413).early());
    let mut stream = TcpStream::connect(receiver.address()).await.unwrap();
    stream
        .write_all(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    stream.write_all(b"late").await.unwrap();
    receiver.wait_idle(BUDGET).await.unwrap();
    assert_eq!(receiver.requests()[0].body, "late");
}

#[tokio::test]
async fn retry_after_is_sent_as_it_was_scripted() {
    let receiver = Receiver::start().await.unwrap();
    let date = "Wed, 21 Oct 2026 07:28:00 GMT";
    receiver.script(
        "/",
        [
            Reply::status(429).retry_after(120),
            Reply::status(503).retry_after(date),
            Reply::status(429).retry_after("soon").body("slow down"),
        ],
    );
    for expected in ["120", date, "soon"] {
        let answer = post(&receiver, "/", "").await.unwrap();
        assert_eq!(answer.headers()["retry-after"], expected);
    }
}

#[tokio::test]
async fn what_is_in_flight_is_counted_per_path() {
    let receiver = Receiver::start().await.unwrap();
    receiver.always("/slow", Reply::status(200).after(SHORT));
    let (a, b, c) = tokio::join!(
        post(&receiver, "/slow", ""),
        post(&receiver, "/slow", ""),
        post(&receiver, "/fast", "")
    );
    assert!([a, b, c].iter().all(Result::is_ok));
    receiver.wait_idle(BUDGET).await.unwrap();
    assert_eq!(receiver.counts_of("/slow").max_in_flight, 2);
    assert_eq!(receiver.counts_of("/fast").max_in_flight, 1);
    assert_eq!(receiver.counts().answered, 3);
}

#[tokio::test]
async fn a_counting_receiver_keeps_no_request() {
    let receiver = Receiver::start_with(Options {
        keep: 0,
        ..Options::default()
    })
    .await
    .unwrap();
    for _ in 0..3 {
        post(&receiver, "/", "body").await.unwrap();
    }
    receiver.wait_for(3, BUDGET).await.unwrap();
    assert!(receiver.requests().is_empty());
    let error = receiver.wait_for(4, SHORT).await.unwrap_err();
    assert!(error.to_string().contains("arrived: 3"), "{error}");
}

#[tokio::test]
async fn tls_is_trusted_by_its_own_authority_only() {
    let receiver = Receiver::start_tls().await.unwrap();
    assert!(post(&receiver, "/", "").await.is_err());
    let authority = Certificate::from_pem(receiver.ca_pem().unwrap().as_bytes()).unwrap();
    let trusting = Client::builder()
        .no_proxy()
        .tls_certs_only([authority])
        .build()
        .unwrap();
    let answer = trusting
        .post(receiver.url("/"))
        .body("x")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    receiver.always("/", Reply::reset());
    assert!(trusting.post(receiver.url("/")).send().await.is_err());
}
