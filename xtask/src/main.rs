//! The workspace's tasks: `cargo xtask <task>`.
//!
//! Owns how the project is set up, checked and tested; knows nothing of what Hooklane does.
//! Whatever ends a task, an interrupt too, ends the servers and programs that it started.

#![allow(
    clippy::disallowed_methods,
    reason = "times steps and reads the environment that cargo gives it"
)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

mod api_fuzz;
mod ci;
mod demo;
mod environment;
mod faults;
mod fences;
mod process;
mod sqlx;
mod suite;
mod system;

/// As a shell reports a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;
/// How long a blocking step, such as an installation, may take to notice an interrupt.
const LEAVE: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Hooklane's tasks", version)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Find nats-server, the nats command and PostgreSQL, and install what is missing.
    Setup,
    /// Set up, send real webhooks, and show what happened.
    Demo(demo::Args),
    /// Run the tests, with servers of their own.
    Test(suite::Args),
    /// Break a whole Hooklane under load in every way, and audit that nothing is lost.
    Faults(faults::Args),
    /// Hold the REST API against its own OpenAPI document with generated requests (schemathesis).
    ApiFuzz(api_fuzz::Args),
    /// Run the whole gate: formatting, lints, docs, fences, SQL data, licences, tests, faults.
    Ci,
    /// Write the query data in `.sqlx` from the queries and the migrations.
    SqlxPrepare {
        /// Only compare it with what is checked in.
        #[arg(long)]
        check: bool,
    },
    /// Check which crate may depend on what.
    Fences,
}

async fn run(task: Task) -> Result<()> {
    match task {
        Task::Setup => environment::setup().await,
        Task::Demo(args) => demo::run(&args).await,
        Task::Test(args) => suite::run(&args).await,
        Task::Faults(args) => faults::run(&args).await,
        Task::ApiFuzz(args) => api_fuzz::run(&args).await,
        Task::Ci => ci::run().await,
        Task::SqlxPrepare { check: false } => sqlx::prepare().await,
        Task::SqlxPrepare { check: true } => sqlx::check().await,
        Task::Fences => fences::run().await,
    }
}

/// Returns the name of the first signal that asks us to go.
async fn interrupted() -> Result<&'static str> {
    let listen = |kind| signal(kind).context("listening for signals");
    let (mut int, mut term, mut hup) = (
        listen(SignalKind::interrupt())?,
        listen(SignalKind::terminate())?,
        listen(SignalKind::hangup())?,
    );
    Ok(tokio::select! {
        _ = int.recv() => "SIGINT",
        _ = term.recv() => "SIGTERM",
        _ = hup.recv() => "SIGHUP",
    })
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("xtask: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(async {
        // Dropping the task's future drops what it holds: programs first, then their servers.
        tokio::select! {
            ended = run(cli.task) => match ended {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("xtask: {error:#}");
                    ExitCode::FAILURE
                }
            },
            signal = interrupted() => match signal {
                Ok(signal) => {
                    eprintln!("xtask: {signal}: cleaned up");
                    ExitCode::from(INTERRUPTED)
                }
                Err(error) => {
                    eprintln!("xtask: {error:#}");
                    ExitCode::FAILURE
                }
            },
        }
    });
    runtime.shutdown_timeout(LEAVE);
    code
}
