//! States by number, and the ways between them.

use std::collections::VecDeque;
use std::ops::{BitAnd, BitOr, Not};

/// Most states of a machine: a set of them is one number.
pub(super) const MAX_STATES: usize = 64;

/// A set of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct States(u64);

impl States {
    fn one(state: usize) -> Self {
        Self(1 << state)
    }

    pub(super) fn has(self, state: usize) -> bool {
        self.0 & (1 << state) != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lowest.
    pub(super) fn first(self) -> Option<usize> {
        self.iter().next()
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_STATES).filter(move |state| self.has(*state))
    }
}

impl BitAnd for States {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for States {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Not for States {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// The states' names, and for each which others can be reached.
#[derive(Debug, Clone)]
pub(super) struct Graph {
    names: Vec<String>,
    reach: Vec<States>,
}

impl Graph {
    /// At most [`MAX_STATES`] names, each once. No ways yet, but that each state is reached from
    /// itself, by no step.
    pub(super) fn new(names: Vec<String>) -> Self {
        let reach = (0..names.len()).map(States::one).collect();
        Self { names, reach }
    }

    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    pub(super) fn name(&self, state: usize) -> &str {
        &self.names[state]
    }

    pub(super) fn names(&self, states: States) -> Vec<String> {
        let known = self.names.iter().enumerate();
        let named = known.filter(|(state, _)| states.has(*state));
        named.map(|(_, name)| name.clone()).collect()
    }

    /// The set of the states with these names.
    pub(super) fn named<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> States {
        names
            .into_iter()
            .filter_map(|name| self.index(name))
            .fold(States::default(), |all, state| all | States::one(state))
    }

    pub(super) fn connect(&mut self, from: States, to: States) {
        for state in from.iter() {
            self.reach[state] = self.reach[state] | to;
        }
    }

    /// Adds the ways of more than one step.
    pub(super) fn close(&mut self) {
        for over in 0..self.names.len() {
            for from in 0..self.names.len() {
                if self.reach[from].has(over) {
                    self.reach[from] = self.reach[from] | self.reach[over];
                }
            }
        }
    }

    /// What can be reached from a state, itself included.
    pub(super) fn reach(&self, state: usize) -> States {
        self.reach.get(state).copied().unwrap_or_default()
    }

    pub(super) fn all(&self) -> States {
        (0..self.names.len()).fold(States::default(), |all, state| all | States::one(state))
    }

    /// The shortest way into `wanted`: for each step, which of `moves` it takes and where that leads.
    pub(super) fn shortest<M: Iterator<Item = (usize, States)>>(
        &self,
        from: usize,
        wanted: States,
        moves: impl Fn(usize) -> M,
    ) -> Option<Vec<(usize, usize)>> {
        let mut came: Vec<Option<(usize, usize)>> = vec![None; self.names.len()];
        let mut seen = States::one(from);
        let mut queue = VecDeque::from([from]);
        while let Some(state) = queue.pop_front() {
            if wanted.has(state) {
                let mut steps = Vec::new();
                let mut at = state;
                while let Some((before, by)) = came[at].filter(|_| at != from) {
                    steps.push((by, at));
                    at = before;
                }
                steps.reverse();
                return Some(steps);
            }
            for (by, to) in moves(state) {
                for next in (to & !seen).iter() {
                    seen = seen | States::one(next);
                    came[next] = Some((state, by));
                    queue.push_back(next);
                }
            }
        }
        None
    }
}
