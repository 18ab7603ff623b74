//! Receiving: many requests at once, each kept once.
//!
//! One statement for all of them, committed before anything is answered. What the database refuses for
//! a reason of one item is tried again item by item, so that no request fails for its neighbour's sake.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;

use super::insert::{NewRow, insert, settle};
use super::{Headers, event_type, sha256};
use crate::{Error, Store};

/// Missing partitions, deadlocks and rows that went in the meantime before a call gives up.
const RETRIES: u32 = 5;

/// A verified request, or one whose source verifies nothing.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// A new id.
    pub id: InboxId,
    /// Whose way in it came.
    pub partner: Partner,
    /// The partner's own id of it, at most 100 characters.
    pub partner_event_id: String,
    /// Whether the signature covers that id.
    pub id_signed: bool,
    /// What to do where the same body came under another id that is not signed; `None` doesn't look.
    pub same_body: Option<SameBody>,
    /// Whether a signature was verified.
    pub signature_verified: bool,
    /// Which secret verified it.
    pub key_label: Option<String>,
    /// What the signature covers: `full`, or `partial: ` and what it does not.
    pub integrity: String,
    /// What happened, where that is known already.
    pub event_type: Option<String>,
    /// The body's media type.
    pub content_type: Option<String>,
    /// Those headers that may be kept.
    pub headers: Headers,
    /// The exact bytes.
    pub body: Bytes,
}

/// What to do with a body that came before, under another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SameBody {
    /// How long ago at most.
    pub within: Duration,
    /// Whether it is not kept; otherwise it is kept with a mark. Of two that arrive in the same moment,
    /// both may be kept without.
    pub drop: bool,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receipt {
    /// It is kept.
    New,
    /// It is kept, and this earlier event has the same body under another id.
    Flagged(InboxId),
    /// It was there already, as this event.
    Duplicate(InboxId),
    /// It was there already, in quarantine, and is out of it now.
    ReArmed(InboxId),
    /// This event has the same id and another body. The first one stays; a few of the others are kept to
    /// be looked at.
    Conflict(InboxId),
    /// It is not kept: this earlier event has the same body under another id.
    BodySeen(InboxId),
    /// The database can't hold it; the SQLSTATE.
    Refused(String),
}

impl Receipt {
    /// The kind, for metrics and logs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Flagged(_) => "flagged",
            Self::Duplicate(_) => "duplicate",
            Self::ReArmed(_) => "re_armed",
            Self::Conflict(_) => "conflict",
            Self::BodySeen(_) => "body_seen",
            Self::Refused(_) => "refused",
        }
    }

    /// Whether the event is in the ledger, this time or before.
    #[must_use]
    pub const fn is_stored(&self) -> bool {
        !matches!(self, Self::BodySeen(_) | Self::Refused(_))
    }
}

