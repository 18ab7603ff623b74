//! What a PostgreSQL takes at the most: pgbench on a server of its own, for measurements.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use hooklane_local::{Install, Postgres, PostgresOptions, Psql, RunDir, postgres_bin, quiet};

use crate::home;

/// A private PostgreSQL that keeps what it is told, unlike those of tests. It ends with this handle.
#[derive(Debug)]
pub struct Durable {
    postgres: Postgres,
    dir: RunDir,
}

impl Durable {
    /// Starts it, empty.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is missing or doesn't start.
    pub async fn start() -> Result<Self> {
        home::blocking(|| {
            let bin = postgres_bin(&home::dot_hooklane(), Install::Never, &quiet)?;
            let dir = home::run_dir("throughput")?;
            let postgres = Postgres::start(&bin, dir.path(), &PostgresOptions::default())?;
            Ok(Self { postgres, dir })
        })
        .await
    }

    /// Where its database is.
    #[must_use]
    pub fn url(&self) -> String {
        self.postgres.url()
    }

    /// Runs statements.
    ///
    /// # Errors
    ///
    /// When one is refused.
    pub async fn run(&self, sql: &str) -> Result<()> {
        let psql = Psql::new(self.postgres.bin(), &self.url());
        let sql = sql.to_owned();
        home::blocking(move || Ok(psql.run(&sql).map(drop)?)).await
    }

    /// How often a second so many connections get through a pgbench `script`, one transaction each.
    ///
    /// # Errors
    ///
    /// When pgbench is missing or tells no figure.
    pub async fn rate(&self, script: String, connections: usize, span: Duration) -> Result<f64> {
        let program = self.postgres.bin().join("pgbench");
        let path = self.dir.path().join("pgbench.sql");
        let url = self.url();
        home::blocking(move || rate(&program, &path, &script, connections, span, &url)).await
    }
}

fn rate(
    program: &Path,
    path: &Path,
    script: &str,
    connections: usize,
    span: Duration,
    url: &str,
) -> Result<f64> {
    fs::write(path, script).context("writing pgbench's script")?;
    let output = Command::new(program)
        .args(["-n", "-M", "prepared", "-j", "2", "-c"])
        .arg(connections.to_string())
        .arg("-T")
        .arg(span.as_secs().to_string())
        .arg("-f")
        .arg(path)
        .arg(url)
        .output()
        .context("running pgbench")?;
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let line = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    rate.with_context(|| format!("pgbench tells no figure: {text}{errors}"))
}
