//! What is known of event types while messages come in.
//!
//! A message needs its type's schema and whether the type is deprecated; both change rarely. What was
//! read is used for a second, then read again by one request while the others of that type wait: a busy
//! type costs the ledger one short statement a second, and a change is in force within that time. A
//! compiled schema is kept as long as its text is the same. That a type does not exist is not
//! remembered: one that was just added may be used at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hooklane_proto::token::EventType;
use hooklane_store::{Store, event_type, manage};
use tokio::time::Instant;
use tracing::warn;

use super::schema::{self, Schema};

/// How long what was read is used.
const FRESH: Duration = Duration::from_secs(1);
/// Event types remembered at the most.
const MAX_TYPES: usize = 1_000;
/// Texts of schemas remembered at the most, in bytes; compiled, they take many times that.
const MAX_TEXT: usize = 4 << 20;

/// An event type that exists.
#[derive(Debug)]
pub(crate) struct Known {
    /// No longer to be subscribed to; still accepted.
    pub(crate) deprecated: bool,
    /// The text of its schema.
    text: Option<Box<str>>,
    /// The schema, or why it can't be used.
    pub(crate) schema: Option<Result<Arc<Schema>, String>>,
}

/// What is known of event types.
#[derive(Debug)]
pub(crate) struct Types {
    store: Store,
    slots: Mutex<HashMap<EventType, Arc<Slot>>>,
}

#[derive(Debug, Default)]
struct Slot {
    latest: Mutex<Option<(Instant, Arc<Known>)>>,
    /// Who holds it reads.
    reading: tokio::sync::Mutex<()>,
}

impl Slot {
    fn latest(&self) -> Option<(Instant, Arc<Known>)> {
        let latest = self.latest.lock();
        latest.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fresh(&self) -> Option<Arc<Known>> {
        let (at, known) = self.latest()?;
        (at.elapsed() < FRESH).then_some(known)
    }

    fn set(&self, latest: Option<(Instant, Arc<Known>)>) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = latest;
    }

    fn text(&self) -> usize {
        let latest = self.latest();
        latest.map_or(0, |(_, known)| known.text.as_ref().map_or(0, |t| t.len()))
    }
}

impl Types {
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            slots: Mutex::default(),
        }
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<EventType, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The event type as it is, or was a second ago; `None` where there is none of this name.
    ///
    /// # Errors
    /// Where the database fails.
    pub(crate) async fn get(
        &self,
        name: &EventType,
    ) -> Result<Option<Arc<Known>>, hooklane_store::Error> {
        let slot = self.slot(name);
        if let Some(known) = slot.fresh() {
            return Ok(Some(known));
        }
        let _reading = slot.reading.lock().await;
        if let Some(known) = slot.fresh() {
            return Ok(Some(known));
        }
        // The time before the answer: what is changed meanwhile may not be in it.
        let now = Instant::now();
        let found = match event_type::show(&self.store, name).await {
            Ok(found) => found,
            Err(manage::Error::Store(error)) => return Err(error),
            Err(_not_found) => {
                self.slots().remove(name);
                return Ok(None);
            }
        };
        let before = slot.latest().map(|(_, known)| known);
        let known = Arc::new(learn(name, found, before).await);
        slot.set(Some((now, Arc::clone(&known))));
        Ok(Some(known))
    }

    fn slot(&self, name: &EventType) -> Arc<Slot> {
        let mut slots = self.slots();
        if let Some(slot) = slots.get(name) {
            return Arc::clone(slot);
        }
        let text: usize = slots.values().map(|slot| slot.text()).sum();
        if slots.len() >= MAX_TYPES || text >= MAX_TEXT {
            slots.retain(|_, slot| slot.fresh().is_some());
        }
        if slots.len() >= MAX_TYPES
            || slots.values().map(|slot| slot.text()).sum::<usize>() >= MAX_TEXT
        {
            slots.clear();
        }
        Arc::clone(slots.entry(name.clone()).or_default())
    }
}

async fn learn(
    name: &EventType,
    found: event_type::EventType,
    before: Option<Arc<Known>>,
) -> Known {
    let text: Option<Box<str>> = found.schema.map(|schema| schema.get().into());
    let same = before.filter(|before| before.text == text);
    let schema = match (same, &text) {
        (_, None) => None,
        (Some(same), Some(_)) => same.schema.clone(),
        (None, Some(text)) => {
            let text = text.clone();
            let compiled = tokio::task::spawn_blocking(move || schema::parse(&text)).await;
            let compiled = compiled.unwrap_or_else(|error| Err(error.to_string()));
            if let Err(problem) = &compiled {
                warn!(event_type = %name, problem, "an event type's schema can't be used");
            }
            Some(compiled.map(Arc::new))
        }
    };
    Known {
        deprecated: found.deprecated,
        text,
        schema,
    }
}
