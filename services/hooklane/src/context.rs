//! What commands work with: the configuration that they need, and connections made on demand.

use std::path::PathBuf;

use hooklane_core::config::{Faults, Sources};
use hooklane_core::error::ErrorCode;
use hooklane_core::secrets::MasterKeys;
use hooklane_nats::Client;
use hooklane_store::{Store, ledger, manage, master_key};

use crate::config::{Config, Section, WELL_KNOWN};
use crate::failure::Failure;
use crate::output::Output;

/// The file that is read where none is named.
const DEFAULT_FILE: &str = "hooklane.toml";

/// What a command was started with.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) output: Output,
    file: Option<PathBuf>,
}

impl Context {
    pub(crate) fn new(file: Option<PathBuf>, json: bool) -> Self {
        let here = PathBuf::from(DEFAULT_FILE);
        let file = file.or_else(|| here.is_file().then_some(here));
        Self {
            output: Output { json },
            file,
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

    fn read(&self, sections: &[Section]) -> (Config, Faults) {
        let mut faults = Faults::new();
        let sources = Sources::of_process(self.file.clone(), WELL_KNOWN);
        let config: Config = hooklane_core::config::load(&sources, &mut faults);
        config.validate(sections, &mut faults);
        (config, faults)
    }

    /// The ledger.
    pub(crate) async fn store(&self) -> Result<Store, Failure> {
        let config = self.config(&[Section::Database])?;
        Ok(Store::connect(&config.database).await?)
    }

    /// The ledger with its master keys, which are checked against it.
    pub(crate) async fn sealed(&self, also: &[Section]) -> Result<Sealed, Failure> {
        let sections: Vec<Section> = [Section::Database, Section::Secrets]
            .iter()
            .chain(also)
            .copied()
            .collect();
        let config = self.config(&sections)?;
        let store = Store::connect(&config.database).await?;
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
