//! Day partitions ahead of time, and what is too old: now and then, by any recorder.
//!
//! A failure is logged and waits for the next time: writers make a missing day themselves, and an
//! old day costs space only.

use chrono::{DateTime, Days, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_store::day::Drop;
use hooklane_store::{Error, Store};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::Config;

/// Keys that one statement forgets.
const KEYS_AT_ONCE: u16 = 5_000;

/// Keeps house until it is told to stop.
pub(crate) async fn run(config: Config, store: Store, shutdown: CancellationToken) {
    let mut ticks = interval(config.housekeeping_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = once(&config, &store, clock::now()) => {}
        }
    }
}

/// Everything once. Safe to cut off anywhere.
async fn once(config: &Config, store: &Store, now: DateTime<Utc>) {
    report("making day partitions", make_days(config, store, now).await);
    report("dropping old days", drop_days(config, store, now).await);
    report(
        "forgetting idempotency keys",
        forget_keys(config, store, now).await,
    );
    let secrets = store.forget_expired_secrets().await;
    report("forgetting expired secrets", secrets.map(|_deleted| ()));
}

fn report(what: &'static str, result: Result<(), Error>) {
    match result {
        Ok(()) => {}
        Err(error) if error.is_transient() => warn!(%error, "{what} failed, trying again later"),
        Err(error) => error!(%error, "{what} failed and will go on failing until this is repaired"),
    }
}

async fn make_days(config: &Config, store: &Store, now: DateTime<Utc>) -> Result<(), Error> {
    let days = 0..=i64::from(config.days_ahead);
    store
        .ensure_days(days.map(|n| now + TimeDelta::days(n)))
        .await
}

async fn drop_days(config: &Config, store: &Store, now: DateTime<Utc>) -> Result<(), Error> {
    let Some(oldest_kept) = now
        .date_naive()
        .checked_sub_days(Days::new(u64::from(config.retention_days)))
    else {
        return Ok(());
    };
    let old = store.days().await?;
    for day in old.into_iter().filter(|day| *day < oldest_kept) {
        match store.drop_day(day, config.drop_lock_timeout).await? {
            Drop::Dropped => info!(%day, "dropped a day that was older than the retention"),
            Drop::Open => {
                warn!(%day, "a day is older than the retention, and kept: it has open deliveries")
            }
            Drop::Busy => info!(%day, "an old day is in use, dropping it later"),
        }
    }
    Ok(())
}

async fn forget_keys(config: &Config, store: &Store, now: DateTime<Utc>) -> Result<(), Error> {
    let kept = TimeDelta::from_std(config.idempotency_keys_for).unwrap_or(TimeDelta::MAX);
    let Some(before) = now.checked_sub_signed(kept) else {
        return Ok(());
    };
    let mut forgotten = 0;
    loop {
        let now = store.forget_keys(before, i64::from(KEYS_AT_ONCE)).await?;
        forgotten += now;
        if now < u64::from(KEYS_AT_ONCE) {
            break;
        }
    }
    if forgotten > 0 {
        info!(forgotten, "forgot old idempotency keys");
    }
    Ok(())
}
