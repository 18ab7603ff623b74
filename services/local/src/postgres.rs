//! A private PostgreSQL on a loopback port, with one superuser and a generated password.
//!
//! PostgreSQL refuses to run as root; then it runs as an account of its own, which also owns
//! its data directory.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::account::Account;
use crate::dir;
use crate::error::{Doing, Error};
use crate::port;
use crate::process::{Handle, Process, Spec, Stop};
use crate::psql::Psql;
use crate::tools;

/// Also the time a crash recovery may take.
const READY: Duration = Duration::from_secs(60);
/// A fast shutdown, which cuts connections, and then an immediate one.
const STOP: &[Stop] = &[(Signal::SIGINT, Duration::from_secs(30)), STOP_NOW];
const STOP_NOW: Stop = (Signal::SIGQUIT, Duration::from_secs(5));
/// How long the backends of a killed server may take to notice and go.
const PREDECESSOR: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// The superuser and the first database.
const NAME: &str = "hooklane";

/// How to run PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The port to prefer; another one is taken when something listens there already.
    pub port: Option<u16>,
    /// Whether commits survive a power cut, and not only the death of the server. Tests need
    /// that not, and run several times faster.
    pub durable: bool,
    /// How many connections it takes.
    pub max_connections: u16,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            port: None,
            durable: true,
            max_connections: 200,
        }
    }
}

/// A PostgreSQL of ours. Dropping it stops the server; its files stay.
pub struct Postgres {
    bin: PathBuf,
    dir: PathBuf,
    account: Option<Account>,
    password: String,
    port: u16,
    options: PostgresOptions,
    process: Handle,
    _lock: File,
}

