//! Batches: one request with many events, each of which gets a row of its own with its exact bytes.

use ring::digest::{Context, SHA256};

use super::json::{Node, Pointer};
use super::{Fault, Item, UNKNOWN, Unreadable, event_type};
use crate::source::{Identity, digested, fitting};
use crate::verify::place::Parts;
use crate::verify::scheme::Scheme;
use crate::verify::template::Template;

/// Most events of a batch.
const MAX_ITEMS: usize = 10_000;

/// Where a batch's events are.
#[derive(Debug)]
pub(crate) struct Split {
    /// The array.
    pub(crate) at: Pointer,
    /// Arrays within its elements.
    pub(crate) then: Vec<Pointer>,
    pub(crate) event_id: Vec<Template>,
    pub(crate) event_type: Vec<Template>,
}

impl Split {
    /// The events; none where the body is not a batch.
    ///
    /// An element that holds none of the inner arrays is an event itself, so that nothing is lost
    /// that the source doesn't know of. Two events that are equal have one id, as one that is
    /// sent twice has. What stands beside an inner array belongs to its elements: the same change of
    /// another account, or of another time, is another event.
    pub(super) fn items(&self, parts: &Parts<'_>, schemes: &[Scheme]) -> Result<Vec<Item>, Fault> {
        let ambiguous = |_| {
            (
                Unreadable::Ambiguous,
                "the events' array is there twice".into(),
            )
        };
        let Ok(root) = parts.json() else {
            return Ok(Vec::new());
        };
        let list = root.at(&self.at).map_err(ambiguous)?;
        let mut items = Vec::new();
        for element in list.and_then(|list| list.elements()).into_iter().flatten() {
            let mut nodes = Vec::new();
            for pointer in &self.then {
                let inner = element.at(pointer).map_err(ambiguous)?;
                let inner = inner
                    .and_then(|inner| inner.elements())
                    .into_iter()
                    .flatten();
                nodes.extend(inner.take(MAX_ITEMS + 1));
            }
            let mut beside = Context::new(&SHA256);
            if nodes.is_empty() {
                nodes.push(element);
            } else {
                for (name, value) in element.scalars() {
                    for piece in [name, b":", value, b","] {
                        beside.update(piece);
                    }
                }
            }
            if items.len() + nodes.len() > MAX_ITEMS {
                let detail = format!("the body holds more than {MAX_ITEMS} events");
                return Err((Unreadable::Unparseable, detail.into()));
            }
            let nodes = nodes.into_iter();
            items.extend(nodes.map(|node| self.item(node, &beside, parts, schemes)));
        }
        Ok(items)
    }

    fn item<'a>(
        &self,
        node: Node<'a>,
        beside: &Context,
        batch: &Parts<'a>,
        schemes: &[Scheme],
    ) -> Item {
        let parts = batch.item(node);
        // One that can't be read here can't be read when it is looked at on its own, and says so then.
        let event_type = event_type(&self.event_type, &parts);
        Item {
            id: self.id(node, beside, &parts, schemes),
            range: node.range(),
            event_type: event_type.unwrap_or_else(|_| UNKNOWN.to_owned()),
        }
    }

    fn id(
        &self,
        node: Node<'_>,
        beside: &Context,
        parts: &Parts<'_>,
        schemes: &[Scheme],
    ) -> Identity {
        for template in &self.event_id {
            match template.text(parts) {
                Ok(Some(text)) => {
                    let covers = |scheme: &Scheme| template.places().all(|at| scheme.covers(at));
                    return Identity {
                        id: fitting(text),
                        signed: schemes.iter().all(covers),
                    };
                }
                Ok(None) => {}
                Err(_) => break,
            }
        }
        let signed = schemes.iter().all(Scheme::covers_body);
        let mut whole = beside.clone();
        whole.update(node.raw());
        Identity {
            id: digested(whole.finish()),
            signed,
        }
    }
}
