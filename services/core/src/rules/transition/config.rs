//! A machine as it is configured.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::graph::MAX_STATES;
use super::pattern::Pattern;
use crate::config::Faults;

/// Longest name of a state, in bytes.
const MAX_NAME: usize = 64;
/// Most transitions of a machine.
const MAX_TRANSITIONS: usize = 500;
/// Every state that is not terminal.
const ANY: &str = "*";

/// The states of an entity and the events that move it.
///
/// ```toml
/// initial = "none"
/// terminal = ["canceled"]
/// transitions = [
///   { event = "customer.subscription.created", from = ["none"], to = "incomplete" },
///   { event = "customer.subscription.updated", from = ["incomplete", "active"], to_field = "/data/object/status" },
///   { event = "customer.subscription.deleted", from = ["*"], to = "canceled" },
/// ]
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The state before anything has happened.
    pub initial: String,
    /// States that nothing leads out of.
    pub terminal: Vec<String>,
    /// What leads from where to where. Where several fit an event and a state, the first one does.
    pub transitions: Vec<Transition>,
    /// What happens to events that are not legal.
    pub policy: Policy,
}

/// One way to move.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transition {
    /// The event types: one, or the beginning of some and a `*`.
    pub event: String,
    /// The states in which it is legal; `["*"]` is every one that is not terminal.
    pub from: Vec<String>,
    /// The state afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Instead of `to`: a JSON pointer to where the body names the state afterwards. It has to be one
    /// that the machine names anywhere; the initial one only where another transition leads there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_field: Option<String>,
}

/// What happens to events that are not legal where the entity stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// What comes before it is missing: `defer` or `quarantine`.
    pub early: Early,
    /// The entity has moved on: `record` or `quarantine`.
    pub late: Late,
    /// It can never be legal: `quarantine` or `record`.
    pub impossible: Impossible,
    /// No transition is for it: `accept` or `quarantine`.
    pub unknown_event: Unknown,
    /// Early or late, and no order value says which: `accept`, `defer` or `quarantine`.
    pub undecided: Undecided,
    /// How long an event may wait for what comes before it.
    #[serde(with = "humantime_serde")]
    pub defer_for: Duration,
    /// How many events of one entity may wait.
    pub max_deferred: u32,
}

macro_rules! policy {
    ($(#[$doc:meta])* $name:ident { $($(#[$on:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$on])* $variant),+ }
    };
}

policy! {
    /// What happens to an event whose predecessors are missing.
    Early {
        /// It waits for them.
        #[default]
        Defer,
        /// A person looks at it.
        Quarantine,
    }
}
policy! {
    /// What happens to an event that the entity has passed.
    Late {
        /// It is kept as superseded, without effect.
        #[default]
        Record,
        /// A person looks at it.
        Quarantine,
    }
}
policy! {
    /// What happens to an event that can never be legal.
    Impossible {
        /// A person looks at it.
        #[default]
        Quarantine,
        /// It is kept as superseded, without effect.
        Record,
    }
}
policy! {
    /// What happens to an event that no transition is for.
    Unknown {
        /// It is applied, and the state stays.
        #[default]
        Accept,
        /// A person looks at it.
        Quarantine,
    }
}
policy! {
    /// What happens to an event that may be early or late.
    Undecided {
        /// It is applied.
        #[default]
        Accept,
        /// It waits until it is legal.
        Defer,
        /// A person looks at it.
        Quarantine,
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            early: Early::default(),
            late: Late::default(),
            impossible: Impossible::default(),
            unknown_event: Unknown::default(),
            undecided: Undecided::default(),
            defer_for: Duration::from_secs(24 * 60 * 60),
            max_deferred: 500,
        }
    }
}

impl Config {
    /// Adds what is wrong to `faults`, with keys relative to the machine.
    pub fn validate(&self, faults: &mut Faults) {
        name(faults, "initial", &self.initial);
        for state in &self.terminal {
            name(faults, "terminal", state);
        }
        if self.terminal.contains(&self.initial) {
            faults.add(
                "terminal",
                "has the initial state",
                "leave it out: nothing would ever be legal",
            );
        }
        if self.transitions.is_empty() {
            faults.add(
                "transitions",
                "has none",
                "say which events lead from where to where, or leave the machine out",
            );
        }
        if self.transitions.len() > MAX_TRANSITIONS {
            faults.add(
                "transitions",
                format!("has {}", self.transitions.len()),
                format!("give at most {MAX_TRANSITIONS}"),
            );
        }
        for (n, transition) in self.transitions.iter().enumerate() {
            faults.within(format!("transitions.{n}"), |faults| {
                self.transition(transition, faults);
            });
        }
        self.one_field_each(faults);
        let states = self.states().len();
        if states > MAX_STATES {
            faults.add(
                "transitions",
                format!("name {states} states"),
                format!("name at most {MAX_STATES}"),
            );
        }
        faults.within("policy", |faults| {
            let (second, day) = (Duration::from_secs(1), Duration::from_secs(24 * 60 * 60));
            faults.duration("defer_for", self.policy.defer_for, second..=day * 30);
            faults.range("max_deferred", self.policy.max_deferred, 1..=10_000);
        });
    }

