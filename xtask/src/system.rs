//! Hooklane and its servers, for one task: private ones unless the environment names others.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hooklane_local::{
    Install, NatsOptions, PostgresOptions, Psql, RunDir, Stack, StackOptions, exports,
    external_database_url, external_nats_url, inherited, postgres_bin, servers_home, to_stderr,
};
use hooklane_testkit::{Receiver, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::environment::{self, blocking, dot_hooklane};
use crate::process::{self, Profile};

const START_WITHIN: Duration = Duration::from_secs(30);
const STOP_WITHIN: Duration = Duration::from_secs(25);
/// Of a private database; one that is given gets a database of its own.
const DATABASE: &str = "hooklane_demo";

pub(crate) struct System {
    // In this order: the process ends, then its servers, then their files go.
    up: Child,
    program: PathBuf,
    service: &'static [&'static str],
    config: PathBuf,
    log: PathBuf,
    psql: Psql,
    database_url: String,
    nats_url: String,
    health: SocketAddr,
    api: SocketAddr,
    _stack: Stack,
    dir: RunDir,
}

impl System {
    /// Sets everything up: programs, servers, the binary, its configuration, and the process, which
    /// runs every service.
    pub(crate) async fn start() -> Result<Self> {
        Self::running(&["up"], "").await
    }

    /// The same with a process that serves the API, and nothing that would deliver.
    pub(crate) async fn start_api() -> Result<Self> {
        Self::running(&["api"], "").await
    }

    /// The same with a process that runs one service, and with more in its configuration.
    pub(crate) async fn start_service(
        service: &'static [&'static str],
        more: &str,
    ) -> Result<Self> {
        Self::running(service, more).await
    }

    async fn running(service: &'static [&'static str], more: &str) -> Result<Self> {
        environment::setup().await?;
        to_stderr("building hooklane");
        let program = process::build(&["hooklane"], Profile::Dev)
            .await?
            .join("hooklane");

        let (stack, dir, bin) = blocking(|| {
            let home = dot_hooklane();
            let dir = RunDir::create(&servers_home(&home)?, "demo")?;
            let bin = postgres_bin(&home, Install::Allowed, &to_stderr)?;
            let options = StackOptions {
                install: Install::Allowed,
                nats_url: external_nats_url(),
                database_url: external_database_url(),
                nats: NatsOptions::default(),
                postgres: PostgresOptions::default(),
            };
            Ok((
                Stack::start(&home, dir.path(), &options, &to_stderr)?,
                dir,
                bin,
            ))
        })
        .await?;
        let database_url = own_database(&bin, stack.database_url())?;
        let nats_url = stack.nats_url().to_owned();

        let (health, api) = (free_address()?, free_address()?);
        let config = dir.path().join("hooklane.toml");
        let text = config_text(health, api) + more;
        std::fs::write(&config, text).context("writing the configuration")?;
        let ours = |words: &[&str]| {
            let mut command = command_of_ours(&program, &config, &database_url, &nats_url, words);
            command.stdout(Stdio::null());
            command
        };
        process::run(ours(&["migrate"])).await?;
        let log = dir.path().join("hooklane.log");
        let up = spawn(ours(service), &log)?;
        let mut system = Self {
            up,
            program,
            service,
            config,
            log,
            psql: Psql::new(&bin, &database_url),
            database_url,
            nats_url,
            health,
            api,
            _stack: stack,
            dir,
        };
        system.wait_ready().await?;
        to_stderr("hooklane is up and ready");
        Ok(system)
    }

    /// Kills the process, as a machine that loses its power does.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.up.kill().await.context("killing hooklane")
    }

    /// Starts it again after that.
    pub(crate) async fn start_again(&mut self) -> Result<()> {
        let mut command = self.command(self.service);
        command.stdout(Stdio::null());
        self.up = spawn(command, &self.log)?;
        self.wait_ready().await
    }

    /// Our own program on our own servers.
    fn command(&self, words: &[&str]) -> Command {
        command_of_ours(
            &self.program,
            &self.config,
            &self.database_url,
            &self.nats_url,
            words,
        )
    }

    /// Where the broker is.
    pub(crate) fn nats_url(&self) -> &str {
        &self.nats_url
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let health = self.health;
        let ready = wait::until("hooklane to be ready", START_WITHIN, || is_ready(health));
        let why = tokio::select! {
            ready = ready => match ready {
                Ok(()) => return Ok(()),
                Err(error) => format!("{error:#}"),
            },
            ended = self.up.wait() => format!("hooklane ended with {}", ended?),
        };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        bail!("{why}; its log:\n{log}");
    }

    /// Where the REST API is.
    pub(crate) fn api(&self) -> SocketAddr {
        self.api
    }

    /// Runs the `hooklane` command and returns what it prints.
    pub(crate) async fn hooklane(&self, words: &[&str]) -> Result<String> {
        let output = self
            .command(words)
            .output()
            .await
            .context("running hooklane")?;
        ensure!(
            output.status.success(),
            "hooklane {}: {}\n{}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).context("reading what hooklane printed")
    }

    pub(crate) async fn hooklane_json(&self, words: &[&str]) -> Result<Value> {
        let words: Vec<_> = ["--json"].iter().chain(words).copied().collect();
        serde_json::from_str(&self.hooklane(&words).await?).context("reading hooklane's JSON")
    }

    /// The message with this id, once each of its deliveries is sent.
    pub(crate) async fn message(&self, id: &str, budget: Duration) -> Result<Value> {
        wait::until_some("every delivery to be sent", budget, async || {
            let mut shown = self.hooklane_json(&["message", "show", id]).await.ok()?;
            let message = shown["messages"][0].take();
            let deliveries = message["deliveries"].as_array()?;
            let sent = !deliveries.is_empty() && deliveries.iter().all(|d| d["status"] == "sent");
            sent.then_some(message)
        })
        .await
    }

    /// Runs SQL as the producer's code would.
    pub(crate) async fn sql(&self, sql: &str) -> Result<String> {
        let (psql, sql) = (self.psql.clone(), sql.to_owned());
        blocking(move || Ok(psql.run(&sql)?.trim().to_owned())).await
    }

    /// Says what to try while everything is running.
    pub(crate) fn invite(&self, receiver: &Receiver, id: &str) -> Result<()> {
        // Marked, so that the shell that reads it in can run another demo afterwards.
        let env = self.dir.path().join("env");
        let variables = [
            ("DATABASE_URL", self.database_url.clone()),
            ("NATS_URL", self.nats_url.clone()),
            ("HOOKLANE_CONFIG", shown(&self.config)),
        ];
        std::fs::write(&env, exports(&variables)).context("writing the environment")?;
        let (program, env) = (shown(&self.program), shown(&env));
        eprintln!(
            "\n── everything keeps running; Ctrl-C ends it\n\n\
             . '{env}'\n\
             alias hooklane='{program}'\n\n\
             hooklane message show {id}\n\
             hooklane endpoint list\n\
             hooklane delivery list --consumer acme\n\
             nats sub 'deliveries.>' &\n\
             nats pub -J intake.acme.order.paid '{{\"order\": \"from nats\"}}'\n\
             psql \"$DATABASE_URL\" -c 'TABLE hooklane.attempts'\n\
             hooklane endpoint add globex {} --event-type '*'\n\n\
             the log is in {}, the receiver answers at http://{}/",
            receiver.url("/globex/second"),
            shown(&self.log),
            receiver.address(),
        );
        Ok(())
    }

    /// Ends the process as an operator would, and checks that it went in good order.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let pid = self.up.id().context("hooklane has ended by itself")?;
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM).context("stopping hooklane")?;
        let status = tokio::time::timeout(STOP_WITHIN, self.up.wait())
            .await
            .context("hooklane did not stop in time")??;
        ensure!(status.success(), "hooklane ended with {status}");
        to_stderr(&format!("cleaning up {}", self.dir.path().display()));
        Ok(())
    }
}

