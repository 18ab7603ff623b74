//! Runs programs so that none outlives the task.
//!
//! Each runs in a process group of its own. When the task is interrupted the group is asked to
//! end, and killed if it doesn't: cargo, the test programs below it and all.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::process::Command;

const GRACE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// The workspace's root.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}

/// A program to be run at the workspace's root.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(workspace());
    command
}

/// Cargo, the one that runs us. It builds with the checked-in query data, whatever database the
/// environment names: that one is for tests, and has no schema yet.
///
/// What cargo tells us of our own package is taken out: build scripts that look at these names
/// (`ring` has one) would run anew whenever a build from here follows one from a shell, and with them
/// everything above.
pub(crate) fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = program(cargo);
    command
        .env("SQLX_OFFLINE", "true")
        .env_remove("SQLX_OFFLINE_DIR")
        .env_remove("DATABASE_URL")
        .env_remove("NATS_URL");
    for (name, _) in hooklane_local::inherited() {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        let ours = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if name
            .to_str()
            .is_some_and(|name| ours.iter().any(|prefix| name.starts_with(prefix)))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Builds programs of the workspace; returns where they are.
pub(crate) async fn build(packages: &[&str], profile: Profile) -> Result<PathBuf> {
    let mut build = cargo();
    build.arg("build");
    for package in packages {
        build.args(["--package", package]);
    }
    let folder = match profile {
        Profile::Dev => "debug",
        Profile::Release => {
            build.arg("--release");
            "release"
        }
    };
    run(build).await?;
    Ok(target()?.join(folder))
}

/// How programs are built.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Profile {
    /// As tests are.
    Dev,
    /// Optimised.
    Release,
}

/// Cargo's target directory: this program is in a directory of it, and a test of it in `deps` of that.
pub(crate) fn target() -> Result<PathBuf> {
    let here = std::env::current_exe().context("looking for what was built")?;
    let is_above = |path: &&Path| !path.ends_with("deps");
    let target = here.ancestors().skip(1).filter(is_above).nth(1);
    Ok(target.map_or_else(|| workspace().join("target"), Path::to_path_buf))
}

/// Runs `command`, its output going where ours goes.
pub(crate) async fn run(mut command: Command) -> Result<()> {
    let shown = shown(&command);
    command.stdin(Stdio::null()).process_group(0);
    let mut child = command
        .spawn()
        .with_context(|| format!("running {shown}"))?;
    let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()));
    let status = child
        .wait()
        .await
        .with_context(|| format!("waiting for {shown}"))?;
    group.0 = None;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Whether `command` runs and succeeds; its output is dropped.
pub(crate) async fn succeeds(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .is_ok_and(|status| status.success())
}

fn shown(command: &Command) -> String {
    let command = command.as_std();
    let name = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    let mut shown = name.to_string_lossy().into_owned();
    for arg in command.get_args() {
        shown.push(' ');
        shown.push_str(&arg.to_string_lossy());
    }
    shown
}

/// The process group of a running child, ended when dropped.
struct Group(Option<i32>);

impl Drop for Group {
    fn drop(&mut self) {
        let Some(leader) = self.0.map(Pid::from_raw) else {
            return;
        };
        let _ = killpg(leader, Signal::SIGTERM);
        let until = Instant::now() + GRACE;
        loop {
            // The leader stays in its group until it is reaped.
            let _ = waitpid(leader, Some(WaitPidFlag::WNOHANG));
            match killpg(leader, None) {
                Err(Errno::ESRCH) => return,
                _ if Instant::now() >= until => break,
                _ => thread::sleep(POLL),
            }
        }
        let _ = killpg(leader, Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_target_directory_is_found_from_a_test() {
        // Not by the tag in it: cargo leaves that out of a directory that was there before.
        let here = std::env::current_exe().unwrap();
        let below = here.strip_prefix(target().unwrap()).unwrap();
        let folders: Vec<_> = below.parent().unwrap().iter().collect();
        assert!(
            matches!(folders[..], [_profile, deps] if deps == "deps"),
            "{below:?}"
        );
    }
}
