//! The right to act for a partition, which ends by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hooklane_core::broken::{self, Broken};
use hooklane_core::clock::Boot;

/// Shared by everything that acts for one ownership of a partition.
#[derive(Debug, Clone)]
pub(crate) struct Term(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: Boot,
    /// Nanoseconds after the origin.
    until: AtomicU64,
    revoked: AtomicBool,
}

impl Term {
    pub(crate) fn new(until: Boot) -> Self {
        let origin = Boot::now();
        let term = Self(Arc::new(Inner {
            origin,
            until: AtomicU64::new(0),
            revoked: AtomicBool::new(false),
        }));
        term.extend(until);
        term
    }

    /// Lasts until then, unless it was revoked. Never gets shorter.
    pub(crate) fn extend(&self, until: Boot) {
        let nanos = nanos(until.since(self.0.origin));
        self.0.until.fetch_max(nanos, Ordering::AcqRel);
    }

    /// Ends at once and for good.
    pub(crate) fn revoke(&self) {
        self.0.revoked.store(true, Ordering::Release);
    }

    /// Whether it lasts.
    pub(crate) fn holds(&self) -> bool {
        let holds = !self.0.revoked.load(Ordering::Acquire)
            && nanos(self.0.origin.elapsed()) < self.0.until.load(Ordering::Acquire);
        holds || broken::is(Broken::NoLeaseCheck)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_by_itself_and_at_once_when_revoked() {
        let now = Boot::now();
        let past = Term::new(now);
        assert!(!past.holds());
        past.extend(now.after(Duration::from_secs(60)));
        assert!(past.holds());
        past.extend(now);
        assert!(past.holds(), "it never gets shorter");
        past.revoke();
        past.extend(now.after(Duration::from_secs(600)));
        assert!(!past.holds());
    }
}
