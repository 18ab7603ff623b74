//! Looking behind the ledger's back.

use sqlx::{Connection as _, PgConnection};

use crate::ledger::Ledger;

impl Ledger {
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(self.database.url()).await.unwrap()
    }

    /// One value by plain SQL.
    pub(crate) async fn one<T>(&self, sql: &'static str) -> T
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let mut connection = self.connect().await;
        sqlx::query_scalar(sql)
            .fetch_one(&mut connection)
            .await
            .unwrap()
    }
}
