//! Filters held against the catalogue of event types.

use hooklane_core::rules::subscription::{Filter, Pattern};
use sqlx::PgConnection;

use crate::Error as Fault;
use crate::manage::Error;

/// Checks that every event type named exists. Answers with what is worth a warning: deprecated
/// types, and prefixes that cover nothing yet.
pub(super) async fn check(conn: &mut PgConnection, filter: &Filter) -> Result<Vec<String>, Error> {
    let mut exact = Vec::new();
    let mut prefixes = Vec::new();
    for pattern in filter.patterns() {
        match pattern {
            Pattern::All => {}
            Pattern::Exact(name) => exact.push(name.clone()),
            Pattern::Prefix(prefix) => prefixes.push(format!("{prefix}.")),
        }
    }
    let known = sqlx::query!(
        "SELECT name, deprecated FROM hooklane.event_types WHERE name = ANY($1)",
        &exact,
    )
    .fetch_all(&mut *conn)
    .await
    .map_err(Fault::doing("checking event type filters"))?;
    let is_known = |name: &String| known.iter().any(|row| &row.name == name);
    let unknown: Vec<String> = exact.into_iter().filter(|name| !is_known(name)).collect();
    if !unknown.is_empty() {
        return Err(Error::UnknownEventTypes(unknown));
    }
    let idle = sqlx::query_scalar!(
        r#"SELECT prefix AS "prefix!" FROM unnest($1::text[]) AS p (prefix)
            WHERE NOT EXISTS (SELECT 1 FROM hooklane.event_types WHERE starts_with(name, prefix))"#,
        &prefixes,
    )
    .fetch_all(conn)
    .await
    .map_err(Fault::doing("checking event type filters"))?;
    let deprecated = known
        .into_iter()
        .filter(|row| row.deprecated)
        .map(|row| format!("the event type {} is deprecated", row.name));
    let idle = idle
        .into_iter()
        .map(|prefix| format!("no event type matches {prefix}* yet"));
    Ok(deprecated.chain(idle).collect())
}
