//! `cargo xtask demo wipe`: under load, everything that JetStream keeps is deleted, and everything
//! accepted is delivered all the same.
//!
//! The load test's shape `wipe` does it and checks it; this sets up and builds what that needs.

use anyhow::Result;

use super::step;
use crate::environment;
use crate::process::{self, Profile};

pub(super) async fn run() -> Result<()> {
    environment::setup().await?;
    step("build hooklane and the load test");
    let programs = process::build(&["hooklane", "loadtest"], Profile::Dev).await?;
    step("write events, delete the JetStream store under load, and wait for every delivery");
    let mut loadtest = process::program(programs.join("loadtest"));
    loadtest
        .args(["run", "--shape", "wipe", "--binary"])
        .arg(programs.join("hooklane"));
    process::run(loadtest).await
}
