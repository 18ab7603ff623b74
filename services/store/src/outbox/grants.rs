//! What has to be run in a source's database: its table and the least privileges.
//!
//! Text for a person to read and run; nothing here is executed by Hooklane.

use std::fmt::Write as _;

use super::source::{OnPublished, Source, quoted, quoted_table};

/// The table, as the migrations make it in the ledger's own database.
const TABLE: &str = include_str!("../../../../migrations/0002_outbox.sql");

/// The SQL that prepares a source's database: the table where it is Hooklane's own, and grants for
/// the relay's role and the producers'.
///
/// The relay reads and settles rows and can't write any; producers write rows and can neither
/// change nor remove one.
#[must_use]
pub fn grants(source: &Source, relay: &str, producer: &str) -> String {
    let own = source.table == Source::default().table;
    let names = &source.columns;
    let table = quoted_table(&source.table);
    let relay_name = literal(relay);
    let (relay, producer) = (quoted(relay), quoted(producer));
    let mut sql = format!("-- The outbox source `{}`.\n\nBEGIN;\n\n", source.name);
    if own {
        sql.push_str(TABLE.trim_end());
        sql.push_str("\n\n");
    }
    let mut line = |text: String| {
        let _ = writeln!(sql, "{text}");
    };
    line("-- The relay reads pending rows and settles them.".to_owned());
    if let Some((schema, _)) = source.table.split_once('.') {
        line(format!(
            "GRANT USAGE ON SCHEMA {} TO {relay}, {producer};",
            quoted(schema)
        ));
    }
    line(format!("GRANT SELECT ON {table} TO {relay};"));
    if !names.processed_at.is_empty() {
        let processed = quoted(&names.processed_at);
        if source.on_published == OnPublished::Mark {
            line(format!("GRANT UPDATE ({processed}) ON {table} TO {relay};"));
        }
    }
    line(format!("GRANT DELETE ON {table} TO {relay};"));
    if !names.order.is_empty() {
        line("-- The last position drawn, for the horizon.".to_owned());
        line(format!(
            "DO $$ BEGIN EXECUTE format('GRANT SELECT ON SEQUENCE %s TO %I', \
             pg_get_serial_sequence({}, {}), {}); END $$;",
            literal(&table),
            literal(&names.order),
            relay_name,
        ));
    }
    line(String::new());
    line("-- Producers write rows, and cannot mark one as processed.".to_owned());
    let written: Vec<String> = names
        .named()
        .into_iter()
        .filter(|(key, name)| !name.is_empty() && !matches!(*key, "order" | "processed_at"))
        .map(|(_, name)| quoted(name))
        .collect();
    let extra = if own {
        ", \"aggregate_type\", \"aggregate_id\""
    } else {
        ""
    };
    line(format!(
        "GRANT INSERT ({}{extra}) ON {table} TO {producer};",
        written.join(", ")
    ));
    if own {
        line(String::new());
        line("-- Optional: wake the relay at commit instead of at its next poll.".to_owned());
        line(format!(
            "-- ALTER TABLE {table} ENABLE TRIGGER outbox_wake;"
        ));
    }
    sql.push_str("\nCOMMIT;\n");
    sql
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
