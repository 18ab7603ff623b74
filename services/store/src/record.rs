//! Records into rows: what happened at the lanes becomes attempts, states of deliveries, backlogs,
//! the health of endpoints, and the news of it.
//!
//! Owns [`Store::apply`] and [`Store::fail_as_poison`]. The rules by which records merge and act on
//! their endpoints are `merge` and `health` of `hooklane_core::rules`; here are the statements that
//! do so to rows, so that records may arrive twice and in any order. Does not own reading the stream, nor what to do with a batch
//! that can't be written: that is the recorder's.

use hooklane_core::rules::health::Settings;
use hooklane_proto::record::Record;

use crate::{Error, Store};

mod change;
mod health;
mod reduce;
mod write;

use reduce::Reduced;

/// How many faults of our own fail a delivery as poison.
pub const MAX_FAULTS: i32 = 5;

/// What a batch did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Attempts written that were not there before.
    pub attempts: u64,
    /// Deliveries changed.
    pub changed: u64,
    /// Deliveries that knew as much or more already.
    pub outranked: u64,
    /// Deliveries that are not in the ledger (any more): their day was dropped.
    pub missing: u64,
    /// Deliveries that failed as poison, for too many faults of our own.
    pub poisoned: u64,
    /// Endpoints that are failing now.
    pub failing: u64,
    /// Endpoints that were failing.
    pub recovered: u64,
    /// Endpoints disabled, by a 410 or for failing too long.
    pub disabled: u64,
    /// Endpoints held by a `Retry-After`.
    pub held: u64,
}

impl std::ops::AddAssign for Applied {
    fn add_assign(&mut self, other: Self) {
        let Self {
            attempts,
            changed,
            outranked,
            missing,
            poisoned,
            failing,
            recovered,
            disabled,
            held,
        } = other;
        self.attempts += attempts;
        self.changed += changed;
        self.outranked += outranked;
        self.missing += missing;
        self.poisoned += poisoned;
        self.failing += failing;
        self.recovered += recovered;
        self.disabled += disabled;
        self.held += held;
    }
}

impl Store {
    /// Writes a batch of records in one transaction: all of it or nothing. Applying a record again
    /// changes nothing, and any order ends in the same deliveries. Endpoints are judged by the
    /// default settings.
    ///
    /// Locks in the order attempts, deliveries, backlogs, endpoints' health, endpoints, each sorted
    /// by key.
    ///
    /// # Errors
    /// Where the database fails. [`Error::is_data_fault`] says that a record of this batch can't be
    /// written; the others can be, without it.
    pub async fn apply(&self, records: &[Record]) -> Result<Applied, Error> {
        self.apply_by(records, &Settings::default()).await
    }

    /// As [`Store::apply`], with settings for the health of endpoints.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub async fn apply_by(&self, records: &[Record], health: &Settings) -> Result<Applied, Error> {
        self.write(&Reduced::of(records), health).await
    }

    /// Fails the deliveries of records that can't be written, so that none stays `received`. The
    /// same ranks hold: a delivery that is `sent` stays so.
    ///
    /// # Errors
    /// Where the database fails. [`Error::is_data_fault`] says that not even the keys can be used,
    /// so that there is no such delivery.
    pub async fn fail_as_poison(&self, records: &[Record]) -> Result<Applied, Error> {
        self.write(&Reduced::poison(records), &Settings::default())
            .await
    }

    async fn write(&self, reduced: &Reduced, health: &Settings) -> Result<Applied, Error> {
        let days = reduced.attempts.iter().map(|attempt| attempt.started_at);
        self.ensure_days(days).await?;
        let written = self.write_once(reduced, health).await;
        if !matches!(&written, Err(error) if error.is_data_fault()) {
            return written;
        }
        // A day partition may have been dropped since this process last saw it.
        self.days.clear();
        let days = reduced.attempts.iter().map(|attempt| attempt.started_at);
        self.ensure_days(days).await?;
        self.write_once(reduced, health).await
    }

    async fn write_once(&self, reduced: &Reduced, health: &Settings) -> Result<Applied, Error> {
        let mut tx = self.begin_probing().await?;
        let applied = write::all(&mut tx, reduced, health).await?;
        tx.commit()
            .await
            .map_err(Error::doing("committing records"))?;
        Ok(applied)
    }
}
