//! Who wakes whom within the process, so that nobody waits for a poll.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooklane_proto::token::Partner;
use tokio::sync::Notify;

use crate::source::Mode;
use crate::sources::Sources;

/// One bell for each kind of work.
#[derive(Debug, Clone)]
pub(crate) struct Bells {
    /// Something was received, or is due to be decided about.
    pub(crate) arrived: Arc<Notify>,
    /// Something is to be published.
    pub(crate) publish: Arc<Notify>,
    /// Something is to be handed to a source's handler.
    handlers: BTreeMap<Partner, Arc<Notify>>,
}

impl Bells {
    pub(crate) fn of(sources: &Sources) -> Self {
        let asked = sources
            .iter()
            .filter(|(_, source)| matches!(source.hand_off().mode, Mode::Request));
        Self {
            arrived: Arc::default(),
            publish: Arc::default(),
            handlers: asked
                .map(|(partner, _)| (partner.clone(), Arc::default()))
                .collect(),
        }
    }

    /// The bell of a source whose handler is asked.
    pub(crate) fn handler(&self, partner: &Partner) -> Option<Arc<Notify>> {
        self.handlers.get(partner).cloned()
    }

    /// Rings those of all handlers.
    pub(crate) fn ring_handlers(&self) {
        for bell in self.handlers.values() {
            bell.notify_one();
        }
    }
}
