//! What the inbox has done since it started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident $count:ident,)*) => {
        #[derive(Debug, Default)]
        struct Counters {
            $($field: AtomicU64,)*
        }

        /// Counts since the start.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $field: u64,)*
        }

        /// What is counted.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Count {
            $($count,)*
        }

        impl Counters {
            fn of(&self, what: Count) -> &AtomicU64 {
                match what {
                    $(Count::$count => &self.$field,)*
                }
            }

            fn stats(&self) -> Stats {
                Stats {
                    $($field: self.$field.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

counters! {
    /// Events received for the first time.
    received Received,
    /// Events received again, answered as the first time.
    repeated Repeated,
    /// Events of the quarantine that their partner sent again, to be decided about anew.
    re_armed ReArmed,
    /// Events with the id of another one and another body.
    conflicts Conflicts,
    /// Challenges answered.
    challenges Challenges,
    /// Requests whose signature was not accepted.
    rejected Rejected,
    /// Of those, the ones that could not be kept.
    rejects_lost RejectsLost,
    /// Requests refused for another reason that is theirs: size, time, method, address.
    refused Refused,
    /// Requests refused because of us: to be sent again.
    unavailable Unavailable,
    /// Events applied, in the order of their entities.
    applied Applied,
    /// Decisions to wait for what has to come first.
    deferred Deferred,
    /// Events that came too late to have an effect.
    superseded Superseded,
    /// Requests split into the events in them.
    split Split,
    /// Events put into quarantine.
    quarantined Quarantined,
    /// Events in `INBOX`.
    published Published,
    /// Handlers' answers written down.
    answered Answered,
    /// Hand-offs that failed and will be tried again.
    failed Failed,
    /// Handlers that could not be reached.
    unreached Unreached,
}

/// Tells what a running inbox has done; clones tell the same.
#[derive(Debug, Clone, Default)]
pub struct Handle(Arc<Counters>);

impl Handle {
    /// The counts by now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    pub(crate) fn add(&self, what: Count, by: u64) {
        if by > 0 {
            self.0.of(what).fetch_add(by, Ordering::Relaxed);
        }
    }
}
