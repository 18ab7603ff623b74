//! A customer's endpoint: its subscription, and the check that a customer makes.

use anyhow::{Context, Result, ensure};
use hooklane_testkit::Receiver;
use http::{HeaderMap, HeaderName, HeaderValue};
use standardwebhooks::Webhook;

use crate::system::System;

/// One endpoint, with the secret that its owner was given.
pub(super) struct Customer {
    path: &'static str,
    webhook: Webhook,
}

impl Customer {
    pub(super) async fn subscribe(
        system: &System,
        receiver: &Receiver,
        consumer: &str,
        path: &'static str,
    ) -> Result<Self> {
        let url = receiver.url(path);
        let added = system
            .hooklane_json(&["endpoint", "add", consumer, &url, "--event-type", "order.*"])
            .await?;
        let secret = added["secret"]
            .as_str()
            .context("`endpoint add` answered without a secret")?;
        let webhook = Webhook::new(secret).context("reading the secret that was given out")?;
        Ok(Self { path, webhook })
    }

    pub(super) fn path(&self) -> &str {
        self.path
    }

    /// Verifies every request that came, and that each carries these bytes and this id; answers
    /// how many there were.
    pub(super) fn verify(&self, receiver: &Receiver, id: &str, payload: &[u8]) -> Result<usize> {
        let requests = receiver.requests_to(self.path);
        for request in &requests {
            let mut headers = HeaderMap::new();
            for (name, value) in &request.headers {
                headers.append(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
            }
            self.webhook
                .verify(&request.body, &headers)
                .with_context(|| format!("verifying a request to {}", self.path))?;
            ensure!(
                request.body == payload,
                "{}: other bytes arrived",
                self.path
            );
            let webhook_id = request.header("webhook-id").unwrap_or_default();
            ensure!(
                webhook_id.ends_with(id),
                "{}: webhook-id {webhook_id} is not the outbox row's",
                self.path
            );
        }
        Ok(requests.len())
    }
}
