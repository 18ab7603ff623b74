//! Whether the clocks of this host, PostgreSQL and NATS agree.
//!
//! Due times, deadlines and not-afters are compared across all three. Where they are too far apart
//! nothing is put back, which costs delay and never a double, until they agree again. What can't be
//! asked changes nothing: the last answer stands.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_core::pace::pause;
use hooklane_nats::{Client, inspect};
use hooklane_proto::subject;
use hooklane_store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::stats::Handle;

/// What is known about the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// Not compared yet.
    Unknown,
    /// Close enough.
    Good,
    /// Too far apart.
    Apart,
}

/// Waits for good clocks; `false` when told to stop meanwhile.
pub(crate) async fn good(clocks: &mut watch::Receiver<Clocks>, term: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = term.cancelled() => false,
        good = clocks.wait_for(|clocks| *clocks == Clocks::Good) => good.is_ok(),
    }
}

/// Another clock as it was read between two readings of ours.
#[derive(Debug, Clone, Copy)]
struct Reading {
    before: DateTime<Utc>,
    there: DateTime<Utc>,
    after: DateTime<Utc>,
}

impl Reading {
    /// The least and the greatest that the other clock can be ahead of ours.
    fn ahead(self) -> (TimeDelta, TimeDelta) {
        let (a, b) = (self.there - self.after, self.there - self.before);
        (a.min(b), a.max(b))
    }
}

/// How far apart the clocks are at the least, our own among them.
fn apart(readings: &[Reading]) -> TimeDelta {
    let ours = (TimeDelta::zero(), TimeDelta::zero());
    let ahead = || readings.iter().map(|r| r.ahead()).chain([ours]);
    let surely_ahead = ahead().map(|(least, _)| least).max();
    let surely_behind = ahead().map(|(_, most)| most).min();
    match (surely_ahead, surely_behind) {
        (Some(front), Some(back)) => (front - back).max(TimeDelta::zero()),
        _ => TimeDelta::zero(),
    }
}

/// Compares the clocks every so often, and says what it finds.
pub(crate) async fn run(
    every: Duration,
    tolerance: Duration,
    store: Store,
    client: Client,
    handle: Handle,
    say: watch::Sender<Clocks>,
    term: CancellationToken,
) {
    loop {
        match read(&store, &client).await {
            Some(readings) => {
                let distance = apart(&readings).to_std().unwrap_or_default();
                let found = if distance > tolerance {
                    Clocks::Apart
                } else {
                    Clocks::Good
                };
                handle.clocks_apart(found == Clocks::Apart);
                let before = say.send_replace(found);
                let [postgres, nats] = readings.map(|r| (r.there - r.before).num_milliseconds());
                match (before, found) {
                    // Said again and again: it is an alarm, and somebody must act.
                    (_, Clocks::Apart) => error!(
                        ?distance,
                        postgres_ahead_ms = postgres,
                        nats_ahead_ms = nats,
                        "the clocks of this host, PostgreSQL and NATS are apart, nothing is put back until they agree: synchronise them"
                    ),
                    (Clocks::Apart, _) => info!("the clocks agree again, work is put back"),
                    _ => {}
                }
            }
            None => debug!("the clocks can't be compared now"),
        }
        if !pause(every, &term).await {
            return;
        }
    }
}

async fn read(store: &Store, client: &Client) -> Option<[Reading; 2]> {
    let before = clock::now();
    let there = store.time().await.ok()?;
    let postgres = Reading {
        before,
        there,
        after: clock::now(),
    };
    let before = clock::now();
    let state = inspect::stream_state(client, subject::EVENTS).await.ok()?;
    let nats = Reading {
        before,
        there: state.server_time,
        after: clock::now(),
    };
    Some([postgres, nats])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::milliseconds(millis)
    }

    fn reading(before: i64, there: i64, after: i64) -> Reading {
        Reading {
            before: at(before),
            there: at(there),
            after: at(after),
        }
    }

    #[test]
    fn distance_is_what_is_certain_whatever_the_answers_took() {
        for (readings, expected) in [
            // In the middle of a slow answer: nothing is certain.
            (vec![reading(0, 3_000, 6_000)], 0),
            (vec![reading(0, 6_000, 0)], 6_000),
            (vec![reading(0, -6_000, 1_000)], 6_000),
            (vec![reading(0, 7_000, 1_000)], 6_000),
            // Neither is far from us, but they are far from each other.
            (vec![reading(0, 4_000, 0), reading(0, -4_000, 0)], 8_000),
            (vec![reading(0, 10, 20), reading(30, 35, 40)], 0),
            (vec![], 0),
        ] {
            assert_eq!(
                apart(&readings).num_milliseconds(),
                expected,
                "{readings:?}"
            );
        }
    }
}
