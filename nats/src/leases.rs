//! Who owns which partition: leases in the `LEASES` bucket, by compare-and-set.
//!
//! A lease is an entry that the bucket forgets [`MAX_AGE`] after its last renewal. Owns taking,
//! renewing and releasing; does not own time. **The holder** must read a clock that runs while the
//! machine is suspended *before* each [`Leases::acquire`] and [`Lease::renew`], and stop by itself
//! when two thirds of [`MAX_AGE`] have passed since the reading before the last that succeeded:
//! then no other can have it yet.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use hooklane_proto::subject;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bucket::{self, Bucket, Write};
use crate::client::Client;
use crate::error::Error;

/// How long an entry lives without renewal; the bucket's definition says the same.
pub const MAX_AGE: Duration = Duration::from_secs(10);
/// Longest renewal: the holder has time for a second one before two thirds of [`MAX_AGE`].
const RENEWAL: Duration = Duration::from_secs(3);

/// Fences one ownership against earlier ones: later is greater, also over a bucket made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// When the bucket was made.
    pub created: DateTime<Utc>,
    /// The revision that took the lease.
    pub revision: u64,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.created.timestamp_micros(), self.revision)
    }
}

/// Why a lease was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// It is another's, or nobody's: stop at once.
    #[error("the lease of partition {0} is lost")]
    Lost(u16),
    /// The broker can't be asked: try again, and stop at two thirds of [`MAX_AGE`].
    #[error("the lease can't be renewed now: {0}")]
    Unavailable(#[from] Error),
}

/// Who owns a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership {
    /// The partition.
    pub partition: u16,
    /// Who, in his own words.
    pub owner: String,
    /// The last renewal, by the broker's clock.
    pub renewed_at: DateTime<Utc>,
    /// The ids of the master keys that he has; none where his release did not tell.
    pub keys: Vec<String>,
}

/// The `LEASES` bucket.
#[derive(Clone)]
pub struct Leases {
    bucket: Bucket,
    keys: Vec<String>,
}

/// A partition owned. Dropping it leaves it to expire; releasing gives it up at once.
pub struct Lease {
    bucket: Bucket,
    partition: u16,
    value: Value,
    epoch: Epoch,
    revision: u64,
}

/// The nonce tells two holdings of one owner apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Value {
    owner: String,
    nonce: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
}

impl Leases {
    /// The bucket on this connection.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self {
            bucket: Bucket::new(client, subject::LEASES),
            keys: Vec::new(),
        }
    }

    /// The same for an owner who has master keys with these ids, which his leases tell.
    #[must_use]
    pub fn with_keys(self, keys: Vec<String>) -> Self {
        Self { keys, ..self }
    }

    /// Takes a partition that nobody owns; `None` where somebody does.
    ///
    /// # Errors
    /// Where the broker can't be asked. It may have the lease all the same, and forgets it.
    pub async fn acquire(&self, partition: u16, owner: &str) -> Result<Option<Lease>, Error> {
        let key = subject::lease_key(partition);
        let last = self.bucket.last(&key).await?;
        let free_since = match &last {
            Some(entry) if entry.value.is_some() => return Ok(None),
            Some(marker) => marker.revision,
            None => 0,
        };
        let value = Value {
            owner: owner.to_owned(),
            nonce: Uuid::now_v7().simple().to_string(),
            keys: self.keys.clone(),
        };
        let written = self
            .bucket
            .put(&key, free_since, bucket::to_json(&value))
            .await?;
        let Write::Stored(revision) = written else {
            return Ok(None);
        };
        // Read after the write: a bucket made anew in between has lost the lease anyway.
        let created = self.bucket.created().await?;
        Ok(Some(Lease {
            bucket: self.bucket.clone(),
            partition,
            value,
            epoch: Epoch { created, revision },
            revision,
        }))
    }

    /// Every partition that somebody owns, in order.
    ///
    /// # Errors
    /// Where the broker can't be asked.
    pub async fn list(&self) -> Result<Vec<Ownership>, Error> {
        let partitions = 0..self.bucket.client.partitions();
        let mut found = futures::stream::iter(partitions.map(|partition| async move {
            let entry = self.bucket.last(&subject::lease_key(partition)).await?;
            Ok::<_, Error>(entry.and_then(|entry| {
                let value: Value = bucket::json(&entry.value?)?;
                Some(Ownership {
                    partition,
                    owner: value.owner,
                    renewed_at: entry.stored,
                    keys: value.keys,
                })
            }))
        }))
        .buffered(16);
        let mut owners = Vec::new();
        while let Some(ownership) = found.next().await {
            owners.extend(ownership?);
        }
        Ok(owners)
    }
}

impl Lease {
    /// The partition owned.
    #[must_use]
    pub fn partition(&self) -> u16 {
        self.partition
    }

    /// What fences this ownership against earlier ones; renewals keep it.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Lives on for [`MAX_AGE`] from the moment this was called. It takes 3 s at the most. After a
    /// cancelled or failed call the next one finds out what became of it.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] where it is another's or expired, [`LeaseError::Unavailable`] where the
    /// broker can't be asked now.
    pub async fn renew(&mut self) -> Result<(), LeaseError> {
        let key = subject::lease_key(self.partition);
        match tokio::time::timeout(RENEWAL, self.renew_unbounded(&key)).await {
            Ok(renewed) => renewed,
            Err(_elapsed) => Err(LeaseError::Unavailable(Error::TimedOut {
                subject: key,
                after: RENEWAL,
            })),
        }
    }

    async fn renew_unbounded(&mut self, key: &str) -> Result<(), LeaseError> {
        let value = bucket::to_json(&self.value);
        match self.bucket.put(key, self.revision, value.clone()).await? {
            Write::Stored(revision) => {
                self.revision = revision;
                return Ok(());
            }
            Write::Moved => {}
        }
        // An earlier renewal may have got through though its answer did not. Its age is unknown, so
        // it is written once more.
        let entry = self.bucket.last(key).await?;
        let ours = entry.filter(|entry| {
            entry.value.as_ref().and_then(|value| bucket::json(value)) == Some(self.value.clone())
        });
        let Some(entry) = ours else {
            return Err(LeaseError::Lost(self.partition));
        };
        match self.bucket.put(key, entry.revision, value).await? {
            Write::Stored(revision) => {
                self.revision = revision;
                Ok(())
            }
            Write::Moved => Err(LeaseError::Lost(self.partition)),
        }
    }

    /// Gives it up, so that another can take it at once.
    ///
    /// # Errors
    /// Where the broker can't be asked: it expires then.
    pub async fn release(self) -> Result<(), Error> {
        let key = subject::lease_key(self.partition);
        // Where it has moved on it was not ours any more.
        self.bucket.delete(&key, self.revision).await?;
        Ok(())
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leases")
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("partition", &self.partition)
            .field("owner", &self.value.owner)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}
