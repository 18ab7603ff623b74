//! A private nats-server with JetStream on a loopback port.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::dir;
use crate::error::{Doing, Error};
use crate::port;
use crate::process::{Handle, Process, Spec, Stop};

const READY: Duration = Duration::from_secs(30);
const STOP: &[Stop] = &[(Signal::SIGTERM, Duration::from_secs(20))];
const CONNECT: Duration = Duration::from_millis(500);
const PORT_TRIES: usize = 8;

/// How to run nats-server.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// The port to prefer; another one is taken when something listens there already.
    pub port: Option<u16>,
    /// What JetStream may keep on disk, in bytes.
    pub max_file_store: u64,
    /// The largest message, in bytes.
    pub max_payload: u32,
    /// Whether to serve the monitoring pages on a second port.
    pub monitor: bool,
    /// More lines for the server's configuration file.
    pub extra_config: String,
}

impl Default for NatsOptions {
    fn default() -> Self {
        Self {
            port: None,
            max_file_store: 4 << 30,
            max_payload: 1 << 20,
            monitor: false,
            extra_config: String::new(),
        }
    }
}

/// A nats-server of ours. Dropping it kills the server; its files stay.
#[derive(Debug)]
pub struct Nats {
    program: PathBuf,
    dir: PathBuf,
    name: String,
    port: u16,
    monitor: Option<u16>,
    process: Handle,
    _lock: fs::File,
}

impl Nats {
    /// Starts `program` with its configuration, store and log below `dir` and waits until it
    /// answers. A store that is already there is used again, and so is its port if it is free.
    ///
    /// # Errors
    ///
    /// When another process uses `dir`, or the server can't be started or isn't ready in time.
    pub fn start(program: &Path, dir: &Path, options: &NatsOptions) -> Result<Self, Error> {
        dir::make_passable(dir)?;
        let dir = dir
            .canonicalize()
            .doing(|| format!("resolving {}", dir.display()))?;
        let lock = dir::lock_server(&dir)?;
        let mut nats = Self {
            program: program.to_owned(),
            name: format!("hooklane-{:016x}", port::random()),
            port: 0,
            monitor: None,
            process: Handle::down(STOP),
            _lock: lock,
            dir,
        };
        let mut wanted = options.port.or_else(|| port::remembered(&nats.dir));
        let mut tries = PORT_TRIES;
        loop {
            nats.port = match wanted.take().filter(|port| port::is_free(*port)) {
                Some(port) => port,
                None => port::free()?,
            };
            nats.monitor = options.monitor.then(port::free).transpose()?;
            nats.write_config(options)?;
            tries -= 1;
            match nats.restart() {
                // Somebody else took the port between our look and its bind.
                Err(Error::Exited { .. }) if tries > 0 && !port::is_free(nats.port) => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    port::remember(&nats.dir, nats.port);
                    return Ok(nats);
                }
            }
        }
    }

    /// `nats://127.0.0.1:<port>`; the same after every restart.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The port it serves clients on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of its monitoring pages, when asked for.
    #[must_use]
    pub fn monitor_url(&self) -> Option<String> {
        self.monitor.map(|port| format!("http://127.0.0.1:{port}"))
    }

    /// Its process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Its log.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("nats-server.log")
    }

    /// Kills it as `kill -9` does; it stays down until [`Nats::restart`].
    pub fn kill9(&self) {
        self.process.kill9();
    }

    /// Stops it in order; kills it when that takes longer than 20 s. Does nothing when it is down.
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Stops it (if it runs) and starts it on the same port and store.
    ///
    /// # Errors
    ///
    /// When it can't be started or isn't ready in time.
    pub fn restart(&self) -> Result<(), Error> {
        self.process.restart(|| self.run())
    }

    /// Stops it, deletes everything JetStream keeps, and starts it on the same port.
    ///
    /// # Errors
    ///
    /// When the store can't be deleted or the server can't be started again.
    pub fn wipe_store(&self) -> Result<(), Error> {
        self.process.restart(|| {
            let store = self.store();
            if store.exists() {
                fs::remove_dir_all(&store).doing(|| format!("removing {}", store.display()))?;
            }
            self.run()
        })
    }

    /// Suspends it (`SIGSTOP`): connections stay open and nothing answers.
    pub fn suspend(&self) {
        self.process.suspend();
    }

    /// Lets it go on after [`Nats::suspend`].
    pub fn resume(&self) {
        self.process.resume();
    }

    fn store(&self) -> PathBuf {
        self.dir.join("jetstream")
    }

    fn config_path(&self) -> PathBuf {
        self.dir.join("nats-server.conf")
    }

    fn write_config(&self, options: &NatsOptions) -> Result<(), Error> {
        let monitor = self
            .monitor
            .map(|port| format!("http: \"127.0.0.1:{port}\"\n"))
            .unwrap_or_default();
        let text = format!(
            "# Written by Hooklane on every start.\n\
             server_name: \"{name}\"\n\
             listen: \"127.0.0.1:{port}\"\n\
             {monitor}\
             max_payload: {max_payload}\n\
             jetstream {{\n\
             \x20 store_dir: \"{store}\"\n\
             \x20 max_memory_store: {memory}\n\
             \x20 max_file_store: {file}\n\
             }}\n{extra}\n",
            name = self.name,
            port = self.port,
            max_payload = options.max_payload,
            store = self.store().display(),
            memory = 64 << 20,
            file = options.max_file_store,
            extra = options.extra_config,
        );
        let path = self.config_path();
        fs::write(&path, text).doing(|| format!("writing {}", path.display()))
    }

    fn run(&self) -> Result<Process, Error> {
        let spec = Spec {
            what: "nats-server",
            program: &self.program,
            args: vec![
                "--config".to_owned(),
                self.config_path().display().to_string(),
            ],
            dir: &self.dir,
            account: None,
            log: &self.log_path(),
            on_our_death: "KILL",
        };
        Process::start(&spec, READY, |_| self.answers())
    }

    /// Whether the server that greets us on our port is ours: the name tells it from another
    /// one that took the port first. JetStream is up before a server greets anybody.
    fn answers(&self) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let greet = || -> std::io::Result<String> {
            let stream = TcpStream::connect_timeout(&address, CONNECT)?;
            stream.set_read_timeout(Some(CONNECT))?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            Ok(line)
        };
        greet().is_ok_and(|line| line.starts_with("INFO ") && line.contains(&self.name))
    }
}
