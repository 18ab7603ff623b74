//! A partner: signs as Standard Webhooks does, and sends over one kept connection.

use std::net::SocketAddr;

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, Request, StatusCode};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use standardwebhooks::Webhook;
use tokio::net::TcpStream;

/// The secret that the source `shop` shares with its partner.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Where the source `shop` is.
pub(crate) const SHOP: &str = "/in/shop";

/// A connection of a partner.
pub(crate) struct Partner {
    sender: SendRequest<Body>,
}

/// An answer, with its body read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }
}

/// What a partner sends.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) signed_at: DateTime<Utc>,
    pub(crate) body: String,
}

impl Event {
    /// An event of an order.
    pub(crate) fn order(id: &str, event_type: &str, order: &str, signed_at: DateTime<Utc>) -> Self {
        Self {
            id: id.to_owned(),
            signed_at,
            body: format!(r#"{{"type":"{event_type}","order":"{order}"}}"#),
        }
    }

    pub(crate) fn request(&self) -> Request<Body> {
        let at = self.signed_at.timestamp();
        let webhook = Webhook::new(SECRET).unwrap();
        let signature = webhook.sign(&self.id, at, self.body.as_bytes()).unwrap();
        Request::post(SHOP)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("webhook-id", &self.id)
            .header("webhook-timestamp", at)
            .header("webhook-signature", signature)
            .body(Body::from(self.body.clone()))
            .unwrap()
    }

    /// The request as it goes over the wire, in its head and its body.
    pub(crate) fn wire(&self, more: &str) -> (String, String) {
        let mut head = format!("POST {SHOP} HTTP/1.1\r\n{more}");
        for (name, value) in self.request().headers() {
            head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", self.body.len()));
        (head, self.body.clone())
    }
}

impl Partner {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).await.unwrap()
    }

    pub(crate) async fn try_connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends with either side.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    pub(crate) async fn try_ask(&mut self, request: Request<Body>) -> anyhow::Result<Answer> {
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let (parts, body) = answer.into_parts();
        let bytes: Bytes = to_bytes(Body::new(body), usize::MAX).await?;
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }

    pub(crate) async fn ask(&mut self, request: Request<Body>) -> Answer {
        self.try_ask(request).await.unwrap()
    }

    /// Sends an event, which has to be taken.
    pub(crate) async fn send(&mut self, event: &Event) {
        let answer = self.ask(event.request()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}
