//! A source's table as it is in the database, and the statements for it.
//!
//! Names come from the configuration and are checked against the catalogue and quoted; types come
//! from the catalogue. Values are always bound.

use std::collections::HashMap;

use sqlx::PgConnection;

use super::source::{OnPublished, REQUIRED, Source, quoted, quoted_table};
use super::unique;
use crate::Error;
use crate::accept::MAX_PAYLOAD;

/// Payloads stored in more bytes than this are not even looked into: whatever their text is, it is
/// over the limit.
const MAX_STORED: usize = 16 * MAX_PAYLOAD;

/// How a table is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// From the horizon: cost does not grow with what was processed.
    Horizon,
    /// From the start each time: cost grows while an old snapshot keeps dead rows alive.
    Plain,
}

/// The statements for a table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// Its object id, which the leader's lock and the horizon go by.
    pub(super) oid: i64,
    /// How it is read, as far as the table is concerned.
    pub(super) scan: Scan,
    /// Why it is read from the start.
    pub(super) why_plain: Option<String>,
    /// Whether its keys are integers.
    pub(super) numeric: bool,
    /// The last position drawn: of [`Scan::Horizon`] alone.
    pub(super) last_drawn: String,
    /// Rows above a key: `$1` the key or null, `$2` how many, `$3` bytes of payload.
    pub(super) page: String,
    /// Rows by key: `$1` the keys, in the order wanted, `$2` bytes of payload.
    pub(super) by_keys: String,
    /// Keys and consumers above a key: `$1` the key or null, `$2` only these consumers or null,
    /// `$3` none of these consumers, `$4` how many.
    pub(super) keys: String,
    /// Settles rows: `$1` their ids.
    pub(super) settle: String,
    /// Removes settled rows: `$1` seconds that they are kept, `$2` how many; empty where rows are
    /// deleted at once.
    pub(super) purge: String,
    /// Counts: pending, oldest pending, settled.
    pub(super) count: String,
    /// One pending row: `$1` texts, one of which is its id or its idempotency key, `$2` its consumer
    /// or null. Answers its consumer, event type and time.
    pub(super) find: String,
}

struct Column {
    kind: String,
    not_null: bool,
    identity: String,
}

impl Table {
    /// Looks the table up and prepares its statements.
    pub(super) async fn inspect(conn: &mut PgConnection, source: &Source) -> Result<Self, Error> {
        let fault = |problem: String| Error::Outbox {
            outbox: source.name.clone(),
            problem,
        };
        let name = quoted_table(&source.table);
        let found: Option<(i64, String)> = sqlx::query_as(
            "SELECT oid::bigint, relkind::text FROM pg_catalog.pg_class WHERE oid = to_regclass($1)",
        )
        .bind(&name)
        .fetch_optional(&mut *conn)
        .await
        .map_err(Error::doing("looking up an outbox table"))?;
        let Some((oid, kind)) = found else {
            return Err(fault(format!(
                "the table {name} does not exist, or the role may not use its schema"
            )));
        };
        if kind != "r" && kind != "p" {
            return Err(fault(format!("{name} is not a table")));
        }
        let columns = columns(&mut *conn, oid).await?;
        let mut problems = missing(source, &name, &columns);
        if let Some(id) = columns.get(source.columns.id.as_str()) {
            if !id.not_null {
                problems.push(format!(
                    "the column {} of {name} may be null; an id is needed to settle a row",
                    quoted(&source.columns.id)
                ));
            }
            problems
                .extend(unique::not_unique(&mut *conn, source, &name, oid, &kind, &id.kind).await?);
        }
        if !problems.is_empty() {
            return Err(fault(problems.join("; ")));
        }
        let (last_drawn, why_plain) = if kind == "p" {
            (None, Some("it is partitioned".to_owned()))
        } else {
            sequence(&mut *conn, source, &name, &columns).await?
        };
        Ok(Self::statements(
            source, oid, &columns, last_drawn, why_plain,
        ))
    }

