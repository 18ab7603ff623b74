//! Up to which position every writer is done.
//!
//! Pure: it is told, at each poll, the sequence's last value and then the transactions that may
//! still be inserting, and answers with the position below which nothing new can appear. Every
//! position up to the value belongs to a transaction that had ended before, or is in the list; so
//! once none of that list is under way any more, all of them have ended.

use std::collections::{HashSet, VecDeque};

/// Observations kept. One writer that stays for long would have them pile up; dropping one only
/// makes the horizon advance in larger steps.
const KEPT: usize = 256;

/// The horizon of one table.
#[derive(Debug, Default)]
pub(super) struct Horizon {
    seen: VecDeque<(i64, HashSet<String>)>,
    safe: i64,
}

/// What an observation tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing at or below this position is under way.
    UpTo(i64),
    /// The sequence went back: positions start anew.
    Restarted,
}

impl Horizon {
    /// Notes the sequence's last value, and the writers under way, read *after* it.
    pub(super) fn observe(&mut self, last: i64, writers: HashSet<String>) -> Seen {
        if self.seen.back().is_some_and(|(before, _)| last < *before) || last < self.safe {
            *self = Self::default();
            return Seen::Restarted;
        }
        match self.seen.back_mut() {
            Some((before, same)) if *same == writers => *before = last,
            _ => {
                if self.seen.len() >= KEPT {
                    self.seen.pop_back();
                }
                self.seen.push_back((last, writers.clone()));
            }
        }
        while let Some((last, of_then)) = self.seen.front()
            && of_then.is_disjoint(&writers)
        {
            self.safe = *last;
            self.seen.pop_front();
        }
        Seen::UpTo(self.safe)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn writers(ids: &[&str]) -> HashSet<String> {
        ids.iter().map(|&id| id.to_owned()).collect()
    }

    #[test]
    fn without_writers_everything_drawn_is_safe() {
        let mut horizon = Horizon::default();
        assert_eq!(horizon.observe(7, writers(&[])), Seen::UpTo(7));
    }

    #[test]
    fn a_writer_holds_back_what_was_drawn_while_it_was_there() {
        let mut horizon = Horizon::default();
        assert_eq!(horizon.observe(5, writers(&["a"])), Seen::UpTo(0));
        assert_eq!(horizon.observe(9, writers(&["a", "b"])), Seen::UpTo(0));
        assert_eq!(horizon.observe(12, writers(&["b"])), Seen::UpTo(5));
        assert_eq!(horizon.observe(12, writers(&["c"])), Seen::UpTo(12));
    }

    #[test]
    fn a_sequence_that_goes_back_starts_anew() {
        let mut horizon = Horizon::default();
        horizon.observe(100, writers(&[]));
        assert_eq!(horizon.observe(3, writers(&[])), Seen::Restarted);
        assert_eq!(horizon.observe(4, writers(&[])), Seen::UpTo(4));
    }

    #[test]
    fn a_writer_that_stays_does_not_grow_memory() {
        let mut horizon = Horizon::default();
        for n in 0..10_000 {
            horizon.observe(n, writers(&["stays", &n.to_string()]));
        }
        assert!(horizon.seen.len() <= KEPT);
        assert_eq!(horizon.observe(10_000, writers(&[])), Seen::UpTo(10_000));
    }

    /// One step of a little world: writers begin, draw positions and end, in any order.
    #[derive(Debug, Clone)]
    enum Step {
        Begin,
        Draw(usize),
        End(usize),
        Observe,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            Just(Step::Begin),
            (0..8usize).prop_map(Step::Draw),
            (0..8usize).prop_map(Step::End),
            Just(Step::Observe),
        ];
        proptest::collection::vec(step, 1..200)
    }

    proptest! {
        #[test]
        fn no_position_at_or_below_the_horizon_is_ever_under_way(steps in steps()) {
            let (mut horizon, mut last, mut next) = (Horizon::default(), 0, 0);
            let mut open: Vec<(String, Vec<i64>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Begin => {
                        open.push((next.to_string(), Vec::new()));
                        next += 1;
                    }
                    Step::Draw(n) if n < open.len() => {
                        last += 1;
                        open[n].1.push(last);
                    }
                    Step::End(n) if n < open.len() => {
                        open.remove(n);
                    }
                    Step::Observe => {
                        let writers = open.iter().map(|(id, _)| id.clone()).collect();
                        let Seen::UpTo(safe) = horizon.observe(last, writers) else {
                            return Err(TestCaseError::fail("it never restarts here"));
                        };
                        let under_way = open.iter().flat_map(|(_, drawn)| drawn).min();
                        prop_assert!(under_way.is_none_or(|&first| first > safe));
                    }
                    Step::Draw(_) | Step::End(_) => {}
                }
            }
            let safe = horizon.observe(last, HashSet::new());
            prop_assert_eq!(safe, Seen::UpTo(last));
        }
    }
}
