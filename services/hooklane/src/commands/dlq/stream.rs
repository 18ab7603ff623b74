//! What is no dead letter any more goes from the stream `DLQ`, so that whoever looks there sees what
//! is open.
//!
//! The ledger decides and the stream only shows, so a broker that is away is no fault: what stays
//! there goes with its age.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use hooklane_nats::{Client, stored};
use hooklane_proto::{header, subject};
use hooklane_store::dead_letter::{Filed, Series};

use crate::config::Config;
use crate::context::Context;

/// Requests on their way at a time.
const AT_ONCE: usize = 16;
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
        let removed = stream::iter(gone)
            .map(|(series, filed)| async move { remove(client, series, filed.sequence).await })
            .buffer_unordered(AT_ONCE)
            .filter(|removed| std::future::ready(*removed))
            .count();
        removed.await as u64
    }
}

/// Removes one message, unless it is another one: the stream may have been made anew.
async fn remove(client: &Client, series: Series, sequence: u64) -> bool {
    let Ok(Some(message)) = stored::get(client, subject::DLQ, sequence).await else {
        return false;
    };
    let is = |name: &str, value: String| message.header(name) == Some(value.as_str());
    is(header::MESSAGE, series.key.message.to_string())
        && is(header::ENDPOINT, series.key.endpoint.to_string())
        && is(header::SERIES, series.series.to_string())
        && stored::delete(client, subject::DLQ, sequence)
            .await
            .unwrap_or(false)
}
