//! Whose turn it is, when there is more pending than fits into a batch.
//!
//! Pure. Holds the keys of pending rows, a queue per consumer, bounded per consumer and in all,
//! and hands them out one consumer after the other. What does not fit is an *overflow*: a bound
//! above which rows of some consumers (or of everyone) are not held, so that reading from there
//! finds them again. A key that is held, or handed out and not settled, is known, and is not held
//! twice however often reading finds it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A row's place in the reading order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// Of an integer column.
    Number(i64),
    /// Of any other; only the database knows its order.
    Text(Arc<str>),
}

impl Key {
    /// Reads the text form of a key. `numeric` says that the column holds integers.
    pub(super) fn read(text: &str, numeric: bool) -> Self {
        match text.parse() {
            Ok(number) if numeric => Self::Number(number),
            _ => Self::Text(Arc::from(text)),
        }
    }

    /// The text form.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.to_string(),
        }
    }
}

/// Above which key to read; `None` is the start.
pub(super) type Bound = Option<Key>;

/// The earlier of two bounds. Where only the database could tell, it is the start, which is earlier
/// than any.
fn earlier(one: Bound, other: Bound) -> Bound {
    let (one, other) = (one?, other?);
    if one == other {
        return Some(one);
    }
    match (&one, &other) {
        (Key::Number(a), Key::Number(b)) => Some(if a < b { one } else { other }),
        _ => None,
    }
}

/// How much is held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Keys of one consumer.
    pub(super) consumer: usize,
    /// Keys in all.
    pub(super) total: usize,
}

/// What became of a key offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    /// It is held now.
    Held,
    /// It was known before.
    Known,
    /// There is no room.
    Full,
}

/// Rows that are not held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Overflow {
    /// They are above this.
    pub(super) above: Bound,
    /// They are of these consumers; `None` is anybody.
    pub(super) consumers: Option<HashSet<Arc<str>>>,
}

impl Overflow {
    /// Adds to what is not held: rows of `consumer` (or of anybody) above `above`.
    pub(super) fn note(overflow: &mut Option<Self>, above: Bound, consumer: Option<&str>) {
        let new = Self {
            above,
            consumers: consumer.map(|consumer| HashSet::from([Arc::from(consumer)])),
        };
        *overflow = Some(match overflow.take() {
            None => new,
            Some(old) => Self {
                above: earlier(old.above, new.above),
                consumers: old.consumers.zip(new.consumers).map(|(mut all, more)| {
                    all.extend(more);
                    all
                }),
            },
        });
    }
}

/// The keys held, and the turn.
#[derive(Debug)]
pub(super) struct Turns {
    limits: Limits,
    queues: HashMap<Arc<str>, VecDeque<Key>>,
    /// Consumers with a queue that is not empty, the next one first.
    ring: VecDeque<Arc<str>>,
    known: HashSet<Key>,
    held: usize,
    /// What is not held.
    pub(super) overflow: Option<Overflow>,
}

