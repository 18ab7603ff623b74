//! `cargo xtask faults`: a whole Hooklane of several processes under load, broken in every way on a
//! schedule that a seed gives; then every invariant is audited.
//!
//! The load test does it and checks it; this sets up and builds what that needs. `--broken` is the
//! proof that it notices: three builds that are broken on purpose must each fail it. The tests here
//! are the same proof, one build each; they are ignored unless asked for.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::environment;
use crate::process::{self, Profile};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the schedule is drawn from; by chance unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds to run, one after the other, counting up from the first.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// How long load and faults go on, in minutes, for each seed.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Streams are full now and then, too; a seed gives another schedule with it.
    #[arg(long)]
    full_stream: bool,
    /// Build without optimisation, as tests are built.
    #[arg(long)]
    dev: bool,
    /// Print one JSON object for each seed in place of text.
    #[arg(long)]
    json: bool,
    /// Prove that the suite notices: run it on three builds that are broken on purpose.
    #[arg(long, exclusive = true)]
    broken: bool,
}

/// What the gate runs: a seed whose first faults are of many kinds, on the build that the tests left.
pub(crate) const GATE: Args = Args {
    seed: Some(GATE_SEED),
    seeds: 1,
    minutes: 0.6,
    full_stream: false,
    dev: true,
    json: false,
    broken: false,
};
const GATE_SEED: u64 = 7;

/// What a run needs: the suite, and what it breaks.
const PROGRAMS: [&str; 2] = ["hooklane", "loadtest"];

pub(crate) async fn run(args: &Args) -> Result<()> {
    environment::setup().await?;
    if args.broken {
        return prove(&[ACK_FIRST, NO_SWEEP, NO_LEASE_CHECK]).await;
    }
    let profile = match args.dev {
        true => Profile::Dev,
        false => Profile::Release,
    };
    let programs = process::build(&PROGRAMS, profile).await?;
    let mut loadtest = process::program(programs.join("loadtest"));
    loadtest
        .args(["faults", "--binary"])
        .arg(programs.join("hooklane"))
        .args(["--minutes", &args.minutes.to_string()])
        .args(["--seeds", &args.seeds.to_string()]);
    if let Some(seed) = args.seed {
        loadtest.args(["--seed", &seed.to_string()]);
    }
    if args.full_stream {
        loadtest.arg("--full-stream");
    }
    if args.json {
        loadtest.arg("--json");
    }
    process::run(loadtest).await
}

/// A way of being broken, and how the suite notices.
struct Proof {
    /// How `HOOKLANE_BROKEN` names it.
    broken: &'static str,
    /// A seed whose first faults bring it to light.
    seed: u64,
    minutes: f64,
    /// At least one of these invariants must be broken.
    invariants: &'static [&'static str],
}

/// Dispatchers are killed.
const ACK_FIRST: Proof = Proof {
    broken: "ack-first",
    seed: 9,
    minutes: 0.6,
    invariants: &["I4", "I5"],
};
/// The JetStream store is wiped at once.
const NO_SWEEP: Proof = Proof {
    broken: "no-sweep",
    seed: 2,
    minutes: 0.2,
    invariants: &["I1"],
};
/// A dispatcher is suspended, and cut off, for longer than its leases last.
const NO_LEASE_CHECK: Proof = Proof {
    broken: "no-lease-check",
    seed: 1,
    minutes: 0.7,
    invariants: &["I2", "I4"],
};

/// Runs the suite on these broken builds; fails where it does not notice one as it should.
async fn prove(proofs: &[Proof]) -> Result<()> {
    let programs = process::build(&PROGRAMS, Profile::Dev).await?;
    let broken = build_broken().await?;
    let mut wrong = Vec::new();
    for proof in proofs {
        eprintln!("\n── {}", proof.broken);
        match noticed(proof, &programs, &broken).await {
            Ok(breaches) => eprintln!("noticed: {}", breaches.join("; ")),
            Err(error) => wrong.push(format!("{}: {error:#}", proof.broken)),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Builds the broken program beside the others: what it is made of is shared with them, where cargo
/// can do that (since 1.91).
async fn build_broken() -> Result<PathBuf> {
    let (target, apart) = (process::target()?, process::target()?.join("broken"));
    let mut build = process::cargo();
    build
        .args(["build", "--package", "hooklane"])
        .args(["--features", "hooklane-core/broken", "--target-dir"])
        .arg(&apart);
    if std::env::var_os("CARGO_BUILD_BUILD_DIR").is_none() {
        build.env("CARGO_BUILD_BUILD_DIR", target);
    }
    process::run(build).await?;
    Ok(apart.join("debug/hooklane"))
}

/// Runs the suite on a broken build; gives what it found, if that is what it should have.
async fn noticed(proof: &Proof, programs: &Path, binary: &Path) -> Result<Vec<String>> {
    let mut loadtest: Command = process::program(programs.join("loadtest"));
    loadtest
        .args(["faults", "--json", "--settle-within", "45", "--binary"])
        .arg(binary)
        .args(["--seed", &proof.seed.to_string()])
        .args(["--minutes", &proof.minutes.to_string()])
        .env("HOOKLANE_BROKEN", proof.broken)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let output = loadtest.output().await.context("running the load test")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.code() == Some(1),
        "the suite ended with {} and not with 1: {text}",
        output.status
    );
    let report: Value = serde_json::from_str(&text).context("reading the report")?;
    let breaches = report["breaches"].as_array().into_iter().flatten();
    let breaches: Vec<String> = breaches
        .filter_map(|breach| breach.as_str().map(str::to_owned))
        .collect();
    let is_right = |breach: &String| {
        let named = |id: &&str| breach.contains(&format!("({id})"));
        proof.invariants.iter().any(named)
    };
    ensure!(
        breaches.iter().any(is_right),
        "none of {:?} is among the breaches: {}",
        proof.invariants,
        breaches.join("; ")
    );
    Ok(breaches)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A debug build under load and faults: one at a time is as much as a small machine can take.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    async fn is_noticed(proof: Proof) {
        let _turn = TURN.lock().await;
        environment::setup().await.unwrap();
        prove(&[proof]).await.unwrap();
    }

    #[tokio::test]
    #[ignore = "builds and runs a broken hooklane, which takes minutes"]
    async fn the_suite_notices_a_build_that_acknowledges_before_it_records() {
        is_noticed(ACK_FIRST).await;
    }

    #[tokio::test]
    #[ignore = "builds and runs a broken hooklane, which takes minutes"]
    async fn the_suite_notices_a_build_that_does_not_look_for_what_the_broker_lost() {
        is_noticed(NO_SWEEP).await;
    }

    #[tokio::test]
    #[ignore = "builds and runs a broken hooklane, which takes minutes"]
    async fn the_suite_notices_a_build_that_does_not_ask_whether_its_lease_holds() {
        is_noticed(NO_LEASE_CHECK).await;
    }
}
