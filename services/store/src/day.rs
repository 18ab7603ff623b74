//! Day partitions: made ahead of time and on demand, dropped whole, and what else grows old.
//!
//! Owns when a day may go (never with open deliveries or inbox events), not how long days are kept: that is the
//! recorder's configuration.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, NaiveDate, Utc};

use crate::{Error, Store};

mod retention;

pub use retention::Drop;

/// Days whose partitions this process has seen, so that writers need not ask each time.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownDays(Arc<Mutex<BTreeSet<NaiveDate>>>);

impl KnownDays {
    fn contains(&self, day: NaiveDate) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&day)
    }

    fn insert(&self, day: NaiveDate) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(day);
    }

    /// Forgets everything, after a partition turned out to be missing or was dropped.
    pub(crate) fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl Store {
    /// Makes the day partitions of these times where they don't exist yet. Costs nothing for days
    /// that this process has seen before.
    ///
    /// # Errors
    /// Where the database can't be reached or refuses.
    pub async fn ensure_days(
        &self,
        times: impl IntoIterator<Item = DateTime<Utc>>,
    ) -> Result<(), Error> {
        let missing: BTreeSet<NaiveDate> = times
            .into_iter()
            .map(|at| at.date_naive())
            .filter(|day| !self.days.contains(*day))
            .collect();
        for day in missing {
            let midnight = day.and_time(chrono::NaiveTime::MIN).and_utc();
            sqlx::query("SELECT hooklane.ensure_day($1)")
                .bind(midnight)
                .execute(self.pool())
                .await
                .map_err(Error::doing("making a day partition"))?;
            self.days.insert(day);
        }
        Ok(())
    }
}
