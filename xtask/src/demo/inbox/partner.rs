//! A partner: events signed as Stripe signs them, sent over connections of their own.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take; the inbox promises half of it.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A partner with the secret that it signs with.
#[derive(Debug)]
pub(super) struct Partner {
    name: &'static str,
    secret: String,
    inbox: SocketAddr,
}

/// One event, ready to be sent any number of times.
#[derive(Debug, Clone)]
pub(super) struct Event {
    inbox: SocketAddr,
    request: Vec<u8>,
    body: String,
}

/// A request of which all but the last byte is sent.
#[derive(Debug)]
pub(super) struct Begun {
    stream: TcpStream,
    last: u8,
}

impl Partner {
    pub(super) fn new(name: &'static str, inbox: SocketAddr) -> Self {
        Self {
            name,
            secret: format!("whsec_{:032x}", rand::random::<u128>()),
            inbox,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.name
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// An event about the object with this id.
    pub(super) fn event(&self, id: &str, kind: &str, object: &str) -> Event {
        let body = json!({ "id": id, "type": kind, "data": { "object": { "id": object } } });
        let body = body.to_string();
        let signature = self.sign(&body);
        let request = format!(
            "POST /in/{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Stripe-Signature: {signature}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.name,
            body.len()
        );
        Event {
            inbox: self.inbox,
            request: request.into_bytes(),
            body,
        }
    }

    fn sign(&self, body: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.unwrap_or_default().as_secs();
        // HMAC takes keys of any length.
        let mac = Hmac::<Sha256>::new_from_slice(self.secret.as_bytes());
        let signature = mac.map(|mac| {
            let signed = mac.chain_update(format!("{seconds}.{body}"));
            signed.finalize().into_bytes()
        });
        let mut text = format!("t={seconds},v1=");
        for byte in signature.unwrap_or_default() {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

impl Event {
    pub(super) fn body(&self) -> &[u8] {
        self.body.as_bytes()
    }

    /// Sends it once, which must be answered 200.
    pub(super) async fn deliver(&self) -> Result<()> {
        self.begin().await?.finish().await
    }

    /// Sends it so many times at once; answers how many were answered 200, which has to be all.
    pub(super) async fn send_many(&self, times: usize) -> Result<usize> {
        let sending: Vec<_> = (0..times)
            .map(|_| {
                let event = self.clone();
                tokio::spawn(async move { event.deliver().await })
            })
            .collect();
        for sent in sending {
            sent.await.context("sending")??;
        }
        Ok(times)
    }

    /// Sends all but the last byte.
    pub(super) async fn begin(&self) -> Result<Begun> {
        let connecting = TcpStream::connect(self.inbox).await;
        let mut stream = connecting.context("connecting to the inbox")?;
        let (last, most) = self.request.split_last().context("an empty request")?;
        stream.write_all(most).await.context("sending")?;
        Ok(Begun {
            stream,
            last: *last,
        })
    }
}

impl Begun {
    /// Sends the rest and reads the answer, which must be 200.
    pub(super) async fn finish(mut self) -> Result<()> {
        self.stream
            .write_all(&[self.last])
            .await
            .context("sending")?;
        let mut answer = Vec::new();
        let reading = self.stream.read_to_end(&mut answer);
        let read = timeout(ANSWER_WITHIN, reading).await;
        read.context("waiting for an answer")?
            .context("reading the answer")?;
        let line = answer.split(|byte| *byte == b'\r').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
        ensure!(line.starts_with("HTTP/1.1 200"), "answered `{line}`");
        Ok(())
    }
}
