//! The partners that this process knows, and how it reads their events.
//!
//! Owns the way from what the ledger keeps to what a source understands, and back. What a source
//! understands is `source`'s.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooklane_core::config::Faults;
use hooklane_core::rules::transition::Machine;
use hooklane_proto::token::Partner;
use hooklane_store::inbox::{self, Claimed, Headers, Reader};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::source::{self, Block, Mode, Part, Source, Unreadable};

/// The configured sources, by name. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Sources(Arc<BTreeMap<Partner, Source>>);

impl Sources {
    /// Compiles them, reading the files that they name. One that has faults is left out.
    #[must_use]
    pub fn compile(blocks: &BTreeMap<String, Block>, faults: &mut Faults) -> Self {
        let mut sources = BTreeMap::new();
        for (name, block) in blocks {
            let mut compiled = None;
            faults.within(name.as_str(), |faults| {
                compiled = Source::compile(name, block, faults);
                if let Err(error) = Partner::new(name) {
                    faults.add("", format!("is no name ({error})"), "give it another one");
                }
            });
            if let (Some(source), Ok(partner)) = (compiled, Partner::new(name)) {
                sources.insert(partner, source);
            }
        }
        Self(Arc::new(sources))
    }

    /// The source of this name, if it takes requests.
    pub(crate) fn open(&self, name: &str) -> Option<(&Partner, &Source)> {
        let found = self.0.get_key_value(name)?;
        found.1.enabled().then_some(found)
    }

    /// The source of this partner.
    #[must_use]
    pub fn get(&self, partner: &Partner) -> Option<&Source> {
        self.0.get(partner)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Partner, &Source)> {
        self.0.iter()
    }

    /// How each hands its events on.
    pub(crate) fn modes(&self) -> Vec<(Partner, inbox::Mode)> {
        let modes = self.iter();
        modes
            .map(|(partner, source)| (partner.clone(), mode(source.hand_off().mode)))
            .collect()
    }
}

fn mode(mode: Mode) -> inbox::Mode {
    match mode {
        Mode::Stream => inbox::Mode::Stream,
        Mode::Request => inbox::Mode::Request,
        Mode::Sql => inbox::Mode::Sql,
    }
}

impl Reader for Sources {
    fn read(&self, event: &Claimed) -> inbox::Reading {
        let Some(source) = self.get(&event.partner) else {
            // Rows of sources that `mode` does not know are left alone.
            return inbox::Reading::Unreadable {
                reason: inbox::Reason::Unparseable,
                detail: "its source is not configured here".to_owned(),
            };
        };
        let part = if event.item { Part::Item } else { Part::Whole };
        match source.read(part, &header_map(&event.headers), &event.body) {
            source::Reading::Event(source::Event { event_type, entity }) => inbox::Reading::Event {
                event_type,
                entity: entity.map(|entity| inbox::Entity {
                    entity_type: entity.entity_type,
                    key: entity.key,
                    order: entity.order,
                    to_field: entity.to_field,
                }),
            },
            source::Reading::Items(items) => {
                let item = |item: source::Item| inbox::Item {
                    partner_event_id: item.id.id,
                    id_signed: item.id.signed,
                    event_type: Some(item.event_type),
                    body: event.body.slice(item.range),
                };
                inbox::Reading::Items(items.into_iter().map(item).collect())
            }
            source::Reading::Unreadable { reason, detail } => inbox::Reading::Unreadable {
                reason: match reason {
                    Unreadable::Unparseable => inbox::Reason::Unparseable,
                    Unreadable::Ambiguous => inbox::Reason::Ambiguous,
                    Unreadable::EntityMissing => inbox::Reason::EntityMissing,
                },
                detail,
            },
        }
    }

    fn machine(&self, partner: &Partner, entity_type: &str) -> Option<&Machine> {
        self.get(partner)?.machine(entity_type)
    }

    fn mode(&self, partner: &Partner) -> Option<inbox::Mode> {
        self.get(partner).map(|source| mode(source.hand_off().mode))
    }
}

/// The headers of a request that its source lets be kept.
pub(crate) fn kept(source: &Source, headers: &HeaderMap) -> Headers {
    let kept = headers.iter().filter(|(name, _)| source.keeps(name));
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Headers(
        kept.map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect(),
    )
}

/// Headers as they came. What is no header is left out: everything in the ledger was one.
fn header_map(headers: &Headers) -> HeaderMap {
    let parsed = headers.0.iter().filter_map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    });
    let mut map = HeaderMap::with_capacity(headers.0.len());
    for (name, value) in parsed {
        map.append(name, value);
    }
    map
}
