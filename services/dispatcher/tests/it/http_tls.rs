//! Certificates good and bad, and HTTP/2.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hooklane_dispatcher::{Config, config};
use hooklane_proto::record::Verdict;
use hooklane_testkit::{Receiver, Reply};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    CrlDistributionPoint, CustomExtension, DnType, IsCa, Issuer, KeyPair, RevocationReason,
    RevokedCertParams, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::bench::{Bench, pem_file};
use crate::raw::{Raw, read_request, until_gone};
use crate::rows::{Expect, Row, attempt_all, of};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

type Ca = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Ca {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn names(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>()).unwrap()
}

/// A chain for a server, and its key.
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn signed<K: rcgen::SigningKey>(params: CertificateParams, by: &Issuer<'_, K>) -> Identity {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    (vec![certificate.der().clone()], private)
}

fn server((chain, key): Identity, alpn: &[&str]) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    config
}

async fn serve(config: ServerConfig) -> Raw {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Raw::start(move |stream| answer(acceptor.clone(), stream, OK, true)).await
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream, bytes: &'static [u8], tidy: bool) {
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    read_request(&mut stream).await;
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    if tidy {
        let _ = stream.shutdown().await;
        until_gone(&mut stream).await;
    }
}

fn https(raw: &Raw, host: &str) -> String {
    format!("https://{host}:{}/", raw.address.port())
}

