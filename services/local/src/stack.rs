//! Both servers together, each private unless the environment names one.

use std::path::{Path, PathBuf};
use std::thread;

use crate::Say;
use crate::environment;
use crate::error::Error;
use crate::nats::{Nats, NatsOptions};
use crate::postgres::{Postgres, PostgresOptions};
use crate::tools::{self, Install};

/// `NATS_URL`, when set and not empty, and not inherited from local servers.
#[must_use]
pub fn external_nats_url() -> Option<String> {
    environment::own("NATS_URL")
}

/// `DATABASE_URL`, when set and not empty, and not inherited from local servers.
#[must_use]
pub fn external_database_url() -> Option<String> {
    environment::own("DATABASE_URL")
}

/// How to bring up both servers.
#[derive(Debug, Clone)]
pub struct StackOptions {
    /// Whether missing programs may be installed.
    pub install: Install,
    /// A server to use in place of a private nats-server.
    pub nats_url: Option<String>,
    /// A server to use in place of a private PostgreSQL.
    pub database_url: Option<String>,
    /// How to run a private nats-server.
    pub nats: NatsOptions,
    /// How to run a private PostgreSQL.
    pub postgres: PostgresOptions,
}

/// nats-server and PostgreSQL: private ones end when this is dropped, others are left alone.
#[derive(Debug)]
pub struct Stack {
    nats: Option<Nats>,
    postgres: Option<Postgres>,
    nats_url: String,
    database_url: String,
}

impl Stack {
    /// Starts what isn't given, below `<dir>/nats` and `<dir>/postgres`. Programs are looked for,
    /// and installed, with `home` as the `.hooklane` directory.
    ///
    /// # Errors
    ///
    /// When a program is missing or a server can't be started.
    pub fn start(
        home: &Path,
        dir: &Path,
        options: &StackOptions,
        say: Say<'_>,
    ) -> Result<Self, Error> {
        let start_nats = || {
            if let Some(url) = &options.nats_url {
                say("using the nats-server of NATS_URL");
                return Ok((None, url.clone()));
            }
            let program = tools::nats_server(home, options.install, say)?;
            let nats = Nats::start(&program, &dir.join("nats"), &options.nats)?;
            say(&format!("nats-server is up at {}", nats.url()));
            let url = nats.url();
            Ok::<_, Error>((Some(nats), url))
        };
        let start_postgres = || {
            if let Some(url) = &options.database_url {
                say("using the PostgreSQL of DATABASE_URL");
                return Ok((None, url.clone()));
            }
            let bin = tools::postgres_bin(home, options.install, say)?;
            let postgres = Postgres::start(&bin, &dir.join("postgres"), &options.postgres)?;
            say(&format!("PostgreSQL is up on port {}", postgres.port()));
            let url = postgres.url();
            Ok::<_, Error>((Some(postgres), url))
        };
        // Side by side: initdb and a first installation take their time.
        let (nats, postgres) = thread::scope(|scope| {
            let nats = scope.spawn(start_nats);
            let postgres = start_postgres();
            let nats = nats
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (nats, postgres)
        });
        let ((nats, nats_url), (postgres, database_url)) = (nats?, postgres?);
        Ok(Self {
            nats,
            postgres,
            nats_url,
            database_url,
        })
    }

    /// Where nats-server is.
    #[must_use]
    pub fn nats_url(&self) -> &str {
        &self.nats_url
    }

    /// Where PostgreSQL is, password included.
    #[must_use]
    pub fn database_url(&self) -> &str {
        &self.database_url
    }

    /// The private nats-server.
    #[must_use]
    pub fn nats(&self) -> Option<&Nats> {
        self.nats.as_ref()
    }

    /// The private PostgreSQL.
    #[must_use]
    pub fn postgres(&self) -> Option<&Postgres> {
        self.postgres.as_ref()
    }

    /// The private server that runs no more, and its log: it was stopped, or ended by itself.
    #[must_use]
    pub fn ended(&self) -> Option<(&'static str, PathBuf)> {
        let nats = self.nats.as_ref().filter(|nats| nats.pid().is_none());
        let postgres = || {
            self.postgres
                .as_ref()
                .filter(|server| server.pid().is_none())
        };
        nats.map(|nats| ("nats-server", nats.log_path()))
            .or_else(|| postgres().map(|server| ("PostgreSQL", server.log_path())))
    }

    /// Stops the private servers in order, nats-server first.
    pub fn stop(&self) {
        if let Some(nats) = &self.nats {
            nats.stop();
        }
        if let Some(postgres) = &self.postgres {
            postgres.stop();
        }
    }
}
