//! `loadtest run` and `loadtest faults`: read the command line, run one shape of load or some seeds
//! of faults, print what they found.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use loadtest::faults;
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
    /// Starts a whole hooklane of several processes, puts load on it, breaks processes, servers,
    /// links and endpoints on a schedule that a seed gives, and audits every invariant afterwards.
    ///
    /// Exit codes: 0 when no invariant is broken, 1 when one is, 64 for bad usage, 70 when a run
    /// could not be finished.
    Faults(FaultsArgs),
}

#[derive(Debug, Args)]
struct FaultsArgs {
    /// What the schedule is drawn from; by chance unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds to run, one after the other, counting up from the first.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: u64,
    /// How long load and faults go on, in minutes.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Events a second.
    #[arg(long)]
    rate: Option<f64>,
    /// How long everything may take to be settled after the last fault, in seconds.
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    settle_within: u64,
    /// The hooklane binary; the release build of this checkout unless given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Where logs are kept, in a directory for each seed in which something is wrong.
    #[arg(long)]
    logs: Option<PathBuf>,
    /// Keep the logs in any case.
    #[arg(long)]
    keep_logs: bool,
    /// Streams are full now and then, too; a seed gives another schedule with it.
    #[arg(long)]
    full_stream: bool,
    /// Only print the schedules.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object for each seed in place of text.
    #[arg(long)]
    json: bool,
}

impl FaultsArgs {
    fn options(self) -> Result<Vec<faults::Options>> {
        let first = self
            .seed
            .unwrap_or_else(|| u64::from(rand::random::<u32>()));
        let mut options = faults::Options::of(first);
        let positive = |number: f64| number.is_finite() && number > 0.0;
        ensure!(
            positive(self.minutes) && self.minutes <= 60.0,
            "--minutes must be above 0 and at most 60"
        );
        options.length = Duration::from_secs_f64(self.minutes * 60.0);
        if let Some(rate) = self.rate {
            ensure!(
                positive(rate) && rate <= 1_000.0,
                "--rate must be above 0 and at most 1,000"
            );
            options.rate = rate;
        }
        options.settle_within = Duration::from_secs(self.settle_within);
        options.binary = self.binary.unwrap_or(options.binary);
        options.logs = self.logs.unwrap_or(options.logs);
        options.keep_logs = self.keep_logs;
        options.full_stream = self.full_stream;
        let seeds = (0..self.seeds).map(|n| faults::Options {
            seed: first.wrapping_add(n),
            ..options.clone()
        });
        Ok(seeds.collect())
    }
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
    let (json, work) = match cli.command {
        Command::Run(args) => (args.json, args.options().map(Work::Shape)),
        Command::Faults(args) if args.dry_run => (args.json, args.options().map(Work::Plans)),
        Command::Faults(args) => (args.json, args.options().map(Work::Faults)),
    };
    let done = match work {
        Ok(work) => run_to_the_end(&work, json),
        Err(error) => {
            eprintln!("loadtest: {error:#}");
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("loadtest: {error:#}");
            ExitCode::from(70)
        }
    }
}

/// What was asked for.
enum Work {
    Shape(Options),
    Faults(Vec<faults::Options>),
    /// Only the schedules.
    Plans(Vec<faults::Options>),
}

/// Whether nothing is wrong.
fn run_to_the_end(work: &Work, json: bool) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("making the runtime")?;
    let progress = Progress::begin();
    let done = runtime.block_on(async {
        let cancelled = CancellationToken::new();
        tokio::spawn({
            let cancelled = cancelled.clone();
            async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    cancelled.cancel();
                }
            }
        });
        // Boxed: the futures hold a whole run.
        match work {
            Work::Shape(options) => {
                let report = Box::pin(run::run(options, &progress, &cancelled)).await?;
                progress.end();
                print(&report, json, || report.text())?;
                Ok(report.is_good())
            }
            Work::Plans(seeds) => {
                progress.end();
                for options in seeds {
                    let plan = faults::plan(options);
                    print(&plan, json, || plan.clone())?;
                }
                Ok(true)
            }
            Work::Faults(seeds) => Box::pin(run_seeds(seeds, &progress, &cancelled, json)).await,
        }
    });
    progress.end();
    done
}

/// Runs every seed, also after one failed, and says at the end which did.
async fn run_seeds(
    seeds: &[faults::Options],
    progress: &Progress,
    cancelled: &CancellationToken,
    json: bool,
) -> Result<bool> {
    let mut again = Vec::new();
    for options in seeds {
        let report = faults::run(options, progress, cancelled)
            .await
            .with_context(|| format!("seed {}", options.seed))?;
        print(&report, json, || report.text())?;
        if !report.is_good() {
            again.push(report.again);
        }
    }
    if seeds.len() > 1 || !again.is_empty() {
        progress.step(&format!(
            "{} of {} seeds broke an invariant",
            again.len(),
            seeds.len()
        ));
    }
    for again in &again {
        progress.step(&format!("run it again: {again}"));
    }
    Ok(again.is_empty())
}

fn print(report: &impl serde::Serialize, json: bool, text: impl Fn() -> String) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, report).context("printing the report")?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text())?;
    }
    Ok(())
}