fn trusting(dir: &tempfile::TempDir, ca: &Ca) -> Config {
    Config {
        http: config::Http {
            extra_roots: Some(pem_file(dir, &ca.pem())),
            ..config::Http::default()
        },
        ..Config::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_prove_nothing_are_refused() {
    const TLS: Expect = Expect::Error("tls");
    let dir = tempfile::tempdir().unwrap();
    let ca = authority("trusted");
    let stranger = authority("stranger");
    let host = || names(&["localhost", "127.0.0.1"]);
    let mut expired = host();
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let mut early = host();
    early.not_before = rcgen::date_time_ymd(2090, 1, 1);
    early.not_after = rcgen::date_time_ymd(2095, 1, 1);
    let mut common_name = names(&[]);
    common_name
        .distinguished_name
        .push(DnType::CommonName, "localhost");
    let mut between = CertificateParams::new(Vec::new()).unwrap();
    between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    between
        .distinguished_name
        .push(DnType::CommonName, "between");
    let between = CertifiedIssuer::signed_by(between, KeyPair::generate().unwrap(), &ca).unwrap();
    let without_intermediate = signed(host(), &between);
    let mut with_intermediate = signed(host(), &between);
    with_intermediate.0.push(between.der().clone());
    let own = {
        let key = KeyPair::generate().unwrap();
        let certificate = host().self_signed(&key).unwrap();
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        (vec![certificate.der().clone()], private)
    };
    let mut clients = RootCertStore::empty();
    clients.add(ca.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::clone(&provider))
            .build()
            .unwrap();
    let (chain, key) = signed(host(), &ca);
    let mutual = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();

    let cases = [
        (
            "good",
            server(signed(host(), &ca), &[]),
            "localhost",
            Expect::Sent(200),
        ),
        (
            "good ip",
            server(signed(host(), &ca), &[]),
            "127.0.0.1",
            Expect::Sent(200),
        ),
        (
            "intermediate",
            server(with_intermediate, &[]),
            "localhost",
            Expect::Sent(200),
        ),
        (
            "expired",
            server(signed(expired, &ca), &[]),
            "localhost",
            TLS,
        ),
        ("not yet", server(signed(early, &ca), &[]), "localhost", TLS),
        ("self-signed", server(own, &[]), "localhost", TLS),
        (
            "unknown ca",
            server(signed(host(), &stranger), &[]),
            "localhost",
            TLS,
        ),
        (
            "wrong host",
            server(signed(names(&["example.org"]), &ca), &[]),
            "localhost",
            TLS,
        ),
        (
            "no intermediate",
            server(without_intermediate, &[]),
            "localhost",
            TLS,
        ),
        (
            "common name",
            server(signed(common_name, &ca), &[]),
            "localhost",
            TLS,
        ),
        (
            "ip by name",
            server(signed(names(&["localhost"]), &ca), &[]),
            "127.0.0.1",
            TLS,
        ),
        // With TLS 1.3 the server refuses after the handshake: its alert is read as an answer, or
        // the connection is gone before the request is written.
        (
            "H089",
            mutual,
            "localhost",
            Expect::EitherError("tls", "reset"),
        ),
    ];
    let mut servers = Vec::new();
    let mut rows = Vec::new();
    for (id, config, host, expect) in cases {
        let raw = serve(config).await;
        rows.push(Row::new(format!("H087 {id}"), https(&raw, host), expect));
        servers.push(raw);
    }
    let plain = Raw::start(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    rows.push(Row::new("plain", https(&plain, "localhost"), TLS));
    let closes = Raw::start(|mut stream| async move {
        // Read, so that closing is no reset.
        let _ = stream.read(&mut [0; 8192]).await;
    })
    .await;
    rows.push(Row::new(
        "closes",
        https(&closes, "localhost"),
        Expect::Error("tls"),
    ));

    let bench = Bench::start().await;
    let running = bench.dispatcher(trusting(&dir, &ca));
    let attempts = attempt_all(&bench, rows).await;
    let why = of(&attempts, "H087 expired").detail.clone().unwrap();
    assert!(why.to_lowercase().contains("expired"), "{why}");
    running.stop().await;
}

/// Where a certificate says its revocation (OCSP) and its issuer's certificate can be asked for.
fn authority_information(ocsp: &str, issuer: &str) -> CustomExtension {
    const OID: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 1];
    // DER; every length here is below 128, and so one byte.
    let tagged = |tag: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap();
        assert!(length < 128);
        [&[tag, length], content].concat()
    };
    let description = |method: u8, url: &str| {
        let oid = tagged(0x06, &[0x2b, 6, 1, 5, 5, 7, 48, method]);
        tagged(0x30, &[oid, tagged(0x86, url.as_bytes())].concat())
    };
    let descriptions = [description(1, ocsp), description(2, issuer)].concat();
    CustomExtension::from_oid_content(OID, tagged(0x30, &descriptions))
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_whether_a_certificate_was_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let ca = authority("trusted");
    let lists = Receiver::start().await.unwrap();
    let connections = Raw::start(|_| async {}).await;
    let serial = SerialNumber::from(7);
    let mut params = names(&["localhost"]);
    params.serial_number = Some(serial.clone());
    params.crl_distribution_points = vec![CrlDistributionPoint {
        uris: vec![lists.url("/crl"), connections.url()],
    }];
    params.custom_extensions = vec![authority_information(
        &lists.url("/ocsp"),
        &connections.url(),
    )];
    let list = CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2025, 1, 1),
        next_update: rcgen::date_time_ymd(2095, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: serial,
            revocation_time: rcgen::date_time_ymd(2025, 1, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        }],
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&ca).unwrap();
    lists.fallback(Reply::status(200).body(list.der().to_vec()));
    let revoked = serve(server(signed(params, &ca), &[])).await;

    let bench = Bench::start().await;
    let running = bench.dispatcher(trusting(&dir, &ca));
    let row = Row::new(
        "H087 revoked",
        https(&revoked, "localhost"),
        Expect::Sent(200),
    );
    attempt_all(&bench, vec![row]).await;
    // A receiver's certificate sends us nowhere: such URLs are the receiver's to choose.
    assert_eq!((lists.counts().arrived, connections.connections()), (0, 0));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_close_notify_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ca = authority("trusted");
    let mut servers = Vec::new();
    let mut rows = Vec::new();
    for (id, bytes) in [
        ("H091 length", OK),
        ("H091 none", &b"HTTP/1.1 200 OK\r\n\r\nok"[..]),
    ] {
        let config = server(signed(names(&["localhost"]), &ca), &[]);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let raw = Raw::start(move |stream| answer(acceptor.clone(), stream, bytes, false)).await;
        rows.push(Row::new(id, https(&raw, "localhost"), Expect::Sent(200)));
        servers.push(raw);
    }
    let bench = Bench::start().await;
    let running = bench.dispatcher(trusting(&dir, &ca));
    let attempts = attempt_all(&bench, rows).await;
    assert_eq!(of(&attempts, "H091 length").body, b"ok");
    assert_eq!(of(&attempts, "H091 none").body, b"ok");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_seen_at_the_next_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let ca = authority("trusted");
    let mut expired = names(&["localhost"]);
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let acceptor = |params| TlsAcceptor::from(Arc::new(server(signed(params, &ca), &[])));
    let current = Arc::new(Mutex::new(acceptor(expired)));
    let shared = Arc::clone(&current);
    let raw = Raw::start(move |stream| {
        let acceptor = shared.lock().unwrap().clone();
        answer(acceptor, stream, OK, true)
    })
    .await;
    let bench = Bench::start().await;
    let running = bench.dispatcher(trusting(&dir, &ca));
    let url = https(&raw, "localhost");
    attempt_all(
        &bench,
        vec![Row::new("H092 before", &url, Expect::Error("tls"))],
    )
    .await;
    *current.lock().unwrap() = acceptor(names(&["localhost"]));
    attempt_all(
        &bench,
        vec![Row::new("H092 after", &url, Expect::Sent(200))],
    )
    .await;
    running.stop().await;
}

