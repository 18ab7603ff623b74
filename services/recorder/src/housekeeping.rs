//! Day partitions ahead of time, and what is too old: now and then, by any recorder.
//!
//! What fails is tried again soon, and nothing waits for it: writers make a missing day themselves,
//! and an old day costs space only.

use std::time::Duration;

use chrono::{DateTime, Days, NaiveDate, NaiveTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_core::pace::Pauses;
use hooklane_store::day::Drop;
use hooklane_store::{Error, Store};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::Config;

/// Keys that one statement forgets.
const KEYS_AT_ONCE: u16 = 5_000;
/// Tasks that one statement forgets.
const TASKS_AT_ONCE: u32 = 1_000;
/// Audit entries that one statement forgets.
const ENTRIES_AT_ONCE: u32 = 5_000;
/// Inbox events that one statement forgets.
const EVENTS_AT_ONCE: u32 = 5_000;

/// Longest pause before what failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Keeps house until it is told to stop.
pub(crate) async fn run(config: Config, store: Store, term: CancellationToken) {
    let mut pauses = Pauses::new(LONGEST_PAUSE.min(config.housekeeping_every));
    loop {
        let well = tokio::select! {
            biased;
            () = term.cancelled() => return,
            well = once(&config, &store, clock::now()) => well,
        };
        let wait = if well {
            pauses = Pauses::new(LONGEST_PAUSE.min(config.housekeeping_every));
            config.housekeeping_every
        } else {
            pauses.next(rand::random())
        };
        tokio::select! {
            biased;
            () = term.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Everything once; `false` where something failed. Safe to cut off anywhere.
async fn once(config: &Config, store: &Store, now: DateTime<Utc>) -> bool {
    let made = make_days(config, store, now).await;
    let made = report("making day partitions", made);
    // Before the days: those of the inbox are searched for what is open.
    let events = report(
        "forgetting old inbox events",
        forget_inbox(config, store, now).await,
    );
    let dropped = report("dropping old days", drop_days(config, store, now).await);
    let keys = forget_keys(config, store, now).await;
    let keys = report("forgetting idempotency keys", keys);
    let secrets = store.forget_expired_secrets().await;
    let secrets = report("forgetting expired secrets", secrets.map(|_deleted| ()));
    let tasks = report(
        "forgetting old tasks",
        forget_tasks(config, store, now).await,
    );
    let entries = forget_audit_log(config, store, now).await;
    let entries = report("forgetting old audit entries", entries);
    made && events && dropped && keys && secrets && tasks && entries
}

fn report(what: &'static str, result: Result<(), Error>) -> bool {
    match &result {
        Ok(()) => {}
        Err(error) if error.is_transient() => warn!(%error, "{what} failed, trying again"),
        Err(error) => error!(%error, "{what} fails until this is repaired, trying again"),
    }
    result.is_ok()
}

async fn make_days(config: &Config, store: &Store, now: DateTime<Utc>) -> Result<(), Error> {
    let days = 0..=i64::from(config.days_ahead);
    store
        .ensure_days(days.map(|n| now + TimeDelta::days(n)))
        .await
}

/// The oldest day that is not too old.
fn oldest_kept(config: &Config, now: DateTime<Utc>) -> Option<NaiveDate> {
    let kept = Days::new(u64::from(config.retention_days));
    now.date_naive().checked_sub_days(kept)
}

async fn drop_days(config: &Config, store: &Store, now: DateTime<Utc>) -> Result<(), Error> {
    let Some(oldest_kept) = oldest_kept(config, now) else {
        return Ok(());
    };
    let old = store.days().await?;
    for day in old.into_iter().filter(|day| *day < oldest_kept) {
        match store.drop_day(day, config.drop_lock_timeout).await? {
            Drop::Dropped => info!(%day, "dropped a day that was older than the retention"),
            Drop::Open => {
                warn!(%day, "a day is older than the retention, and kept: it has open deliveries or inbox events")
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

async fn forget_audit_log(config: &Config, store: &Store, now: DateTime<Utc>) -> Result<(), Error> {
    let kept = TimeDelta::days(i64::from(config.audit_days));
    let Some(before) = now.checked_sub_signed(kept) else {
        return Ok(());
    };
    let mut forgotten = 0;
    loop {
        let now = store.forget_audit_log(before, ENTRIES_AT_ONCE).await?;
        forgotten += now;
        if now < u64::from(ENTRIES_AT_ONCE) {
            break;
        }
    }
    if forgotten > 0 {
        info!(forgotten, "forgot old audit entries");
    }
    Ok(())
}

/// Closed events of the inbox go before the days with their bodies.
async fn forget_inbox(config: &Config, store: &Store, now: DateTime<Utc>) -> Result<(), Error> {
    let Some(oldest_kept) = oldest_kept(config, now) else {
        return Ok(());
    };
    let before = oldest_kept.and_time(NaiveTime::MIN).and_utc();
    let mut forgotten = 0;
    loop {
        let now = store.inbox_forget(before, EVENTS_AT_ONCE).await?;
        forgotten += now;
        if now < u64::from(EVENTS_AT_ONCE) {
            break;
        }
    }
    if forgotten > 0 {
        info!(forgotten, "forgot old inbox events");
    }
    Ok(())
}

/// Tasks go with the days that they were about.
async fn forget_tasks(config: &Config, store: &Store, now: DateTime<Utc>) -> Result<(), Error> {
    let Some(oldest_kept) = oldest_kept(config, now) else {
        return Ok(());
    };
    let before = oldest_kept.and_time(NaiveTime::MIN).and_utc();
    let mut forgotten = 0;
    loop {
        let now = store.forget_tasks(before, TASKS_AT_ONCE).await?;
        forgotten += now;
        if now < u64::from(TASKS_AT_ONCE) {
            break;
        }
    }
    if forgotten > 0 {
        info!(forgotten, "forgot old tasks");
    }
    Ok(())
}
