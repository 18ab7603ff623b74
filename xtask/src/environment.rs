//! Sets up what a task needs: the programs, and private servers in a directory of the run.

use std::path::PathBuf;

use anyhow::Result;
use hooklane_local::{
    Install, Postgres, PostgresOptions, Psql, RunDir, external_database_url, nats_cli, nats_server,
    postgres_bin, servers_home, to_stderr,
};
pub(crate) use hooklane_testkit::blocking;

use crate::process;

/// Where programs are installed and runs have their directories.
pub(crate) fn dot_hooklane() -> PathBuf {
    process::workspace().join(".hooklane")
}

/// Finds or installs every program; reports every one that is missing, not only the first.
pub(crate) async fn setup() -> Result<()> {
    blocking(|| {
        let home = dot_hooklane();
        let found = [
            nats_server(&home, Install::Allowed, &to_stderr),
            nats_cli(&home, Install::Allowed, &to_stderr),
            postgres_bin(&home, Install::Allowed, &to_stderr),
        ];
        let mut missing = Vec::new();
        for program in found {
            match program {
                Ok(path) => to_stderr(&format!("found {}", path.display())),
                Err(error) => missing.push(error.to_string()),
            }
        }
        anyhow::ensure!(missing.is_empty(), "{}", missing.join("\n"));
        Ok(())
    })
    .await
}

/// A PostgreSQL for one task: the one that `DATABASE_URL` names, else a private one that ends,
/// with its data, when this is dropped.
#[derive(Debug)]
pub(crate) struct Ledger {
    url: String,
    bin: PathBuf,
    /// In this order: the server ends, then its directory goes.
    own: Option<(Postgres, RunDir)>,
}

impl Ledger {
    pub(crate) async fn start(kind: &'static str) -> Result<Self> {
        blocking(move || {
            let home = dot_hooklane();
            let bin = postgres_bin(&home, Install::Allowed, &to_stderr)?;
            if let Some(url) = external_database_url() {
                to_stderr("using the PostgreSQL of DATABASE_URL");
                return Ok(Self {
                    url,
                    bin,
                    own: None,
                });
            }
            let dir = RunDir::create(&servers_home(&home)?, kind)?;
            let options = PostgresOptions {
                durable: false,
                ..PostgresOptions::default()
            };
            let postgres = Postgres::start(&bin, dir.path(), &options)?;
            to_stderr(&format!("PostgreSQL is up on port {}", postgres.port()));
            Ok(Self {
                url: postgres.url(),
                bin,
                own: Some((postgres, dir)),
            })
        })
        .await
    }

    /// A URL on it, password included, whose user may create databases.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether it ends with the task; otherwise what the task made on it must be removed.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Its `psql`, for the database at `url`.
    pub(crate) fn psql(&self, url: &str) -> Psql {
        Psql::new(&self.bin, url)
    }
}
