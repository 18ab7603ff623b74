//! How well an endpoint has answered of late.
//!
//! Reckoned when asked for, from an endpoint's newest attempts: at most [`MAX_ATTEMPTS`] of them, and
//! for as long as it may take to look for them, however busy it or its neighbours are.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_proto::id::EndpointId;

use crate::lookback::Lookback;
use crate::manage::Error;
use crate::{Error as Fault, Store, endpoint};

/// The longest window: a day.
pub const MAX_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
/// The most attempts that are looked at.
pub const MAX_ATTEMPTS: usize = 10_000;
/// How long to look for them.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many failures there were, by error class; those with an answer by its status, such as `500`.
pub type Failures = BTreeMap<String, u64>;

/// What an endpoint's newest attempts say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    /// Attempts that started before this are not counted.
    pub since: DateTime<Utc>,
    /// Whether all attempts of the window are counted; otherwise those since [`Statistics::since`],
    /// because there are too many, or because it took too long to look for more.
    pub complete: bool,
    /// Attempts.
    pub attempts: u64,
    /// Those that the endpoint took.
    pub succeeded: u64,
    /// The others.
    pub failed: u64,
    /// The time that half of them took at the most. `None` where there were none; likewise below.
    pub p50: Option<Duration>,
    /// The time that 95 of 100 took at the most.
    pub p95: Option<Duration>,
    /// The time that 99 of 100 took at the most.
    pub p99: Option<Duration>,
    /// The failures.
    pub failures: Failures,
}

/// What is counted of an attempt.
#[derive(Debug, Clone)]
struct Sample {
    started_at: DateTime<Utc>,
    duration_us: i64,
    /// `None` where the endpoint took it.
    failure: Option<String>,
}

/// What an endpoint's attempts of the last `window` say.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Invalid`] for a window longer than [`MAX_WINDOW`], or a fault of the
/// database.
pub async fn statistics(
    store: &Store,
    id: EndpointId,
    window: Duration,
) -> Result<Statistics, Error> {
    let back = TimeDelta::from_std(window)
        .ok()
        .filter(|_| window <= MAX_WINDOW)
        .ok_or_else(|| Error::Invalid("statistics go back a day at the most".to_owned()))?;
    endpoint::show(store, id).await?;
    let mut before = clock::now();
    let floor = before - back;
    let mut lookback = Lookback::new(floor, PATIENCE);
    let mut samples = Vec::new();
    loop {
        let from = lookback.from(before);
        let left = MAX_ATTEMPTS + 1 - samples.len();
        samples.extend(look(store, id, from, before, left).await?);
        if samples.len() > MAX_ATTEMPTS {
            samples.truncate(MAX_ATTEMPTS);
            let since = samples.last().map_or(from, |sample| sample.started_at);
            return Ok(Statistics::of(&samples, since, false));
        }
        if lookback.is_last(from) {
            return Ok(Statistics::of(&samples, floor, true));
        }
        before = from;
        if !lookback.goes_on() {
            return Ok(Statistics::of(&samples, from, false));
        }
    }
}

/// The newest of those that started from `from` on and before `before`, at most so many.
async fn look(
    store: &Store,
    id: EndpointId,
    from: DateTime<Utc>,
    before: DateTime<Utc>,
    most: usize,
) -> Result<Vec<Sample>, Fault> {
    sqlx::query_as!(
        Sample,
        r#"SELECT started_at, duration_us,
                  CASE WHEN verdict <> 'sent' THEN coalesce(error, status::text, 'unknown') END AS failure
             FROM hooklane.attempts
            WHERE endpoint_id = $1 AND started_at >= $2 AND started_at < $3
            ORDER BY started_at DESC LIMIT $4"#,
        id.uuid(),
        from,
        before,
        i64::try_from(most).unwrap_or(i64::MAX),
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("reckoning an endpoint's statistics"))
}

impl Statistics {
    fn of(samples: &[Sample], since: DateTime<Utc>, complete: bool) -> Self {
        let mut failures = Failures::new();
        for failure in samples.iter().filter_map(|sample| sample.failure.as_ref()) {
            *failures.entry(failure.clone()).or_default() += 1;
        }
        let mut micros: Vec<u64> = samples
            .iter()
            .map(|sample| sample.duration_us.unsigned_abs())
            .collect();
        micros.sort_unstable();
        // The nearest rank: a time that was really taken.
        let percentile = |per_cent: usize| {
            let rank = (micros.len() * per_cent).div_ceil(100);
            micros
                .get(rank.checked_sub(1)?)
                .map(|micros| Duration::from_micros(*micros))
        };
        let (attempts, failed) = (samples.len() as u64, failures.values().sum());
        Self {
            since,
            complete,
            attempts,
            succeeded: attempts - failed,
            failed,
            p50: percentile(50),
            p95: percentile(95),
            p99: percentile(99),
            failures,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(micros: impl IntoIterator<Item = i64>) -> Vec<Sample> {
        let sample = |duration_us| Sample {
            started_at: DateTime::UNIX_EPOCH,
            duration_us,
            failure: None,
        };
        micros.into_iter().map(sample).collect()
    }

    #[test]
    fn percentiles_are_times_that_were_taken() {
        let of = |samples: &[Sample]| {
            let told = Statistics::of(samples, DateTime::UNIX_EPOCH, true);
            [told.p50, told.p95, told.p99].map(|time| time.map(|time| time.as_micros()))
        };
        assert_eq!(of(&[]), [None; 3]);
        assert_eq!(of(&samples([7])), [Some(7); 3]);
        assert_eq!(of(&samples([9, 1])), [Some(1), Some(9), Some(9)]);
        assert_eq!(
            of(&samples((1..=1000).rev())),
            [Some(500), Some(950), Some(990)]
        );
    }
}