    fn transition(&self, transition: &Transition, faults: &mut Faults) {
        if let Err(fault) = transition.event.parse::<Pattern>() {
            faults.add("event", fault.to_string(), "write an event type");
        }
        let any = transition.from.iter().any(|state| state == ANY);
        if transition.from.is_empty() {
            faults.add("from", "is empty", "name states, or give [\"*\"]");
        } else if any && transition.from.len() > 1 {
            faults.add("from", "has `*` and more", "give `*` alone");
        }
        for state in transition.from.iter().filter(|state| *state != ANY) {
            name(faults, "from", state);
            if self.terminal.contains(state) {
                faults.add(
                    "from",
                    format!("has the terminal state `{state}`"),
                    "take it out of here, or out of `terminal`",
                );
            }
        }
        match (&transition.to, &transition.to_field) {
            (Some(to), None) => name(faults, "to", to),
            (None, Some(field)) => {
                if !field.starts_with('/') || field.len() > 1000 {
                    faults.add(
                        "to_field",
                        "is no JSON pointer",
                        "begin with `/`, such as `/data/object/status`",
                    );
                }
            }
            _ => faults.add(
                "to",
                "and `to_field` are one of two",
                "give `to`, or `to_field`, and not both",
            ),
        }
    }

    /// One event has one field that names its state: the reader looks for it before it knows where
    /// the entity stands.
    fn one_field_each(&self, faults: &mut Faults) {
        let fields: Vec<(usize, Pattern, &str)> = self
            .transitions
            .iter()
            .enumerate()
            .filter_map(|(n, one)| Some((n, one.event.parse().ok()?, one.to_field.as_deref()?)))
            .collect();
        for (at, (n, event, field)) in fields.iter().enumerate() {
            let other = fields[..at]
                .iter()
                .find(|(_, other, named)| other.overlaps(event) && named != field);
            if let Some((before, ..)) = other {
                faults.add(
                    &format!("transitions.{n}.to_field"),
                    format!("is another than that of transition {before} for the same events"),
                    "name the same field in both",
                );
            }
        }
    }

    /// Every state that is named, each once, in order of their names.
    pub(super) fn states(&self) -> Vec<String> {
        let from = self.transitions.iter().flat_map(|one| &one.from);
        let to = self.transitions.iter().filter_map(|one| one.to.as_ref());
        let named: BTreeSet<&String> = from
            .chain(to)
            .chain(&self.terminal)
            .chain([&self.initial])
            .filter(|state| *state != ANY)
            .collect();
        named.into_iter().cloned().collect()
    }

    /// The states in which a transition is legal.
    pub(super) fn from(&self, transition: &Transition) -> Vec<String> {
        if transition.from.iter().any(|state| state == ANY) {
            let mut states = self.states();
            states.retain(|state| !self.terminal.contains(state));
            return states;
        }
        transition.from.clone()
    }

    /// The states that a transition may lead to.
    pub(super) fn to(&self, transition: &Transition) -> Vec<String> {
        if let Some(to) = &transition.to {
            return vec![to.clone()];
        }
        let mut states = self.states();
        let back = |one: &Transition| one.to.as_ref() == Some(&self.initial);
        if !self.transitions.iter().any(back) {
            states.retain(|state| *state != self.initial);
        }
        states
    }

    pub(super) fn fingerprint(&self) -> String {
        // Strings, numbers and lists always have a TOML form.
        let text = toml::to_string(self).unwrap_or_default();
        let digest = Sha256::digest(text.as_bytes());
        digest[..8].iter().map(|b| format!("{b:02x}")).collect()
    }
}

fn name(faults: &mut Faults, key: &str, state: &str) {
    let odd = state == ANY || state.chars().any(char::is_control);
    if odd || state.is_empty() || state.len() > MAX_NAME {
        faults.add(
            key,
            format!(
                "`{}` can't be a state",
                state.chars().take(80).collect::<String>()
            ),
            format!("give a name of 1 to {MAX_NAME} bytes without control characters"),
        );
    }
}
