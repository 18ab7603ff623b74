//! What a command answers: text for people, or JSON for programs, on standard output.
//!
//! Every answer has one shape, a `Serialize` type beside its command; `--json` prints it on one
//! line, and people get a rendering of the same. Everything else (progress, warnings, logs,
//! errors) goes to standard error.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;

/// Where answers go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Prints `answer`, or `human`'s rendering of it.
    pub(crate) fn print(
        self,
        answer: &impl Serialize,
        human: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let text = if self.json {
            serde_json::to_string(answer).map_err(|error| {
                Failure::internal(format!("the answer has no JSON form: {error}"))
            })?
        } else {
            visible(&human())
        };
        line(&text)
    }

    /// Tells a person something beside the answer.
    pub(crate) fn note(self, text: &str) {
        if !self.json {
            // Nothing is to be done about a terminal that is gone.
            let _ = writeln!(std::io::stderr().lock(), "{}", visible(text));
        }
    }

    /// Tells how long work stands: a person in words, a program by `state`, on a line of standard
    /// error.
    pub(crate) fn progress(self, state: &impl Serialize, human: impl FnOnce() -> String) {
        self.aside("progress", state, human);
    }

    /// Tells whoever waits, a program too, of something that happens meanwhile.
    pub(crate) fn remark(self, text: &str) {
        self.aside("note", &text, || text.to_owned());
    }

    fn aside(self, name: &str, what: &impl Serialize, human: impl FnOnce() -> String) {
        let text = match self.json {
            true => json!({ name: what }).to_string(),
            false => visible(&human()),
        };
        // Nothing is to be done about a terminal that is gone.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Tells a person how a listing goes on, where it does.
    pub(crate) fn more(self, next: Option<impl std::fmt::Display>) {
        if let Some(next) = next {
            self.note(&format!("there are more: --after {next}"));
        }
    }
}

/// Text for a terminal: what it would act upon is escaped, save for the ends of lines.
pub(crate) fn visible(text: &str) -> String {
    escaped(text, |c| c != '\n')
}

/// A cell, which may hold what a producer or an endpoint sent: on one line.
fn cell(text: &str) -> String {
    escaped(text, |_| true)
}

/// Escapes what moves the cursor, changes the terminal or turns the direction of writing, where
/// `also` agrees.
fn escaped(text: &str, also: impl Fn(char) -> bool) -> String {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().fold(String::new(), |mut shown, c| {
        if acts(c) && also(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// Prints a line. A reader that closed the pipe has read enough, which is no fault.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    bytes(format!("{}\n", text.trim_end_matches('\n')).as_bytes())
}

/// Prints bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::internal(
            format!("the answer can't be written: {error}"),
        )),
        _ => Ok(()),
    }
}

/// A listing: a head and rows.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> String {
    if rows.is_empty() {
        return "none".to_owned();
    }
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(head);
    for row in rows {
        table.add_row(row.map(|text| cell(&text)));
    }
    rendered(table)
}

/// One thing: names and values.
pub(crate) fn fields(rows: Vec<(&str, String)>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    for (name, value) in rows {
        if !value.is_empty() {
            table.add_row([name.to_owned(), cell(&value)]);
        }
    }
    rendered(table)
}

/// With columns two spaces apart, and no blanks at the ends of lines.
fn rendered(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// A time as JSON and people get it: RFC 3339 in UTC, to the microsecond.
pub(crate) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true)
}

/// Bytes as JSON has them exactly: as a text, or else in base64.
pub(crate) fn exact(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
    }
}

/// A time as a cell of a listing: to the second.
pub(crate) fn short(at: Option<DateTime<Utc>>) -> String {
    at.map_or_else(String::new, |at| {
        at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    })
}

/// A value that may be absent, as a cell.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_acts_upon_is_shown_as_it_came() {
        let sent = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}a\nb\r\u{7f}";
        let acts = |text: &str| text.chars().any(|c| c != '\n' && c.is_control());
        let listing = table(["ID"], vec![[sent.to_owned()]]);
        let thing = fields(vec![("id", sent.to_owned())]);
        for text in [listing.as_str(), &thing, &visible(sent)] {
            assert!(!acts(text) && !text.contains('\u{202e}'), "{text:?}");
            assert!(text.contains(r"\u{1b}]0;owned\u{7}"), "{text:?}");
        }
        assert_eq!((listing.lines().count(), thing.lines().count()), (2, 1));
        assert_eq!(visible("Zo\u{eb}'s \"a\"\n  b"), "Zo\u{eb}'s \"a\"\n  b");
    }
}
