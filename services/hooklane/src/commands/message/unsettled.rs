//! What an id or a key stands for, with the events that are no messages: not taken yet, waiting, or
//! rejected.

use hooklane_store::outbox::Pending;
use hooklane_store::rejected::{Rejected, Standing};
use serde::Serialize;

use super::view::View;
use crate::output::time;

/// What an id stands for, as JSON has it.
#[derive(Debug, Serialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub(super) enum Answer {
    /// Accepted: one message, or several where one key stands for one at several consumers.
    Accepted { messages: Vec<View> },
    /// Written to the outbox and not taken yet.
    Pending {
        consumer: Option<String>,
        event_type: Option<String>,
        created_at: Option<String>,
    },
    /// Taken, and tried again: by itself until a time, or since somebody asked for it.
    Waiting {
        #[serde(flatten)]
        event: SetAside,
        waiting_until: Option<String>,
    },
    /// Could not be accepted.
    Rejected {
        #[serde(flatten)]
        event: SetAside,
    },
}

/// An event set aside.
#[derive(Debug, Serialize)]
pub(super) struct SetAside {
    number: i64,
    source: String,
    consumer: Option<String>,
    event_type: Option<String>,
    reason: String,
    detail: String,
}

/// An answer, and the same for people.
pub(super) fn pending(id: &str, row: Pending) -> (Answer, String) {
    let Pending {
        consumer,
        event_type,
        created_at,
    } = row;
    let created_at = created_at.map(time);
    let since = match &created_at {
        Some(at) => format!(" since {at}"),
        None => String::new(),
    };
    let human = format!(
        "{id} is in the outbox{since} ({} for {}) and not accepted yet; is the relay running? See: \
         hooklane outbox status",
        event_type.as_deref().unwrap_or("no event type"),
        consumer.as_deref().unwrap_or("no consumer"),
    );
    let answer = Answer::Pending {
        consumer,
        event_type,
        created_at,
    };
    (answer, human)
}

/// An answer, and the same for people.
pub(super) fn set_aside(id: &str, event: Rejected) -> (Answer, String) {
    let Rejected {
        id: number,
        source,
        source_id: _,
        consumer,
        event_type,
        key: _,
        bytes: _,
        reason,
        detail,
        rejected_at: _,
        waiting_until,
        standing,
    } = event;
    let waiting_until = waiting_until.map(time);
    let what = format!("{id} of {source}");
    let human = match (standing, &waiting_until) {
        (Standing::Rejected, _) | (Standing::Waiting, None) => format!(
            "{what} could not be accepted ({reason}): {detail}\n\
             once that is mended: hooklane outbox requeue {number}"
        ),
        (Standing::Waiting, Some(until)) => format!(
            "{what} waits ({reason}): {detail}\n\
             it is tried again by itself until {until}, and accepted once that is mended"
        ),
        (Standing::Requeued, _) => format!(
            "{what} was requeued, and the relay is about to try it again; before, it could not be \
             accepted ({reason}): {detail}"
        ),
    };
    let event = SetAside {
        number,
        source,
        consumer,
        event_type,
        reason,
        detail,
    };
    let answer = match standing {
        Standing::Rejected => Answer::Rejected { event },
        Standing::Waiting | Standing::Requeued => Answer::Waiting {
            event,
            waiting_until,
        },
    };
    (answer, human)
}
