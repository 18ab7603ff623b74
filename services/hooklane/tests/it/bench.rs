//! One test's database, and a way to run the binary on it with a clean environment.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hooklane_store::{Config, Store};
use hooklane_testkit::postgres::{self, Database};
use serde_json::Value;

use crate::process::free_address;

/// A master key for tests: 32 bytes in base64.
pub(crate) const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
/// Another one.
pub(crate) const OTHER_KEY: &str = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

/// What a run of the binary answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// The answer as JSON.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error as JSON. Lines of the log may stand on either side of it.
    pub(crate) fn error(&self) -> Value {
        let values = self.stderr.lines().map(serde_json::from_str::<Value>);
        let mut errors = values.filter_map(|value| value.ok()?.get("error").cloned());
        errors
            .rfind(Value::is_object)
            .unwrap_or_else(|| panic!("no error in {self:?}"))
    }
}

/// An environment to run the binary in.
#[derive(Debug)]
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
    database: Option<Database>,
}

impl Bench {
    /// No database, no configuration.
    pub(crate) fn bare() -> Self {
        // PostgreSQL's account must be able to pass.
        let mode = std::fs::Permissions::from_mode(0o755);
        Self {
            dir: tempfile::Builder::new()
                .permissions(mode)
                .tempdir()
                .unwrap(),
            env: Vec::new(),
            database: None,
        }
    }

    /// A migrated database and a master key.
    pub(crate) async fn ledger() -> Self {
        let database = postgres::database("ledger", |url| async move {
            let store = Store::connect(&Config::new(url)).await?;
            store.migrate().await?;
            store.close().await;
            Ok::<_, hooklane_store::Error>(())
        })
        .await
        .unwrap();
        let mut bench = Self::bare();
        bench.on(database);
        bench.keys(&[("one", KEY)]);
        // Somebody may run a Hooklane on this machine, at the port that is the default.
        bench.set("HOOKLANE__HEALTH__LISTEN", free_address());
        bench.set("HOOKLANE__API__LISTEN", "127.0.0.1:0");
        bench
    }

    /// The same on another database, which the test has made.
    pub(crate) fn on(&mut self, database: Database) {
        self.set("DATABASE_URL", database.url());
        self.database = Some(database);
    }

    /// The ledger's library, on the same database.
    pub(crate) async fn store(&self) -> Store {
        Store::connect(&Config::new(self.database().url()))
            .await
            .unwrap()
    }

    pub(crate) fn database(&self) -> &Database {
        self.database.as_ref().unwrap()
    }

    /// Sets a variable of the environment.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.into()));
    }

    /// Takes a variable away.
    pub(crate) fn unset(&mut self, name: &str) {
        self.env.retain(|(known, _)| known != name);
    }

    /// Sets the master keys, the current one first.
    pub(crate) fn keys(&mut self, keys: &[(&str, &str)]) {
        let lines: Vec<String> = keys.iter().map(|(id, key)| format!("{id} {key}")).collect();
        let path = self.file("master.key", &lines.join("\n"));
        self.set(
            "HOOKLANE__SECRETS__MASTER_KEY_FILE",
            path.display().to_string(),
        );
    }

    /// Lets the binary find the servers' programs where the fixtures find them.
    #[allow(
        clippy::disallowed_methods,
        reason = "the fixtures' programs are the test's own"
    )]
    pub(crate) fn with_tools(&mut self) {
        for name in ["PATH", "HOME", "GOPATH", "GOBIN"] {
            if let Ok(value) = std::env::var(name) {
                self.set(name, value);
            }
        }
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.hooklane/bin");
        if installed.is_dir() {
            let home = self.dir.path().join(".hooklane");
            std::fs::create_dir(&home).unwrap();
            std::os::unix::fs::symlink(installed, home.join("bin")).unwrap();
        }
    }

    /// Writes a file into the working directory.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The working directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The binary with these arguments, ready to be started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.prepared(Command::new(env!("CARGO_BIN_EXE_hooklane")), args)
    }

    /// As [`Bench::command`], after `ulimit` with these words.
    pub(crate) fn limited(&self, ulimit: &str, args: &[&str]) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", &format!(r#"ulimit {ulimit} && exec "$0" "$@""#)])
            .arg(env!("CARGO_BIN_EXE_hooklane"));
        self.prepared(shell, args)
    }

    fn prepared(&self, mut command: Command, args: &[&str]) -> Command {
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the binary.
    pub(crate) fn run(&self, args: &[&str]) -> Answer {
        self.feed(args, b"")
    }

    /// Runs the binary with something on standard input.
    pub(crate) fn feed(&self, args: &[&str], input: &[u8]) -> Answer {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        // One that does not read its input closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        Answer {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs the binary, which must succeed, and answers with what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let answer = self.run(args);
        assert_eq!(answer.code, 0, "{args:?}: {answer:?}");
        answer.stdout
    }

    /// As [`Bench::ok`], with `--json`.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        self.run(&[&["--json"], args].concat()).json()
    }

    /// Runs the binary, which must fail like this; answers with its message.
    pub(crate) fn fails(&self, exit: i32, code: &str, args: &[&str]) -> String {
        let answer = self.run(&[&["--json"], args].concat());
        assert_eq!(answer.code, exit, "{args:?}: {answer:?}");
        let error = answer.error();
        assert_eq!(error["code"], code, "{args:?}: {answer:?}");
        error["message"].as_str().unwrap().to_owned()
    }

    /// A consumer `acme` with the event type `invoice.paid` and an endpoint; its id.
    pub(crate) fn endpoint(&self) -> String {
        self.ok(&["consumer", "add", "acme"]);
        self.ok(&["event-type", "add", "invoice.paid"]);
        let added = self.json(&["endpoint", "add", "acme", "https://example.com/hook"]);
        added["endpoint"]["id"].as_str().unwrap().to_owned()
    }
}
