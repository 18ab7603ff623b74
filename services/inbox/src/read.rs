//! Reading: what an event is about, once it is stored.
//!
//! Owns the bounded look into bodies, types, entities, orders, and taking batches apart. Whatever
//! a partner may send has an answer here, and none of them is a guess: what can be read in two ways
//! is not read.

use std::borrow::Cow;
use std::ops::Range;

use chrono::DateTime;
use hooklane_core::rules::transition::{Machine, Pattern};

pub(crate) mod form;
pub(crate) mod json;
mod split;

pub(crate) use split::Split;

use crate::source::{Format, Identity, hashed};
use crate::verify::place::{Parts, Place, Unfit};
use crate::verify::scheme::Scheme;
use crate::verify::template::{self, Template};
use json::Pointer;

/// Longest event type and entity's key, in characters.
const MAX_TEXT: usize = 255;
/// The type of events that nothing names.
const UNKNOWN: &str = "unknown";

/// Which part of a request a row holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// One event of a batch.
    Item,
}

/// What a row turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// An event.
    Event(Event),
    /// A batch: 1 to 10,000 events.
    Items(Vec<Item>),
    /// Nothing that can be acted on.
    Unreadable {
        /// Why.
        reason: Unreadable,
        /// Why, for a person; no values of the body.
        detail: String,
    },
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened: 1 to 255 characters, none of them a control character; `unknown` where nothing
    /// names it.
    pub event_type: String,
    /// What it happened to.
    pub entity: Option<Entity>,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// Its type in the configuration.
    pub entity_type: String,
    /// Which one: 1 to 255 characters, a hash where that doesn't fit.
    pub key: String,
    /// Where the event stands among the entity's: a number as it is, a time in microseconds since 1970.
    pub order: Option<i64>,
    /// The state that the body names, where the transition asks for one.
    pub to_field: Option<String>,
}

/// One event of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its id.
    pub id: Identity,
    /// Where its bytes are in the batch's body.
    pub range: Range<usize>,
    /// What happened.
    pub event_type: String,
}

/// Why an event can't be acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unreadable {
    /// The body, or a value in it, can't be read.
    Unparseable,
    /// It can be read in two ways.
    Ambiguous,
    /// It has no key of the entity that it should be about.
    EntityMissing,
}

impl Unreadable {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unparseable => "unparseable",
            Self::Ambiguous => "ambiguous",
            Self::EntityMissing => "entity_missing",
        }
    }
}

/// How a source's events are read.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) event_type: Vec<Template>,
    pub(crate) split: Option<Split>,
    pub(crate) entities: Vec<EntityRule>,
}

/// An entity's events, key and order.
#[derive(Debug)]
pub(crate) struct EntityRule {
    pub(crate) entity_type: String,
    pub(crate) events: Vec<Pattern>,
    pub(crate) key: Template,
    pub(crate) order: Option<Place>,
    pub(crate) machine: Option<Machine>,
}

