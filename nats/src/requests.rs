//! Serving requests: the other side of [`Client::request`](crate::Client::request).

use async_nats::HeaderMap;
use bytes::Bytes;
use futures::StreamExt as _;

use crate::client::Client;
use crate::error::Error;

/// Requests as they come, oldest first. At most 65,536 wait; further ones are dropped and time out
/// at whoever asked. Dropping this stops serving.
pub struct Requests {
    client: Client,
    incoming: async_nats::Subscriber,
}

/// One request.
pub struct Request {
    /// Where it was sent.
    pub subject: String,
    /// What it says.
    pub payload: Bytes,
    headers: Option<HeaderMap>,
    reply: async_nats::Subject,
    client: Client,
}

impl Requests {
    pub(crate) async fn subscribe(client: &Client, subject: String) -> Result<Self, Error> {
        use async_nats::SubscribeErrorKind as Kind;
        let incoming = client.inner.nats.subscribe(subject.clone()).await;
        let incoming = incoming.map_err(|error| match error.kind() {
            Kind::InvalidSubject | Kind::InvalidQueueName => Error::InvalidSubject(subject),
            Kind::Other => Error::Disconnected,
        })?;
        client.flush().await?;
        Ok(Self {
            client: client.clone(),
            incoming,
        })
    }

    /// The next request; `None` once the client is closed. Cancel-safe. A message without a reply
    /// subject is no request and is passed over.
    pub async fn next(&mut self) -> Option<Request> {
        loop {
            let message = self.incoming.next().await?;
            if let Some(reply) = message.reply {
                return Some(Request {
                    subject: message.subject.into_string(),
                    payload: message.payload,
                    headers: message.headers,
                    reply,
                    client: self.client.clone(),
                });
            }
        }
    }
}

impl Request {
    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.as_ref()?.get(name).map(|value| value.as_str())
    }

    /// Answers. The answer is only queued when this returns.
    ///
    /// # Errors
    /// [`Error::TooLarge`], or [`Error::Disconnected`] where the client is closed.
    pub async fn reply(self, payload: Bytes) -> Result<(), Error> {
        let Self { reply, client, .. } = self;
        let size = payload.len();
        let sent = client.inner.nats.publish(reply.clone(), payload).await;
        sent.map_err(|error| client.refused(&error, &reply, size))
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("subject", &self.subject)
            .field("bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}
