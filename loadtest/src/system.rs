//! The system under test: a private nats-server and PostgreSQL, and the real `hooklane up` as a
//! process of its own.
//!
//! Owns their lives: everything ends, and every file goes, when this is dropped or the process is
//! stopped by whatever means. Does not own what is in the ledger (see [`crate::setup`]).

mod child;
mod config;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hooklane_local::{
    Install, NatsOptions, PostgresOptions, RunDir, Stack, StackOptions, servers_home,
};
use hooklane_store::{Config as StoreConfig, Store};

pub use child::Child;
pub use config::{Tuning, master_key};

/// How long `hooklane up` may take to stop in order: its own drain is 20 s.
const STOP: Duration = Duration::from_secs(30);

/// Whether commits wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// PostgreSQL as it is run where data matters: fsync, and synchronous commits.
    Durable,
    /// PostgreSQL that forgets on a power cut; measures the code and not the disk.
    Fast,
}

/// What to start, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `hooklane` binary.
    pub binary: PathBuf,
    /// Whether commits wait for the disk.
    pub profile: Profile,
    /// Settings of hooklane's that differ from the defaults.
    pub tuning: Tuning,
    /// Keep logs and the configuration here when the run ends.
    pub keep_logs: Option<PathBuf>,
}

/// Servers, and a hooklane process that may be killed and started again.
#[derive(Debug)]
pub struct System {
    // In the order in which they must end.
    hooklane: Option<Child>,
    stack: Arc<Stack>,
    options: Options,
    starts: u32,
    dir: RunDir,
}

/// The binary's place from anywhere: it runs in another directory than ours.
///
/// # Errors
/// Where it is not there.
pub(crate) fn found(binary: &Path) -> Result<PathBuf> {
    let binary = std::path::absolute(binary).context("finding the binary")?;
    ensure!(
        binary.is_file(),
        "there is no {}: build it with `cargo build --release -p hooklane`, or name another with --binary",
        binary.display()
    );
    Ok(binary)
}

impl System {
    /// Starts the servers, migrates the database with the binary, and starts `hooklane up`.
    ///
    /// # Errors
    /// Where a program is missing or doesn't start.
    pub async fn start(mut options: Options) -> Result<Self> {
        options.binary = found(&options.binary)?;
        let profile = options.profile;
        let (stack, dir) = tokio::task::spawn_blocking(move || {
            let home = dot_hooklane();
            let dir = RunDir::create(&servers_home(&home)?, "loadtest")?;
            let options = StackOptions {
                install: Install::Never,
                nats_url: None,
                database_url: None,
                nats: NatsOptions::default(),
                postgres: PostgresOptions {
                    durable: profile == Profile::Durable,
                    ..PostgresOptions::default()
                },
            };
            let stack = Stack::start(&home, dir.path(), &options, &hooklane_local::quiet)?;
            anyhow::Ok((stack, dir))
        })
        .await
        .context("starting the servers panicked")?
        .context("starting the servers")?;
        let mut system = Self {
            hooklane: None,
            stack: Arc::new(stack),
            options,
            starts: 0,
            dir,
        };
        std::fs::write(
            system.config_path(),
            config::text(
                system.stack.database_url(),
                system.stack.nats_url(),
                &system.options.tuning,
            ),
        )
        .context("writing hooklane's configuration")?;
        let store = system.store(2).await?;
        store.migrate().await.context("migrating the database")?;
        store.close().await;
        system.start_hooklane()?;
        Ok(system)
    }

    /// Starts `hooklane up`.
    ///
    /// # Errors
    /// Where the process can't be started.
    pub fn start_hooklane(&mut self) -> Result<()> {
        self.starts += 1;
        let child = Child::start(
            &self.options.binary,
            &["--config", &self.config_path().display().to_string(), "up"],
            self.dir.path(),
            &self.log_path(),
        )
        .with_context(|| format!("starting {}", self.options.binary.display()))?;
        self.hooklane = Some(child);
        Ok(())
    }

    /// Kills `hooklane up` as `kill -9` does, and waits until it is gone.
    pub fn kill_hooklane(&mut self) {
        if let Some(child) = self.hooklane.take() {
            child.kill9();
        }
    }

