//! Host names: a resolver that says what a test wants.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hooklane_core::rules::address::Policy;
use hooklane_dispatcher::{Config, config};
use hooklane_proto::record::Verdict;
use hooklane_testkit::Receiver;
use hooklane_testkit::receiver::Options;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::task::AbortOnDropHandle;

use crate::bench::{Bench, SOON};
use crate::raw::Raw;
use crate::rows::{Expect, Row, attempt_all, of};

/// What the stub says about a name.
#[derive(Clone)]
enum Says {
    /// These addresses; the next query gets the next list, the last one for ever.
    Addresses(Vec<Vec<IpAddr>>),
    Alias(&'static str),
    NoSuchName,
    Failure,
    /// Nothing, though it answers for other names.
    Silence,
    /// After a while.
    Slow(Duration, IpAddr),
}

struct Stub {
    address: SocketAddr,
    asked: Arc<Mutex<HashMap<String, usize>>>,
    _serving: [AbortOnDropHandle<()>; 2],
}

impl Stub {
    async fn start(names: &[(&str, Says)]) -> Self {
        let names: HashMap<String, Says> = names
            .iter()
            .map(|(name, says)| (format!("{name}."), says.clone()))
            .collect();
        let (names, asked) = (Arc::new(names), Arc::new(Mutex::new(HashMap::new())));
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            // The same port for both, which another test may have taken meanwhile.
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (Arc::new(udp), tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let serve_udp = tokio::spawn({
            let (names, asked) = (Arc::clone(&names), Arc::clone(&asked));
            async move {
                let mut buffer = [0; 4096];
                loop {
                    let (read, from) = udp.recv_from(&mut buffer).await.unwrap();
                    let query = Message::from_vec(&buffer[..read]).unwrap();
                    let (names, asked) = (Arc::clone(&names), Arc::clone(&asked));
                    let udp = Arc::clone(&udp);
                    tokio::spawn(async move {
                        if let Some(mut answer) = answer(&query, &names, &asked).await {
                            let mut bytes = answer.to_vec().unwrap();
                            if bytes.len() > 1_232 {
                                answer.metadata.truncation = true;
                                answer.answers.clear();
                                bytes = answer.to_vec().unwrap();
                            }
                            let _ = udp.send_to(&bytes, from).await;
                        }
                    });
                }
            }
        });
        let serve_tcp = tokio::spawn({
            let (names, asked) = (Arc::clone(&names), Arc::clone(&asked));
            async move {
                loop {
                    let (mut stream, _) = tcp.accept().await.unwrap();
                    let (names, asked) = (Arc::clone(&names), Arc::clone(&asked));
                    tokio::spawn(async move {
                        while let Ok(length) = stream.read_u16().await {
                            let mut bytes = vec![0; usize::from(length)];
                            stream.read_exact(&mut bytes).await.unwrap();
                            let query = Message::from_vec(&bytes).unwrap();
                            if let Some(answer) = answer(&query, &names, &asked).await {
                                let bytes = answer.to_vec().unwrap();
                                let length = u16::try_from(bytes.len()).unwrap();
                                stream.write_u16(length).await.unwrap();
                                stream.write_all(&bytes).await.unwrap();
                            }
                        }
                    });
                }
            }
        });
        Self {
            address,
            asked,
            _serving: [
                AbortOnDropHandle::new(serve_udp),
                AbortOnDropHandle::new(serve_tcp),
            ],
        }
    }

    fn asked(&self, name: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.get(&format!("{name}.")).copied().unwrap_or(0)
    }

    fn config(&self) -> Config {
        Config {
            dns: config::Dns {
                servers: vec![self.address],
                timeout: Duration::from_secs(1),
                min_ttl: Duration::ZERO,
                ..config::Dns::default()
            },
            http: config::Http {
                // So that each attempt connects, and resolves.
                idle_timeout: Duration::ZERO,
                max_idle_per_host: 0,
                ..config::Http::default()
            },
            ..Config::default()
        }
    }
}

async fn answer(
    query: &Message,
    names: &HashMap<String, Says>,
    asked: &Mutex<HashMap<String, usize>>,
) -> Option<Message> {
    let question = query.queries.first()?.clone();
    let mut answer = Message::new(
        query.metadata.id,
        MessageType::Response,
        query.metadata.op_code,
    );
    answer.metadata.recursion_desired = true;
    answer.metadata.recursion_available = true;
    answer.add_query(question.clone());
    let mut name = question.name().clone();
    for _ in 0..8 {
        let text = name.to_string().to_lowercase();
        let count = {
            let mut asked = asked.lock().unwrap();
            // One look-up asks for both families; only one of them is counted.
            let count = asked.entry(text.clone()).or_insert(0);
            if question.query_type() == RecordType::A {
                *count += 1;
            }
            *count
        };
        let add = |answer: &mut Message, data: RData| {
            answer
                .answers
                .push(Record::from_rdata(name.clone(), 0, data));
        };
        let addresses = match names.get(&text) {
            None => {
                // The root is there, and whatever else was not scripted is not.
                if !name.is_root() {
                    answer.metadata.response_code = ResponseCode::NXDomain;
                }
                return Some(answer);
            }
            Some(Says::Alias(to)) => {
                let to = Name::from_ascii(format!("{to}.")).unwrap();
                add(&mut answer, RData::CNAME(CNAME(to.clone())));
                name = to;
                continue;
            }
            Some(Says::NoSuchName) => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                return Some(answer);
            }
            Some(Says::Failure) => {
                answer.metadata.response_code = ResponseCode::ServFail;
                return Some(answer);
            }
            Some(Says::Silence) => return None,
            Some(Says::Slow(after, ip)) => {
                tokio::time::sleep(*after).await;
                vec![*ip]
            }
            Some(Says::Addresses(lists)) => {
                let at = count.saturating_sub(1).min(lists.len() - 1);
                lists[at].clone()
            }
        };
        for ip in addresses {
            match (ip, question.query_type()) {
                (IpAddr::V4(ip), RecordType::A) => add(&mut answer, RData::A(A(ip))),
                (IpAddr::V6(ip), RecordType::AAAA) => add(&mut answer, RData::AAAA(AAAA(ip))),
                _ => {}
            }
        }
        return Some(answer);
    }
    Some(answer)
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

fn always(ip: IpAddr) -> Says {
    Says::Addresses(vec![vec![ip]])
}

/// As for a trial on one machine, with names below `test` and `example`.
fn loopback() -> Policy {
    let mut policy = Policy::loopback();
    policy.allow_names.push(".test".to_owned());
    policy
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_give_no_address_are_failed_attempts() {
    const DNS: Expect = Expect::Error("dns");
    let receiver = Receiver::start().await.unwrap();
    let port = receiver.address().port();
    let stub = Stub::start(&[
        ("good.test", always(LOOPBACK)),
        ("alias.test", Says::Alias("good.test")),
        ("none.test", Says::NoSuchName),
        ("empty.test", Says::Addresses(vec![vec![]])),
        ("loop.test", Says::Alias("loop.test")),
        ("fails.test", Says::Failure),
        ("silent.test", Says::Silence),
        ("many.test", Says::Addresses(vec![vec![LOOPBACK; 300]])),
    ])
    .await;
    let bench = Bench::start().await;
    let running = bench.dispatcher_with(stub.config(), loopback(), bench.nats.clone());
    let row = |id: &str, host: &str, expect| {
        Row::new(id, format!("http://{host}:{port}/"), expect).timeout(5_000)
    };
    let rows = vec![
        row("good", "good.test", Expect::Sent(200)),
        row("alias", "alias.test", Expect::Sent(200)),
        row("H094", "none.test", DNS),
        row("H096 empty", "empty.test", DNS),
        row("H096 loop", "loop.test", DNS),
        row("H096 many", "many.test", Expect::Sent(200)),
        row("fails", "fails.test", DNS),
        row("silent", "silent.test", DNS),
    ];
    let attempts = attempt_all(&bench, rows).await;
    for id in ["H094", "silent"] {
        assert_eq!(
            of(&attempts, id).counted,
            1,
            "{id}: never a permanent error at once"
        );
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_that_is_down_is_our_own_fault() {
    // Bound and never answered.
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let stub = Stub::start(&[]).await;
    let mut config = stub.config();
    config.dns.servers = vec![silent.local_addr().unwrap()];
    let bench = Bench::start().await;
    let running = bench.dispatcher_with(config, loopback(), bench.nats.clone());
    let row = Row::new(
        "resolver",
        "http://good.test:8080/",
        Expect::Error("own_fault"),
    );
    let attempts = attempt_all(&bench, vec![row.timeout(10_000)]).await;
    assert_eq!(of(&attempts, "resolver").counted, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_addresses_are_refused_at_every_connect() {
    const REFUSED: Expect = Expect::Error("address_refused");
    let canary = Raw::start(|_| async {}).await;
    let port = canary.address.port();
    let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    let nat64: IpAddr = "64:ff9b::a9fe:a9fe".parse().unwrap();
    let local: IpAddr = "fd00::5".parse().unwrap();
    let stub = Stub::start(&[
        ("a-loopback.dns.example.com", always(LOOPBACK)),
        ("a-private.dns.example.com", always(v4(10, 0, 0, 9))),
        ("a-cgnat.dns.example.com", always(v4(100, 64, 0, 7))),
        ("a-metadata.dns.example.com", always(v4(169, 254, 169, 254))),
        ("aaaa-nat64.dns.example.com", always(nat64)),
        ("aaaa-ula.dns.example.com", always(local)),
        (
            "aaaa-loopback.dns.example.com",
            always(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        ),
        ("aaaa-mapped.dns.example.com", always(mapped)),
        ("cname-localhost.dns.example.com", Says::Alias("localhost")),
        ("localhost", always(LOOPBACK)),
        (
            "cname-chain.dns.example.com",
            Says::Alias("b.dns.example.com"),
        ),
        (
            "b.dns.example.com",
            Says::Alias("a-private.dns.example.com"),
        ),
        (
            "both.dns.example.com",
            Says::Addresses(vec![vec![LOOPBACK, local]]),
        ),
    ])
    .await;
    let policy = Policy {
        allow_http: true,
        ..Policy::default()
    };
    let bench = Bench::start().await;
    let running = bench.dispatcher_with(stub.config(), policy, bench.nats.clone());
    let mut rows: Vec<Row> = [
        "a-loopback",
        "a-private",
        "a-cgnat",
        "a-metadata",
        "aaaa-nat64",
        "aaaa-ula",
        "aaaa-loopback",
        "aaaa-mapped",
        "cname-localhost",
        "cname-chain",
        "both",
    ]
    .iter()
    .map(|name| {
        Row::new(
            *name,
            format!("http://{name}.dns.example.com:{port}/"),
            REFUSED,
        )
    })
    .collect();
    // Literals never reach the resolver, and are refused all the same.
    for literal in [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "10.1.2.3",
        "0x7f000001",
        "2130706433",
        "169.254.169.254",
        "[64:ff9b::7f00:1]",
        "localhost",
    ] {
        rows.push(Row::new(
            literal,
            format!("http://{literal}:{port}/"),
            REFUSED,
        ));
    }
    // Stored while plain http was allowed, or on a port that is not any more.
    rows.push(Row::new("scheme", "ftp://example.com/", REFUSED));
    rows.push(Row::new("user", "http://user:pass@example.com/", REFUSED));
    attempt_all(&bench, rows).await;
    assert_eq!(canary.connections(), 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_changes_is_checked_again() {
    let receiver = Receiver::start().await.unwrap();
    let port = receiver.address().port();
    let private = v4(10, 0, 0, 1);
    let stub = Stub::start(&[
        (
            "rebinds.test",
            Says::Addresses(vec![vec![LOOPBACK], vec![private]]),
        ),
        (
            "moves.test",
            Says::Addresses(vec![vec![private], vec![LOOPBACK]]),
        ),
    ])
    .await;
    let bench = Bench::start().await;
    let running = bench.dispatcher_with(stub.config(), loopback(), bench.nats.clone());
    let rebinds = bench
        .endpoint(&format!("http://rebinds.test:{port}/"))
        .await;
    let moves = bench.endpoint(&format!("http://moves.test:{port}/")).await;
    let mut seen = Vec::new();
    for route in [&rebinds, &rebinds, &moves, &moves] {
        let delivery = bench.deliver(route).await;
        let attempt = bench.recorded.attempt(&delivery).await;
        seen.push((attempt.status, attempt.error));
    }
    let refused = (None, Some("address_refused".to_owned()));
    let sent = (Some(200), None);
    assert_eq!(seen, [sent.clone(), refused.clone(), refused, sent]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_only_an_ipv6_address_is_reached() {
    let listen = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let options = Options {
        listen,
        ..Options::default()
    };
    let receiver = Receiver::start_with(options).await.unwrap();
    let port = receiver.address().port();
    let stub = Stub::start(&[("six.test", always(IpAddr::V6(Ipv6Addr::LOCALHOST)))]).await;
    let bench = Bench::start().await;
    let running = bench.dispatcher_with(stub.config(), loopback(), bench.nats.clone());
    let row = Row::new(
        "H097",
        format!("http://six.test:{port}/"),
        Expect::Sent(200),
    );
    attempt_all(&bench, vec![row]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_resolver_stays_within_the_timeout_and_holds_nobody_up() {
    let receiver = Receiver::start().await.unwrap();
    let port = receiver.address().port();
    let slow = Says::Slow(Duration::from_secs(5), LOOPBACK);
    let stub = Stub::start(&[("slow.test", slow), ("good.test", always(LOOPBACK))]).await;
    let mut config = stub.config();
    config.dns.timeout = Duration::from_secs(4);
    let bench = Bench::start().await;
    let running = bench.dispatcher_with(config, loopback(), bench.nats.clone());
    let url = |name: &str| format!("http://{name}:{port}/");
    let mut rows: Vec<Row> = (0..16)
        .map(|n| {
            Row::new(
                format!("H101 {n}"),
                url("slow.test"),
                Expect::Error("timeout"),
            )
            .timeout(1_000)
        })
        .collect();
    rows.push(Row::new("good", url("good.test"), Expect::Sent(200)));
    let attempts = attempt_all(&bench, rows).await;
    assert!(of(&attempts, "good").duration_us < 1_000_000);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_lived_answer_does_not_flood_the_resolver() {
    let receiver = Receiver::start().await.unwrap();
    let port = receiver.address().port();
    let stub = Stub::start(&[("busy.test", always(LOOPBACK))]).await;
    let mut config = stub.config();
    config.http = config::Http::default();
    config.dns.min_ttl = Duration::from_secs(1);
    let bench = Bench::start().await;
    let running = bench.dispatcher_with(config, loopback(), bench.nats.clone());
    let mut route = bench.route(&format!("http://busy.test:{port}/"));
    route.concurrency = 64;
    bench.routes.put(&route).await.unwrap();
    let deliveries: Vec<_> = (0..1_000).map(|_| bench.delivery(&route)).collect();
    futures::future::join_all(deliveries.iter().map(|d| bench.publish(d))).await;
    let records = bench.recorded.wait(1_000, SOON).await;
    let sent = |r: &&hooklane_proto::record::Record| matches!(r, hooklane_proto::record::Record::Attempt(a) if a.verdict == Verdict::Sent);
    assert_eq!(records.iter().filter(sent).count(), 1_000);
    // Those that start together before the first answer is remembered ask each.
    assert!(
        stub.asked("busy.test") <= 100,
        "{} queries",
        stub.asked("busy.test")
    );
    running.stop().await;
}
