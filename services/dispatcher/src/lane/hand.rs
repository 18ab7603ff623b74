//! What a lane holds: the deliveries behind the machine's tickets.
//!
//! It is shared with the lane's supervisor, who settles what a failed lane leaves behind.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_proto::delivery::Delivery;
use tracing::Span;

use super::machine::Ticket;
use crate::grip::Grip;

/// A delivery with its message.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) grip: Grip,
    /// When it was pulled, by the lanes' clock.
    pub(crate) pulled: Duration,
    /// When the broker was last told that it is in hand.
    pub(crate) told: Duration,
    /// Its time in the lane, as a trace shows it.
    pub(crate) span: Span,
    /// Its attempt, once one was started.
    pub(crate) flight: Option<Flight>,
}

/// An attempt under way.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    pub(crate) started_at: DateTime<Utc>,
    /// Whether the POST was begun: until then nothing was attempted.
    pub(crate) begun: Arc<AtomicBool>,
}

impl Flight {
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }
}

/// Deliveries by ticket.
#[derive(Debug, Default)]
pub(crate) struct Hand(Mutex<HashMap<Ticket, Held>>);

impl Hand {
    /// A lane that failed while it had the lock is no reason to lose what it held.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<Ticket, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
