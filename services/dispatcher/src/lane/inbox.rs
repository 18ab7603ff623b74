//! How attempts that ended come back to their lane: collected, with one message for many.
//!
//! Every attempt ends exactly once here, a panic and an abort included: its [`Ender`] tells when
//! it is dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ractor::ActorRef;

use super::Msg;
use super::machine::Ticket;
use crate::attempt::Made;

/// How one attempt ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// It was made.
    Made(Box<Made>),
    /// It was not begun, because the partition is not ours any more.
    Unmade,
    /// It ended without a word: it panicked, or was aborted.
    Lost,
}

/// Endings on their way to one lane.
pub(super) struct Inbox {
    endings: Mutex<Vec<(Ticket, Ending)>>,
    /// A message to the lane is under way.
    rung: AtomicBool,
    lane: ActorRef<Msg>,
}

impl Inbox {
    pub(super) fn new(lane: ActorRef<Msg>) -> Arc<Self> {
        Arc::new(Self {
            endings: Mutex::new(Vec::new()),
            rung: AtomicBool::new(false),
            lane,
        })
    }

    /// Takes all endings that have come.
    pub(super) fn take(&self) -> Vec<(Ticket, Ending)> {
        // Cleared before looking: an ending that comes meanwhile rings again.
        self.rung.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.endings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, ticket: Ticket, ending: Ending) {
        self.endings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((ticket, ending));
        if !self.rung.swap(true, Ordering::SeqCst) {
            // A lane that is gone has a supervisor that settled what it held.
            let _ = self.lane.cast(Msg::Ended);
        }
    }
}

/// The duty to tell how an attempt ended.
pub(super) struct Ender {
    inbox: Arc<Inbox>,
    ticket: Ticket,
    ending: Ending,
}

impl Ender {
    pub(super) fn new(inbox: &Arc<Inbox>, ticket: Ticket) -> Self {
        Self {
            inbox: Arc::clone(inbox),
            ticket,
            ending: Ending::Lost,
        }
    }

    pub(super) fn end(mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl Drop for Ender {
    fn drop(&mut self) {
        let ending = std::mem::replace(&mut self.ending, Ending::Lost);
        self.inbox.put(self.ticket, ending);
    }
}
