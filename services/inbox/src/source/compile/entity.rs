//! What a block says of batches and of what events are about.

use hooklane_core::config::Faults;
use hooklane_core::rules::transition::Machine;

use super::{Texts, place, template};
use crate::read::json::Pointer;
use crate::read::{EntityRule, Split};
use crate::source::block::{Block, EntityBlock, SplitBlock};
use crate::source::preset::Preset;
use crate::verify::place::{Place, Scope};

/// How batches are taken apart.
pub(super) fn split(block: &Block, preset: Option<&Preset>, faults: &mut Faults) -> Option<Split> {
    let own = block.split.as_ref();
    let SplitBlock {
        at,
        then,
        event_id,
        event_type,
    } = own.or(preset.and_then(|preset| preset.split.as_ref()))?;
    let mut found = None;
    faults.within("split", |faults| {
        let pointer = |key: &str, text: &String, faults: &mut Faults| {
            Pointer::parse(text)
                .map_err(|error| {
                    faults.add(key, format!("is `{text}`, which {error}"), "correct it")
                })
                .ok()
        };
        let at = pointer("at", at, faults);
        let then: Vec<_> = then
            .iter()
            .filter_map(|text| pointer("then", text, faults))
            .collect();
        let event_id = Texts(event_id).templates("event_id", faults);
        let event_type = Texts(event_type).templates("event_type", faults);
        found = at.map(|at| Split {
            at,
            then,
            event_id,
            event_type,
        });
    });
    found
}

/// What events are about.
pub(super) fn compile(
    block: &Block,
    faults: &mut Faults,
    warnings: &mut Vec<String>,
) -> Vec<EntityRule> {
    let mut entities: Vec<EntityRule> = Vec::new();
    for (index, one) in block.entities.iter().enumerate() {
        faults.within(format!("entities.{index}"), |faults| {
            let rule = entity(one, faults, warnings);
            if entities
                .iter()
                .any(|other| other.entity_type == one.entity_type)
            {
                let problem = format!("is `{}` a second time", one.entity_type);
                faults.add("type", problem, "put all its events into one entity");
            }
            entities.extend(rule);
        });
    }
    entities
}

fn entity(
    written: &EntityBlock,
    faults: &mut Faults,
    warnings: &mut Vec<String>,
) -> Option<EntityRule> {
    let EntityBlock {
        entity_type,
        events,
        key,
        order,
        machine,
    } = written;
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if entity_type.is_empty() || entity_type.len() > 50 || !entity_type.chars().all(fine) {
        let problem = format!("is `{entity_type}`");
        faults.add(
            "type",
            problem,
            "use 1 to 50 of A-Z, a-z, 0-9, `_`, `-` and `.`",
        );
    }
    if events.is_empty() {
        faults.add(
            "match",
            "is empty",
            "name the event types, or `*` for all of them",
        );
    }
    let mut patterns = Vec::new();
    for (index, text) in events.iter().enumerate() {
        match text.parse() {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => faults.add(
                &format!("match.{index}"),
                format!("{error}"),
                "name an event type, or a beginning with a `*` after it",
            ),
        }
    }
    let key = template("key", key, faults);
    let order = match order {
        None => None,
        Some(text) => {
            let order = place("order", text, Scope::default(), faults);
            if order.as_ref().is_some_and(Place::needs_request) {
                faults.add(
                    "order",
                    "is not kept with an event",
                    "name a place in the body",
                );
            }
            order
        }
    };
    let mut compiled = None;
    if let Some(machine) = machine {
        let before = faults.found().len();
        faults.within("machine", |faults| {
            machine.validate(faults);
            for (index, transition) in machine.transitions.iter().enumerate() {
                let pointer = transition.to_field.as_deref().map(Pointer::parse);
                if let Some(Err(error)) = pointer {
                    let key = format!("transitions.{index}.to_field");
                    faults.add(&key, error.to_string(), "correct it");
                }
            }
        });
        if faults.found().len() == before {
            match Machine::compile(machine) {
                Ok(machine) => {
                    let name = |text| format!("entity `{entity_type}`: {text}");
                    warnings.extend(machine.warnings(order.is_some()).into_iter().map(name));
                    compiled = Some(machine);
                }
                Err(error) => faults.add("machine", error.to_string(), "correct it"),
            }
        }
    }
    Some(EntityRule {
        entity_type: entity_type.clone(),
        events: patterns,
        key: key?,
        order,
        machine: compiled,
    })
}