    /// Stops `hooklane up` in order.
    ///
    /// # Errors
    /// Where it does not stop in time, or not with success.
    pub async fn stop_hooklane(&mut self) -> Result<()> {
        let Some(child) = self.hooklane.take() else {
            return Ok(());
        };
        let status = tokio::task::spawn_blocking(move || child.stop(STOP))
            .await
            .context("stopping hooklane panicked")?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("hooklane stopped with {status}\n{}", self.log_tail()),
            None => bail!("hooklane did not stop within {STOP:?}\n{}", self.log_tail()),
        }
    }

    /// Whether `hooklane up` runs; an error with the end of its log where it ended by itself.
    ///
    /// # Errors
    /// Where it has ended although nobody stopped it.
    pub fn check(&self) -> Result<()> {
        if let Some(status) = self.hooklane.as_ref().and_then(Child::ended) {
            bail!(
                "hooklane ended by itself with {status}\n{}",
                self.log_tail()
            );
        }
        Ok(())
    }

    /// Stops nats-server; it stays down until [`System::wipe_jetstream`].
    ///
    /// # Errors
    /// Where the server is not ours.
    pub async fn stop_nats(&self) -> Result<()> {
        self.with_nats(|nats| {
            nats.stop();
            Ok(())
        })
        .await
    }

    /// Deletes everything that JetStream keeps and starts nats-server on the same port.
    ///
    /// # Errors
    /// Where nats-server does not come up again.
    pub async fn wipe_jetstream(&self) -> Result<()> {
        self.with_nats(|nats| nats.wipe_store().context("wiping the JetStream store"))
            .await
    }

    async fn with_nats(
        &self,
        act: impl FnOnce(&hooklane_local::Nats) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let stack = Arc::clone(&self.stack);
        tokio::task::spawn_blocking(move || act(stack.nats().context("nats-server is not ours")?))
            .await
            .context("a step with nats-server panicked")?
    }

    /// Opens the ledger.
    ///
    /// # Errors
    /// Where it can't be reached.
    pub async fn store(&self, connections: u32) -> Result<Store> {
        let config = StoreConfig {
            max_connections: connections,
            ..StoreConfig::new(self.database_url())
        };
        Store::connect(&config).await.context("opening the ledger")
    }

    /// Where PostgreSQL is.
    #[must_use]
    pub fn database_url(&self) -> &str {
        self.stack.database_url()
    }

    /// Where nats-server is.
    #[must_use]
    pub fn nats_url(&self) -> &str {
        self.stack.nats_url()
    }

    /// Where files of the run are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process ids of what runs.
    #[must_use]
    pub fn pids(&self) -> Pids {
        Pids {
            hooklane: self.hooklane.as_ref().map(Child::pid),
            nats: self.stack.nats().and_then(hooklane_local::Nats::pid),
            postgres: self
                .stack
                .postgres()
                .and_then(hooklane_local::Postgres::pid),
        }
    }

    /// Hooklane's log so far.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.dir.path().join("hooklane.log")
    }

    /// The last lines of hooklane's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        const LINES: usize = 20;
        let text = std::fs::read(self.log_path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Where logs are kept, if they are.
    #[must_use]
    pub fn kept(&self) -> Option<&Path> {
        self.options.keep_logs.as_deref()
    }

    fn config_path(&self) -> PathBuf {
        self.dir.path().join("hooklane.toml")
    }
}

impl Drop for System {
    fn drop(&mut self) {
        self.kill_hooklane();
        if let Some(kept) = &self.options.keep_logs {
            let _ = std::fs::create_dir_all(kept);
            for path in [
                self.log_path(),
                self.config_path(),
                self.dir.path().join("nats").join("nats-server.log"),
                self.dir.path().join("postgres").join("postgres.log"),
            ] {
                if let Some(name) = path.file_name() {
                    let _ = std::fs::copy(&path, kept.join(name));
                }
            }
        }
    }
}

/// Process ids, where the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pids {
    /// `hooklane up`.
    pub hooklane: Option<u32>,
    /// nats-server.
    pub nats: Option<u32>,
    /// PostgreSQL's first process; its backends are its children.
    pub postgres: Option<u32>,
}

/// The checkout's `.hooklane`, where servers and installed programs live.
fn dot_hooklane() -> PathBuf {
    workspace().join(".hooklane")
}

/// The workspace's root, which holds this crate.
#[must_use]
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}
