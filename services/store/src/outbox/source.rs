//! What a source is: a database, a table, and the names of its columns.

use std::time::Duration;

use hooklane_core::config::{ConnectionUrl, Faults};
use serde::{Deserialize, Serialize};

use crate::config::address_fault;
use crate::operational;

/// An outbox table. The defaults are Hooklane's own table in the ledger's database.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Source {
    /// Its name: in `source` of messages and rejected events, in logs. Letters, digits, `_` and
    /// `-`, at most 40.
    pub name: String,
    /// The database that holds the table; none is the ledger's own. A direct connection: a pooler
    /// that gives each transaction another session breaks the leader's lock.
    pub database_url: Option<ConnectionUrl>,
    /// The table, `schema.table`, exactly as it is spelled in the database.
    pub table: String,
    /// Its columns.
    pub columns: Columns,
    /// The content type of payloads, where no column tells it.
    pub content_type: String,
    /// What happens to a row once the ledger has it.
    pub on_published: OnPublished,
    /// How long processed rows are kept, one minute or more.
    #[serde(with = "humantime_serde")]
    pub keep_processed: Duration,
    /// Most rows in a batch, 1 to 10,000.
    pub batch: usize,
    /// Bytes of payload after which a batch ends, 64 KiB to 64 MiB.
    pub batch_bytes: usize,
    /// The pause after a poll that found something, 1 ms to 1 min.
    #[serde(with = "humantime_serde")]
    pub poll_min: Duration,
    /// The longest pause between polls; a pause grows up to it to an eighth of the time in which nothing
    /// was found. Up to 1 h.
    #[serde(with = "humantime_serde")]
    pub poll_max: Duration,
    /// Whether to listen for the table's wake-up trigger, which has to be enabled for it.
    pub notify: bool,
}

/// The table's columns. An empty name means that the table has no such column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Columns {
    /// The row's id: unique, not null. A UUID becomes the message's id.
    pub id: String,
    /// The order of insertion: `bigint GENERATED ALWAYS AS IDENTITY`, which lets reading start
    /// where it left off. May be empty.
    pub order: String,
    /// The consumer id.
    pub consumer: String,
    /// The event type.
    pub event_type: String,
    /// The payload: `json`, `jsonb`, `text` or `bytea`.
    pub payload: String,
    /// The payload's content type. May be empty.
    pub content_type: String,
    /// The idempotency key. May be empty; a row without one goes by its id.
    pub idempotency_key: String,
    /// A JSON object with `traceparent` and `tracestate`. May be empty.
    pub headers: String,
    /// When the row was written. May be empty; it serves `outbox status` alone.
    pub created_at: String,
    /// Null until the ledger has the event. May be empty where rows are deleted.
    pub processed_at: String,
}

/// What happens to a row once the ledger has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnPublished {
    /// Its `processed_at` is set, and it is deleted after [`Source::keep_processed`].
    Mark,
    /// It is deleted.
    Delete,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            name: "main".to_owned(),
            database_url: None,
            table: "hooklane.outbox_events".to_owned(),
            columns: Columns::default(),
            content_type: "application/json".to_owned(),
            on_published: OnPublished::Mark,
            keep_processed: Duration::from_secs(7 * 24 * 60 * 60),
            batch: 500,
            batch_bytes: 8 << 20,
            poll_min: Duration::from_millis(5),
            poll_max: Duration::from_millis(250),
            notify: false,
        }
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            id: "id".to_owned(),
            order: "position".to_owned(),
            consumer: "consumer_id".to_owned(),
            event_type: "event_type".to_owned(),
            payload: "payload".to_owned(),
            content_type: String::new(),
            idempotency_key: "idempotency_key".to_owned(),
            headers: "headers".to_owned(),
            created_at: "created_at".to_owned(),
            processed_at: "processed_at".to_owned(),
        }
    }
}

