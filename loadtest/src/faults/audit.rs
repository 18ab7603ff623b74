//! After the faults: whether everything accepted came to its end, and whether every invariant held,
//! by id, from the receivers' log and the ledger.
//!
//! The judge says what crashes excuse (I1, I4, I5, and I7 and I9 through what arrived); this adds
//! what only a run with limits and failing endpoints can show: I2 from the receivers' log, and that
//! no attempt came before it was due (I3).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context, Result};
use hooklane_store::audit::{self, Attempt};

use super::notes::Notes;
use super::pace::{self, Limits, Span};
use super::schedule::Field;
use crate::bench::Bench;
use crate::broker::Pair;
use crate::judge::{self, Judgement, Places};
use crate::receiver::Seen;
use crate::setup::Endpoints;

/// Attempts that count towards the schedule, by what they are not.
const UNCOUNTED: [&str; 2] = ["own_fault", "interrupted"];
/// A ledger's times are exact to a microsecond, and a delay is measured on another clock than they.
const ROUNDING: Duration = Duration::from_millis(5);

/// What the audit goes by.
pub(super) struct Audit<'a> {
    pub(super) bench: &'a Bench,
    pub(super) notes: &'a Notes,
    pub(super) field: &'a Field,
    pub(super) settings: &'a [Endpoints],
    /// The delays of the retry schedule.
    pub(super) delays: &'a [Duration],
}

impl Audit<'_> {
    /// Judges everything; what is wrong is among the judgement's faults. Beside it, what is known of
    /// a few deliveries that nothing excuses.
    pub(super) async fn judgement(&self) -> Result<(Judgement, Vec<String>)> {
        let verdict = self.bench.verdict().await?;
        let log = self.bench.receiver.log();
        let places = Places {
            plan: &self.bench.plan,
            endpoints: &self.bench.endpoints,
        };
        let Notes {
            crashes, hidden, ..
        } = self.notes;
        let mut judgement = Judgement::of(&verdict, &log, &places, crashes, hidden);
        judgement.faults.extend(self.paces(&log));
        let caught = crashes.iter().flat_map(|crash| crash.open.iter().copied());
        let caught: HashSet<Pair> = caught.collect();
        judgement.faults.extend(self.too_early(&caught).await?);
        let Bench { epoch, store, .. } = self.bench;
        let known = judge::explain(&judgement.suspects, &log, &places, *epoch, store).await?;
        Ok((judgement, known))
    }

    /// I2, endpoint by endpoint.
    fn paces(&self, log: &[Seen]) -> Vec<String> {
        let mut faults = Vec::new();
        for (endpoint, requests) in pace::by_endpoint(&self.bench.plan, log) {
            let links = self.notes.hidden.iter();
            let stalls: Vec<Span> = links
                .filter(|link| link.endpoint == endpoint)
                .map(|link| Span {
                    from: link.from,
                    to: link.to,
                })
                .collect();
            let requests = pace::without(requests, &stalls);
            let settings = self.settings[endpoint as usize % self.settings.len()];
            let limits = Limits {
                rate: settings.rate.map(f64::from),
                concurrency: u32::from(settings.concurrency),
                owners: u32::try_from(self.field.dispatchers.len()).unwrap_or(1),
                // Away from an owner that is gone, and back when the shares are evened out.
                hands: 2,
            };
            if let Some(excess) = pace::excess(&requests, limits, &self.notes.moves) {
                faults.push(format!(
                    "endpoint {endpoint} saw {} requests beyond its rate and {} beyond its \
                     concurrency, the first after {:.1} s (I2)",
                    excess.beyond_rate,
                    excess.beyond_concurrency,
                    excess.first as f64 / 1e6
                ));
            }
        }
        faults
    }

    /// I3: attempts that came before the one before allowed it, save of those that crashes caught.
    async fn too_early(&self, caught: &HashSet<Pair>) -> Result<Option<String>> {
        let mut by_pair: HashMap<Pair, Vec<Attempt>> = HashMap::new();
        audit::attempts(&self.bench.store, |attempt| {
            let pair = (attempt.message, attempt.endpoint);
            if !caught.contains(&pair) {
                by_pair.entry(pair).or_default().push(attempt);
            }
        })
        .await
        .context("reading the recorded attempts")?;
        let mut early = Vec::new();
        for (pair, mut attempts) in by_pair {
            attempts.sort_unstable_by_key(|attempt| attempt.started_at);
            if is_early(&attempts, self.delays) {
                early.push(pair);
            }
        }
        Ok(early.first().map(|first| {
            format!(
                "{} deliveries were attempted before they were due, such as {first:?} (I3)",
                early.len()
            )
        }))
    }
}

/// Whether one of a delivery's attempts, in order, came before the schedule allows it.
fn is_early(attempts: &[Attempt], delays: &[Duration]) -> bool {
    let mut counted = 0;
    for pair in attempts.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let error = before.error.as_deref();
        if error.is_some_and(|error| UNCOUNTED.contains(&error)) {
            continue;
        }
        counted += 1;
        let Some(delay) = delays.get(counted - 1) else {
            continue;
        };
        let took = Duration::from_micros(u64::try_from(before.duration_us).unwrap_or(0));
        let passed = (after.started_at - before.started_at)
            .to_std()
            .unwrap_or_default();
        if passed + ROUNDING < took + *delay {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};
    use hooklane_proto::id::{EndpointId, MessageId};

    use super::*;

    fn attempt(millis: i64, error: Option<&str>) -> Attempt {
        Attempt {
            message: MessageId::for_test(1),
            endpoint: EndpointId::for_test(1),
            series: 1,
            drive: 1,
            number: 1,
            started_at: DateTime::UNIX_EPOCH + TimeDelta::milliseconds(millis),
            duration_us: 100_000,
            status: None,
            error: error.map(str::to_owned),
            detail: None,
        }
    }

    #[test]
    fn attempts_are_early_only_within_the_delay_after_a_counted_one() {
        let delays = [Duration::from_secs(1), Duration::from_secs(2)];
        let reset = Some("reset");
        let fine = [
            attempt(0, reset),
            attempt(1_100, reset),
            attempt(3_200, None),
        ];
        assert!(!is_early(&fine, &delays));
        let early = [
            attempt(0, reset),
            attempt(1_100, reset),
            attempt(3_000, None),
        ];
        assert!(is_early(&early, &delays));
        let uncounted = [attempt(0, Some("interrupted")), attempt(200, None)];
        assert!(!is_early(&uncounted, &delays));
    }
}
