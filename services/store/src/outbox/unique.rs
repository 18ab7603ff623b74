//! Whether something keeps a source's ids unique.

use sqlx::PgConnection;

use super::source::{Source, quoted};
use crate::Error;

/// Why an id may stand in two rows, and what helps: rows are settled by their ids, and one that was
/// never read would be settled with its namesake.
///
/// An index of a partitioned table holds the partition key's columns, so that without them nothing
/// keeps ids unique across partitions; UUIDs are by themselves.
pub(super) async fn not_unique(
    conn: &mut PgConnection,
    source: &Source,
    table: &str,
    oid: i64,
    kind: &str,
    id_kind: &str,
) -> Result<Option<String>, Error> {
    let (alone, with_others, inherited): (bool, bool, bool) = sqlx::query_as(
        "SELECT coalesce(bool_or(i.indnkeyatts = 1), false), count(i.indexrelid) > 0,
                EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = a.attrelid)
         FROM pg_catalog.pg_attribute a
         LEFT JOIN pg_catalog.pg_index i
                ON i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indisready
               AND i.indpred IS NULL AND i.indexprs IS NULL
               AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
         WHERE a.attrelid = $1::bigint::oid AND a.attname = $2
         GROUP BY a.attrelid",
    )
    .bind(oid)
    .bind(&source.columns.id)
    .fetch_one(conn)
    .await
    .map_err(Error::doing("looking up an outbox table's indexes"))?;
    let id = quoted(&source.columns.id);
    if kind == "r" && inherited {
        return Ok(Some(format!(
            "other tables inherit from {table}, so that an id may stand in two of them; name a table that none inherits from"
        )));
    }
    if alone || (kind == "p" && id_kind == "uuid" && with_others) {
        return Ok(None);
    }
    let fix = match kind {
        "p" => format!(
            "partition it by {id} and make a unique index on that column, or use a column of type uuid that a unique index holds together with the partition key"
        ),
        _ => format!("CREATE UNIQUE INDEX CONCURRENTLY ON {table} ({id})"),
    };
    Ok(Some(format!(
        "nothing keeps the column {id} of {table} unique, and a row is settled by its id alone; {fix}"
    )))
}