    fn statements(
        source: &Source,
        oid: i64,
        columns: &HashMap<String, Column>,
        last_drawn: Option<String>,
        why_plain: Option<String>,
    ) -> Self {
        let names = &source.columns;
        let table = quoted_table(&source.table);
        let text = |name: &str| match name {
            "" => "NULL::text".to_owned(),
            name => format!("t.{}::text", quoted(name)),
        };
        // Reading goes on above the last key read, so keys must be unique.
        let key_name = if last_drawn.is_some() {
            &names.order
        } else {
            &names.id
        };
        let key = format!("t.{}", quoted(key_name));
        let key_type = &columns[key_name.as_str()].kind;
        let id = quoted(&names.id);
        let id_type = &columns[names.id.as_str()].kind;
        let pending = match names.processed_at.as_str() {
            "" => "true".to_owned(),
            name => format!("t.{} IS NULL", quoted(name)),
        };
        let column = format!("t.{}", quoted(&names.payload));
        // Bytes of the text in UTF-8, whatever the database's encoding is.
        let payload = match columns[names.payload.as_str()].kind.as_str() {
            "bytea" => column.clone(),
            _ => format!("convert_to({column}::text, 'UTF8')"),
        };
        let row = format!(
            "{key}::text AS key, t.{id}::text AS id, {consumer} AS consumer, \
             {event_type} AS event_type, {content_type} AS content_type, {idempotency} AS idempotency, \
             {headers} AS headers, {column} IS NULL AS missing, \
             pg_column_size({column})::bigint AS stored, \
             CASE WHEN pg_column_size({column}) <= {MAX_STORED} THEN {payload} END AS payload",
            consumer = text(&names.consumer),
            event_type = text(&names.event_type),
            content_type = text(&names.content_type),
            idempotency = text(&names.idempotency_key),
            headers = text(&names.headers),
        );
        // Payloads beyond the budget stay where they are, and so do those over the limit.
        let within = |inner: String, budget: &str| {
            format!(
                "SELECT key, id, consumer, event_type, content_type, idempotency, headers, missing, \
                        size, before < {budget}::bigint AS included, \
                        CASE WHEN size <= {MAX_PAYLOAD} AND before < {budget} THEN payload END AS payload \
                 FROM (SELECT *, (sum(least(size, {MAX_PAYLOAD})) OVER (ORDER BY at) \
                                  - least(size, {MAX_PAYLOAD}))::bigint AS before \
                       FROM (SELECT *, coalesce(octet_length(payload), stored, 0)::bigint AS size \
                             FROM ({inner}) AS read) AS sized) AS summed \
                 ORDER BY at"
            )
        };
        let above = format!("($1::text IS NULL OR {key} > $1::{key_type})");
        let page = within(
            format!(
                "SELECT row_number() OVER () AS at, r.* FROM (\
                    SELECT {row} FROM {table} AS t WHERE {pending} AND {above} \
                    ORDER BY {key} LIMIT $2::bigint) AS r"
            ),
            "$3",
        );
        let by_keys = within(
            format!(
                "SELECT w.at, {row} \
                 FROM unnest($1::text[]) WITH ORDINALITY AS w (key, at) \
                 JOIN {table} AS t ON {key} = w.key::{key_type} \
                 WHERE {pending} ORDER BY w.at OFFSET 0"
            ),
            "$2",
        );
        let consumer = text(&names.consumer);
        let keys = format!(
            "SELECT {key}::text AS key, coalesce({consumer}, '') AS consumer FROM {table} AS t \
             WHERE {pending} AND {above} \
               AND ($2::text[] IS NULL OR coalesce({consumer}, '') = ANY($2)) \
               AND coalesce({consumer}, '') <> ALL($3::text[]) \
             ORDER BY {key} LIMIT $4::bigint"
        );
        let these = format!("t.{id} = ANY($1::text[]::{id_type}[]) AND {pending}");
        let processed = quoted(&names.processed_at);
        let settle = match source.on_published {
            OnPublished::Delete => format!("DELETE FROM {table} AS t WHERE {these}"),
            OnPublished::Mark => {
                format!("UPDATE {table} AS t SET {processed} = clock_timestamp() WHERE {these}")
            }
        };
        let purge = if names.processed_at.is_empty() {
            String::new()
        } else {
            format!(
                "DELETE FROM {table} WHERE {id} = ANY(ARRAY(\
                     SELECT {id} FROM {table} \
                     WHERE {processed} < clock_timestamp() - make_interval(secs => $1::float8) \
                     ORDER BY {processed} LIMIT $2::bigint))"
            )
        };
        let created = match names.created_at.as_str() {
            "" => "NULL::timestamptz".to_owned(),
            name => format!("t.{}::timestamptz", quoted(name)),
        };
        let count = format!(
            "SELECT count(*) FILTER (WHERE {pending}) AS pending, \
                    min({created}) FILTER (WHERE {pending}) AS oldest, \
                    count(*) FILTER (WHERE NOT ({pending})) AS settled FROM {table} AS t"
        );
        let find = format!(
            "SELECT {consumer} AS consumer, {event_type} AS event_type, {created} AS created_at \
             FROM {table} AS t \
             WHERE {pending} AND (t.{id}::text = ANY($1::text[]) OR {idempotency} = ANY($1)) \
               AND ($2::text IS NULL OR {consumer} = $2) \
             LIMIT 1",
            event_type = text(&names.event_type),
            idempotency = text(&names.idempotency_key),
        );
        Self {
            oid,
            scan: if last_drawn.is_some() {
                Scan::Horizon
            } else {
                Scan::Plain
            },
            why_plain,
            numeric: matches!(key_type.as_str(), "bigint" | "integer" | "smallint"),
            last_drawn: last_drawn.unwrap_or_default(),
            page,
            by_keys,
            keys,
            settle,
            purge,
            count,
            find,
        }
    }
}

