//! Single SQL commands by `psql`, for set-up only: making databases and roles.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Doing, Error};

/// A database to which commands go by way of `psql`.
#[derive(Clone)]
pub struct Psql {
    program: PathBuf,
    /// The connection URL without its password, since every user can read command lines.
    url: String,
    password: Option<String>,
}

// By hand, since the password must not be printed.
impl std::fmt::Debug for Psql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Psql")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Psql {
    /// Commands to the database at `url`, by the `psql` in `bin`.
    #[must_use]
    pub fn new(bin: &Path, url: &str) -> Self {
        let (url, password) = split_password(url);
        Self {
            program: bin.join("psql"),
            url,
            password,
        }
    }

    /// Runs `sql` and returns its rows, one a line, columns separated by `|`.
    ///
    /// # Errors
    ///
    /// When psql can't be run, can't connect, or the command fails.
    pub fn run(&self, sql: &str) -> Result<String, Error> {
        self.psql(&["-c", sql])
    }

    /// Runs the file at `path` in one transaction.
    ///
    /// # Errors
    ///
    /// As [`Psql::run`].
    pub fn run_file(&self, path: &Path) -> Result<(), Error> {
        let path = path.display().to_string();
        self.psql(&["-1", "-f", &path]).map(drop)
    }

    /// Runs the file at `path`, each statement in a transaction of its own.
    ///
    /// # Errors
    ///
    /// As [`Psql::run`].
    pub fn run_file_bare(&self, path: &Path) -> Result<(), Error> {
        let path = path.display().to_string();
        self.psql(&["-f", &path]).map(drop)
    }

    fn psql(&self, args: &[&str]) -> Result<String, Error> {
        let mut command = Command::new(&self.program);
        command
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                &self.url,
            ])
            .args(args)
            .env("PGCONNECT_TIMEOUT", "10")
            .env("PGOPTIONS", "-c client_min_messages=warning")
            .stdin(Stdio::null());
        if let Some(password) = &self.password {
            command.env("PGPASSWORD", password);
        }
        let output = command
            .output()
            .doing(|| format!("running {}", self.program.display()))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout)
                .trim_end()
                .to_owned())
        } else {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(Error::Sql(text.trim_end().to_owned()))
        }
    }
}

/// `url` with another database.
#[must_use]
pub fn with_database(url: &str, database: &str) -> String {
    let (base, query) = match url.split_once('?') {
        Some((base, query)) => (base, format!("?{query}")),
        None => (url, String::new()),
    };
    let authority = base.find("://").map_or(0, |at| at + 3);
    let end = base[authority..]
        .find('/')
        .map_or(base.len(), |at| authority + at);
    format!("{}/{database}{query}", &base[..end])
}

/// Takes the password out of a `postgres://user:password@host/…` URL.
fn split_password(url: &str) -> (String, Option<String>) {
    let split = || {
        let (scheme, rest) = url.split_once("://")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (user_info, host) = rest[..end].rsplit_once('@')?;
        let (user, password) = user_info.split_once(':')?;
        let bare = format!("{scheme}://{user}@{host}{}", &rest[end..]);
        Some((bare, Some(percent_decode(password))))
    };
    split().unwrap_or_else(|| (url.to_owned(), None))
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = (*first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_leaves_the_url() {
        let cases = [
            (
                "postgres://u:p%40ss@h:5432/d?x=1",
                "postgres://u@h:5432/d?x=1",
                Some("p@ss"),
            ),
            ("postgres://u@h/d", "postgres://u@h/d", None),
            ("postgresql:///d", "postgresql:///d", None),
            ("postgres://u:p@h", "postgres://u@h", Some("p")),
            (
                "postgres://h/d?email=a:b@c",
                "postgres://h/d?email=a:b@c",
                None,
            ),
        ];
        for (url, bare, password) in cases {
            let expected = (bare.to_owned(), password.map(str::to_owned));
            assert_eq!(split_password(url), expected, "{url}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let psql = Psql::new(Path::new("/usr/bin"), "postgres://u:canary@h/d");
        assert!(!format!("{psql:?}").contains("canary"));
    }

    #[test]
    fn the_database_of_a_url_is_replaced() {
        let cases = [
            (
                "postgres://u:p@h:1/old?sslmode=disable",
                "postgres://u:p@h:1/new?sslmode=disable",
            ),
            ("postgres://u@h/old", "postgres://u@h/new"),
            ("postgres://u@h", "postgres://u@h/new"),
            ("postgres:///old", "postgres:///new"),
        ];
        for (url, expected) in cases {
            assert_eq!(with_database(url, "new"), expected);
        }
    }
}
