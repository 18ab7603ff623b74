//! A database per test, copied from a template that the migrations made once.
//!
//! The template is named after a fingerprint of the migration files, so a changed migration
//! makes a new one. Making it is guarded by a file lock: test processes of one run share the
//! server, and the first to come does the work.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use hooklane_local::{
    Install, Postgres, PostgresOptions, Psql, RunDir, postgres_bin, quiet, with_database,
};
use tokio::sync::OnceCell;

use crate::{home, wait};

/// The longest name that PostgreSQL keeps whole, in bytes.
const MAX_NAME: usize = 63;

/// A PostgreSQL on which tests make databases.
#[derive(Debug, Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// A URL on the server whose user may create databases.
    url: String,
    bin: PathBuf,
    /// Absent when the server isn't ours. It ends, then its directory goes.
    own: Option<(Postgres, RunDir)>,
}

impl Server {
    /// The server that all tests of this process share: the one named by
    /// [`crate::DATABASE_URL`], else one started now, which ends with this process.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is missing or doesn't start.
    pub async fn shared() -> Result<Self> {
        static SHARED: OnceCell<Server> = OnceCell::const_new();
        SHARED
            .get_or_try_init(|| async {
                match home::variable(crate::DATABASE_URL) {
                    Some(url) => home::blocking(|| Self::existing(url)).await,
                    None => Self::start().await,
                }
            })
            .await
            .cloned()
    }

    /// Starts a private server, which the test may kill and restart. It takes about a second.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is missing or doesn't start.
    pub async fn start() -> Result<Self> {
        home::blocking(|| {
            let bin = postgres_bin(&home::dot_hooklane(), Install::Never, &quiet)?;
            let dir = home::run_dir("test-pg")?;
            let options = PostgresOptions {
                durable: false,
                ..PostgresOptions::default()
            };
            let postgres = Postgres::start(&bin, dir.path(), &options)?;
            Ok(Self {
                inner: Arc::new(Inner {
                    url: postgres.url(),
                    bin,
                    own: Some((postgres, dir)),
                }),
            })
        })
        .await
    }

    fn existing(url: String) -> Result<Self> {
        let bin = postgres_bin(&home::dot_hooklane(), Install::Never, &quiet)?;
        Ok(Self {
            inner: Arc::new(Inner {
                url,
                bin,
                own: None,
            }),
        })
    }

    /// Makes an empty database.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub async fn empty(&self) -> Result<Database> {
        self.create("template0").await
    }

    /// Makes a database as `migrate` left the template, which it is asked to fill (at the URL it
    /// gets) if nobody has yet. It must have closed its connections when it returns.
    ///
    /// `template` names what `migrate` does: the same name, the same migrations.
    ///
    /// # Errors
    ///
    /// When `migrate` fails or the server refuses.
    pub async fn database<F, Fut, E>(&self, template: &str, migrate: F) -> Result<Database>
    where
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: Into<anyhow::Error>,
    {
        let template = format!("{}_{template}_{:08x}", prefix(), fingerprint()?);
        ensure!(template.len() <= MAX_NAME, "{template} is too long a name");
        self.ensure_template(&template, migrate).await?;
        self.create(&template).await
    }

    /// Kills it as `kill -9` does; it stays down until [`Server::restart`].
    ///
    /// # Errors
    ///
    /// When it isn't ours alone: see [`Server::start`].
    pub async fn kill9(&self) -> Result<()> {
        self.act(|postgres| {
            postgres.kill9();
            Ok(())
        })
        .await
    }

    /// Stops it, cutting its connections; it stays down until [`Server::restart`].
    ///
    /// # Errors
    ///
    /// When it isn't ours alone: see [`Server::start`].
    pub async fn stop(&self) -> Result<()> {
        self.act(|postgres| {
            postgres.stop();
            Ok(())
        })
        .await
    }

    /// Stops it (if it runs) and starts it on the same port and data.
    ///
    /// # Errors
    ///
    /// When it isn't ours alone, or doesn't start.
    pub async fn restart(&self) -> Result<()> {
        self.act(|postgres| Ok(postgres.restart()?)).await
    }

    async fn act(&self, act: impl FnOnce(&Postgres) -> Result<()> + Send + 'static) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        home::blocking(move || match &inner.own {
            Some((postgres, _)) => act(postgres),
            None => Err(anyhow!(
                "a test that harms its PostgreSQL must start one with postgres::Server::start"
            )),
        })
        .await
    }

    async fn ensure_template<F, Fut, E>(&self, name: &str, migrate: F) -> Result<()>
    where
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: Into<anyhow::Error>,
    {
        let ready = format!("SELECT 1 FROM pg_database WHERE datname = '{name}' AND datistemplate");
        if !self.sql(ready.clone()).await?.is_empty() {
            return Ok(());
        }
        let path = self.lock_path();
        // Held until the template is ready or has failed.
        let lock = home::blocking(move || {
            let file = File::create(&path).context("making the template's lock")?;
            file.lock().context("waiting for the template")?;
            Ok(file)
        })
        .await?;
        if self.sql(ready).await?.is_empty() {
            self.sql(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
                .await?;
            self.sql(format!("CREATE DATABASE {name} TEMPLATE template0"))
                .await?;
            migrate(with_database(&self.inner.url, name))
                .await
                .map_err(Into::into)
                .context("migrating the template database")?;
            self.sql(format!("ALTER DATABASE {name} IS_TEMPLATE true"))
                .await?;
        }
        drop(lock);
        Ok(())
    }

    /// A file beside what the server's users share: the server's own, or the run's directory.
    fn lock_path(&self) -> PathBuf {
        if let Some((_, dir)) = &self.inner.own {
            return dir.path().join("template.lock");
        }
        if let Some(run) = home::variable(crate::HOME) {
            return PathBuf::from(run).join("template.lock");
        }
        std::env::temp_dir().join("hooklane-test-template.lock")
    }

    async fn create(&self, template: &str) -> Result<Database> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "{}_{}_{}",
            prefix(),
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        // What an earlier process of the same number left on a server that isn't ours.
        self.sql(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            .await?;
        self.sql(format!("CREATE DATABASE {name} TEMPLATE {template}"))
            .await?;
        Ok(Database {
            url: with_database(&self.inner.url, &name),
            name,
            server: self.clone(),
        })
    }

    async fn sql(&self, command: String) -> Result<String> {
        let inner = Arc::clone(&self.inner);
        home::blocking(move || Ok(Psql::new(&inner.bin, &inner.url).run(&command)?)).await
    }
}

