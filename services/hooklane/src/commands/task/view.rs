//! Tasks as JSON has them, and as a person reads one.

use std::collections::BTreeMap;

use hooklane_proto::id::EndpointId;
use hooklane_store::task::{Counted, Refused, Task, Work};
use serde::Serialize;

use crate::output::{fields, or_dash, time};

/// A task.
#[derive(Debug, Serialize)]
pub(super) struct View {
    id: String,
    kind: &'static str,
    consumer: String,
    message: Option<String>,
    endpoint: Option<String>,
    since: Option<String>,
    until: Option<String>,
    status: &'static str,
    /// Null until it has begun, and where counting took too long.
    total: Option<u64>,
    found: u64,
    due: u64,
    /// Null until it is done, and where `total` is.
    moved_on: Option<u64>,
    /// How many were refused, by reason.
    refused: BTreeMap<&'static str, u64>,
    error: Option<String>,
    created_at: String,
    started_at: Option<String>,
    ended_at: Option<String>,
    #[serde(skip)]
    why: Refused,
    #[serde(skip)]
    about: Option<EndpointId>,
}

/// A page of tasks.
#[derive(Debug, Serialize)]
pub(super) struct List {
    pub(super) tasks: Vec<View>,
    pub(super) next: Option<String>,
}

/// What a task would do.
#[derive(Debug, Serialize)]
pub(super) struct Count {
    dry_run: bool,
    kind: &'static str,
    found: u64,
    due: u64,
    refused: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    why: Refused,
    #[serde(skip)]
    about: Option<EndpointId>,
}

impl From<Task> for View {
    fn from(task: Task) -> Self {
        let moved_on = task.moved_on();
        let Task {
            id,
            work,
            consumer,
            status,
            total,
            found,
            due,
            refused,
            error,
            created_at,
            started_at,
            ended_at,
        } = task;
        let span = work.span();
        Self {
            id: id.to_string(),
            kind: work.kind(),
            consumer: consumer.to_string(),
            message: work.message().map(|id| id.to_string()),
            endpoint: work.endpoint().map(|id| id.to_string()),
            since: span.map(|span| time(span.since)),
            until: span.and_then(|span| span.until).map(time),
            status: status.as_str(),
            total,
            found,
            due,
            moved_on,
            refused: by_name(&refused),
            error,
            created_at: time(created_at),
            started_at: started_at.map(time),
            ended_at: ended_at.map(time),
            why: refused,
            about: work.endpoint(),
        }
    }
}

impl View {
    pub(super) fn human(&self) -> String {
        let given = |value: &Option<String>| value.clone().unwrap_or_default();
        let mut text = fields(vec![
            ("task", self.id.clone()),
            ("kind", self.kind.to_owned()),
            ("consumer", self.consumer.clone()),
            ("message", given(&self.message)),
            ("endpoint", given(&self.endpoint)),
            ("since", given(&self.since)),
            ("until", given(&self.until)),
            ("status", self.status.to_owned()),
            ("looked at", progress(self.found, self.total)),
            ("made due", self.due.to_string()),
            ("created", self.created_at.clone()),
            ("started", or_dash(self.started_at.clone())),
            ("ended", or_dash(self.ended_at.clone())),
            ("error", given(&self.error)),
        ]);
        text.push_str(&reasons(&self.why, self.about));
        if let Some(count) = self.moved_on.filter(|count| *count > 0) {
            text.push_str(&format!(
                "\n{count} moved on meanwhile: they were there when it began, and were driven before \
                 it came to them, as by another task or replay"
            ));
        }
        text
    }
}

impl Count {
    pub(super) fn of(work: &Work, counted: Counted) -> Self {
        let Counted {
            found,
            due,
            refused,
        } = counted;
        Self {
            dry_run: true,
            kind: work.kind(),
            found,
            due,
            refused: by_name(&refused),
            why: refused,
            about: work.endpoint(),
        }
    }

    pub(super) fn human(&self) -> String {
        let text = format!("{} of {} would be delivered again", self.due, self.found);
        text + &reasons(&self.why, self.about)
    }
}

/// How far a task has come.
pub(super) fn progress(found: u64, total: Option<u64>) -> String {
    match total {
        Some(total) => format!("{found} of {total}"),
        None => found.to_string(),
    }
}

fn by_name(refused: &Refused) -> BTreeMap<&'static str, u64> {
    let named = refused.iter().map(|(why, count)| (why.as_str(), *count));
    named.collect()
}

/// A line for each reason.
fn reasons(refused: &Refused, endpoint: Option<EndpointId>) -> String {
    let lines = refused.iter().map(|(why, count)| {
        format!(
            "\n{count} refused ({}): {}",
            why.as_str(),
            why.told(endpoint)
        )
    });
    lines.collect()
}
