//! `loadtest run`: reads the command line, runs one shape, prints what it found.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use loadtest::progress::Progress;
use loadtest::run::{self, Options};
use loadtest::shape::{Numbers, Shape};
use loadtest::system::{Profile, Tuning, workspace};
use tokio_util::sync::CancellationToken;

/// Measures and verifies a whole Hooklane on this machine.
#[derive(Debug, Parser)]
#[command(name = "loadtest", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a private nats-server, PostgreSQL and hooklane, puts one shape of load on them,
    /// verifies every delivery and reports.
    ///
    /// Exit codes: 0 when nothing is wrong and every goal is met, 1 when not, 64 for bad usage,
    /// 70 when the run could not be finished.
    Run(RunArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// What kind of load.
    #[arg(long, value_enum)]
    shape: Shape,
    /// Events of each measured phase.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    events: Option<u32>,
    /// Events a second; 0 is as fast as the database takes them.
    #[arg(long)]
    rate: Option<f64>,
    /// Outbox rows of one transaction.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rows: Option<u32>,
    /// Consumers.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    consumers: Option<u32>,
    /// Endpoints of each consumer.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    endpoints_each: Option<u32>,
    /// Events before anything is measured.
    #[arg(long)]
    warm_up: Option<u32>,
    /// Bytes of one payload.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..=262_144))]
    payload: u32,
    /// How long hanging endpoints hang before they answer, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    hang: u64,
    /// How long a backlog is held before its endpoint recovers, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    hold: u64,
    /// Whether PostgreSQL's commits wait for the disk.
    #[arg(long, value_enum, default_value_t = Profile::Durable)]
    profile: Profile,
    /// Verify every n-th request byte by byte, its signature included.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    verify_every: u64,
    /// The hooklane binary; the release build of this checkout unless given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// A setting of hooklane's, such as `recorder.linger="20ms"`, in TOML; may be given several
    /// times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Keep the logs, the configuration and the time of each delivery in this directory.
    #[arg(long)]
    keep_logs: Option<PathBuf>,
    /// Print one JSON object in place of tables.
    #[arg(long)]
    json: bool,
}

impl RunArgs {
    fn options(self) -> Result<Options> {
        let defaults = self.shape.defaults();
        let rate = match self.rate {
            None => defaults.rate,
            Some(0.0) => None,
            Some(rate) => {
                ensure!(
                    rate.is_finite() && rate > 0.0,
                    "--rate must be a positive number, or 0 for no limit"
                );
                Some(rate)
            }
        };
        let numbers = Numbers {
            consumers: self.consumers.unwrap_or(defaults.consumers),
            endpoints_each: self.endpoints_each.unwrap_or(defaults.endpoints_each),
            events: self.events.unwrap_or(defaults.events),
            rate,
            rows: self.rows.unwrap_or(defaults.rows),
            warm_up: self.warm_up.unwrap_or(defaults.warm_up),
        };
        if self.shape == Shape::Backlog {
            ensure!(
                (numbers.consumers, numbers.endpoints_each) == (2, 1),
                "the backlog shape has two consumers of one endpoint each"
            );
        }
        let mut tuning = Tuning::default();
        for setting in &self.settings {
            let (key, value) = setting
                .split_once('=')
                .context("--set takes KEY=VALUE, the value as in TOML")?;
            tuning = tuning.set(key, value);
        }
        Ok(Options {
            shape: self.shape,
            numbers,
            payload: self.payload as usize,
            hang: Duration::from_secs(self.hang),
            hold: Duration::from_secs(self.hold),
            binary: self
                .binary
                .unwrap_or_else(|| workspace().join("target/release/hooklane")),
            profile: self.profile,
            tuning,
            verify_every: self.verify_every,
            keep_logs: self.keep_logs,
        })
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { 64 } else { 0 };
            // Nobody is left to tell where standard error is closed.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let Command::Run(args) = cli.command;
    let json = args.json;
    let options = match args.options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("loadtest: {error:#}");
            return ExitCode::from(64);
        }
    };
    match run_to_the_end(&options, json) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("loadtest: {error:#}");
            ExitCode::from(70)
        }
    }
}

fn run_to_the_end(options: &Options, json: bool) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("making the runtime")?;
    let progress = Progress::begin();
    let report = runtime.block_on(async {
        let cancelled = CancellationToken::new();
        tokio::spawn({
            let cancelled = cancelled.clone();
            async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    cancelled.cancel();
                }
            }
        });
        // Boxed: the future holds a whole run.
        Box::pin(run::run(options, &progress, &cancelled)).await
    });
    progress.end();
    let report = report?;
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, &report).context("printing the report")?;
        writeln!(out)?;
    } else {
        write!(out, "{}", report.text())?;
    }
    Ok(report.is_good())
}
