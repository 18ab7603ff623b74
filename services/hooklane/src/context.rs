//! What commands work with: the configuration that they need, and connections made on demand.

use std::path::PathBuf;

use hooklane_core::config::{ConnectionUrl, Faults, Sources};
use hooklane_core::error::ErrorCode;
use hooklane_core::secrets::MasterKeys;
use hooklane_nats::Client;
use hooklane_store::audit_log::By;
use hooklane_store::{Store, ledger, manage, master_key};

use crate::config::{Config, Section, WELL_KNOWN};
use crate::failure::Failure;
use crate::output::Output;

/// The file that is read where none is named.
const DEFAULT_FILE: &str = "hooklane.toml";

/// The variable that names another.
const FILE_VARIABLE: &str = "HOOKLANE_CONFIG";

fn default_file() -> Option<PathBuf> {
    let here = PathBuf::from(DEFAULT_FILE);
    here.is_file().then_some(here)
}

/// What to do where the ledger's address was read in to reach local servers, which may have ended.
fn stale(config: &Config) -> String {
    let inherited = hooklane_local::inherited();
    let url = config.database.url.as_ref().map(ConnectionUrl::expose);
    let ours =
        |(name, value): &(String, String)| name == "DATABASE_URL" && Some(value.as_str()) == url;
    if !inherited.iter().any(ours) {
        return String::new();
    }
    let names: Vec<&str> = inherited.iter().map(|(name, _)| name.as_str()).collect();
    format!(
        "; the address was read in to reach local servers, which may have ended: start them again \
         and read .hooklane/env in once more, or: unset {}",
        names.join(" ")
    )
}

/// What a command was started with.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) output: Output,
    file: Option<PathBuf>,
}

impl Context {
    pub(crate) fn new(file: Option<PathBuf>, json: bool) -> Self {
        Self {
            output: Output { json },
            file: file.or_else(default_file),
        }
    }

    /// The file that is read, if any.
    pub(crate) fn file(&self) -> Option<&std::path::Path> {
        self.file.as_deref()
    }

    /// The whole configuration with everything that is wrong with it.
    pub(crate) fn inspect(&self) -> (Config, Faults) {
        self.read(&Section::ALL)
    }

    /// The configuration, of which only `sections` need be sound.
    pub(crate) fn config(&self, sections: &[Section]) -> Result<Config, Failure> {
        let (config, faults) = self.read(sections);
        faults.into_result()?;
        Ok(config)
    }

    /// The configuration for local servers: without the variables that were read in to reach those
    /// of an earlier run. None of it need be sound.
    pub(crate) fn local_config(&self) -> Result<Config, Failure> {
        let inherited = hooklane_local::inherited();
        let names: Vec<&str> = inherited.iter().map(|(name, _)| name.as_str()).collect();
        if !names.is_empty() {
            self.output.note(&format!(
                "local: not used, since they were read in to reach servers of an earlier run: {}",
                names.join(" ")
            ));
        }
        let named = self.file.as_ref().and_then(|file| file.to_str());
        let stale = |(name, value): &(String, String)| {
            name == FILE_VARIABLE && Some(value.as_str()) == named
        };
        let file = match inherited.iter().any(stale) {
            true => default_file(),
            false => self.file.clone(),
        };
        let sources = Sources::of_process(file, WELL_KNOWN).without(&names);
        let (config, faults) = Self::load(&sources, &[]);
        faults.into_result()?;
        Ok(config)
    }

    fn read(&self, sections: &[Section]) -> (Config, Faults) {
        let sources = Sources::of_process(self.file.clone(), WELL_KNOWN);
        Self::load(&sources, sections)
    }

    fn load(sources: &Sources, sections: &[Section]) -> (Config, Faults) {
        let mut faults = Faults::new();
        let config: Config = hooklane_core::config::load(sources, &mut faults);
        // What an unreadable file would have set is not known, and no fault.
        if faults.is_complete() {
            config.validate(sections, &mut faults);
        }
        (config, faults)
    }

    /// The ledger.
    pub(crate) async fn store(&self) -> Result<Store, Failure> {
        self.connect(&self.config(&[Section::Database])?).await
    }

    /// The ledger that a configuration names. What is changed through it is audited as the command
    /// line's doing.
    pub(crate) async fn connect(&self, config: &Config) -> Result<Store, Failure> {
        Store::connect(&config.database)
            .await
            .map(|store| store.acting(By::cli()))
            .map_err(|error| match error.code() {
                ErrorCode::PostgresUnavailable => Failure::from(error).with_hint(&stale(config)),
                _ => error.into(),
            })
    }

    /// The ledger with its master keys, which are checked against it.
    pub(crate) async fn sealed(&self, also: &[Section]) -> Result<Sealed, Failure> {
        let sections: Vec<Section> = [Section::Database, Section::Secrets]
            .iter()
            .chain(also)
            .copied()
            .collect();
        let config = self.config(&sections)?;
        let store = self.connect(&config).await?;
        let keys = config.secrets.keys()?;
        verify_keys(&store, &keys).await?;
        Ok(Sealed {
            config,
            store,
            keys,
        })
    }
}

/// The ledger and the keys to its secrets.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) keys: MasterKeys,
}

/// The broker, whose streams have to be the ledger's.
pub(crate) async fn connect_nats(config: &Config, store: &Store) -> Result<Client, Failure> {
    let nats = hooklane_nats::Config {
        ledger: Some(ledger::id(store).await?),
        ..config.nats.clone()
    };
    Ok(Client::connect(&nats).await?)
}

/// Refuses keys that are not the ledger's.
pub(crate) async fn verify_keys(store: &Store, keys: &MasterKeys) -> Result<(), Failure> {
    master_key::verify(store, keys)
        .await
        .map_err(|error| match error {
            manage::Error::Secrets(error) => Failure::new(
                ErrorCode::WrongMasterKey,
                format!("the configured master key is not the one of this ledger: {error}"),
            ),
            error => error.into(),
        })
}
