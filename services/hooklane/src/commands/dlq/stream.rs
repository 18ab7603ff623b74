//! The way to the stream `DLQ`, from which goes what is no dead letter any more.
//!
//! A command does its work without it too.

use std::time::Duration;

use hooklane_nats::Client;
use hooklane_nats::letters::{self, Letter};
use hooklane_store::dead_letter::{Filed, Series};

use crate::config::Config;
use crate::context::Context;

/// How long the broker is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The stream, where it can be reached.
pub(super) struct Letters(Option<Client>);

impl Letters {
    /// Connects, without insisting.
    pub(super) async fn open(context: &Context, config: &Config) -> Self {
        let mut nats = config.nats.clone();
        nats.connect_timeout = nats.connect_timeout.min(PATIENCE);
        match Client::connect(&nats).await {
            Ok(client) => Self(Some(client)),
            Err(error) => {
                context.output.note(&format!(
                    "the dead letters stay in the stream DLQ until they are too old there: {error}"
                ));
                Self(None)
            }
        }
    }

    /// Removes what stands there; answers how much did.
    pub(super) async fn remove(&self, gone: Vec<(Series, Filed)>) -> u64 {
        let Some(client) = &self.0 else {
            return 0;
        };
        let gone = gone.into_iter().map(|(series, filed)| Letter {
            key: series.key,
            series: series.series,
            sequence: filed.sequence,
        });
        letters::remove(client, gone).await
    }
}
