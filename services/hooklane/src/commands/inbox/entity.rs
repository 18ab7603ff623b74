//! Where an entity stands.

use hooklane_core::error::ErrorCode;
use hooklane_proto::token::Partner;
use hooklane_store::inbox::EntityRow;
use serde::Serialize;

use super::unless_configured;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{fields, or_dash, time};

#[derive(Debug, Serialize)]
struct View {
    partner: String,
    entity_type: String,
    entity_key: String,
    /// Null where no state machine is declared for it.
    state: Option<String>,
    /// How many events were applied to it.
    sequence: i64,
    last_order: Option<i64>,
    /// Events that wait for an earlier one.
    deferred: u32,
    changed_at: String,
}

pub(super) async fn run(
    context: &Context,
    partner: &Partner,
    (entity_type, key): &(String, String),
) -> Result<(), Failure> {
    let store = context.store().await?;
    let Some(found) = store.inbox_entity(partner, entity_type, key).await? else {
        unless_configured(context, Some(partner))?;
        return Err(Failure::new(
            ErrorCode::NotFound,
            format!(
                "nothing was heard of {entity_type}/{key} of `{partner}`; what came of the partner: \
                 hooklane inbox list --partner {partner}"
            ),
        ));
    };
    let EntityRow {
        state,
        sequence,
        last_order,
        deferred,
        changed_at,
    } = found;
    let view = View {
        partner: partner.to_string(),
        entity_type: entity_type.clone(),
        entity_key: key.clone(),
        state,
        sequence,
        last_order,
        deferred,
        changed_at: time(changed_at),
    };
    context.output.print(&view, || {
        fields(vec![
            ("partner", view.partner.clone()),
            ("entity", format!("{entity_type}/{key}")),
            ("state", or_dash(view.state.as_deref())),
            ("events applied", view.sequence.to_string()),
            ("last order value", or_dash(view.last_order)),
            ("events that wait", view.deferred.to_string()),
            ("changed", view.changed_at.clone()),
            (
                "its events",
                format!("hooklane inbox list --partner {partner} --entity {entity_type}/{key}"),
            ),
        ])
    })
}
