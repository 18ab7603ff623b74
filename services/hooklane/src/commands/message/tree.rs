//! A message as a tree, for people.

use std::fmt::Write as _;

use hooklane_proto::id::EndpointId;
use hooklane_store::message::{Attempt, Branch, Tree};

use crate::commands::input;
use crate::output::time;

/// Characters of a payload or an answer that are shown.
const SHOWN: usize = 160;

/// The message, its deliveries below it (the one to `only` where it is given), and their attempts
/// below these.
pub(super) fn text(tree: &Tree, only: Option<EndpointId>) -> String {
    let message = &tree.message;
    let mut text = format!(
        "{} {} for {}\n  accepted {} from {}\n",
        message.id,
        message.event_type,
        message.consumer,
        time(message.accepted_at),
        message.source,
    );
    if let Some(key) = &message.idempotency_key {
        let _ = writeln!(
            text,
            "  idempotency key {}",
            input::shown(key.as_bytes(), SHOWN)
        );
    }
    if let Some(parent) = &message.traceparent {
        let _ = writeln!(text, "  trace {parent}");
    }
    let _ = writeln!(
        text,
        "  {} bytes of {}: {}",
        message.payload.len(),
        message.content_type,
        payload(&message.payload, &message.content_type)
    );
    for (n, branch) in tree.branches.iter().enumerate() {
        branch_text(&mut text, branch, n + 1 == tree.branches.len());
    }
    let shown = tree.branches.len() as u64;
    let others = tree.deliveries.saturating_sub(shown);
    let rest = match (only, shown, others) {
        (_, 0, 0) => {
            Some("no deliveries: no endpoint was subscribed when it was accepted".to_owned())
        }
        (Some(endpoint), 0, others) => Some(format!(
            "no delivery to {endpoint}, which was not subscribed when it was accepted; it has \
             {others} to others"
        )),
        (None, _, 1..) => Some(format!(
            "{others} deliveries more; narrow it with --endpoint, or raise --limit"
        )),
        _ => None,
    };
    if let Some(rest) = rest {
        let _ = writeln!(text, "  {rest}");
    }
    text
}

/// A payload on one line: JSON without the line breaks and indents between its values.
fn payload(bytes: &[u8], content_type: &str) -> String {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let json = media_type == "application/json" || media_type.ends_with("+json");
    match std::str::from_utf8(bytes) {
        Ok(text) if json => input::shown(one_line(text).as_bytes(), SHOWN),
        _ => input::shown(bytes, SHOWN),
    }
}

/// JSON with a single space for each run of white space outside of its strings.
fn one_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in json.trim().chars() {
        if !quoted && c.is_ascii_whitespace() {
            if !line.ends_with(' ') {
                line.push(' ');
            }
            continue;
        }
        line.push(c);
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
    }
    line
}

fn branch_text(text: &mut String, branch: &Branch, last: bool) {
    let delivery = &branch.delivery;
    let (arm, stem) = if last {
        ("└─", "  ")
    } else {
        ("├─", "│ ")
    };
    let mut line = format!(
        "{arm} {} {}",
        delivery.key.endpoint,
        delivery.status.as_str()
    );
    if let Some(reason) = &delivery.failure_reason {
        let _ = write!(line, " ({reason})");
    }
    if let Some(next) = delivery
        .next_attempt_at
        .filter(|_| !delivery.status.is_terminal())
    {
        let _ = write!(line, ", due {}", time(next));
    }
    let url = branch.url.as_deref().unwrap_or("an endpoint that is gone");
    let _ = writeln!(text, "{line}\n{stem}   to {url}");
    for (n, attempt) in branch.attempts.iter().enumerate() {
        let arm = if n + 1 == branch.attempts.len() {
            "└─"
        } else {
            "├─"
        };
        let _ = writeln!(text, "{stem} {arm} {}", attempt_text(attempt));
    }
}

fn attempt_text(attempt: &Attempt) -> String {
    let outcome = match (attempt.status, &attempt.error) {
        (Some(status), Some(error)) => format!("{status} ({error})"),
        (Some(status), None) => status.to_string(),
        (None, Some(error)) => error.clone(),
        (None, None) => "no answer".to_owned(),
    };
    let mut text = format!(
        "attempt {} {} {outcome} in {:.1} ms, {}",
        attempt.number,
        time(attempt.started_at),
        attempt.duration_us as f64 / 1000.0,
        attempt.verdict,
    );
    if attempt.series > 1 {
        let _ = write!(text, ", series {}", attempt.series);
    }
    if let Some(detail) = &attempt.detail {
        let _ = write!(text, ": {}", input::shown(detail.as_bytes(), SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_shown_on_one_line_and_its_strings_are_left_alone() {
        let pretty = "{\n  \"a  b\": \"c\\\"  d\\\\\",\n\t\"n\":  1.0\n}\n";
        let line = r#"{ "a  b": "c\"  d\\", "n": 1.0 }"#;
        assert_eq!(
            payload(pretty.as_bytes(), "application/json; charset=utf-8"),
            line
        );
        assert_eq!(
            payload(pretty.as_bytes(), "application/cloudevents+json"),
            line
        );
        assert_eq!(payload(b"a\n  b", "text/plain"), "a\\n  b");
        assert_eq!(payload(b"\xff", "application/json"), "ff");
    }
}
