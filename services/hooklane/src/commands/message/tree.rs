//! A message as a tree, for people.

use std::fmt::Write as _;

use hooklane_store::message::{Attempt, Branch, Tree};

use crate::commands::input;
use crate::output::time;

/// Characters of a payload or an answer that are shown.
const SHOWN: usize = 160;

/// The message, its deliveries below it, and their attempts below these.
pub(super) fn text(tree: &Tree) -> String {
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
        input::shown(&message.payload, SHOWN)
    );
    if tree.branches.is_empty() {
        text.push_str("  no deliveries: no endpoint was subscribed when it was accepted\n");
    }
    for (n, branch) in tree.branches.iter().enumerate() {
        branch_text(&mut text, branch, n + 1 == tree.branches.len());
    }
    let shown = tree.branches.len() as u64;
    if shown > 0 && shown < tree.deliveries {
        let _ = writeln!(
            text,
            "  {} deliveries more; narrow it with --endpoint, or raise --limit",
            tree.deliveries - shown
        );
    }
    text
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