/// A database of one test, dropped with this handle whoever is still connected.
#[derive(Debug)]
pub struct Database {
    url: String,
    name: String,
    server: Server,
}

impl Database {
    /// Where it is, password included.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The server it is on.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Runs `sql` by `psql` and returns its rows, one a line, columns separated by `|`.
    ///
    /// # Errors
    ///
    /// When the command fails.
    pub async fn psql(&self, sql: &str) -> Result<String> {
        let psql = Psql::new(&self.server.inner.bin, &self.url);
        let sql = sql.to_owned();
        home::blocking(move || Ok(psql.run(&sql)?)).await
    }

    /// Asks `sql` until its rows, as [`Database::psql`] gives them, are `expected`.
    ///
    /// # Errors
    ///
    /// After `budget`, with the last answer.
    pub async fn until(&self, sql: &str, expected: &str, budget: Duration) -> Result<()> {
        let mut last = String::new();
        let outcome = wait::until(sql, budget, async || {
            last = match self.psql(sql).await {
                Ok(rows) => rows.trim().to_owned(),
                Err(error) => format!("{error:#}"),
            };
            last == expected
        })
        .await;
        outcome.with_context(|| format!("`{sql}` says `{last}`, not `{expected}`"))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let inner = &self.server.inner;
        // Fails when the test killed the server, and then the data goes with it.
        let _ = Psql::new(&inner.bin, &inner.url).run(&format!(
            "DROP DATABASE IF EXISTS {} WITH (FORCE)",
            self.name
        ));
    }
}

/// Makes a database for one test on the shared server: see [`Server::database`].
///
/// # Errors
///
/// As [`Server::shared`] and [`Server::database`].
pub async fn database<F, Fut, E>(template: &str, migrate: F) -> Result<Database>
where
    F: FnOnce(String) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: Into<anyhow::Error>,
{
    Server::shared().await?.database(template, migrate).await
}

/// What the names of this run's databases begin with: `cargo xtask test` drops them by it where
/// the server isn't its own.
fn prefix() -> String {
    let run = home::variable(crate::HOME).and_then(|dir| dir.rsplit('-').next().map(str::to_owned));
    match run {
        Some(run) => format!("hooklane_test_{run}"),
        None => "hooklane_test".to_owned(),
    }
}

/// Changes when a file in `migrations/` does.
fn fingerprint() -> Result<u32> {
    let dir = home::workspace().join("migrations");
    let mut files: Vec<PathBuf> = fs::read_dir(&dir)
        .with_context(|| format!("reading {}", dir.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.file_name().hash(&mut hasher);
        fs::read(&file)
            .with_context(|| format!("reading {}", file.display()))?
            .hash(&mut hasher);
    }
    // The half of it is enough to tell versions apart, and names are short.
    Ok((hasher.finish() >> 32) as u32)
}
