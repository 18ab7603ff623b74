//! `hooklane up --local`: servers of its own below `.hooklane/`, for a trial on one machine.
//!
//! The servers keep their data from one run to the next, and end with the process. The master key
//! is made on the first run and kept beside the data that it seals.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hooklane_core::config::ConnectionUrl;
use hooklane_core::error::ErrorCode;
use hooklane_core::rules::address::Policy;
use hooklane_core::secrets::generate_master_key;
use hooklane_local::{Install, Stack, StackOptions};
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::failure::Failure;

/// Where everything is kept.
const HOME: &str = ".hooklane";

/// How often the servers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Starts the servers that are not configured, and completes the configuration for a trial: with
/// their addresses, a master key, and deliveries to this machine allowed.
///
/// Blocks while servers start.
///
/// # Errors
/// Where a server is missing or does not start, or the key can't be kept.
pub(crate) fn start(
    config: &mut Config,
    database_given: bool,
    nats_given: bool,
) -> Result<Stack, Failure> {
    let home = PathBuf::from(HOME);
    let servers = hooklane_local::servers_home(&home)?;
    let options = StackOptions {
        install: Install::Allowed,
        nats_url: nats_given.then(|| config.nats.url.expose().to_owned()),
        database_url: config
            .database
            .url
            .as_ref()
            .filter(|_| database_given)
            .map(|url| url.expose().to_owned()),
        nats: hooklane_local::NatsOptions::default(),
        postgres: hooklane_local::PostgresOptions::default(),
    };
    let stack = Stack::start(
        &home,
        &servers.join("up"),
        &options,
        &hooklane_local::to_stderr,
    )?;
    config.database.url = Some(ConnectionUrl::new(stack.database_url()));
    config.nats.url = stack.nats_url().into();
    if config.secrets.master_keys.is_empty() && config.secrets.master_key_file.is_none() {
        config.secrets.master_key_file = Some(master_key(&home)?);
    }
    let open = config.addresses == Policy::default();
    if open {
        config.addresses = Policy::loopback();
    }
    write_environment(&home, &stack, config, open)?;
    Ok(stack)
}

/// Looks after the servers: ends when one of them did, or when told to.
///
/// # Errors
/// Where a server ended by itself.
pub(crate) async fn watch(stack: Arc<Stack>, shutdown: CancellationToken) -> Result<(), Failure> {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if let Some((server, log)) = stack.ended() {
            let code = match server {
                "nats-server" => ErrorCode::NatsUnavailable,
                _ => ErrorCode::PostgresUnavailable,
            };
            return Err(Failure::new(
                code,
                format!(
                    "{server} ended by itself; its log tells why: {}; then start again with: hooklane up --local",
                    log.display()
                ),
            ));
        }
    }
}

/// The file of the local master key, made where it is not there yet.
fn master_key(home: &Path) -> Result<PathBuf, Failure> {
    let path = home.join("master.key");
    let made = std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    let written = match made {
        Ok(mut file) => {
            let key = generate_master_key();
            writeln!(file, "local {}", key.expose_secret()).and_then(|()| file.sync_all())
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    };
    written.map_err(|error| {
        Failure::internal(format!("{} can't be written: {error}", path.display()))
    })?;
    Ok(path)
}

/// A file that other terminals read in to reach the same servers: the operator's commands need
/// the addresses, which change from run to run.
fn write_environment(
    home: &Path,
    stack: &Stack,
    config: &Config,
    open: bool,
) -> Result<(), Failure> {
    let mut variables = vec![
        ("DATABASE_URL", stack.database_url().to_owned()),
        ("NATS_URL", stack.nats_url().to_owned()),
    ];
    if open {
        variables.extend(
            [
                ("HOOKLANE__ADDRESSES__ALLOW_HTTP", "true"),
                (
                    "HOOKLANE__ADDRESSES__ALLOW_CIDRS",
                    r#"["127.0.0.0/8", "::1/128"]"#,
                ),
                ("HOOKLANE__ADDRESSES__ALLOW_NAMES", r#"["localhost"]"#),
            ]
            .map(|(name, value)| (name, value.to_owned())),
        );
    }
    let key_file = config.secrets.master_key_file.as_ref();
    if let Some(path) = key_file.and_then(|path| path.canonicalize().ok()) {
        let path = path.display().to_string();
        variables.push(("HOOKLANE__SECRETS__MASTER_KEY_FILE", path));
    }
    let text = hooklane_local::exports(&variables);
    let path = home.join("env");
    // Removed first: an old file may be open to others.
    let _ = std::fs::remove_file(&path);
    std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Failure::internal(format!("{} can't be written: {error}", path.display())))
}
