//! The place of one `hooklane` process, which may be down: its name, what it runs, its own
//! configuration and log, and the links it goes by.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use hooklane_testkit::proxy::Proxy;

use super::STOP;
use super::child::Child;

/// A `hooklane` process that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What it is called: in logs, and as the names of its files.
    pub name: String,
    /// What it runs, as words of the command line.
    pub command: Vec<&'static str>,
}

impl Member {
    /// Everything in one process.
    #[must_use]
    pub fn up() -> Self {
        Self::new("hooklane", &["up"])
    }

    /// A process that runs this command.
    #[must_use]
    pub fn new(name: &str, command: &[&'static str]) -> Self {
        Self {
            name: name.to_owned(),
            command: command.to_vec(),
        }
    }

    /// One process for each service, `copies` times.
    #[must_use]
    pub fn services(copies: u32) -> Vec<Self> {
        const SERVICES: [&[&str]; 5] = [
            &["relay"],
            &["dispatch"],
            &["record"],
            &["schedule"],
            &["dlq", "run"],
        ];
        let named = |copy: u32| {
            SERVICES.map(|command| Self::new(&format!("{}-{copy}", command[0]), command))
        };
        (1..=copies).flat_map(named).collect()
    }

    /// Whether deliveries are attempted in it.
    #[must_use]
    pub fn attempts(&self) -> bool {
        matches!(self.command[..], ["up" | "dispatch"])
    }
}

/// A process's own ways to the servers.
#[derive(Debug)]
pub struct Links {
    /// To nats-server.
    pub nats: Proxy,
    /// To PostgreSQL.
    pub postgres: Proxy,
}

/// Where a process runs, or does not.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) member: Member,
    pub(super) links: Option<Links>,
    binary: PathBuf,
    dir: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Place {
    /// One that is down, with this configuration.
    pub(super) fn new(
        member: Member,
        links: Option<Links>,
        binary: &Path,
        dir: &Path,
        config: &str,
    ) -> Result<Self> {
        let place = Self {
            member,
            links,
            binary: binary.to_owned(),
            dir: dir.to_owned(),
            child: Mutex::new(None),
        };
        let path = place.config_path();
        fs::write(&path, config).with_context(|| format!("writing {}", path.display()))?;
        Ok(place)
    }

    pub(super) fn log_path(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.member.name))
    }

    pub(super) fn config_path(&self) -> PathBuf {
        self.dir.join(format!("{}.toml", self.member.name))
    }

    /// Starts the process, unless it runs.
    pub(super) fn start(&self) -> Result<()> {
        let mut child = self.child();
        if child.as_ref().is_some_and(|child| child.ended().is_none()) {
            return Ok(());
        }
        let config = self.config_path().display().to_string();
        let mut args = vec!["--config", &config];
        args.extend(&self.member.command);
        let started = Child::start(&self.binary, &args, &self.dir, &self.log_path())
            .with_context(|| format!("starting {}", self.binary.display()))?;
        *child = Some(started);
        Ok(())
    }

    pub(super) fn kill9(&self) {
        if let Some(child) = self.child().take() {
            child.kill9();
        }
    }

    /// Stops the process in order, if it runs. Blocks.
    pub(super) fn stop(&self) -> Result<()> {
        let Some(child) = self.child().take() else {
            return Ok(());
        };
        let name = &self.member.name;
        match child.stop(STOP) {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{name} stopped with {status}\n{}", self.log_tail()),
            None => bail!("{name} did not stop within {STOP:?}\n{}", self.log_tail()),
        }
    }

    pub(super) fn suspend(&self) {
        if let Some(child) = self.child().as_ref() {
            child.suspend();
        }
    }

    pub(super) fn resume(&self) {
        if let Some(child) = self.child().as_ref() {
            child.resume();
        }
    }

    /// Its exit status, where it ended by itself.
    pub(super) fn ended(&self) -> Option<ExitStatus> {
        self.child().as_ref().and_then(Child::ended)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::pid)
    }

    /// The last lines of its log.
    pub(super) fn log_tail(&self) -> String {
        const LINES: usize = 20;
        let text = fs::read(self.log_path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
