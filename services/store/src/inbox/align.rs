//! A source whose hand-off was configured anew.

use chrono::{DateTime, Utc};
use hooklane_proto::token::Partner;

use super::Mode;
use crate::{Error, Store};

impl Store {
    /// Lets what waits to be handed off, or would after a replay, go the way that its source is
    /// configured to go now; answers how many events that were to go another way. For the start of a
    /// service.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn inbox_align(
        &self,
        now: DateTime<Utc>,
        modes: &[(Partner, Mode)],
    ) -> Result<u64, Error> {
        let doing = "turning inbox events to another hand-off";
        let partners: Vec<&str> = modes.iter().map(|(name, _)| name.as_str()).collect();
        let words: Vec<&str> = modes.iter().map(|(_, mode)| mode.as_str()).collect();
        let waiting = sqlx::query!(
            "UPDATE hooklane.webhook_inbox w
                SET hand_off = m.mode, leased_until = NULL,
                    next_at = CASE WHEN w.leased_until IS NULL THEN w.next_at ELSE $3 END
               FROM unnest($1::text[], $2::text[]) AS m (partner, mode)
              WHERE w.partner_name = m.partner AND w.hand_off <> m.mode AND w.status = 'PENDING'
                AND w.stage = 'hand_off'",
            &partners as &[&str],
            &words as &[&str],
            now,
        )
        .execute(self.pool())
        .await
        .map_err(Error::doing(doing))?;
        let quarantined = sqlx::query!(
            "UPDATE hooklane.webhook_inbox w SET hand_off = m.mode
               FROM unnest($1::text[], $2::text[]) AS m (partner, mode)
              WHERE w.partner_name = m.partner AND w.hand_off <> m.mode
                AND w.status = 'QUARANTINED' AND w.stage = 'hand_off'",
            &partners as &[&str],
            &words as &[&str],
        )
        .execute(self.pool())
        .await
        .map_err(Error::doing(doing))?;
        Ok(waiting.rows_affected() + quarantined.rows_affected())
    }
}
