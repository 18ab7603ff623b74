//! One row that the ledger has not taken yet, for an operator who asks after it.

use chrono::{DateTime, Utc};
use hooklane_proto::id::MessageId;
use hooklane_proto::token::ConsumerId;
use sqlx::AssertSqlSafe;

use super::session;
use super::source::Source;
use super::table::Table;
use crate::{Error, Store};

/// A pending row, as far as its table tells.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Pending {
    /// Whose it is, as written.
    pub consumer: Option<String>,
    /// What happened, as written.
    pub event_type: Option<String>,
    /// When it was written.
    pub created_at: Option<DateTime<Utc>>,
}

/// The pending row of a source whose id or idempotency key is `text` (a message's id stands for the
/// row that it will come from); of `consumer`, where it is given. Looks through what is pending, so
/// it costs as much as there is.
///
/// # Errors
/// As [`super::status`].
pub async fn pending(
    store: &Store,
    source: &Source,
    text: &str,
    consumer: Option<&ConsumerId>,
) -> Result<Option<Pending>, Error> {
    let mut conn = session::open(store, source).await?;
    let table = Table::inspect(&mut conn, source).await?;
    let mut texts = vec![text.to_owned()];
    texts.extend(text.parse().map(|id: MessageId| id.uuid().to_string()));
    // A row without a key goes by its id, with the source's name before it.
    let prefix = format!("{}:", source.name);
    texts.extend(text.strip_prefix(&prefix).map(str::to_owned));
    sqlx::query_as(AssertSqlSafe(table.find.as_str()))
        .bind(texts)
        .bind(consumer.map(ConsumerId::as_str))
        .fetch_optional(&mut conn)
        .await
        .map_err(Error::doing("looking for an outbox row"))
}
