//! One event set aside, by what names it where it came from.

use hooklane_proto::token::ConsumerId;

use super::{Rejected, Row};
use crate::{Error, Store};

impl Store {
    /// The event set aside last that has one of these ids where it came from, or else one of these
    /// keys; of `consumer`, where it is given.
    ///
    /// # Errors
    /// Where the database can't be reached or fails.
    pub(crate) async fn set_aside_as(
        &self,
        ids: &[String],
        keys: &[String],
        consumer: Option<&ConsumerId>,
    ) -> Result<Option<Rejected>, Error> {
        let row = rows!(
            "WHERE (source_id = ANY($1) OR idempotency_key = ANY($2))
               AND ($3::text IS NULL OR consumer_id = $3)
             ORDER BY source_id = ANY($1) DESC, id DESC LIMIT 1",
            ids,
            keys,
            consumer.map(ConsumerId::as_str),
        )
        .fetch_optional(self.pool())
        .await
        .map_err(Error::doing("looking for an event set aside"))?;
        Ok(row.map(Row::rejected))
    }
}
