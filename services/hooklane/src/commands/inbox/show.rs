//! One event: where it stands, how it came to that, and what the partner sent.

use hooklane_core::error::ErrorCode;
use hooklane_proto::id::InboxId;

use super::view::{Decision, Header, View, Whole};
use crate::commands::input::shown;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, fields, or_dash, table};

/// Characters of a body that a person is shown.
const BODY: usize = 2_000;
/// Characters of a header's value that a person is shown.
const VALUE: usize = 200;

pub(super) async fn run(context: &Context, id: InboxId, body: bool) -> Result<(), Failure> {
    let store = context.store().await?;
    let found = store.inbox_event(id).await?;
    if body {
        let body = found.body.ok_or_else(|| {
            Failure::new(
                ErrorCode::NotFound,
                format!("the body of {id} is past its retention, and is kept no more"),
            )
        })?;
        return output::bytes(&body);
    }
    let text = found.body.as_ref().map(|body| shown(body, BODY));
    let whole = Whole::from(found);
    context.output.print(&whole, || human(&whole, text))
}

fn human(whole: &Whole, body: Option<String>) -> String {
    let mut text = event(&whole.event, whole.content_type.as_deref());
    part(&mut text, "headers", headers(&whole.headers));
    let kept = body.unwrap_or_else(|| "past its retention, and kept no more".to_owned());
    part(&mut text, "body", kept);
    part(&mut text, "what was decided", trail(&whole.trail));
    if !whole.conflicts.is_empty() {
        let rows = whole.conflicts.iter().map(|other| {
            let body = other.body.as_deref().or(other.body_base64.as_deref());
            [
                other.at.clone(),
                other.body_sha256.clone(),
                shown(body.unwrap_or_default().as_bytes(), VALUE),
            ]
        });
        let conflicts = table(["AT", "SHA-256", "BODY"], rows.collect());
        part(
            &mut text,
            "conflicts: the same id with another body, not taken",
            conflicts,
        );
    }
    if !whole.items.is_empty() {
        part(&mut text, "it held", whole.items.join("\n"));
    }
    if whole.event.status == "QUARANTINED" {
        let id = &whole.event.id;
        text.push_str(&format!(
            "\n\nwhat would happen now: hooklane inbox dry-run {id}\n\
             once what was wrong is mended: hooklane inbox replay {id}"
        ));
    }
    text
}

fn part(text: &mut String, name: &str, what: String) {
    text.push_str(&format!("\n\n{name}:\n{what}"));
}

fn event(event: &View, content_type: Option<&str>) -> String {
    let verified = match (event.signature_verified, &event.key_label) {
        (true, Some(label)) => format!("yes, by {label}"),
        (true, None) => "yes".to_owned(),
        (false, _) => "no".to_owned(),
    };
    let id_there = match event.id_signed {
        true => event.partner_event_id.clone(),
        false => format!("{} (not signed)", event.partner_event_id),
    };
    let why = match (&event.reason, &event.detail) {
        (Some(reason), Some(detail)) => format!("{reason}: {detail}"),
        (reason, detail) => reason
            .as_ref()
            .or(detail.as_ref())
            .cloned()
            .unwrap_or_default(),
    };
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    fields(vec![
        ("event", event.id.clone()),
        ("partner", event.partner.clone()),
        ("id there", id_there),
        ("event type", or_dash(event.event_type.as_deref())),
        ("entity", event.entity().unwrap_or_default()),
        (
            "order",
            event.order.map(|n| n.to_string()).unwrap_or_default(),
        ),
        (
            "sequence",
            event.sequence.map(|n| n.to_string()).unwrap_or_default(),
        ),
        ("status", format!("{} ({})", event.status, event.stage)),
        ("why", why),
        ("received", event.received_at.clone()),
        ("processed", text(event.processed_at.as_ref())),
        ("looked at next", text(event.next_at.as_ref())),
        ("deadline", text(event.deadline_at.as_ref())),
        ("handed on by", event.mode.unwrap_or_default().to_owned()),
        (
            "hand-offs",
            format!("{}, {} failed", event.attempt, event.failures),
        ),
        ("signature", verified),
        ("integrity", event.integrity.clone()),
        ("same body as", text(event.same_body_as.as_ref())),
        ("came in", text(event.parent.as_ref())),
        ("content type", content_type.unwrap_or_default().to_owned()),
        ("bytes", event.bytes.to_string()),
        ("sha-256", event.body_sha256.clone()),
    ])
}

/// As a person reads them; also of a request that was refused.
pub(super) fn headers(headers: &[Header]) -> String {
    let rows = headers
        .iter()
        .map(|header| [header.name.clone(), shown(header.value.as_bytes(), VALUE)]);
    table(["NAME", "VALUE"], rows.collect())
}

fn trail(trail: &[Decision]) -> String {
    let rows = trail.iter().map(|decision| {
        let states = match (&decision.from, &decision.to) {
            (None, None) => "-".to_owned(),
            (from, to) => format!("{} → {}", or_dash(from.as_ref()), or_dash(to.as_ref())),
        };
        let why: Vec<&str> = [&decision.reason, &decision.detail]
            .into_iter()
            .filter_map(|text| text.as_deref())
            .collect();
        [
            decision.at.clone(),
            decision.action.clone(),
            states,
            or_dash(decision.sequence),
            why.join(": "),
        ]
    });
    table(["AT", "WHAT", "STATE", "SEQUENCE", "WHY"], rows.collect())
}
