//! Events, page by page.

use hooklane_store::inbox::{Filter, Place};
use serde::Serialize;

use super::view::View;
use super::{cursor, unless_configured};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{or_dash, table};

#[derive(Debug, Serialize)]
struct List {
    events: Vec<View>,
    next: Option<String>,
}

pub(super) async fn run(
    context: &Context,
    filter: &Filter,
    after: Option<Place>,
    limit: u32,
) -> Result<(), Failure> {
    let store = context.store().await?;
    let page = store.inbox_events(filter, after, limit).await?;
    if page.items.is_empty() && page.next.is_none() {
        unless_configured(context, filter.partner.as_ref())?;
    }
    let answer = List {
        next: page.next.map(cursor::text),
        events: page.items.into_iter().map(View::from).collect(),
    };
    context.output.print(&answer, || human(&answer.events))?;
    context.output.more(answer.next.as_deref());
    Ok(())
}

fn human(events: &[View]) -> String {
    let rows = events.iter().map(|event| {
        [
            // To the second is enough for a person.
            event.received_at.get(..19).unwrap_or_default().to_owned() + "Z",
            event.id.clone(),
            event.partner.clone(),
            event.partner_event_id.clone(),
            or_dash(event.event_type.as_deref()),
            or_dash(event.entity()),
            or_dash(event.sequence),
            event.status.to_owned(),
            or_dash(event.reason.as_deref()),
        ]
    });
    let head = [
        "RECEIVED",
        "EVENT",
        "PARTNER",
        "ID THERE",
        "EVENT TYPE",
        "ENTITY",
        "SEQUENCE",
        "STATUS",
        "REASON",
    ];
    table(head, rows.collect())
}