/// Which columns the table lacks, each with the key that names it.
fn missing(source: &Source, table: &str, columns: &HashMap<String, Column>) -> Vec<String> {
    let named = source.columns.named().into_iter();
    named
        .filter(|(_, column)| !column.is_empty() && !columns.contains_key(*column))
        .map(|(key, column)| {
            let hint = if REQUIRED.contains(&key) {
                ""
            } else {
                ", or leave it empty"
            };
            format!(
                "{table} has no column {}; set `columns.{key}`{hint}",
                quoted(column)
            )
        })
        .collect()
}

async fn columns(conn: &mut PgConnection, oid: i64) -> Result<HashMap<String, Column>, Error> {
    let rows: Vec<(String, String, bool, String)> = sqlx::query_as(
        // A domain counts as what it is a domain of.
        "SELECT a.attname::text,
                format_type(coalesce(nullif(base.typbasetype, 0), nullif(t.typbasetype, 0), t.oid), NULL),
                a.attnotnull, a.attidentity::text
         FROM pg_catalog.pg_attribute a
         JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
         LEFT JOIN pg_catalog.pg_type base ON base.oid = t.typbasetype
         WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped",
    )
    .bind(oid)
    .fetch_all(conn)
    .await
    .map_err(Error::doing("looking up an outbox table's columns"))?;
    let column = |(name, kind, not_null, identity)| {
        let column = Column {
            kind,
            not_null,
            identity,
        };
        (name, column)
    };
    Ok(rows.into_iter().map(column).collect())
}

/// The statement that tells the last position drawn, or why the horizon can't be had.
async fn sequence(
    conn: &mut PgConnection,
    source: &Source,
    table: &str,
    columns: &HashMap<String, Column>,
) -> Result<(Option<String>, Option<String>), Error> {
    let no = |why: &str| Ok((None, Some(why.to_owned())));
    let order = &source.columns.order;
    let Some(column) = columns.get(order) else {
        return no("it has no column for the order of insertion");
    };
    if column.identity != "a" || column.kind != "bigint" || !column.not_null {
        return no("its order column is not `bigint GENERATED ALWAYS AS IDENTITY`");
    }
    let found: Option<(String, bool, bool)> = sqlx::query_as(
        "SELECT format('%I.%I', n.nspname, c.relname),
                s.seqcache = 1 AND s.seqincrement > 0 AND NOT s.seqcycle,
                has_sequence_privilege(c.oid, 'SELECT')
         FROM pg_catalog.pg_class c
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         JOIN pg_catalog.pg_sequence s ON s.seqrelid = c.oid
         WHERE c.oid = pg_get_serial_sequence($1, $2)::regclass",
    )
    .bind(table)
    .bind(order)
    .fetch_optional(conn)
    .await
    .map_err(Error::doing("looking up an outbox table's sequence"))?;
    match found {
        None => no("its order column has no sequence"),
        Some((_, false, _)) => no("its sequence must have CACHE 1, count upwards and not cycle"),
        Some((_, _, false)) => no("the role may not SELECT from its sequence"),
        // Already quoted by the server.
        Some((sequence, true, true)) => Ok((
            Some(format!(
                "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM {sequence}"
            )),
            None,
        )),
    }
}
