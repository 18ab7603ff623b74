//! The system under test: a private nats-server and PostgreSQL, and the real `hooklane` in one
//! process or in several.
//!
//! Owns their lives: everything ends, and every file goes, when this is dropped or the process is
//! stopped by whatever means. Does not own what is in the ledger (see [`crate::setup`]).

mod child;
mod config;
mod place;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hooklane_local::{
    Install, Nats, NatsOptions, Postgres, PostgresOptions, RunDir, Stack, StackOptions,
    servers_home,
};
use hooklane_nats::Client;
use hooklane_store::{Config as StoreConfig, Store};
use hooklane_testkit::proxy::Proxy;

pub use child::Child;
pub use config::{Tuning, master_key};
use place::Place;
pub use place::{Links, Member};

/// How long `hooklane` may take to stop in order: its own drain is 20 s.
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
    /// The processes, at least one.
    pub members: Vec<Member>,
    /// Whether each process has links of its own to the servers, which may be cut and stalled.
    pub linked: bool,
}

/// Servers, and hooklane processes that may be killed and started again.
#[derive(Debug)]
pub struct System {
    // In the order in which they must end.
    places: Arc<Vec<Place>>,
    stack: Arc<Stack>,
    options: Options,
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
    /// Starts the servers, migrates the database, and starts every process.
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
        let stack = Arc::new(stack);
        let mut places = Vec::with_capacity(options.members.len());
        for member in &options.members {
            let links = match options.linked {
                true => Some(links(&stack).await?),
                false => None,
            };
            let (mut database, mut nats) = (stack.database_url().to_owned(), stack.nats_url());
            let by_link = links
                .as_ref()
                .map(|links| by_link(&stack, links))
                .transpose()?;
            if let Some((by_database, by_nats)) = &by_link {
                database.clone_from(by_database);
                nats = by_nats;
            }
            let text = config::text(&database, nats, &options.tuning);
            let place = Place::new(member.clone(), links, &options.binary, dir.path(), &text)?;
            places.push(place);
        }
        let system = Self {
            places: Arc::new(places),
            stack,
            options,
            dir,
        };
        let store = system.store(2).await?;
        store.migrate().await.context("migrating the database")?;
        store.close().await;
        system.start_hooklane()?;
        Ok(system)
    }

    /// Starts every process that does not run.
    ///
    /// # Errors
    /// Where a process can't be started.
    pub fn start_hooklane(&self) -> Result<()> {
        self.places.iter().try_for_each(Place::start)
    }

    /// Kills every process as `kill -9` does, and waits until it is gone.
    pub fn kill_hooklane(&self) {
        self.places.iter().for_each(Place::kill9);
    }

    /// Stops every process in order, all of them at once.
    ///
    /// # Errors
    /// Where one does not stop in time, or not with success.
    pub async fn stop_hooklane(&self) -> Result<()> {
        let stops: Vec<_> = (0..self.places.len()).map(|n| self.stop(n)).collect();
        for stopped in futures::future::join_all(stops).await {
            stopped?;
        }
        Ok(())
    }

    /// Whether every process runs; an error with the end of its log where one ended by itself.
    ///
    /// # Errors
    /// Where one has ended although nobody stopped it.
    pub fn check(&self) -> Result<()> {
        for place in self.places.iter() {
            if let Some(status) = place.ended() {
                bail!(
                    "{} ended by itself with {status}\n{}",
                    place.member.name,
                    place.log_tail()
                );
            }
        }
        Ok(())
    }

    /// The processes that there are, whether they run or not; others name them by their index.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.places.iter().map(|place| &place.member)
    }

    /// A process's links to the servers, where it has any.
    #[must_use]
    pub fn links(&self, member: usize) -> Option<&Links> {
        self.places[member].links.as_ref()
    }

    /// Kills a process as `kill -9` does, and waits until it is gone.
    pub fn kill(&self, member: usize) {
        self.places[member].kill9();
    }

    /// Starts a process, unless it runs.
    ///
    /// # Errors
    /// Where it can't be started.
    pub fn start_member(&self, member: usize) -> Result<()> {
        self.places[member].start()
    }

    /// Stops a process in order.
    ///
    /// # Errors
    /// Where it does not stop in time, or not with success.
    pub async fn stop(&self, member: usize) -> Result<()> {
        let places = Arc::clone(&self.places);
        tokio::task::spawn_blocking(move || places[member].stop())
            .await
            .context("stopping hooklane panicked")?
    }

    /// Suspends a process.
    pub fn suspend(&self, member: usize) {
        self.places[member].suspend();
    }

    /// Lets a suspended process go on.
    pub fn resume(&self, member: usize) {
        self.places[member].resume();
    }

    /// The exit status of a process that ended by itself.
    #[must_use]
    pub fn ended(&self, member: usize) -> Option<ExitStatus> {
        self.places[member].ended()
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

    /// Does something with nats-server that blocks.
    ///
    /// # Errors
    /// Where that fails, or the server is not ours.
    pub async fn with_nats(
        &self,
        act: impl FnOnce(&Nats) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let stack = Arc::clone(&self.stack);
        tokio::task::spawn_blocking(move || act(stack.nats().context("nats-server is not ours")?))
            .await
            .context("a step with nats-server panicked")?
    }

    /// Does something with PostgreSQL that blocks.
    ///
    /// # Errors
    /// Where that fails, or the server is not ours.
    pub async fn with_postgres(
        &self,
        act: impl FnOnce(&Postgres) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let stack = Arc::clone(&self.stack);
        let act = move || act(stack.postgres().context("PostgreSQL is not ours")?);
        tokio::task::spawn_blocking(act)
            .await
            .context("a step with PostgreSQL panicked")?
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

    /// A connection to nats-server that no link stands between.
    ///
    /// # Errors
    /// Where the server can't be reached.
    pub async fn broker(&self) -> Result<Client> {
        let config = hooklane_nats::Config {
            url: self.nats_url().into(),
            ..hooklane_nats::Config::default()
        };
        let client = Client::connect(&config).await;
        client.context("connecting to nats-server")
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
            hooklane: self.places.first().and_then(Place::pid),
            nats: self.stack.nats().and_then(Nats::pid),
            postgres: self.stack.postgres().and_then(Postgres::pid),
        }
    }

    /// The last lines of every process's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let tails = self.places.iter().map(|place| match self.places.len() {
            1 => place.log_tail(),
            _ => format!("── {}\n{}", place.member.name, place.log_tail()),
        });
        tails.collect::<Vec<_>>().join("\n")
    }

    /// Keeps logs and configuration in `dir`, whatever was asked for.
    pub fn keep_logs(&mut self, dir: PathBuf) {
        self.options.keep_logs = Some(dir);
    }

    /// Where logs are kept, if they are.
    #[must_use]
    pub fn kept(&self) -> Option<&Path> {
        self.options.keep_logs.as_deref()
    }
}