impl Store {
    /// Keeps requests, each under its partner's id and once; answers for each, in order, after it is
    /// committed. About 1,000 items and 16 MiB are the most that one call should have.
    ///
    /// Cancel-safe: what a dropped call has kept is a repetition the next time.
    ///
    /// # Errors
    /// Where the database can't be reached or fails: then nothing is known about any of them.
    pub async fn inbox_receive(
        &self,
        now: DateTime<Utc>,
        items: &[Incoming],
    ) -> Result<Vec<Receipt>, Error> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        self.ensure_days([now]).await?;
        let rows: Vec<NewRow<'_>> = items.iter().map(|item| row(now, item)).collect();
        let mut receipts: Vec<Option<Receipt>> = vec![None; rows.len()];
        for turn in [first_of_each_body(&rows), (0..rows.len()).collect()] {
            let open: Vec<usize> = turn
                .into_iter()
                .filter(|n| receipts[*n].is_none())
                .collect();
            self.keep(now, &rows, open, &mut receipts).await?;
        }
        let missing = || Error::Unreadable {
            doing: "keeping inbox events",
            problem: "an event neither could be written nor was there".to_owned(),
        };
        receipts
            .into_iter()
            .map(|receipt| receipt.ok_or_else(missing))
            .collect()
    }

    /// Keeps some of the rows, all at once, and one by one where that fails for one of them.
    async fn keep(
        &self,
        now: DateTime<Utc>,
        rows: &[NewRow<'_>],
        open: Vec<usize>,
        receipts: &mut [Option<Receipt>],
    ) -> Result<(), Error> {
        let error = match self.keep_together(now, rows, &open, receipts).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_data_fault() => error,
            Err(error) => return Err(error),
        };
        tracing::warn!(%error, items = open.len(), "inbox events can't be kept together, trying each");
        for n in open {
            match self.keep_together(now, rows, &[n], receipts).await {
                Ok(()) => {}
                Err(error) if error.is_data_fault() => {
                    let state = error.sqlstate().unwrap_or_default();
                    receipts[n] = Some(Receipt::Refused(state.into_owned()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn keep_together(
        &self,
        now: DateTime<Utc>,
        rows: &[NewRow<'_>],
        open: &[usize],
        receipts: &mut [Option<Receipt>],
    ) -> Result<(), Error> {
        let mut open = open.to_vec();
        let mut retries = 0;
        loop {
            let error = match self.keep_once(now, rows, &mut open, receipts).await {
                Ok(()) if open.is_empty() || retries == RETRIES => return Ok(()),
                // Something went in the meantime: what is left is new by now.
                Ok(()) => None,
                Err(error) => Some(error),
            };
            let state = error
                .as_ref()
                .and_then(Error::sqlstate)
                .map(std::borrow::Cow::into_owned);
            match (state.as_deref(), error) {
                // The day was dropped, or is another one.
                (Some("23514"), Some(_)) if retries < RETRIES => {
                    self.days.clear();
                    self.ensure_days([now]).await?;
                }
                (Some("40P01" | "40001"), Some(_)) if retries < RETRIES => {}
                (_, Some(error)) => return Err(error),
                (_, None) => {}
            }
            retries += 1;
        }
    }

    /// One statement for those that are new, and a transaction for those that are not. Takes out of
    /// `open` what has its receipt.
    async fn keep_once(
        &self,
        now: DateTime<Utc>,
        rows: &[NewRow<'_>],
        open: &mut Vec<usize>,
        receipts: &mut [Option<Receipt>],
    ) -> Result<(), Error> {
        let doing = "keeping inbox events";
        let wanted: Vec<&NewRow<'_>> = open.iter().map(|n| &rows[*n]).collect();
        let mut conn = self.pool().acquire().await.map_err(Error::doing(doing))?;
        let made = insert(&mut conn, now, &wanted).await?;
        open.retain(|n| {
            let made = made.get(&rows[*n].id.uuid());
            receipts[*n] = made.map(|seen| match seen {
                Some(seen) => Receipt::Flagged(InboxId::from_uuid(*seen)),
                None => Receipt::New,
            });
            made.is_none()
        });
        if open.is_empty() {
            return Ok(());
        }
        let left: Vec<&NewRow<'_>> = open.iter().map(|n| &rows[*n]).collect();
        let mut tx = sqlx::Connection::begin(&mut *conn)
            .await
            .map_err(Error::doing(doing))?;
        let mut settled = settle(&mut tx, now, &left).await?;
        for (receipt, row) in settled.iter_mut().zip(&left) {
            if receipt.is_none() {
                *receipt = seen_before(&mut tx, now, row).await?;
            }
        }
        tx.commit().await.map_err(Error::doing(doing))?;
        let mut settled = settled.into_iter();
        open.retain(|n| {
            receipts[*n] = settled.next().flatten();
            receipts[*n].is_none()
        });
        Ok(())
    }
}

/// Whether a row that was neither written nor is there was left out because of its body.
async fn seen_before(
    conn: &mut sqlx::PgConnection,
    now: DateTime<Utc>,
    row: &NewRow<'_>,
) -> Result<Option<Receipt>, Error> {
    let Some((seconds, true)) = row.same_body.filter(|_| !row.id_signed) else {
        return Ok(None);
    };
    let seen = sqlx::query_scalar!(
        "SELECT id FROM hooklane.webhook_inbox
          WHERE partner_name = $1 AND body_sha256 = $2 AND NOT id_signed AND partner_event_id <> $3
            AND received_at >= $4::timestamptz - make_interval(secs => $5)
          ORDER BY received_at, id LIMIT 1",
        row.partner,
        row.sha256.as_slice(),
        row.event_id,
        now,
        seconds,
    )
    .fetch_optional(conn)
    .await
    .map_err(Error::doing("looking for a body in the inbox"))?;
    Ok(seen.map(|id| Receipt::BodySeen(InboxId::from_uuid(id))))
}

fn row(now: DateTime<Utc>, item: &Incoming) -> NewRow<'_> {
    NewRow {
        id: item.id,
        partner: item.partner.as_str(),
        event_id: &item.partner_event_id,
        received_at: now,
        signature_verified: item.signature_verified,
        id_signed: item.id_signed,
        same_body: item
            .same_body
            .map(|same| (same.within.as_secs_f64(), same.drop)),
        event_type: item.event_type.as_deref().map(event_type),
        integrity: &item.integrity,
        key_label: item.key_label.as_deref(),
        content_type: item.content_type.as_deref(),
        headers: Some(&item.headers),
        body: &item.body,
        sha256: sha256(&item.body),
        parent: None,
    }
}

/// Those rows that don't have an earlier row's body, where that matters: a statement doesn't see what it
/// writes itself.
fn first_of_each_body(rows: &[NewRow<'_>]) -> Vec<usize> {
    let mut seen = HashSet::new();
    (0..rows.len())
        .filter(|n| {
            let row = &rows[*n];
            row.id_signed || row.same_body.is_none() || seen.insert((row.partner, row.sha256))
        })
        .collect()
}
