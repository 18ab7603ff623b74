//! Requests that were no partner's: the last of each source, for whoever wonders why.

use std::collections::BTreeSet;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use hooklane_proto::token::Partner;

use super::{Headers, detail, partner};
use crate::manage::Page;
use crate::{Error, Store};

/// What is kept of a reject's body, in bytes.
const MAX_BODY: usize = 16 << 10;

/// A request that was refused.
#[derive(Debug, Clone)]
pub struct Reject {
    /// The source that it was sent to.
    pub partner: Partner,
    /// Why it was refused.
    pub reason: String,
    /// Where it came from.
    pub remote: Option<String>,
    /// Those headers that may be kept.
    pub headers: Headers,
    /// The body; the first 16 KiB are kept.
    pub body: Bytes,
    /// How many bytes it had.
    pub bytes: u64,
}

/// A request that was refused, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its number; higher is later.
    pub id: i64,
    /// The source that it was sent to.
    pub partner: Partner,
    /// When.
    pub at: DateTime<Utc>,
    /// Why it was refused.
    pub reason: String,
    /// Where it came from.
    pub remote: Option<String>,
    /// Those headers that may be kept.
    pub headers: Headers,
    /// The beginning of the body.
    pub body: Bytes,
    /// How many bytes it had.
    pub bytes: u64,
}

impl Store {
    /// Keeps refused requests, the last `cap` of each source.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn inbox_reject(
        &self,
        now: DateTime<Utc>,
        rejects: &[Reject],
        cap: u32,
    ) -> Result<(), Error> {
        let doing = "keeping refused requests";
        if rejects.is_empty() {
            return Ok(());
        }
        let partners: Vec<&str> = rejects.iter().map(|one| one.partner.as_str()).collect();
        let reasons: Vec<String> = rejects.iter().map(|one| detail(&one.reason)).collect();
        let remotes: Vec<Option<String>> = rejects
            .iter()
            .map(|one| one.remote.as_deref().map(detail))
            .collect();
        let headers: Vec<String> = rejects.iter().map(|one| one.headers.write()).collect();
        let bodies: Vec<&[u8]> = rejects
            .iter()
            .map(|one| &one.body[..one.body.len().min(MAX_BODY)])
            .collect();
        let bytes: Vec<i64> = rejects
            .iter()
            .map(|one| i64::try_from(one.bytes).unwrap_or(i64::MAX))
            .collect();
        sqlx::query!(
            "INSERT INTO hooklane.inbox_rejects
                    (partner_name, at, reason, remote, headers, body, body_bytes)
             SELECT partner, $1, reason, remote, headers::json, body, bytes
               FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::int8[])
                    AS r (partner, reason, remote, headers, body, bytes)",
            now,
            &partners as &[&str],
            &reasons,
            &remotes as &[Option<String>],
            &headers,
            &bodies as &[&[u8]],
            &bytes,
        )
        .execute(self.pool())
        .await
        .map_err(Error::doing(doing))?;
        let sources: BTreeSet<&str> = partners.into_iter().collect();
        let sources: Vec<&str> = sources.into_iter().collect();
        // What somebody else is deleting already needs no second one.
        sqlx::query!(
            "DELETE FROM hooklane.inbox_rejects WHERE id IN (
                 SELECT r.id FROM unnest($1::text[]) AS s (partner)
                  CROSS JOIN LATERAL (SELECT id FROM hooklane.inbox_rejects
                                       WHERE partner_name = s.partner
                                       ORDER BY id DESC OFFSET $2 LIMIT 1) last
                  JOIN hooklane.inbox_rejects r
                    ON r.partner_name = s.partner AND r.id <= last.id
                   FOR UPDATE OF r SKIP LOCKED)",
            &sources as &[&str],
            i64::from(cap),
        )
        .execute(self.pool())
        .await
        .map_err(Error::doing(doing))?;
        Ok(())
    }

    /// Refused requests, the last first, of one source or of all; those before the number `after`.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn inbox_rejects(
        &self,
        of: Option<&Partner>,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Page<Rejected, i64>, Error> {
        let rows = sqlx::query!(
            r#"SELECT id, partner_name, at, reason, remote, headers::text AS "headers!", body,
                      body_bytes
                 FROM hooklane.inbox_rejects
                WHERE ($1::text IS NULL OR partner_name = $1) AND ($2::int8 IS NULL OR id < $2)
                ORDER BY id DESC LIMIT $3"#,
            of.map(Partner::as_str),
            after,
            i64::from(limit) + 1,
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::doing("listing refused requests"))?;
        let rejected: Result<Vec<Rejected>, Error> = rows
            .into_iter()
            .map(|row| {
                Ok(Rejected {
                    id: row.id,
                    partner: partner(&row.partner_name)?,
                    at: row.at,
                    reason: row.reason,
                    remote: row.remote,
                    headers: Headers::read(Some(&row.headers))?,
                    body: row.body.into(),
                    bytes: row.body_bytes.unsigned_abs(),
                })
            })
            .collect();
        Ok(Page::cut(rejected?, limit, |one| one.id))
    }
}
