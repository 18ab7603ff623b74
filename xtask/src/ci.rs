//! `cargo xtask ci`: the whole gate.
//!
//! Every step runs, also after one failed, and the summary names what each did and how long it
//! took. A check whose tool is missing is reported where it would have run and again at the end.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::process::Command;

use crate::process::{self, cargo, program, succeeds};
use crate::{api_fuzz, faults, fences, sqlx, suite};

#[derive(Debug)]
enum Outcome {
    Passed,
    Failed(String),
    /// A tool is missing; the text is how to get it.
    NotAvailable(String),
}

#[derive(Debug, Default)]
struct Gate {
    steps: Vec<(&'static str, Outcome, Duration)>,
}

impl Gate {
    async fn step(&mut self, name: &'static str, work: impl Future<Output = Result<Outcome>>) {
        println!("\n== {name}");
        let started = Instant::now();
        let outcome = work
            .await
            .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        let took = started.elapsed();
        println!(
            "== {name}: {} ({:.1} s)",
            outcome.word(),
            took.as_secs_f64()
        );
        if let Outcome::Failed(text) | Outcome::NotAvailable(text) = &outcome {
            println!("{text}");
        }
        self.steps.push((name, outcome, took));
    }

    fn summary(&self) -> String {
        let mut text = String::from("\n== summary\n");
        for (name, outcome, took) in &self.steps {
            let _ = writeln!(
                text,
                "{:<15} {:>7.1} s  {name}",
                outcome.word(),
                took.as_secs_f64()
            );
            if let Outcome::Failed(more) | Outcome::NotAvailable(more) = outcome {
                for line in more.lines() {
                    let _ = writeln!(text, "{:>27}{line}", "");
                }
            }
        }
        text
    }

    fn failed(&self) -> Vec<&'static str> {
        self.steps
            .iter()
            .filter(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)))
            .map(|(name, ..)| *name)
            .collect()
    }
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed(_) => "FAILED",
            Self::NotAvailable(_) => "not available",
        }
    }
}

pub(crate) async fn run() -> Result<()> {
    let mut gate = Gate::default();
    gate.step("formatting", passes(fmt())).await;
    gate.step("fences", check(fences::run())).await;
    gate.step("query data", check(sqlx::check())).await;
    gate.step("lints", passes(clippy())).await;
    gate.step("documentation", passes(doc())).await;
    gate.step("licences, bans and sources", deny()).await;
    gate.step("advisories", advisories()).await;
    gate.step("compose file", compose()).await;
    gate.step("tests", check(suite::run(&suite::Args::default())))
        .await;
    gate.step("api fuzzing", api_fuzz()).await;
    gate.step("faults", check(faults::run(&faults::GATE))).await;
    println!("{}", gate.summary());
    let failed = gate.failed();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("; "));
    }
    Ok(())
}

async fn api_fuzz() -> Result<Outcome> {
    match api_fuzz::installed().await {
        Ok(program) => check(api_fuzz::run_with(&program, &api_fuzz::Args::default())).await,
        Err(error) => Ok(Outcome::NotAvailable(format!("{error:#}"))),
    }
}

async fn check(work: impl Future<Output = Result<()>>) -> Result<Outcome> {
    work.await.map(|()| Outcome::Passed)
}

async fn passes(command: Command) -> Result<Outcome> {
    check(process::run(command)).await
}

fn fmt() -> Command {
    let mut command = cargo();
    command.args(["fmt", "--all", "--check"]);
    command
}

fn clippy() -> Command {
    let mut command = cargo();
    command.args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--keep-going",
    ]);
    command.args(["--", "-D", "warnings"]);
    command
}

fn doc() -> Command {
    let mut command = cargo();
    command
        .args([
            "doc",
            "--workspace",
            "--no-deps",
            "--locked",
            "--keep-going",
        ])
        .env("RUSTDOCFLAGS", "-D warnings");
    command
}

async fn has_deny() -> bool {
    let mut version = cargo();
    version.args(["deny", "--version"]);
    succeeds(version).await
}

fn no_deny() -> Outcome {
    Outcome::NotAvailable("fix: cargo install cargo-deny --locked".to_owned())
}

async fn deny() -> Result<Outcome> {
    if !has_deny().await {
        return Ok(no_deny());
    }
    let mut command = cargo();
    command.args(["deny", "check", "licenses", "bans", "sources"]);
    passes(command).await
}

async fn advisories() -> Result<Outcome> {
    if !has_deny().await {
        return Ok(no_deny());
    }
    let mut fetch = cargo();
    fetch.args(["deny", "fetch", "db"]);
    if !succeeds(fetch).await {
        let text = "the advisory database can't be fetched; fix: run this with network access";
        return Ok(Outcome::NotAvailable(text.to_owned()));
    }
    let mut command = cargo();
    command.args(["deny", "check", "--disable-fetch", "advisories"]);
    passes(command).await
}

async fn compose() -> Result<Outcome> {
    for (name, first) in [("docker", Some("compose")), ("docker-compose", None)] {
        let with = |args: &[&str]| {
            let mut command = program(name);
            command.args(first).args(args);
            command
        };
        if succeeds(with(&["version"])).await {
            return passes(with(&["--file", "compose.yaml", "config", "--quiet"])).await;
        }
    }
    let text = "fix: install Docker's compose plugin, or docker-compose";
    Ok(Outcome::NotAvailable(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_repeats_what_failed_and_what_was_not_available() {
        let gate = Gate {
            steps: vec![
                ("one", Outcome::Passed, Duration::from_millis(1_500)),
                ("two", Outcome::Failed("because".to_owned()), Duration::ZERO),
                (
                    "three",
                    Outcome::NotAvailable("fix: this".to_owned()),
                    Duration::ZERO,
                ),
            ],
        };
        let summary = gate.summary();
        for part in [
            "ok",
            "1.5 s  one",
            "FAILED",
            "because",
            "not available",
            "fix: this",
        ] {
            assert!(summary.contains(part), "{part} in {summary}");
        }
        assert_eq!(gate.failed(), ["two"]);
    }
}
