//! A client of the API: one kept connection, one request at a time.

use std::net::SocketAddr;

use axum::body::{Body, to_bytes};
use http::{HeaderMap, Request, StatusCode};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// A connection with a key.
pub(crate) struct Client {
    sender: SendRequest<Body>,
    key: String,
}

/// An answer, with its body read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, key: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        // Ends with either side.
        tokio::spawn(connection);
        Self {
            sender,
            key: key.to_owned(),
        }
    }

    /// Posts JSON; an error where the connection broke.
    pub(crate) async fn try_post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Result<Answer, hyper::Error> {
        let mut request = Request::post(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.key));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.ready().await?;
        let request = request.body(body.into()).unwrap();
        let answer = self.sender.send_request(request).await?;
        let (parts, body) = answer.into_parts();
        let bytes = to_bytes(Body::new(body), usize::MAX).await.unwrap();
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        })
    }

    /// Asks with any method and headers; a body is JSON.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        if !self.key.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.key));
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.ready().await.unwrap();
        let body = Body::from(body.unwrap_or_default().to_owned());
        let answer = self
            .sender
            .send_request(request.body(body).unwrap())
            .await
            .unwrap();
        let (parts, body) = answer.into_parts();
        let bytes = to_bytes(Body::new(body), usize::MAX).await.unwrap();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        }
    }

    /// Gets JSON.
    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, &[], None).await
    }

    /// Posts JSON.
    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Body>) -> Answer {
        self.try_post(path, &[], body).await.unwrap()
    }
}

impl Answer {
    /// The code of a problem.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}
