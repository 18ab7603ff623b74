//! Being woken by the outbox table's trigger, where it is enabled.
//!
//! Only a hint: it shortens the pause before a poll, and nothing depends on it.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::time::Instant;

use super::session;
use super::source::Source;
use crate::{Error, Store};

/// The channel that the trigger notifies.
pub const CHANNEL: &str = "hooklane_outbox";

/// The pause before the listener is connected again.
const AGAIN: Duration = Duration::from_secs(2);

/// A session that listens.
pub struct Wake {
    store: Store,
    source: Source,
    listener: Option<PgListener>,
    not_before: Option<Instant>,
}

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wake")
            .field("source", &self.source.name)
            .field("listening", &self.listener.is_some())
            .finish_non_exhaustive()
    }
}

impl Wake {
    /// Prepares to listen for a source's trigger; connects at the first [`Wake::wait`].
    #[must_use]
    pub fn new(store: &Store, source: &Source) -> Self {
        Self {
            store: store.clone(),
            source: source.clone(),
            listener: None,
            not_before: None,
        }
    }

    /// Waits for the trigger, however long that takes, connecting anew where the session broke.
    /// Cancel-safe, save that a cancelled connection attempt starts over.
    pub async fn wait(&mut self) {
        loop {
            if let Some(at) = self.not_before {
                tokio::time::sleep_until(at).await;
                self.not_before = None;
            }
            let heard = match &mut self.listener {
                Some(listener) => listener
                    .recv()
                    .await
                    .map_err(Error::doing("listening for an outbox's wake-up")),
                None => match self.listen().await {
                    Ok(listener) => {
                        self.listener = Some(listener);
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            match heard {
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(source = self.source.name, %error, "not listening, polling only");
                    self.listener = None;
                    self.not_before = Some(Instant::now() + AGAIN);
                }
            }
        }
    }

    async fn listen(&self) -> Result<PgListener, Error> {
        let doing = "listening for an outbox's wake-up";
        let options = match &self.source.database_url {
            None => self.store.pool().connect_options().as_ref().clone(),
            Some(_) => session::options(&self.source)?,
        };
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .connect_lazy_with(options);
        let mut listener = PgListener::connect_with(&pool)
            .await
            .map_err(Error::doing(doing))?;
        listener
            .listen(CHANNEL)
            .await
            .map_err(Error::doing(doing))?;
        Ok(listener)
    }
}
