//! Receivers that don't speak HTTP well, or not at all, and connections that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hooklane_dispatcher::{Config, config};
use hooklane_proto::record::Verdict;
use hooklane_testkit::Receiver;
use hooklane_testkit::receiver::Reply;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::bench::{Bench, SOON};
use crate::raw::{Gauge, Raw, read_head, read_request, until_gone};
use crate::rows::{Expect, Row, attempt_all, of};

fn answer(receiver: &Receiver, id: &str, bytes: impl AsRef<[u8]>, expect: Expect) -> Row {
    let path = format!("/{}", id.replace(' ', "_"));
    receiver.always(&path, Reply::raw(bytes.as_ref().to_vec()));
    Row::new(id, receiver.url(&path), expect)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_http_is_a_bad_response() {
    const BAD: Expect = Expect::Error("bad_response");
    let bench = Bench::start().await;
    let r = &Receiver::start().await.unwrap();
    let rows = vec![
        answer(r, "H062 0.9", "<html>hello</html>", BAD),
        answer(r, "H062 ssh", "SSH-2.0-OpenSSH_9.6\r\n", BAD),
        answer(r, "H062 alert", b"\x15\x03\x01\x00\x02\x02\x28", BAD),
        answer(r, "H062 ftp", "220 ready\r\n", BAD),
        answer(
            r,
            "H066 lower",
            "http/1.1 200 ok\r\ncontent-length: 0\r\n\r\n",
            BAD,
        ),
        answer(
            r,
            "H066 no reason",
            "HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n",
            Expect::Sent(200),
        ),
        answer(
            r,
            "H066 lf",
            "HTTP/1.1 200 OK\ncontent-length: 0\n\n",
            Expect::Sent(200),
        ),
        answer(
            r,
            "H067 2.0",
            "HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
            BAD,
        ),
        answer(
            r,
            "H067 9.9",
            "HTTP/9.9 200 OK\r\ncontent-length: 0\r\n\r\n",
            BAD,
        ),
        answer(
            r,
            "H081 nul",
            "HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n",
            BAD,
        ),
        answer(
            r,
            "H081 soh",
            "HTTP/1.1 200 OK\r\nx: a\x01b\r\ncontent-length: 0\r\n\r\n",
            BAD,
        ),
        answer(
            r,
            "H081 del",
            "HTTP/1.1 200 OK\r\nx: a\x7fb\r\ncontent-length: 0\r\n\r\n",
            BAD,
        ),
        answer(
            r,
            "H081 fold",
            "HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n",
            BAD,
        ),
        answer(
            r,
            "H081 space",
            "HTTP/1.1 200 OK\r\nx : a\r\ncontent-length: 0\r\n\r\n",
            BAD,
        ),
        answer(
            r,
            "H081 empty",
            "HTTP/1.1 200 OK\r\n: a\r\ncontent-length: 0\r\n\r\n",
            BAD,
        ),
        answer(
            r,
            "H069",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            Expect::Sent(200),
        ),
        answer(
            r,
            "H071",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 P\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            Expect::Sent(200),
        ),
        answer(
            r,
            "H082",
            b"HTTP/1.1 200 OK\r\nx-name: caf\xe9 \xff\r\ncontent-length: 0\r\n\r\n",
            Expect::Sent(200),
        ),
        answer(
            r,
            "101",
            "HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n",
            Expect::Retry(101),
        ),
        answer(r, "many headers", many_headers(), BAD),
    ];
    let greeting = Raw::start(|mut stream| async move {
        let _ = stream.write_all(b"220 ftp.example.com ready\r\n").await;
        until_gone(&mut stream).await;
    })
    .await;
    let mut rows = rows;
    rows.push(Row::new("H062 greeting", greeting.url(), BAD));
    let running = bench.dispatcher(Config::default());
    let attempts = attempt_all(&bench, rows).await;
    let latin = &of(&attempts, "H082").headers[0];
    assert_eq!(
        (latin.0.as_str(), latin.1.as_str()),
        ("x-name", "caf\u{fffd} \u{fffd}")
    );
    assert_eq!(of(&attempts, "H069").body, b"ok");
    running.stop().await;
}

fn many_headers() -> String {
    let headers: String = (0..500).map(|n| format!("x-{n}: {n}\r\n")).collect();
    format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_are_failed_attempts() {
    const CLOSED: Expect = Expect::Error("reset");
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let port = {
        let closed = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        closed.local_addr().unwrap().port()
    };
    let half_closed = Raw::start(|mut stream| async move {
        let _ = stream.shutdown().await;
        until_gone(&mut stream).await;
    })
    .await;
    receiver.always("/reset", Reply::reset());
    receiver.always("/close", Reply::close());
    receiver.always("/half", Reply::raw("HTTP/1.1 200 OK\r\nx-cut"));
    let running = bench.dispatcher(Config::default());
    let refused = Expect::Error("connect_refused");
    let rows = vec![
        Row::new("H052", format!("http://127.0.0.1:{port}/"), refused),
        Row::new("H054", receiver.url("/reset"), CLOSED),
        Row::new("close", receiver.url("/close"), CLOSED),
        Row::new("half a head", receiver.url("/half"), CLOSED),
        Row::new("H056", half_closed.url(), CLOSED),
    ];
    attempt_all(&bench, rows).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_body_was_read_counts() {
    let early = |status: &'static str| async move {
        Raw::start(move |mut stream| async move {
            read_head(&mut stream).await;
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
            // Long enough for the head to be read before the reset that unread bytes cause.
            tokio::time::sleep(Duration::from_millis(300)).await;
        })
        .await
    };
    let (ok, large) = (early("200 OK").await, early("413 Too Large").await);
    let bench = Bench::start().await;
    let running = bench.dispatcher(Config::default());
    let payload = vec![b'x'; 900 << 10];
    let rows = vec![
        Row::new("H057 200", ok.url(), Expect::Sent(200)).payload(payload.clone()),
        Row::new("H057 413", large.url(), Expect::Retry(413)).payload(payload),
    ];
    attempt_all(&bench, rows).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlasts_the_total_deadline() {
    let bench = Bench::start().await;
    let receiver = Receiver::start().await.unwrap();
    let drip = Raw::start(|mut stream| async move {
        read_request(&mut stream).await;
        for byte in b"HTTP/1.1 200 OK\r\nx: "
            .iter()
            .chain(std::iter::repeat(&b'x'))
        {
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    let hints = Raw::start(|mut stream| async move {
        read_request(&mut stream).await;
        while stream
            .write_all(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
            .await
            .is_ok()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let silent = Raw::start(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        until_gone(&mut stream).await;
    })
    .await;
    let no_body = Raw::start(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
            .await;
        until_gone(&mut stream).await;
    })
    .await;
    receiver.always("/hang", Reply::hang());
    receiver.always(
        "/edge",
        Reply::status(200).after(Duration::from_millis(800)),
    );
    let timeout = Expect::Error("timeout");
    let running = bench.dispatcher(Config::default());
    let rows = vec![
        Row::new("hang", receiver.url("/hang"), timeout).timeout(1_000),
        Row::new("H037", drip.url(), timeout).timeout(1_000),
        Row::new("H039", receiver.url("/edge"), Expect::Sent(200)).timeout(1_000),
        Row::new("H051", no_body.url(), Expect::Sent(200)).timeout(1_000),
        Row::new("H072", hints.url(), timeout).timeout(1_000),
        Row::new("H074", silent.url(), timeout).timeout(1_000),
    ];
    let attempts = attempt_all(&bench, rows).await;
    assert!(of(&attempts, "H051").duration_us >= 990_000);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_never_accepted_times_out_early() {
    // A listener whose queue is full drops what comes.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut fillers = Vec::new();
    for _ in 0..64 {
        let connecting = TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(50), connecting).await {
            Ok(Ok(stream)) => fillers.push(stream),
            _ => break,
        }
    }
    let stalled = Raw::start(|mut stream| async move { until_gone(&mut stream).await }).await;
    let bench = Bench::start().await;
    let config = Config {
        http: config::Http {
            connect_timeout: Duration::from_millis(500),
            ..config::Http::default()
        },
        dns: config::Dns {
            timeout: Duration::from_millis(300),
            ..config::Dns::default()
        },
        ..Config::default()
    };
    let running = bench.dispatcher(config);
    let expect = Expect::Error("connect_timeout");
    let tls = format!("https://127.0.0.1:{}/", stalled.address.port());
    let rows = vec![
        Row::new("H036", format!("http://{address}/"), expect),
        Row::new("H041", tls, expect),
    ];
    let attempts = attempt_all(&bench, rows).await;
    for (id, attempt) in attempts {
        assert!(
            attempt.duration_us < 1_500_000,
            "{id}: {}",
            attempt.duration_us
        );
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_that_dies_without_an_answer_costs_no_attempt() {
    // Takes the second request of every connection and closes on it.
    let requests = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&requests);
    let closing = Raw::start(move |mut stream| {
        let count = Arc::clone(&count);
        async move {
            read_request(&mut stream).await;
            count.fetch_add(1, Ordering::Relaxed);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(answer).await;
            if read_request(&mut stream).await {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await;
    let bench = Bench::start().await;
    let route = bench.endpoint(&closing.url()).await;
    let running = bench.dispatcher(Config::default());
    let mut notes = Vec::new();
    for _ in 0..2 {
        let delivery = bench.deliver(&route).await;
        let attempt = bench.recorded.attempt(&delivery).await;
        assert_eq!((attempt.verdict, attempt.number), (Verdict::Sent, 1));
        notes.push(attempt.detail);
    }
    assert_eq!(notes[0], None);
    assert!(
        notes[1].as_ref().unwrap().contains("sent once more"),
        "{notes:?}"
    );
    assert_eq!(
        (requests.load(Ordering::Relaxed), closing.connections()),
        (3, 2)
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_that_was_closed_costs_no_attempt() {
    // Closes after each answer without saying so.
    let closing = Raw::start(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await;
    })
    .await;
    let bench = Bench::start().await;
    let route = bench.endpoint(&closing.url()).await;
    let running = bench.dispatcher(Config::default());
    for _ in 0..20 {
        let delivery = bench.deliver(&route).await;
        assert_eq!(
            bench.recorded.attempt(&delivery).await.verdict,
            Verdict::Sent
        );
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_broken_answers_leave_no_socket_behind() {
    let gauge = Arc::new(Gauge::default());
    let count = Arc::clone(&gauge);
    let receiver = Raw::start(move |mut stream| {
        let open = count.open();
        async move {
            let _open = open;
            let head = read_head(&mut stream).await;
            let head = String::from_utf8_lossy(&head).into_owned();
            match word(&head) {
                "garbage" => drop(stream.write_all(b"garbage\r\n\r\n").await),
                "endless" => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                    while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
                }
                "keep" => {
                    let _ = stream
                        .write_all(b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n")
                        .await;
                    until_gone(&mut stream).await;
                }
                // Closes with the body unread, which is a reset.
                _ => {}
            }
        }
    })
    .await;
    let bench = Bench::start().await;
    let config = Config {
        http: config::Http {
            idle_timeout: Duration::from_millis(500),
            ..config::Http::default()
        },
        ..Config::default()
    };
    let running = bench.dispatcher(config);
    let mut deliveries = Vec::new();
    for path in ["reset", "garbage", "endless", "keep"] {
        let route = bench.endpoint(&format!("{}{path}", receiver.url())).await;
        for _ in 0..250 {
            deliveries.push(bench.delivery(&route));
        }
    }
    futures::future::join_all(deliveries.iter().map(|d| bench.publish(d))).await;
    bench.recorded.wait(1_000, SOON).await;
    hooklane_testkit::wait::until("every connection to be closed", SOON, || async {
        gauge.now() == 0
    })
    .await
    .unwrap();
    assert_eq!(running.handle.in_flight(), 0);
    hooklane_testkit::wait::until("nothing to be held", SOON, || async {
        running.handle.held_bytes() == 0
    })
    .await
    .unwrap();
    running.stop().await;
}

/// The path's only word.
fn word(head: &str) -> &str {
    let target = head.split(' ').nth(1).unwrap_or_default();
    target.trim_start_matches('/')
}
