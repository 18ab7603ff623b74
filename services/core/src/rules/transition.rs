//! In which order events may change an entity.
//!
//! Partners' webhooks arrive late, twice and out of order. A machine says which states an entity has
//! and which event leads from where to where, and an event that arrives is a proposal to move:
//!
//! - it is legal where the entity stands: it is **applied**;
//! - it is not, but there is a way from here to where it would be: what comes before it has not
//!   arrived yet, so it is **deferred**;
//! - it is not, but there is a way from where it leads to here: the entity has moved on, so it is
//!   **late**, and has no effect;
//! - neither: it can never be legal, and a person has to look at it.
//!
//! The ways are those of the graph of transitions, computed once. On a cycle both may be true, and
//! then the order value of the events decides, such as the partner's clock; events that are applied
//! on a cycle are checked against it too. Without order values a policy decides. Whatever the order
//! of arrival, an entity ends in the same state, as long as the graph or order values decide.
//!
//! Owns the machine's configuration and the decision. Does not own what happens then: the ledger
//! writes it down, in one transaction with the entity.

use std::fmt;

mod config;
mod graph;
mod pattern;
#[cfg(test)]
mod tests;

pub use config::{Config, Early, Impossible, Late, Policy, Transition, Undecided, Unknown};
use graph::{Graph, States};
pub use pattern::{InvalidPattern, Pattern};

use crate::config::Faults;

/// Longest part of a value that an explanation quotes, in characters.
const QUOTED: usize = 64;

/// A configuration that can't be a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the machine can't be: {0}")]
pub struct Invalid(String);

/// A machine with its ways computed.
#[derive(Debug, Clone)]
pub struct Machine {
    config: Config,
    graph: Graph,
    moves: Vec<Move>,
    fingerprint: String,
}

/// A transition, with states by number.
#[derive(Debug, Clone)]
struct Move {
    event: Pattern,
    from: States,
    /// The states that it may lead to: one, unless a field of the body names it.
    to: States,
    field: Option<String>,
}

/// Where an entity stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current<'a> {
    /// Its state.
    pub state: &'a str,
    /// Whether nothing was applied to it yet: then no event can be late.
    pub fresh: bool,
    /// The highest order value that was applied.
    pub last_order: Option<i64>,
}

/// An event, as far as the decision needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// What happened.
    pub event_type: &'a str,
    /// Where it stands among the entity's events, such as the partner's clock; higher is later.
    pub order: Option<i64>,
    /// The state that the body names at [`Machine::to_field`].
    pub to_field: Option<&'a str>,
}

/// What is to become of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is legal.
    Apply {
        /// The state afterwards; as before where the machine does not know the event.
        to: String,
    },
    /// What comes before it is missing.
    Defer {
        /// What that is.
        missing: Missing,
    },
    /// The entity has moved on: it is recorded and has no effect.
    Late {
        /// Why, for a person.
        why: String,
    },
    /// A person has to look at it.
    Quarantine {
        /// Why, for a person.
        why: String,
    },
}

/// The shortest way from where an entity stands to where an event is legal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The states on the way, in order, the last of them where the event is legal.
    pub states: Vec<String>,
    /// The events that lead there, one for each state, as the machine writes them.
    pub events: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (event, state)) in self.events.iter().zip(&self.states).enumerate() {
            let then = if n == 0 { "" } else { ", then " };
            write!(f, "{then}{event} (to `{state}`)")?;
        }
        Ok(())
    }
}

impl Machine {
    /// Computes the ways of a configured machine.
    ///
    /// # Errors
    /// [`Invalid`] with everything that [`Config::validate`] finds.
    pub fn compile(config: &Config) -> Result<Self, Invalid> {
        let mut faults = Faults::new();
        config.validate(&mut faults);
        if !faults.is_empty() {
            let found: Vec<String> = faults.found().iter().map(ToString::to_string).collect();
            return Err(Invalid(found.join("; ")));
        }
        let mut graph = Graph::new(config.states());
        let mut moves = Vec::with_capacity(config.transitions.len());
        for transition in &config.transitions {
            let event = transition.event.parse::<Pattern>();
            let event = event.map_err(|fault| Invalid(fault.to_string()))?;
            moves.push(Move {
                event,
                from: graph.named(config.from(transition).iter().map(String::as_str)),
                to: graph.named(config.to(transition).iter().map(String::as_str)),
                field: transition.to_field.clone(),
            });
        }
        for one in &moves {
            graph.connect(one.from, one.to);
        }
        graph.close();
        Ok(Self {
            fingerprint: config.fingerprint(),
            config: config.clone(),
            graph,
            moves,
        })
    }

