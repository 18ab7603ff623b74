//! How the outboxes stand: the configured ones, and that of operational events, which every relay
//! reads. One that can't be read is listed with its error, beside the others.

use hooklane_store::outbox::{self, Scan, Source};
use hooklane_store::{Store, operational};
use serde::Serialize;

use super::source;
use crate::config::Section;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{or_dash, table, time};

#[derive(Debug, Serialize)]
struct Status {
    sources: Vec<View>,
    set_aside: Vec<Count>,
}

/// A source; what is not known of one with an error is null.
#[derive(Debug, Serialize)]
struct View {
    name: String,
    table: String,
    /// Whether a relay reads it at present.
    led: Option<bool>,
    pending: Option<i64>,
    oldest: Option<String>,
    settled: Option<i64>,
    /// How rows are found: `horizon`, or `plain` (from the start each time).
    scan: Option<&'static str>,
    why_plain: Option<String>,
    error: Option<Failure>,
}

#[derive(Debug, Serialize)]
struct Count {
    source: String,
    standing: &'static str,
    reason: String,
    count: i64,
}

impl View {
    async fn of(store: &Store, source: &Source) -> Self {
        match outbox::status(store, source).await {
            Ok(status) => Self {
                name: status.name,
                table: status.table,
                led: Some(status.led),
                pending: Some(status.pending),
                oldest: status.oldest.map(time),
                settled: Some(status.settled),
                scan: Some(match status.scan {
                    Scan::Horizon => "horizon",
                    Scan::Plain => "plain",
                }),
                why_plain: status.why_plain,
                error: None,
            },
            Err(error) => Self {
                name: source.name.clone(),
                table: source.table.clone(),
                led: None,
                pending: None,
                oldest: None,
                settled: None,
                scan: None,
                why_plain: None,
                error: Some(error.into()),
            },
        }
    }

    fn row(&self) -> [String; 7] {
        [
            self.name.clone(),
            self.table.clone(),
            or_dash(self.pending),
            or_dash(self.oldest.clone()),
            or_dash(self.settled),
            or_dash(self.led.map(|led| if led { "yes" } else { "no" })),
            match (&self.error, self.scan, &self.why_plain) {
                (Some(_), ..) => "can't be read, see below".to_owned(),
                (None, scan, Some(why)) => format!("{} ({why})", or_dash(scan)),
                (None, scan, None) => or_dash(scan),
            },
        ]
    }
}

pub(super) async fn run(context: &Context, only: Option<&str>) -> Result<(), Failure> {
    let config = context.config(&[Section::Database, Section::Relay])?;
    let store = context.connect(&config).await?;
    let own = operational::source();
    let sources = match only {
        Some(operational::SOURCE) => vec![&own],
        Some(name) => vec![source(&config, name)?],
        None => config.relay.sources.iter().chain([&own]).collect(),
    };
    let mut views = Vec::new();
    for source in sources {
        views.push(View::of(&store, source).await);
    }
    let set_aside = store
        .rejected_counts()
        .await?
        .into_iter()
        .map(|(source, standing, reason, count)| Count {
            source,
            standing: standing.as_str(),
            reason,
            count,
        })
        .collect();
    let answer = Status {
        sources: views,
        set_aside,
    };
    context.output.print(&answer, || human(&answer))?;
    match unread(&answer.sources) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// What says that sources could not be read, with the code of the first of them.
fn unread(sources: &[View]) -> Option<Failure> {
    let all = sources.iter();
    let unread: Vec<(&str, &Failure)> = all
        .filter_map(|view| Some((view.name.as_str(), view.error.as_ref()?)))
        .collect();
    let (_, first) = unread.first()?;
    let told: Vec<String> = unread
        .iter()
        .map(|(name, failure)| format!("`{name}`: {failure}"))
        .collect();
    let text = format!(
        "{} of {} outboxes can't be read: {}",
        unread.len(),
        sources.len(),
        told.join("\n")
    );
    Some(Failure::new(first.code(), text))
}

fn human(status: &Status) -> String {
    let mut text = table(
        [
            "SOURCE", "TABLE", "PENDING", "OLDEST", "TAKEN", "RELAY", "READ BY",
        ],
        status.sources.iter().map(View::row).collect(),
    );
    if !status.set_aside.is_empty() {
        let rows = status
            .set_aside
            .iter()
            .map(|count| {
                [
                    count.source.clone(),
                    count.standing.to_owned(),
                    count.reason.clone(),
                    count.count.to_string(),
                ]
            })
            .collect();
        text.push_str("\n\nset aside:\n");
        text.push_str(&table(["SOURCE", "STANDING", "REASON", "EVENTS"], rows));
    }
    text
}