impl Turns {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            queues: HashMap::new(),
            ring: VecDeque::new(),
            known: HashSet::new(),
            held: 0,
            overflow: None,
        }
    }

    /// Whether nothing is held, handed out or overflowing.
    pub(super) fn is_idle(&self) -> bool {
        self.known.is_empty() && self.overflow.is_none()
    }

    /// Whether no key is held, however much overflows.
    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Whether there is no room for anybody.
    pub(super) fn is_full(&self) -> bool {
        self.held >= self.limits.total
    }

    /// Whether reading what overflows is worth it: somebody in it has nothing held, or most of the
    /// room is free.
    pub(super) fn wants_refill(&self) -> bool {
        match &self.overflow {
            None => false,
            Some(Overflow {
                consumers: None, ..
            }) => self.held <= self.limits.total / 2,
            Some(Overflow {
                consumers: Some(consumers),
                ..
            }) => consumers.iter().any(|c| !self.queues.contains_key(c)) && !self.is_full(),
        }
    }

    /// Offers a pending row.
    pub(super) fn offer(&mut self, consumer: &str, key: &Key) -> Offered {
        if self.known.contains(key) {
            return Offered::Known;
        }
        let queue = self.queues.get(consumer).map_or(0, VecDeque::len);
        if queue >= self.limits.consumer || self.is_full() {
            return Offered::Full;
        }
        self.known.insert(key.clone());
        self.put(consumer, key.clone(), false);
        Offered::Held
    }

    /// Hands out up to `n` keys, one of each consumer in turn.
    pub(super) fn take(&mut self, n: usize) -> Vec<Key> {
        let mut taken = Vec::new();
        while taken.len() < n
            && let Some(consumer) = self.ring.pop_front()
        {
            let Some(queue) = self.queues.get_mut(&consumer) else {
                continue;
            };
            if let Some(key) = queue.pop_front() {
                taken.push(key);
                self.held -= 1;
            }
            if queue.is_empty() {
                self.queues.remove(&consumer);
            } else {
                self.ring.push_back(consumer);
            }
        }
        taken
    }

    /// Takes back, to its queue's front, a key that was handed out and could not be used. To keep
    /// the order, give back the last one first.
    pub(super) fn give_back(&mut self, consumer: &str, key: Key) {
        self.known.insert(key.clone());
        self.put(consumer, key, true);
    }

    /// A key that was handed out is done with.
    pub(super) fn settle(&mut self, key: &Key) {
        self.known.remove(key);
    }

    fn put(&mut self, consumer: &str, key: Key, front: bool) {
        self.held += 1;
        if let Some(queue) = self.queues.get_mut(consumer) {
            if front {
                queue.push_front(key);
            } else {
                queue.push_back(key);
            }
            return;
        }
        let consumer: Arc<str> = Arc::from(consumer);
        self.queues
            .insert(Arc::clone(&consumer), VecDeque::from([key]));
        if front {
            self.ring.push_front(consumer);
        } else {
            self.ring.push_back(consumer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(consumer: usize, total: usize) -> Turns {
        Turns::new(Limits { consumer, total })
    }

    fn key(n: i64) -> Key {
        Key::Number(n)
    }

    fn texts(keys: &[Key]) -> Vec<String> {
        keys.iter().map(Key::text).collect()
    }

    #[test]
    fn consumers_take_turns_and_each_keeps_its_order() {
        let mut turns = turns(10, 100);
        for n in 1..=4 {
            turns.offer("noisy", &key(n));
        }
        turns.offer("quiet", &key(5));
        turns.offer("other", &key(6));
        assert_eq!(texts(&turns.take(4)), ["1", "5", "6", "2"]);
        turns.offer("quiet", &key(7));
        assert_eq!(texts(&turns.take(9)), ["3", "7", "4"]);
        assert!(turns.is_empty() && !turns.is_idle());
        for n in 1..=7 {
            turns.settle(&key(n));
        }
        assert!(turns.is_idle());
    }

    #[test]
    fn a_key_is_not_held_twice() {
        let mut turns = turns(10, 100);
        assert_eq!(turns.offer("a", &key(1)), Offered::Held);
        assert_eq!(turns.offer("a", &key(1)), Offered::Known);
        let taken = turns.take(1);
        assert_eq!(turns.offer("a", &key(1)), Offered::Known);
        turns.settle(&taken[0]);
        assert_eq!(turns.offer("a", &key(1)), Offered::Held);
    }

    #[test]
    fn a_consumer_and_the_whole_are_bounded() {
        let mut turns = turns(2, 3);
        assert_eq!(turns.offer("a", &key(1)), Offered::Held);
        assert_eq!(turns.offer("a", &key(2)), Offered::Held);
        assert_eq!(turns.offer("a", &key(3)), Offered::Full);
        assert_eq!(turns.offer("b", &key(4)), Offered::Held);
        assert_eq!(turns.offer("c", &key(5)), Offered::Full);
    }

    #[test]
    fn what_is_given_back_comes_first() {
        let mut turns = turns(10, 100);
        for n in 1..=3 {
            turns.offer("a", &key(n));
        }
        turns.offer("b", &key(9));
        let taken = turns.take(3);
        assert_eq!(texts(&taken), ["1", "9", "2"]);
        for (consumer, n) in [("a", 2), ("b", 9), ("a", 1)] {
            turns.give_back(consumer, key(n));
        }
        let again = turns.take(4);
        let of_a: Vec<_> = texts(&again).into_iter().filter(|k| k != "9").collect();
        assert_eq!(of_a, ["1", "2", "3"]);
    }

    #[test]
    fn overflow_keeps_the_earliest_bound_and_everybody() {
        let mut overflow = None;
        Overflow::note(&mut overflow, Some(key(50)), Some("a"));
        Overflow::note(&mut overflow, Some(key(7)), Some("b"));
        let noted = overflow.clone().unwrap();
        assert_eq!(noted.above, Some(key(7)));
        assert_eq!(noted.consumers.map(|c| c.len()), Some(2));
        Overflow::note(&mut overflow, Some(key(60)), None);
        assert_eq!(overflow.unwrap().consumers, None);
    }

    #[test]
    fn bounds_without_a_known_order_fall_back_to_the_start() {
        let mut overflow = None;
        Overflow::note(&mut overflow, Some(Key::read("10", false)), Some("a"));
        Overflow::note(&mut overflow, Some(Key::read("9", false)), Some("a"));
        assert_eq!(overflow.unwrap().above, None);
    }

    #[test]
    fn refill_is_wanted_when_somebody_who_overflows_has_nothing_left() {
        let mut turns = turns(1, 100);
        turns.offer("a", &key(1));
        assert_eq!(turns.offer("a", &key(2)), Offered::Full);
        Overflow::note(&mut turns.overflow, Some(key(1)), Some("a"));
        assert!(!turns.wants_refill());
        turns.take(1);
        assert!(turns.wants_refill());
    }
}