    /// What is odd about the machine, for a person: states without a way in, and, unless the
    /// entity's events are `ordered` by a value, cycles, on which nothing but such a value can tell
    /// early from late.
    #[must_use]
    pub fn warnings(&self, ordered: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        let initial = self.graph.index(&self.config.initial).unwrap_or_default();
        let reached = self.graph.reach(initial);
        let lost = self.graph.names(self.graph.all() & !reached);
        if !lost.is_empty() {
            warnings.push(format!(
                "no transition leads from `{}` to {}",
                self.config.initial,
                listed(&lost)
            ));
        }
        if !ordered {
            let on_cycle = |one: &&Move| {
                one.to
                    .iter()
                    .any(|to| !(self.graph.reach(to) & one.from).is_empty())
            };
            let mut events: Vec<String> = self
                .moves
                .iter()
                .filter(on_cycle)
                .map(|one| one.event.to_string())
                .collect();
            events.sort_unstable();
            events.dedup();
            if !events.is_empty() {
                warnings.push(format!(
                    "an entity may come back to where it was by {}, and without an order value \
                     nothing tells an old event from a new one there: give `order`",
                    listed(&events)
                ));
            }
        }
        warnings
    }

    /// The pointer to read for an event of this type, where its transition leads to what a field of
    /// the body says.
    #[must_use]
    pub fn to_field(&self, event_type: &str) -> Option<&str> {
        self.matching(event_type)
            .find_map(|one| one.field.as_deref())
    }

    /// The state of an entity to which nothing was applied.
    #[must_use]
    pub fn initial(&self) -> &str {
        &self.config.initial
    }

