//! Comparing a definition with what the server says, and showing the difference.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// One field that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The field, dotted where it is inside another.
    pub field: String,
    /// Its value on the server; null where it has none.
    pub there: Value,
    /// Its value in the definition.
    pub wanted: Value,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (there, wanted) = (
            readable(&self.field, &self.there),
            readable(&self.field, &self.wanted),
        );
        write!(f, "{}: {there} -> {wanted}", self.field)
    }
}

impl Line {
    /// Whether a stream only lacks subjects.
    pub(super) fn adds_subjects(&self) -> bool {
        let lists = (self.there.as_array(), self.wanted.as_array());
        self.field == "subjects"
            && matches!(lists, (Some(there), Some(wanted)) if there.iter().all(|one| wanted.contains(one)))
    }
}

/// The start time of a durable is decided when it is made.
const DECIDED_ONCE: &str = "opt_start_time";

/// The definition's fields that the server has otherwise. Fields that only the server has are none
/// of ours; a field that it leaves out has its zero value.
pub(super) fn lines(wanted: &Value, there: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    walk("", wanted, there, &mut lines);
    lines
}

fn walk(path: &str, wanted: &Value, there: &Value, lines: &mut Vec<Line>) {
    if let Value::Object(fields) = wanted {
        for (name, wanted) in fields {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            if path != DECIDED_ONCE {
                walk(&path, wanted, &there[name], lines);
            }
        }
    } else if wanted != there && !(there.is_null() && is_zero(wanted)) {
        lines.push(Line {
            field: path.to_owned(),
            there: there.clone(),
            wanted: wanted.clone(),
        });
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The definition laid over what is there.
pub(super) fn overlay(wanted: &Value, mut there: Value) -> Value {
    let Value::Object(fields) = wanted else {
        return wanted.clone();
    };
    if !there.is_object() {
        there = Value::Object(serde_json::Map::new());
    }
    for (name, wanted) in fields {
        if name != DECIDED_ONCE {
            let below = there[name].take();
            there[name] = overlay(wanted, below);
        }
    }
    there
}

/// Durations and sizes as people read them.
fn readable(field: &str, value: &Value) -> String {
    match (field, value.as_u64()) {
        ("max_age" | "duplicate_window" | "ack_wait", Some(nanoseconds)) => {
            format!("{:?}", Duration::from_nanos(nanoseconds))
        }
        ("max_bytes", Some(bytes)) if bytes > 0 && bytes % (1 << 20) == 0 => {
            format!("{} MiB", bytes >> 20)
        }
        _ if value.is_null() => "nothing".to_owned(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_defined_is_compared() {
        let wanted = json!({"name": "A", "max_age": 0, "sealed": false, "t": {"dest": "x"}});
        let there =
            json!({"name": "A", "metadata": {"_nats.level": "1"}, "t": {"dest": "x", "y": 1}});
        assert_eq!(lines(&wanted, &there), []);
    }

    #[test]
    fn differences_read_well() {
        let wanted =
            json!({"max_bytes": 1 << 30, "ack_wait": 10_000_000_000u64, "t": {"dest": "b"}});
        let there = json!({"max_bytes": 1 << 20, "ack_wait": 30_000_000_000u64});
        let shown: Vec<_> = lines(&wanted, &there)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            shown,
            [
                "ack_wait: 30s -> 10s",
                "max_bytes: 1 MiB -> 1024 MiB",
                "t.dest: nothing -> \"b\""
            ]
        );
    }

    #[test]
    fn an_update_keeps_what_is_not_ours() {
        let there = json!({"max_age": 5, "sources": [1], "metadata": {"a": "b"}});
        let merged = overlay(&json!({"max_age": 7, "opt_start_time": "x"}), there);
        assert_eq!(
            merged,
            json!({"max_age": 7, "sources": [1], "metadata": {"a": "b"}})
        );
    }
}
