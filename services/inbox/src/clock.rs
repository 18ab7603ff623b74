//! What time it is: the wall clock's, or a test's.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hooklane_core::clock;

/// The clock that everything here goes by: timestamps of signatures, when an event was received, and
/// what is due.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>);

impl Clock {
    /// A clock of one's own.
    pub fn new(now: impl Fn() -> DateTime<Utc> + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        (self.0)()
    }
}

impl Default for Clock {
    /// The wall clock.
    fn default() -> Self {
        Self::new(clock::now)
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}