    /// What happens to events that are not legal.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.config.policy
    }

    /// 16 hexadecimal digits of the configuration: which machine decided.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn matching(&self, event_type: &str) -> impl Iterator<Item = &Move> {
        self.moves
            .iter()
            .filter(move |one| one.event.matches(event_type))
    }

    /// Decides about an event.
    #[must_use]
    pub fn decide(&self, at: &Current<'_>, event: &Event<'_>) -> Verdict {
        let moves: Vec<&Move> = self.matching(event.event_type).collect();
        if moves.is_empty() {
            return self.unknown(at, event);
        }
        let Some(here) = self.graph.index(at.state) else {
            return quarantine(format!(
                "the entity is in the state {}, which the machine doesn't name any more",
                quoted(at.state)
            ));
        };
        if let Some(legal) = moves.iter().find(|one| one.from.has(here)) {
            return match self.target(legal, event) {
                Ok(to) if !at.fresh && Self::is_behind(at, event) && self.leads(to, here) => {
                    self.late(at, "its order value is below one that was applied")
                }
                Ok(to) => self.apply(to),
                Err(why) => quarantine(why),
            };
        }
        self.illegal(at, here, event, &moves)
    }

    /// Decides about an event that is not legal where the entity stands.
    fn illegal(
        &self,
        at: &Current<'_>,
        here: usize,
        event: &Event<'_>,
        moves: &[&Move],
    ) -> Verdict {
        let wanted = moves
            .iter()
            .fold(States::default(), |all, one| all | one.from);
        let targets: Vec<usize> = moves
            .iter()
            .filter_map(|one| self.target(one, event).ok())
            .collect();
        let ahead = !(self.graph.reach(here) & wanted).is_empty();
        let late = !at.fresh && targets.iter().any(|to| self.leads(*to, here));
        let early = || match self.config.policy.early {
            Early::Defer => self.defer(here, wanted),
            Early::Quarantine => quarantine(format!(
                "what comes before it is missing: {}",
                self.missing(here, wanted)
            )),
        };
        let passed = || self.late(at, "the entity has moved on");
        match (ahead, late) {
            (true, false) => early(),
            (false, true) => passed(),
            (true, true) => match (event.order, at.last_order) {
                (Some(order), Some(last)) if order > last => early(),
                (Some(order), Some(last)) if order < last => passed(),
                _ => match (self.config.policy.undecided, targets.first()) {
                    (Undecided::Accept, Some(to)) => self.apply(*to),
                    (Undecided::Defer, _) => self.defer(here, wanted),
                    _ => quarantine(
                        "it may be early or late, and no order value says which".to_owned(),
                    ),
                },
            },
            (false, false) => {
                let why = match moves.iter().map(|one| self.target(one, event)).next() {
                    Some(Err(why)) => why,
                    _ => format!(
                        "no way leads from `{}` to where {} is legal ({})",
                        at.state,
                        quoted(event.event_type),
                        listed(&self.graph.names(wanted))
                    ),
                };
                match self.config.policy.impossible {
                    Impossible::Quarantine => quarantine(why),
                    Impossible::Record => Verdict::Late { why },
                }
            }
        }
    }

    fn unknown(&self, at: &Current<'_>, event: &Event<'_>) -> Verdict {
        match self.config.policy.unknown_event {
            Unknown::Accept => Verdict::Apply {
                to: at.state.to_owned(),
            },
            Unknown::Quarantine => quarantine(format!(
                "the machine has no transition for {}",
                quoted(event.event_type)
            )),
        }
    }

    fn apply(&self, to: usize) -> Verdict {
        Verdict::Apply {
            to: self.graph.name(to).to_owned(),
        }
    }

    fn defer(&self, here: usize, wanted: States) -> Verdict {
        Verdict::Defer {
            missing: self.missing(here, wanted),
        }
    }

    fn late(&self, at: &Current<'_>, why: &str) -> Verdict {
        let why = format!("{why}; it is in the state `{}`", at.state);
        match self.config.policy.late {
            Late::Record => Verdict::Late { why },
            Late::Quarantine => quarantine(why),
        }
    }

    /// Whether an event's order value is below what was applied.
    fn is_behind(at: &Current<'_>, event: &Event<'_>) -> bool {
        matches!((event.order, at.last_order), (Some(order), Some(last)) if order < last)
    }

    /// Whether there is a way, of no step or more.
    fn leads(&self, from: usize, to: usize) -> bool {
        self.graph.reach(from).has(to)
    }

    /// The state that a transition leads to.
    fn target(&self, one: &Move, event: &Event<'_>) -> Result<usize, String> {
        let Some(field) = &one.field else {
            return one.to.first().ok_or_else(|| "it leads nowhere".to_owned());
        };
        let named = event
            .to_field
            .ok_or_else(|| format!("the body names no state at `{field}`"))?;
        let known = self.graph.index(named).filter(|state| one.to.has(*state));
        known.ok_or_else(|| {
            format!(
                "the body names the state {} at `{field}`, which the machine doesn't lead to",
                quoted(named)
            )
        })
    }

    fn missing(&self, here: usize, wanted: States) -> Missing {
        let steps = self
            .graph
            .shortest(here, wanted, |state| {
                self.moves
                    .iter()
                    .enumerate()
                    .filter(move |(_, one)| one.from.has(state))
                    .map(|(n, one)| (n, one.to))
            })
            .unwrap_or_default();
        Missing {
            states: steps
                .iter()
                .map(|(_, state)| self.graph.name(*state).to_owned())
                .collect(),
            events: steps
                .iter()
                .map(|(n, _)| self.moves[*n].event.to_string())
                .collect(),
        }
    }
}

fn quarantine(why: String) -> Verdict {
    Verdict::Quarantine { why }
}

fn listed(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// A value from outside, short and without control characters.
fn quoted(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(QUOTED)
        .collect();
    if text.chars().count() > QUOTED {
        shown.push('…');
    }
    format!("`{shown}`")
}
