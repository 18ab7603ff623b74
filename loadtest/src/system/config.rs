//! The configuration file of the `hooklane` under test.

use std::fmt::Write;

use anyhow::{Context, Result};
use hooklane_core::secrets::{MasterKeyConfig, MasterKeys};
use secrecy::SecretString;

/// Settings that differ from the defaults, as lines of TOML with dotted keys.
#[derive(Debug, Clone, Default)]
pub struct Tuning {
    lines: Vec<String>,
}

impl Tuning {
    /// Adds a setting, such as `relay.poll_max` and `"50ms"`.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.lines.push(format!("{key} = {value}"));
        self
    }
}

/// A key for test data only, the same in every run.
const MASTER_KEY: (&str, &str) = ("loadtest", "bG9hZHRlc3Rsb2FkdGVzdGxvYWR0ZXN0bG9hZHRlc3Q=");

/// The key that the `hooklane` under test has.
///
/// # Errors
/// Never, save by a mistake in this file.
pub fn master_key() -> Result<MasterKeys> {
    let (id, key) = MASTER_KEY;
    MasterKeys::new(&[MasterKeyConfig {
        id: id.to_owned(),
        key: SecretString::from(key.to_owned()),
    }])
    .context("reading the load test's master key")
}

pub(super) fn text(database_url: &str, nats_url: &str, tuning: &Tuning) -> String {
    let (id, key) = MASTER_KEY;
    let mut text = format!(
        "database.url = \"{database_url}\"\n\
         nats.url = \"{nats_url}\"\n\
         secrets.master_keys = [{{ id = \"{id}\", key = \"{key}\" }}]\n\
         addresses.allow_http = true\n\
         addresses.allow_cidrs = [\"127.0.0.0/8\"]\n\
         health.enabled = false\n\
         api.enabled = false\n"
    );
    for line in &tuning.lines {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{line}");
    }
    text
}