/// Starts a service that writes its log behind what is there.
fn spawn(mut command: Command, log: &Path) -> Result<Child> {
    let file = std::fs::File::options().create(true).append(true).open(log);
    command
        .stderr(file.context("making the log file")?)
        .spawn()
        .context("starting hooklane")
}

/// Our program on these servers, without what the shell read in to reach those of an earlier run.
fn command_of_ours(
    program: &Path,
    config: &Path,
    database_url: &str,
    nats_url: &str,
    words: &[&str],
) -> Command {
    let mut command = Command::new(program);
    for (name, _) in inherited() {
        command.env_remove(name);
    }
    command
        .arg("--config")
        .arg(config)
        .args(words)
        .env("DATABASE_URL", database_url)
        .env("NATS_URL", nats_url)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// A database for the demo alone, made anew on whichever server is used.
fn own_database(bin: &Path, server: &str) -> Result<String> {
    let psql = Psql::new(bin, server);
    psql.run(&format!("DROP DATABASE IF EXISTS {DATABASE}"))?;
    psql.run(&format!("CREATE DATABASE {DATABASE}"))?;
    let mut url = url::Url::parse(server).context("reading the database's URL")?;
    url.set_path(DATABASE);
    Ok(url.into())
}

/// Deliveries to this machine, and a schedule that fits a demo.
fn config_text(health: SocketAddr, api: SocketAddr) -> String {
    let key = STANDARD.encode(rand::random::<[u8; 32]>());
    format!(
        r#"[secrets]
master_keys = [{{ id = "demo", key = "{key}" }}]

[addresses]
allow_http = true
allow_cidrs = ["127.0.0.0/8"]

[retry]
delays = ["1s", "2s", "4s", "8s"]
jitter = 0.0

[health]
listen = "{health}"

[api]
listen = "{api}"
"#
    )
}

pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, hooklane_local::free_port()?).into())
}

async fn is_ready(health: SocketAddr) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(health).await?;
        let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer.starts_with(b"HTTP/1.1 200"))
    };
    ask.await.unwrap_or(false)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