// By hand, since the password must not be printed.
impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres")
            .field("dir", &self.dir)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Postgres {
    /// Starts the PostgreSQL whose programs are in `bin`, with everything it writes below `dir`,
    /// waits until it answers and makes sure that the database `hooklane` exists. Data already
    /// there is used again, and so is its port if it is free.
    ///
    /// # Errors
    ///
    /// When another process uses `dir`, the server's account can't enter it, its data is of
    /// another major version, or the server can't be started or isn't ready in time.
    pub fn start(bin: &Path, dir: &Path, options: &PostgresOptions) -> Result<Self, Error> {
        dir::make_passable(dir)?;
        let dir = dir
            .canonicalize()
            .doing(|| format!("resolving {}", dir.display()))?;
        let lock = dir::lock_server(&dir)?;
        let account = Account::for_servers()?;
        if let Some(account) = account.as_ref().filter(|account| !account.can_enter(&dir)) {
            return Err(Error::Unreachable {
                dir,
                account: account.name.clone(),
            });
        }
        let mut postgres = Self {
            bin: bin.to_owned(),
            account,
            password: String::new(),
            port: 0,
            options: options.clone(),
            process: Handle::down(STOP),
            _lock: lock,
            dir,
        };
        postgres.prepare()?;
        let wanted = options.port.or_else(|| port::remembered(&postgres.dir));
        postgres.port = match wanted.filter(|port| port::is_free(*port)) {
            Some(port) => port,
            None => port::free()?,
        };
        let until = Instant::now() + PREDECESSOR;
        loop {
            match postgres.process.restart(|| postgres.run(until)) {
                // Somebody else took the port between our look and its bind.
                Err(Error::Exited { .. })
                    if !port::is_free(postgres.port) && Instant::now() < until =>
                {
                    postgres.port = port::free()?;
                }
                other => break other?,
            }
        }
        port::remember(&postgres.dir, postgres.port);
        let admin = Psql::new(&postgres.bin, &postgres.url_of("postgres"));
        let exists = format!("SELECT 1 FROM pg_database WHERE datname = '{NAME}'");
        if admin.run(&exists)?.is_empty() {
            admin.run(&format!("CREATE DATABASE {NAME}"))?;
        }
        Ok(postgres)
    }

    /// `postgres://hooklane:<password>@127.0.0.1:<port>/hooklane`, a superuser's; the same after
    /// every restart.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(NAME)
    }

    /// As [`Postgres::url`], for another database.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!(
            "postgres://{NAME}:{}@127.0.0.1:{}/{database}",
            self.password, self.port
        )
    }

    /// The port it serves.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of PostgreSQL's programs.
    #[must_use]
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// Its process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Its log.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("postgres.log")
    }

    /// Kills it as `kill -9` does; it stays down until [`Postgres::restart`].
    pub fn kill9(&self) {
        self.process.kill9();
    }

    /// Stops it, cutting its connections; kills it when that takes longer than 35 s. Does nothing
    /// when it is down.
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Stops it (if it runs) and starts it on the same port and data.
    ///
    /// # Errors
    ///
    /// When it can't be started or isn't ready in time.
    pub fn restart(&self) -> Result<(), Error> {
        self.process
            .restart(|| self.run(Instant::now() + PREDECESSOR))
    }

    /// Suspends its main process (`SIGSTOP`): it accepts no connection; open ones go on.
    pub fn suspend(&self) {
        self.process.suspend();
    }

    /// Lets it go on after [`Postgres::suspend`].
    pub fn resume(&self) {
        self.process.resume();
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Makes the password and the data directory, unless they are there.
    fn prepare(&mut self) -> Result<(), Error> {
        let path = self.dir.join("password");
        let data = self.data();
        if data.join("PG_VERSION").exists() {
            self.password = fs::read_to_string(&path)
                .doing(|| format!("reading {}", path.display()))?
                .trim()
                .to_owned();
            return self.check_version(&data);
        }
        self.password = new_password()?;
        let _ = fs::remove_file(&path);
        File::options()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| writeln!(file, "{}", self.password))
            .doing(|| format!("writing {}", path.display()))?;
        // Made beside and renamed, so that a set-up cut short leaves no half of a database.
        let fresh = self.dir.join("data.new");
        let _ = fs::remove_dir_all(&fresh);
        fs::create_dir(&fresh).doing(|| format!("making {}", fresh.display()))?;
        fs::set_permissions(&fresh, Permissions::from_mode(0o700))
            .doing(|| format!("setting the mode of {}", fresh.display()))?;
        let mut initdb = Command::new(self.bin.join("initdb"));
        initdb
            .arg("--pgdata")
            .arg(&fresh)
            .arg("--pwfile")
            .arg(&path)
            .args(["--username", NAME, "--auth", "scram-sha-256"])
            .args(["--encoding", "UTF8", "--no-locale"])
            .current_dir(&self.dir)
            .stdin(Stdio::null());
        if !self.options.durable {
            initdb.arg("--no-sync");
        }
        if let Some(account) = &self.account {
            account.own(&path)?;
            account.own(&fresh)?;
            account.apply(&mut initdb);
        }
        let output = initdb.output().doing(|| "running initdb".to_owned())?;
        if !output.status.success() {
            return Err(Error::Exited {
                what: "initdb",
                status: output.status.to_string(),
                log: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        fs::rename(&fresh, &data).doing(|| format!("renaming {}", fresh.display()))
    }

    fn check_version(&self, data: &Path) -> Result<(), Error> {
        let path = data.join("PG_VERSION");
        let found = fs::read_to_string(&path).doing(|| format!("reading {}", path.display()))?;
        match tools::postgres_major(&self.bin) {
            Some(running) if found.trim() != running.to_string() => Err(Error::DataVersion {
                dir: data.to_owned(),
                found: found.trim().to_owned(),
                running,
            }),
            _ => Ok(()),
        }
    }

    /// Starts the server. After a `kill -9` its predecessor's backends hold on to the shared
    /// memory for a moment, in which a new server refuses to start: it is tried until `until`.
    fn run(&self, until: Instant) -> Result<Process, Error> {
        self.await_predecessor(until);
        loop {
            let leftover = self.data().join("postmaster.pid").exists();
            match self.run_once() {
                Err(Error::Exited { .. })
                    if leftover && port::is_free(self.port) && Instant::now() < until =>
                {
                    thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
    }

    fn run_once(&self) -> Result<Process, Error> {
        let spec = Spec {
            what: "postgres",
            program: &self.bin.join("postgres"),
            args: self.args(),
            dir: &self.dir,
            account: self.account.as_ref(),
            log: &self.log_path(),
            // A fast shutdown where the data matters, an immediate one where it does not.
            on_our_death: if self.options.durable { "INT" } else { "QUIT" },
        };
        let process = Process::start(&spec, READY, |process| self.is_ready(process.pid()))?;
        Psql::new(&self.bin, &self.url_of("postgres")).run("SELECT 1")?;
        Ok(process)
    }

    fn args(&self) -> Vec<String> {
        let mut settings = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port),
            // A socket's path may be 107 bytes long at the most; a checkout's often is longer.
            "unix_socket_directories=".to_owned(),
            format!("max_connections={}", self.options.max_connections),
            "shared_buffers=64MB".to_owned(),
            "log_checkpoints=off".to_owned(),
            "timezone=UTC".to_owned(),
            "log_timezone=UTC".to_owned(),
        ];
        if !self.options.durable {
            // Commits are still written before they are confirmed: a killed server loses none.
            settings.extend(
                [
                    "fsync=off",
                    "full_page_writes=off",
                    "wal_level=minimal",
                    "max_wal_senders=0",
                ]
                .map(str::to_owned),
            );
        }
        let mut args = vec!["-D".to_owned(), self.data().display().to_string()];
        for setting in settings {
            args.extend(["-c".to_owned(), setting]);
        }
        args
    }

    /// The server writes its state into its pid file. Reading it there, and not by connecting,
    /// tells our server from another one that took the port first.
    fn is_ready(&self, pid: u32) -> bool {
        let Ok(text) = fs::read_to_string(self.data().join("postmaster.pid")) else {
            return false;
        };
        let mut lines = text.lines();
        lines.next().and_then(|line| line.trim().parse().ok()) == Some(pid)
            && lines.nth(6).is_some_and(|line| line.trim() == "ready")
    }

    /// Waits for a server that an earlier process of ours left stopping, and removes the pid
    /// file of one that is gone when its pid belongs to some other program now.
    fn await_predecessor(&self, until: Instant) {
        let path = self.data().join("postmaster.pid");
        loop {
            let pid = fs::read_to_string(&path)
                .ok()
                .and_then(|text| text.lines().next()?.trim().parse::<i32>().ok());
            let Some(pid) = pid else { return };
            if kill(Pid::from_raw(pid), None).is_err() {
                return;
            }
            let is_postgres = fs::read_to_string(format!("/proc/{pid}/comm"))
                .map_or(true, |name| name.trim() == "postgres");
            if !is_postgres {
                let _ = fs::remove_file(&path);
                return;
            }
            if Instant::now() >= until {
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.options.durable {
            self.stop();
        } else {
            // Nobody needs this data again: an immediate shutdown, which still takes the
            // backends along, as a kill would not at once.
            self.process.stop_by(&[STOP_NOW]);
        }
    }
}

fn new_password() -> Result<String, Error> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .doing(|| "reading /dev/urandom".to_owned())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
