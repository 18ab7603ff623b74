//! `INBOX` as an adopter sees it, with the `nats` command.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hooklane_local::{Install, nats_cli, to_stderr};
use hooklane_testkit::wait;
use serde_json::Value;

use crate::environment::{blocking, dot_hooklane};
use crate::process;
use crate::system::System;

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Stream {
    nats: PathBuf,
    url: String,
}

/// A message with its headers.
#[derive(Debug)]
pub(super) struct Message {
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Message {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Stream {
    pub(super) async fn of(system: &System) -> Result<Self> {
        let nats = blocking(|| {
            let home = dot_hooklane();
            Ok(nats_cli(&home, Install::Allowed, &to_stderr)?)
        });
        Ok(Self {
            nats: nats.await?,
            url: system.nats_url().to_owned(),
        })
    }

    /// Waits until it has taken so many messages.
    pub(super) async fn wait_for(&self, messages: u64) -> Result<()> {
        let what = format!("{messages} messages on INBOX");
        wait::until(&what, PATIENCE, async || {
            self.last().await.is_ok_and(|last| last >= messages)
        })
        .await
    }

    /// Everything on it, in order.
    pub(super) async fn messages(&self) -> Result<Vec<Message>> {
        let mut messages = Vec::new();
        for sequence in 1..=self.last().await? {
            let sequence = sequence.to_string();
            messages.push(read(
                &self.ask(&["stream", "get", "INBOX", &sequence]).await?,
            )?);
        }
        Ok(messages)
    }

    async fn last(&self) -> Result<u64> {
        let info = self.ask(&["stream", "info", "INBOX"]).await?;
        let last = info["state"]["last_seq"].as_u64();
        last.context("`nats stream info` says nothing of the last message")
    }

    async fn ask(&self, words: &[&str]) -> Result<Value> {
        let output = process::program(&self.nats)
            .args(["--server", &self.url])
            .args(words)
            .arg("--json")
            .kill_on_drop(true)
            .output()
            .await
            .context("running nats")?;
        ensure!(
            output.status.success(),
            "nats {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).context("reading what nats printed")
    }
}

fn read(message: &Value) -> Result<Message> {
    let bytes = |name: &str| {
        let text = message[name].as_str().unwrap_or_default();
        STANDARD
            .decode(text)
            .with_context(|| format!("reading `{name}`"))
    };
    let headers = String::from_utf8(bytes("hdrs")?).context("reading headers")?;
    let mut lines = headers.split("\r\n");
    let version = lines.next().unwrap_or_default();
    if version != "NATS/1.0" {
        bail!("a message without headers on INBOX");
    }
    let pairs = lines.filter_map(|line| line.split_once(':'));
    Ok(Message {
        headers: pairs
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect(),
        body: bytes("data")?,
    })
}
