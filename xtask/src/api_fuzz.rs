//! `cargo xtask api-fuzz`: requests made up from the OpenAPI document, good and bad ones, and every
//! answer held against it: no fault of the server, nothing that the document does not say.
//!
//! schemathesis makes and checks the requests; this installs it below `.hooklane/`, starts an API with
//! nothing behind it that would deliver to the addresses that are made up, and makes a key. The number of requests is bounded, and a seed gives the same ones.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::environment::dot_hooklane;
use crate::process;
use crate::system::System;

/// The version that is installed.
const VERSION: &str = "4.32.5";

/// What is not on its command line, from the workspace's root.
const CONFIG: &str = "services/api/tests/schemathesis.toml";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Requests made up for each operation.
    #[arg(long, default_value_t = Args::default().examples)]
    examples: u32,
    /// What they are drawn from.
    #[arg(long, default_value_t = Args::default().seed)]
    seed: u64,
    /// Keep this many connections busy.
    #[arg(long, default_value_t = Args::default().workers)]
    workers: u32,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            examples: 20,
            seed: 1,
            workers: 1,
        }
    }
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    run_with(&installed().await?, args).await
}

/// schemathesis, installed where it is not there yet.
///
/// # Errors
/// Where it can't be, with what to install first.
pub(crate) async fn installed() -> Result<PathBuf> {
    let home = dot_hooklane().join(format!("schemathesis-{VERSION}"));
    let program = home.join("bin/schemathesis");
    let mut asked = process::program(&program);
    asked.arg("--version");
    if process::succeeds(asked).await {
        return Ok(program);
    }
    hooklane_local::to_stderr("installing schemathesis");
    let mut venv = process::program("python3");
    venv.args(["-m", "venv", "--clear"]).arg(&home);
    process::run(venv)
        .await
        .context("schemathesis needs Python 3.10 or later: apt-get install python3 python3-venv")?;
    let mut pip = process::program(home.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"])
        .arg(format!("schemathesis=={VERSION}"));
    process::run(pip)
        .await
        .context("installing schemathesis from PyPI")?;
    Ok(program)
}

/// Starts everything, and lets `program` ask.
pub(crate) async fn run_with(program: &Path, args: &Args) -> Result<()> {
    let system = System::start_api().await?;
    for words in [
        &["consumer", "add", "acme"][..],
        &["event-type", "add", "invoice.paid"],
    ] {
        system.hooklane(words).await?;
    }
    let words = ["api-key", "create", "--name", "fuzzing", "--scope", "admin"];
    let made = system.hooklane_json(&words).await?;
    let key = made["key"].as_str().context("the key has no text")?;
    let asked = process::run(asking(program, args, &system, key)).await;
    asked.context("the API and its document differ")?;
    check_ready(&system).await?;
    system.stop().await
}

fn asking(program: &Path, args: &Args, system: &System, key: &str) -> tokio::process::Command {
    let mut command = process::program(program);
    command
        // It keeps what it found where it runs.
        .current_dir(dot_hooklane())
        .arg("--config-file")
        .arg(process::workspace().join(CONFIG))
        .arg("run")
        .arg(format!("http://{}/openapi.json", system.api()))
        .args(["--checks", "all"])
        .args(["--max-examples", &args.examples.to_string()])
        .args(["--seed", &args.seed.to_string()])
        .args(["--workers", &args.workers.to_string()])
        .args(["--request-timeout", "20"])
        // Not on the command line, where others see it.
        .env("HOOKLANE_API_KEY", key);
    command
}

/// It still does its work: a message goes in and is found.
async fn check_ready(system: &System) -> Result<()> {
    let types: Value = system.hooklane_json(&["event-type", "list"]).await?;
    anyhow::ensure!(
        types["event_types"].is_array(),
        "the ledger is not as it was"
    );
    Ok(())
}
