//! `cargo xtask test`: sets up, then runs every test of the workspace.

use std::path::Path;

use anyhow::Result;
use hooklane_local::{Psql, RunDir, external_nats_url, servers_home, to_stderr};

use crate::environment::{self, Ledger};
use crate::process;

/// How the testkit learns where to keep files, of the run's PostgreSQL, and of a nats-server that
/// isn't ours.
const TEST_HOME: &str = "HOOKLANE_TEST_HOME";
const TEST_DATABASE_URL: &str = "HOOKLANE_TEST_DATABASE_URL";
const TEST_NATS_URL: &str = "HOOKLANE_TEST_NATS_URL";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Only tests whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Only tests of this crate; may be given several times.
    #[arg(long, short, value_name = "CRATE")]
    package: Vec<String>,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    environment::setup().await?;
    // What killed test programs leave goes with it.
    let home = environment::blocking(|| {
        let parent = servers_home(&environment::dot_hooklane())?;
        Ok(RunDir::create(&parent, "test-home")?)
    })
    .await?;
    // One for the whole run: test programs make databases of their own on it. A nats-server is
    // quick to start, and tests kill theirs, so each test has one.
    let ledger = Ledger::start("test-run").await?;
    let _databases = (!ledger.is_own()).then(|| Databases::of(&ledger, home.path()));
    let mut cargo = process::cargo();
    cargo.arg("test");
    if args.package.is_empty() {
        cargo.arg("--workspace");
    }
    for package in &args.package {
        cargo.args(["--package", package]);
    }
    cargo.arg("--no-fail-fast");
    cargo.args(&args.filter);
    cargo.env(TEST_HOME, home.path());
    cargo.env(TEST_DATABASE_URL, ledger.url());
    if let Some(url) = external_nats_url() {
        to_stderr("using the nats-server of NATS_URL where a test does it no harm");
        cargo.env(TEST_NATS_URL, url);
    }
    process::run(cargo).await
}

/// The databases that a run makes on a server that isn't its own, dropped with it.
struct Databases {
    psql: Psql,
    prefix: String,
}

impl Databases {
    /// The testkit puts the end of the home's name into that of each database.
    fn of(ledger: &Ledger, home: &Path) -> Self {
        let home = home.to_string_lossy();
        let run = home.rsplit('-').next().unwrap_or_default();
        Self {
            psql: ledger.psql(ledger.url()),
            prefix: format!("hooklane_test_{run}_"),
        }
    }

    fn remove(&self) -> Result<()> {
        let list = "SELECT datname FROM pg_database WHERE starts_with(datname, ";
        for name in self.psql.run(&format!("{list}'{}')", self.prefix))?.lines() {
            self.psql
                .run(&format!("ALTER DATABASE {name} IS_TEMPLATE false"))?;
            self.psql
                .run(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))?;
        }
        Ok(())
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            to_stderr(&format!("removing the tests' databases: {error}"));
        }
    }
}