/// A reason, and the rest of the sentence.
type Fault = (Unreadable, Cow<'static, str>);

impl Rules {
    /// Reads an event. `ids` are the templates of the whole's id.
    pub(crate) fn read(
        &self,
        part: Part,
        parts: &Parts<'_>,
        format: Format,
        ids: &[Template],
        schemes: &[Scheme],
    ) -> Reading {
        let read = || {
            if !parts.is_form() && format != Format::Any {
                parts
                    .json()
                    .map_err(|error| (Unreadable::Unparseable, error.to_string().into()))?;
            }
            let split = self.split.as_ref();
            let batch = split.filter(|_| part == Part::Whole && !parts.is_form());
            if let Some(items) = batch.map(|split| split.items(parts, schemes)).transpose()?
                && !items.is_empty()
            {
                return Ok(Reading::Items(items));
            }
            let (ids, types) = match split.filter(|_| part == Part::Item) {
                Some(split) => (&*split.event_id, &*split.event_type),
                None => (ids, &*self.event_type),
            };
            if template::first(ids, parts) == Err(Unfit::Repeated) {
                return Err((
                    Unreadable::Ambiguous,
                    "the event's id is there twice".into(),
                ));
            }
            self.event(event_type(types, parts)?, parts)
                .map(Reading::Event)
        };
        read().unwrap_or_else(|(reason, detail): Fault| Reading::Unreadable {
            reason,
            detail: detail.into_owned(),
        })
    }

    /// The machine of an entity's type.
    pub(crate) fn machine(&self, entity_type: &str) -> Option<&Machine> {
        self.entities
            .iter()
            .find(|rule| rule.entity_type == entity_type)?
            .machine
            .as_ref()
    }

    /// Every place that is looked at, but for the state that a body names.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        let items = self.split.iter();
        let items = items.flat_map(|split| split.event_id.iter().chain(&split.event_type));
        let keys = self.entities.iter().map(|rule| &rule.key);
        let orders = self.entities.iter().filter_map(|rule| rule.order.as_ref());
        let templates = self.event_type.iter().chain(items).chain(keys);
        templates.flat_map(Template::places).chain(orders)
    }

    fn event(&self, event_type: String, parts: &Parts<'_>) -> Result<Event, Fault> {
        let concerns = |rule: &&EntityRule| rule.events.iter().any(|one| one.matches(&event_type));
        let rule = self.entities.iter().find(concerns);
        let entity = rule
            .map(|rule| rule.entity(&event_type, parts))
            .transpose()?;
        Ok(Event { event_type, entity })
    }
}

impl EntityRule {
    fn entity(&self, event_type: &str, parts: &Parts<'_>) -> Result<Entity, Fault> {
        let key = match self.key.text(parts) {
            Ok(Some(key)) => key,
            Ok(None) => {
                let detail = format!("nothing says which {} it is about", self.entity_type);
                return Err((Unreadable::EntityMissing, detail.into()));
            }
            Err(unfit) => return Err(fault(unfit, "the entity's key")),
        };
        let odd = key.chars().any(char::is_control) || key.chars().count() > MAX_TEXT;
        let order = match &self.order {
            Some(place) => order(place, parts)?,
            None => None,
        };
        let field = self
            .machine
            .as_ref()
            .and_then(|machine| machine.to_field(event_type));
        let field = field.and_then(|pointer| Pointer::parse(pointer).ok());
        let to_field = match field {
            Some(pointer) => parts
                .text(&Place::Json {
                    pointer,
                    optional: false,
                })
                .map_err(|unfit| fault(unfit, "the state that it names"))?,
            None => None,
        };
        Ok(Entity {
            entity_type: self.entity_type.clone(),
            key: if odd { hashed(key.as_bytes()) } else { key },
            order,
            to_field: to_field.map(Cow::into_owned),
        })
    }
}

fn event_type(templates: &[Template], parts: &Parts<'_>) -> Result<String, Fault> {
    let text = template::first(templates, parts);
    let text = text.map_err(|unfit| fault(unfit, "the event type"))?;
    let text = text.unwrap_or_else(|| UNKNOWN.to_owned());
    if text.chars().count() > MAX_TEXT || text.chars().any(char::is_control) {
        let detail = "the event type has more than 255 characters, or control characters";
        return Err((Unreadable::Unparseable, detail.into()));
    }
    Ok(text)
}

fn order(place: &Place, parts: &Parts<'_>) -> Result<Option<i64>, Fault> {
    let text = parts
        .text(place)
        .map_err(|unfit| fault(unfit, "the order value"))?;
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let time = || Some(DateTime::parse_from_rfc3339(&text).ok()?.timestamp_micros());
    let value = text.parse().ok().or_else(time);
    value.map(Some).ok_or((
        Unreadable::Unparseable,
        "the order value is neither a whole number nor a time by RFC 3339".into(),
    ))
}

fn fault(unfit: Unfit, what: &str) -> Fault {
    match unfit {
        Unfit::Repeated => (
            Unreadable::Ambiguous,
            format!("{what} is there twice").into(),
        ),
        Unfit::NoText => (
            Unreadable::Unparseable,
            format!("{what} holds what no text can").into(),
        ),
        Unfit::NoJson(error) => (Unreadable::Unparseable, error.to_string().into()),
    }
}
