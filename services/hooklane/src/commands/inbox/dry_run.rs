//! What would happen with an event now, under the configuration of this command.

use hooklane_core::clock;
use hooklane_proto::id::InboxId;
use hooklane_store::inbox::{DryRun, Outcome};
use serde::Serialize;

use super::sources::compiled;
use crate::config::Section;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::fields;

#[derive(Debug, Default, Serialize)]
struct View {
    id: String,
    /// `apply`, `hand_off_again`, `defer`, `superseded`, `quarantine`, `split`, `closed`, `panic`
    /// or `unknown_source`.
    outcome: &'static str,
    event_type: Option<String>,
    entity_type: Option<String>,
    entity_key: Option<String>,
    /// Where the entity stands now.
    state: Option<String>,
    from: Option<String>,
    to: Option<String>,
    /// What would have to come first.
    missing: Option<String>,
    reason: Option<&'static str>,
    detail: Option<String>,
    items: Option<u32>,
    /// The status of an event that is over.
    status: Option<&'static str>,
}

impl View {
    fn new(id: InboxId, found: DryRun) -> Self {
        let DryRun {
            outcome,
            state,
            event_type,
            entity,
        } = found;
        let (entity_type, entity_key) = entity.unzip();
        let mut view = Self {
            id: id.to_string(),
            event_type,
            entity_type,
            entity_key,
            state,
            ..Self::default()
        };
        view.outcome = match outcome {
            Outcome::Apply { from, to } => {
                (view.from, view.to) = (from, to);
                "apply"
            }
            Outcome::HandOffAgain => "hand_off_again",
            Outcome::Defer { missing } => {
                view.missing = Some(missing);
                "defer"
            }
            Outcome::Superseded { why } => {
                view.detail = Some(why);
                "superseded"
            }
            Outcome::Quarantine { reason, detail } => {
                view.reason = Some(reason.as_str());
                view.detail = Some(detail);
                "quarantine"
            }
            Outcome::Split { items } => {
                view.items = Some(items);
                "split"
            }
            Outcome::Closed(status) => {
                view.status = Some(status.as_str());
                "closed"
            }
            Outcome::Panic => "panic",
            Outcome::UnknownSource => "unknown_source",
        };
        view
    }

    fn told(&self) -> String {
        match self.outcome {
            "apply" => "it would be applied, and handed on".to_owned(),
            "hand_off_again" => {
                "it was applied already: it would be handed on once more".to_owned()
            }
            "defer" => "it would wait for what comes before it".to_owned(),
            "superseded" => "it comes too late: it would be recorded, without effect".to_owned(),
            "quarantine" => "it would go into quarantine".to_owned(),
            "split" => "it is a batch, and would be taken apart".to_owned(),
            "panic" => "reading it crashes: a fault of Hooklane".to_owned(),
            "closed" => "it is over: nothing would happen".to_owned(),
            _ => "its source is not in this configuration: it would be left alone".to_owned(),
        }
    }

    fn human(&self) -> String {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let entity = match (&self.entity_type, &self.entity_key) {
            (Some(kind), Some(key)) => format!("{kind}/{key}"),
            _ => String::new(),
        };
        let step = match (&self.from, &self.to) {
            (Some(from), Some(to)) => format!("{from} → {to}"),
            (from, to) => text(if to.is_some() { to } else { from }),
        };
        fields(vec![
            ("event", self.id.clone()),
            ("would", self.told()),
            ("event type", text(&self.event_type)),
            ("entity", entity),
            ("state now", text(&self.state)),
            ("step", step),
            ("missing", text(&self.missing)),
            ("reason", self.reason.unwrap_or_default().to_owned()),
            ("why", text(&self.detail)),
            (
                "items",
                self.items.map(|n| n.to_string()).unwrap_or_default(),
            ),
            ("status", self.status.unwrap_or_default().to_owned()),
        ])
    }
}

pub(super) async fn run(context: &Context, id: InboxId) -> Result<(), Failure> {
    let config = context.config(&[Section::Database, Section::Inbox])?;
    let sources = compiled(&config)?;
    let store = context.connect(&config).await?;
    let found = store.inbox_dry_run(clock::now(), id, &sources).await?;
    let view = View::new(id, found);
    context.output.print(&view, || view.human())
}