/// Ways to both servers that may be cut and stalled.
async fn links(stack: &Stack) -> Result<Links> {
    let to = |port: Option<u16>| {
        let port = port.context("a server is not ours")?;
        anyhow::Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(Links {
        nats: Proxy::start(any, to(stack.nats().map(Nats::port))?).await?,
        postgres: Proxy::start(any, to(stack.postgres().map(Postgres::port))?).await?,
    })
}

/// The URLs of both servers by these links: PostgreSQL's, then nats-server's.
fn by_link(stack: &Stack, links: &Links) -> Result<(String, String)> {
    let by = |url: &str, link: &Proxy| {
        let (start, rest) = url.rsplit_once(':').context("a server's URL has no port")?;
        let path = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        anyhow::Ok(format!("{start}:{}{path}", link.address().port()))
    };
    Ok((
        by(stack.database_url(), &links.postgres)?,
        by(stack.nats_url(), &links.nats)?,
    ))
}

impl Drop for System {
    fn drop(&mut self) {
        self.kill_hooklane();
        if let Some(kept) = &self.options.keep_logs {
            let _ = std::fs::create_dir_all(kept);
            let own = self.places.iter();
            let mut paths: Vec<PathBuf> = own
                .flat_map(|place| [place.log_path(), place.config_path()])
                .collect();
            paths.push(self.dir.path().join("nats").join("nats-server.log"));
            paths.push(self.dir.path().join("postgres").join("postgres.log"));
            for path in paths {
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
    /// The first process of hooklane.
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
