//! The way to the stream `DLQ`, from which goes what is no dead letter any more.
//!
//! A command does its work without it too, and goes there only once there is something to remove.

use std::time::Duration;

use hooklane_nats::Client;
use hooklane_nats::letters::{self, Letter};
use hooklane_store::dead_letter::{Filed, Series};

use crate::config::Config;
use crate::context::Context;

/// How long the broker is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The stream, as far as it can be reached.
pub(super) struct Letters<'a> {
    context: &'a Context,
    nats: hooklane_nats::Config,
    way: Way,
}

/// How far the way is known.
enum Way {
    Untried,
    Open(Client),
    Closed,
}

impl<'a> Letters<'a> {
    /// Connects nowhere yet.
    pub(super) fn new(context: &'a Context, config: &Config) -> Self {
        let mut nats = config.nats.clone();
        nats.connect_timeout = nats.connect_timeout.min(PATIENCE);
        Self {
            context,
            nats,
            way: Way::Untried,
        }
    }

    /// Removes what stands there; answers how much did. Where the broker can't be reached that is
    /// said once, and not tried again.
    pub(super) async fn remove(&mut self, gone: Vec<(Series, Filed)>) -> u64 {
        if gone.is_empty() {
            return 0;
        }
        if matches!(self.way, Way::Untried) {
            self.way = self.connect().await;
        }
        let Way::Open(client) = &self.way else {
            return 0;
        };
        let gone = gone.into_iter().map(|(series, filed)| Letter {
            key: series.key,
            series: series.series,
            sequence: filed.sequence,
        });
        letters::remove(client, gone).await
    }

    async fn connect(&self) -> Way {
        match Client::connect(&self.nats).await {
            Ok(client) => Way::Open(client),
            Err(error) => {
                self.context.output.note(&format!(
                    "the dead letters stay in the stream DLQ until they are too old there: {error}"
                ));
                Way::Closed
            }
        }
    }
}
