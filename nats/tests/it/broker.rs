//! A nats-server with Hooklane's streams, and a client on it.
//!
//! Names no library of NATS, so that the services' tests can use this file too.

use std::time::Duration;

use hooklane_nats::{Client, Config, Incoming, Outgoing, Publisher, PullConfig, Puller, topology};
use hooklane_proto::header::{self, Headers};
use hooklane_testkit::Result;
use hooklane_testkit::nats::Server;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// For everything that should take moments.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Broker {
    pub(crate) server: Server,
    pub(crate) client: Client,
}

impl Broker {
    /// A server with every stream, in two partitions.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Result<Self> {
        let server = Server::start().await?;
        let mut config = config(&server);
        change(&mut config);
        let client = Client::connect(&config).await?;
        topology::ensure(&client).await?;
        Ok(Self { server, client })
    }

    /// Messages in a stream.
    pub(crate) async fn count(&self, stream: &str) -> Result<u64> {
        let state = hooklane_nats::inspect::stream_state(&self.client, stream).await?;
        Ok(state.messages)
    }

    pub(crate) fn publisher(&self) -> Publisher {
        Publisher::new(&self.client, 1000, 16 << 20)
    }

    pub(crate) fn puller(&self, stream: &str, durable: &str, batch: usize) -> Puller {
        let config = PullConfig {
            batch,
            heartbeat: Duration::from_millis(500),
            ..PullConfig::default()
        };
        Puller::new(&self.client, stream, durable, config)
    }

    /// Publishes `records.0` messages with these bodies.
    pub(crate) async fn records(&self, bodies: impl IntoIterator<Item = u32>) -> Result<()> {
        let messages = bodies
            .into_iter()
            .map(|n| outgoing("records.0", n))
            .collect();
        for result in self.publisher().publish_all(messages, in_time()).await {
            result?;
        }
        Ok(())
    }
}

pub(crate) fn config(server: &Server) -> Config {
    Config {
        url: server.url().into(),
        partitions: 2,
        ..Config::default()
    }
}

pub(crate) fn in_time() -> Instant {
    Instant::now() + SOON
}

/// A message whose id and body are a number.
pub(crate) fn outgoing(subject: &str, n: u32) -> Outgoing {
    let mut headers = Headers::new();
    headers.push(header::MSG_ID, format!("id-{n}"));
    Outgoing {
        subject: subject.to_owned(),
        headers,
        payload: n.to_string().into(),
    }
}

/// The number in a body; `u32::MAX` where there is none, which no test publishes.
pub(crate) fn number(incoming: &Incoming) -> u32 {
    let text = std::str::from_utf8(&incoming.payload).unwrap_or_default();
    text.parse().unwrap_or(u32::MAX)
}

/// The next message, which has to come in time.
pub(crate) async fn next(puller: &mut Puller) -> Result<Incoming> {
    Ok(timeout(SOON, puller.next()).await?)
}

/// What no client library would send.
pub(crate) struct Odd {
    pub(crate) subject: Vec<u8>,
    pub(crate) headers: &'static [u8],
}

/// One of each kind that can't be read.
pub(crate) fn unreadable(subject: &str) -> Vec<Odd> {
    let headers: [&[u8]; 3] = [
        b"NATS/1.0\r\nX-Name: caf\xe9\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/2.0\r\nA: b\r\n\r\n",
    ];
    let mut all: Vec<_> = headers
        .into_iter()
        .map(|headers| Odd {
            subject: subject.as_bytes().to_vec(),
            headers,
        })
        .collect();
    all.push(Odd {
        subject: [subject.as_bytes(), b"\xe9"].concat(),
        headers: b"NATS/1.0\r\n\r\n",
    });
    all
}

/// Publishes byte by byte; returns once the server has read it.
pub(crate) async fn publish_odd(url: &str, odd: &Odd, body: &str) -> Result<()> {
    let address = url.trim_start_matches("nats://");
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    let (headers, all) = (odd.headers.len(), odd.headers.len() + body.len());
    let mut bytes = b"CONNECT {\"verbose\":false,\"headers\":true}\r\nHPUB ".to_vec();
    bytes.extend_from_slice(&odd.subject);
    bytes.extend_from_slice(format!(" {headers} {all}\r\n").as_bytes());
    bytes.extend_from_slice(odd.headers);
    bytes.extend_from_slice(format!("{body}\r\nPING\r\n").as_bytes());
    stream.write_all(&bytes).await?;
    let answered = async {
        let mut line = String::new();
        while line.trim_end() != "PONG" {
            line.clear();
            stream.read_line(&mut line).await?;
        }
        Ok(())
    };
    timeout(SOON, answered).await?
}
