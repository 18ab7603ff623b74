//! How much waits to be published.

use crate::{Error, Store};

impl Store {
    /// How many deliveries are on their way through the broker or are to get there, counted up to
    /// `limit`: a walk over that many entries of one partial index, and no further.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn received_up_to(&self, limit: u32) -> Result<u32, Error> {
        let doing = "counting what is to be published";
        let mut tx = self.begin_probing().await?;
        let count = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!"
                 FROM (SELECT FROM hooklane.deliveries WHERE status = 'received' LIMIT $1) AS received"#,
            i64::from(limit)
        )
        .fetch_one(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
        tx.rollback().await.map_err(Error::doing(doing))?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }
}
