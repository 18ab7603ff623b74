//! The `nats` command, run as a producer runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hooklane_local::{Install, quiet};
use hooklane_testkit::wait::until_some;
use serde_json::Value;

use crate::bench::Bench;
use crate::system::BUDGET;

/// The stream that keeps receipts until the test reads them.
const RECEIPTS: &str = "RECEIPTS";

/// The command, for one server.
pub(crate) struct NatsCli {
    program: PathBuf,
    url: String,
    home: PathBuf,
}

impl NatsCli {
    /// Finds the command where `cargo xtask setup` puts it, or on the `PATH`. A test that needs it
    /// fails without it: what it proves is not proved.
    pub(crate) fn find(bench: &Bench, url: &str) -> Self {
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.hooklane");
        let program = hooklane_local::nats_cli(&installed, Install::Never, &quiet)
            .unwrap_or_else(|error| panic!("this test publishes with the real command: {error}"));
        Self {
            program,
            url: url.to_owned(),
            home: bench.dir().to_owned(),
        }
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(&self.program)
            .args(args)
            .env_clear()
            // No contexts of whoever runs the tests.
            .env("HOME", &self.home)
            .env("NATS_URL", &self.url)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn ok(&self, args: &[&str]) {
        let output = self.run(args);
        assert!(output.status.success(), "nats {args:?}: {output:?}");
    }

    /// `nats pub <subject> <body> -H <header> …`
    pub(crate) fn publish(&self, subject: &str, body: &str, headers: &[&str]) {
        let mut args = vec!["pub", subject, body];
        for header in headers {
            args.extend(["-H", header]);
        }
        self.ok(&args);
    }

    /// Has a stream keep what is published to `receipts.>`.
    pub(crate) fn keep_receipts(&self) {
        let stream = ["stream", "add", RECEIPTS, "--subjects", "receipts.>"];
        self.ok(&[&stream[..], &["--storage", "memory", "--defaults"]].concat());
    }

    /// The receipt that came as the `number`th.
    pub(crate) async fn receipt(&self, number: u32) -> Value {
        let number = number.to_string();
        let what = format!("receipt {number}");
        until_some(&what, BUDGET, || async {
            let output = self.run(&["stream", "get", RECEIPTS, &number, "--json"]);
            let message: Value = serde_json::from_slice(&output.stdout).ok()?;
            let body = STANDARD.decode(message["data"].as_str()?).ok()?;
            serde_json::from_slice(&body).ok()
        })
        .await
        .unwrap()
    }
}