/// What an HTTP/2 server does with one request.
#[derive(Clone, Copy, PartialEq)]
enum Two {
    Answers,
    RefusesFirst,
    GoesAwayFirst,
    AnswersEarly,
}

async fn two(stream: TcpStream, acceptor: TlsAcceptor, how: Two, seen: Arc<Mutex<u32>>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let first = {
            let mut seen = seen.lock().unwrap();
            *seen += 1;
            *seen == 1
        };
        let ok = http::Response::builder().status(200).body(()).unwrap();
        match how {
            Two::RefusesFirst if first => respond.send_reset(h2::Reason::REFUSED_STREAM),
            Two::GoesAwayFirst if first => connection.abrupt_shutdown(h2::Reason::NO_ERROR),
            Two::AnswersEarly => {
                let _ = respond.send_response(ok, true);
                // Later, since a reset also drops what is not written yet.
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    respond.send_reset(h2::Reason::NO_ERROR);
                });
            }
            _ => {
                // Driven beside the connection, which has to read for the body to come.
                tokio::spawn(async move {
                    let mut body = request.into_body();
                    while let Some(Ok(data)) = body.data().await {
                        let _ = body.flow_control().release_capacity(data.len());
                    }
                    if let Ok(mut sending) = respond.send_response(ok, false) {
                        let _ = sending.send_data(Bytes::from_static(b"two"), true);
                    }
                });
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_is_spoken_where_it_is_offered() {
    let dir = tempfile::tempdir().unwrap();
    let ca = authority("trusted");
    let mut servers = Vec::new();
    let mut rows = Vec::new();
    let mut counts = Vec::new();
    for (id, how) in [
        ("H076", Two::Answers),
        ("H077 refused", Two::RefusesFirst),
        ("H079", Two::AnswersEarly),
    ] {
        let config = server(signed(names(&["localhost"]), &ca), &["h2"]);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let seen = Arc::new(Mutex::new(0));
        counts.push(Arc::clone(&seen));
        let raw =
            Raw::start(move |stream| two(stream, acceptor.clone(), how, Arc::clone(&seen))).await;
        let row = Row::new(id, https(&raw, "localhost"), Expect::Sent(200));
        rows.push(if how == Two::AnswersEarly {
            row.payload(vec![b'x'; 900 << 10])
        } else {
            row
        });
        servers.push(raw);
    }
    // Prior knowledge on a plain port: what comes is no HTTP/1 answer.
    let h2c = Raw::start(|stream| async move {
        let _ = h2::server::handshake(stream).await;
    })
    .await;
    rows.push(Row::new(
        "H076 h2c",
        h2c.url(),
        Expect::Error("bad_response"),
    ));
    let bench = Bench::start().await;
    let running = bench.dispatcher(trusting(&dir, &ca));
    let attempts = attempt_all(&bench, rows).await;
    assert_eq!(of(&attempts, "H076").body, b"two");
    let seen: Vec<u32> = counts.iter().map(|count| *count.lock().unwrap()).collect();
    assert_eq!(seen, [1, 2, 1], "one resend where the stream was refused");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_goes_away_unprocessed_costs_no_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let ca = authority("trusted");
    let config = server(signed(names(&["localhost"]), &ca), &["h2"]);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let seen = Arc::new(Mutex::new(0));
    let raw = Raw::start(move |stream| {
        two(
            stream,
            acceptor.clone(),
            Two::GoesAwayFirst,
            Arc::clone(&seen),
        )
    })
    .await;
    let bench = Bench::start().await;
    let running = bench.dispatcher(trusting(&dir, &ca));
    let route = bench.endpoint(&https(&raw, "localhost")).await;
    let delivery = bench.deliver(&route).await;
    let attempt = bench.recorded.attempt(&delivery).await;
    // The server had taken the stream, so that the client can't tell: a failed attempt is right,
    // and a resend is where the server says that it did not process it.
    match attempt.verdict {
        Verdict::Sent => assert_eq!(attempt.status, Some(200)),
        Verdict::Retry { .. } => assert_eq!(attempt.counted, 1),
        ref other => panic!("{other:?}"),
    }
    assert!(attempt.duration_us < i64::try_from(Duration::from_secs(2).as_micros()).unwrap());
    running.stop().await;
}
