//! A nats-server per test.
//!
//! Stream names are fixed, so two tests can't share a server; a server of one's own costs some
//! tens of milliseconds, and may be killed and wiped at will.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hooklane_local::{Install, Nats, NatsOptions, RunDir, nats_cli, nats_server, quiet};

use crate::home;

/// Every stream that Hooklane makes, those behind key-value buckets included.
const STREAMS: [&str; 9] = [
    "INTAKE",
    "EVENTS",
    "DELIVERIES",
    "RECORDS",
    "ADVISORIES",
    "DLQ",
    "INBOX",
    "KV_ROUTES",
    "KV_LEASES",
];

/// A nats-server for one test, without streams at first.
#[derive(Debug)]
pub struct Server {
    url: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The server ends, then its directory goes.
    Own { nats: Arc<Nats>, _dir: RunDir },
    /// Nobody else's turn as long as the lock is held.
    Shared { _turn: File },
}

impl Server {
    /// Starts a private server, which the test may kill, wipe and suspend.
    ///
    /// # Errors
    ///
    /// When nats-server is missing or doesn't start.
    pub async fn start() -> Result<Self> {
        Self::start_with(NatsOptions::default()).await
    }

    /// As [`Server::start`], with settings.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub async fn start_with(options: NatsOptions) -> Result<Self> {
        home::blocking(move || {
            let program = nats_server(&home::dot_hooklane(), Install::Never, &quiet)?;
            let dir = home::run_dir("test-nats")?;
            let nats = Nats::start(&program, dir.path(), &options)?;
            Ok(Self {
                url: nats.url(),
                kind: Kind::Own {
                    nats: Arc::new(nats),
                    _dir: dir,
                },
            })
        })
        .await
    }

    /// A server for a test that does it no harm: the one named by `NATS_URL` when there is one,
    /// else a private one. On the named one tests take turns, and each begins by removing the
    /// streams that Hooklane makes, and no others.
    ///
    /// # Errors
    ///
    /// As [`Server::start`], or when the named server can't be cleaned.
    pub async fn any() -> Result<Self> {
        match home::variable(crate::NATS_URL) {
            Some(url) => Self::turn(url).await,
            None => Self::start().await,
        }
    }

    /// Waits for a turn on the server at `url`, which isn't ours, and removes the streams that
    /// Hooklane makes. The turn ends when this is dropped.
    ///
    /// # Errors
    ///
    /// When the `nats` command is missing, or the server can't be cleaned.
    pub async fn turn(url: String) -> Result<Self> {
        home::blocking(move || {
            let path = std::env::temp_dir().join("hooklane-test-nats.lock");
            let turn = File::create(&path).context("making the lock of the shared nats-server")?;
            turn.lock().context("waiting for a turn on NATS_URL")?;
            remove_streams(&url)?;
            Ok(Self {
                url,
                kind: Kind::Shared { _turn: turn },
            })
        })
        .await
    }

    /// Where it is; the same after every restart.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The private server behind it; `None` for a named one.
    #[must_use]
    pub fn process(&self) -> Option<&Nats> {
        match &self.kind {
            Kind::Own { nats, .. } => Some(nats),
            Kind::Shared { .. } => None,
        }
    }

    /// Kills it as `kill -9` does; it stays down until [`Server::restart`].
    ///
    /// # Errors
    ///
    /// When it isn't ours.
    pub async fn kill9(&self) -> Result<()> {
        self.act(|nats| {
            nats.kill9();
            Ok(())
        })
        .await
    }

    /// Stops it in order; it stays down until [`Server::restart`].
    ///
    /// # Errors
    ///
    /// When it isn't ours.
    pub async fn stop(&self) -> Result<()> {
        self.act(|nats| {
            nats.stop();
            Ok(())
        })
        .await
    }

    /// Stops it (if it runs) and starts it on the same port and store.
    ///
    /// # Errors
    ///
    /// When it isn't ours or doesn't start.
    pub async fn restart(&self) -> Result<()> {
        self.act(|nats| Ok(nats.restart()?)).await
    }

    /// Deletes everything JetStream keeps and starts it on the same port.
    ///
    /// # Errors
    ///
    /// When it isn't ours or doesn't start.
    pub async fn wipe_store(&self) -> Result<()> {
        self.act(|nats| Ok(nats.wipe_store()?)).await
    }

    async fn act(&self, act: impl FnOnce(&Nats) -> Result<()> + Send + 'static) -> Result<()> {
        match &self.kind {
            Kind::Own { nats, .. } => {
                let nats = Arc::clone(nats);
                home::blocking(move || act(&nats)).await
            }
            Kind::Shared { .. } => anyhow::bail!(
                "a test that harms its nats-server must start one with nats::Server::start"
            ),
        }
    }
}

fn remove_streams(url: &str) -> Result<()> {
    let cli = nats_cli(&home::dot_hooklane(), Install::Never, &quiet)?;
    let listed = cli_output(&cli, url, &["stream", "ls", "--names", "--all"])?;
    for stream in listed.lines().map(str::trim) {
        if STREAMS.contains(&stream) {
            cli_output(&cli, url, &["stream", "rm", "--force", stream])?;
        }
    }
    Ok(())
}

fn cli_output(cli: &Path, url: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(cli)
        // By the environment: a URL may hold a password, and every user can read command lines.
        .env("NATS_URL", url)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {}", cli.display()))?;
    ensure!(
        output.status.success(),
        "nats {} failed: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