impl Columns {
    /// Every column with its key in the configuration.
    pub(super) fn named(&self) -> [(&'static str, &str); 10] {
        let Self {
            id,
            order,
            consumer,
            event_type,
            payload,
            content_type,
            idempotency_key,
            headers,
            created_at,
            processed_at,
        } = self;
        [
            ("id", id),
            ("order", order),
            ("consumer", consumer),
            ("event_type", event_type),
            ("payload", payload),
            ("content_type", content_type),
            ("idempotency_key", idempotency_key),
            ("headers", headers),
            ("created_at", created_at),
            ("processed_at", processed_at),
        ]
    }
}

/// Columns that every table needs.
pub(super) const REQUIRED: [&str; 4] = ["id", "consumer", "event_type", "payload"];

impl Source {
    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !(1..=40).contains(&self.name.len()) || !self.name.chars().all(named) {
            faults.add(
                "name",
                format!("`{}` is not a source's name", self.name),
                "give 1 to 40 letters, digits, `_` and `-`",
            );
        }
        if self.name == operational::SOURCE || self.table == operational::TABLE {
            faults.add(
                if self.name == operational::SOURCE {
                    "name"
                } else {
                    "table"
                },
                "is that of Hooklane's own events, which every relay reads anyway",
                "name another",
            );
        }
        let url = self.database_url.as_ref().map(ConnectionUrl::expose);
        if let Some((problem, fix)) = url.and_then(address_fault) {
            faults.add(
                "database_url",
                problem,
                format!("{fix}; or leave it out for the ledger's own"),
            );
        }
        let parts: Vec<&str> = self.table.split('.').collect();
        if parts.len() > 2 || !parts.iter().all(|part| is_identifier(part)) {
            faults.add(
                "table",
                format!("`{}` is not a table's name", self.table),
                "give `schema.table`, exactly as it is spelled in the database",
            );
        } else if parts.len() < 2 {
            faults.add(
                "table",
                format!("`{}` names no schema", self.table),
                format!(
                    "give `schema.table`, such as `public.{}`, exactly as it is spelled in the database",
                    self.table
                ),
            );
        }
        faults.within("columns", |faults| {
            for (key, name) in self.columns.named() {
                if name.is_empty() {
                    if REQUIRED.contains(&key) {
                        faults.add(key, "is empty", "name the column");
                    }
                } else if !is_identifier(name) {
                    faults.add(key, format!("`{name}` can't be a column"), "name a column");
                }
            }
            if self.columns.processed_at.is_empty() && self.on_published == OnPublished::Mark {
                faults.add(
                    "processed_at",
                    "is empty, and rows are to be marked",
                    "name the column, or set `on_published = \"delete\"`",
                );
            }
        });
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        let millisecond = Duration::from_millis(1);
        faults.duration(
            "keep_processed",
            self.keep_processed,
            minute..=hour * 24 * 3650,
        );
        faults.range("batch", self.batch, 1..=10_000);
        faults.range("batch_bytes", self.batch_bytes, 64 << 10..=64 << 20);
        faults.duration("poll_min", self.poll_min, millisecond..=minute);
        // A fault of `poll_min` is no reason to leave `poll_max` no room.
        let least = self.poll_min.clamp(millisecond, minute);
        faults.duration("poll_max", self.poll_max, least..=hour);
    }
}

/// Whether PostgreSQL can have a name like this.
pub(super) fn is_identifier(name: &str) -> bool {
    (1..=63).contains(&name.len()) && !name.contains(['\0', '.'])
}

/// A name as SQL spells it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table's name, with its schema where it has one, as SQL spells it.
pub(super) fn quoted_table(table: &str) -> String {
    table.split('.').map(quoted).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(source: &Source) -> Vec<String> {
        let mut faults = Faults::new();
        source.validate(&mut faults);
        faults
            .found()
            .iter()
            .map(|fault| fault.key.clone())
            .collect()
    }

    #[test]
    fn the_default_is_valid() {
        assert!(faults(&Source::default()).is_empty());
    }

    #[test]
    fn every_fault_is_named_by_its_key() {
        let bad = Source {
            name: "a b".to_owned(),
            database_url: Some(ConnectionUrl::new("mysql://x")),
            table: "a.b.c".to_owned(),
            columns: Columns {
                consumer: String::new(),
                processed_at: String::new(),
                ..Columns::default()
            },
            batch: 0,
            poll_max: Duration::ZERO,
            ..Source::default()
        };
        let expected = [
            "name",
            "database_url",
            "table",
            "columns.consumer",
            "columns.processed_at",
            "batch",
            "poll_max",
        ];
        assert_eq!(faults(&bad), expected);
    }

    #[test]
    fn a_poll_min_out_of_range_leaves_poll_max_its_room() {
        let source = Source {
            poll_min: Duration::from_secs(3600),
            poll_max: Duration::from_secs(60),
            ..Source::default()
        };
        assert_eq!(faults(&source), ["poll_min"]);
    }

    #[test]
    fn a_table_without_a_schema_is_told_what_is_expected() {
        let source = Source {
            table: "outbox".to_owned(),
            ..Source::default()
        };
        let mut faults = Faults::new();
        source.validate(&mut faults);
        assert!(faults.to_string().contains("`public.outbox`"), "{faults}");
    }

    #[test]
    fn our_own_events_are_no_source_of_somebody_elses() {
        assert_eq!(faults(&operational::source()), ["name"]);
        let renamed = Source {
            name: "mine".to_owned(),
            ..operational::source()
        };
        assert_eq!(faults(&renamed), ["table"]);
    }

    #[test]
    fn names_are_quoted_whole() {
        assert_eq!(
            quoted("a\"; DROP TABLE x; --"),
            "\"a\"\"; DROP TABLE x; --\""
        );
        assert_eq!(quoted_table("App.Order Events"), "\"App\".\"Order Events\"");
    }

    #[test]
    fn formatting_never_shows_the_password() {
        let source = Source {
            database_url: Some(ConnectionUrl::new("postgres://u:canary@h/db")),
            ..Source::default()
        };
        assert!(!format!("{source:?}").contains("canary"));
    }
}
