//! Whether a new event's copy may go to a lane, or is parked at once.
//!
//! Pure. Owns what was promised to copies on their way to the lane, so that a lane's room is not
//! given away twice, and which endpoints have a backlog in the ledger: their new events go behind
//! it.

use std::collections::VecDeque;
use std::time::Duration;

use hooklane_proto::record::ParkReason;

/// A copy that has not arrived after this never will, or is not worth waiting for.
const PROMISE: Duration = Duration::from_secs(5);
/// Room that was told to the scheduler is kept for what it claims this long.
const ANSWER: Duration = Duration::from_secs(1);

/// One endpoint's door.
#[derive(Debug, Default)]
pub(crate) struct Door {
    /// Copies on their way and when to stop waiting for them, the oldest first.
    promised: VecDeque<(Duration, u32)>,
    count: u32,
}

impl Door {
    /// Room that is promised already.
    pub(crate) fn promised(&mut self, now: Duration) -> u32 {
        while let Some(&(until, count)) = self.promised.front() {
            if until > now {
                break;
            }
            self.promised.pop_front();
            self.count -= count;
        }
        self.count
    }

    /// Lets one copy of a new event pass, or says why it is parked.
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        room: u32,
        held: bool,
        backlog: bool,
    ) -> Result<(), ParkReason> {
        if backlog {
            return Err(ParkReason::Backlog);
        }
        if room <= self.promised(now) {
            return Err(if held {
                ParkReason::Held
            } else {
                ParkReason::NoRoom
            });
        }
        self.promise(now + PROMISE, 1);
        Ok(())
    }

    /// Lets one copy pass whatever room there is: the lane parks what it can't start.
    pub(crate) fn insist(&mut self, now: Duration) {
        self.promise(now + PROMISE, 1);
    }

    /// Keeps room that was told to the scheduler.
    pub(crate) fn reserve(&mut self, now: Duration, count: u32) {
        self.promise(now + ANSWER, count);
    }

    /// A copy came through the broker, or will not come.
    pub(crate) fn arrived(&mut self, mut count: u32) {
        while count > 0 {
            let Some((_, first)) = self.promised.front_mut() else {
                return;
            };
            let taken = count.min(*first);
            *first -= taken;
            count -= taken;
            self.count -= taken;
            if *first == 0 {
                self.promised.pop_front();
            }
        }
    }

    fn promise(&mut self, until: Duration, count: u32) {
        if count == 0 {
            return;
        }
        self.count += count;
        // Ordered by time; promises of one moment share an entry, so the list stays short.
        let at = self.promised.partition_point(|&(other, _)| other <= until);
        match at.checked_sub(1).map(|last| &mut self.promised[last]) {
            Some((other, sum)) if until - *other < Duration::from_millis(50) => *sum += count,
            _ => self.promised.insert(at, (until, count)),
        }
    }
}

/// Which endpoints of a partition have a backlog in the ledger.
#[derive(Debug)]
pub(crate) struct Backlog<K> {
    named: std::collections::HashSet<K>,
    told: Option<Duration>,
}

/// Without any request the scheduler is away, and what it named last means nothing.
const BACKLOG: Duration = Duration::from_secs(2);

impl<K: Eq + std::hash::Hash> Backlog<K> {
    pub(crate) fn new() -> Self {
        Self {
            named: std::collections::HashSet::new(),
            told: None,
        }
    }

    /// A request named exactly these.
    pub(crate) fn told(&mut self, now: Duration, named: impl IntoIterator<Item = K>) {
        self.named = named.into_iter().collect();
        self.told = Some(now);
    }

    /// Whether an endpoint's new events go behind its backlog.
    pub(crate) fn names(&self, now: Duration, endpoint: &K) -> bool {
        self.told.is_some_and(|at| now.saturating_sub(at) < BACKLOG)
            && self.named.contains(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn room_is_given_away_once() {
        let mut door = Door::default();
        let now = ms(0);
        assert_eq!(door.admit(now, 2, false, false), Ok(()));
        assert_eq!(door.admit(now, 2, false, false), Ok(()));
        assert_eq!(door.admit(now, 2, false, false), Err(ParkReason::NoRoom));
        assert_eq!(door.admit(now, 2, true, false), Err(ParkReason::Held));
        door.arrived(1);
        assert_eq!(door.promised(now), 1);
        assert_eq!(door.admit(now, 2, false, false), Ok(()));
    }

    #[test]
    fn a_copy_that_never_comes_is_not_waited_for() {
        let mut door = Door::default();
        assert_eq!(door.admit(ms(0), 1, false, false), Ok(()));
        assert_eq!(door.promised(PROMISE), 0);
    }

    #[test]
    fn an_answer_keeps_room_for_a_moment_only() {
        let mut door = Door::default();
        door.reserve(ms(0), 10);
        assert_eq!(door.promised(ms(999)), 10);
        assert_eq!(door.promised(ms(1000)), 0);
    }

    #[test]
    fn new_events_go_behind_a_backlog_until_it_is_not_named() {
        let mut door = Door::default();
        assert_eq!(door.admit(ms(0), 9, false, true), Err(ParkReason::Backlog));
        let mut backlog = Backlog::new();
        assert!(!backlog.names(ms(0), &'a'));
        backlog.told(ms(0), ['a']);
        assert!(backlog.names(ms(250), &'a') && !backlog.names(ms(250), &'b'));
        backlog.told(ms(250), ['b']);
        assert!(!backlog.names(ms(300), &'a'));
        assert!(!backlog.names(ms(2250), &'b'), "no request for two seconds");
    }

    proptest! {
        #[test]
        fn promises_add_up(ops in proptest::collection::vec((0..3u8, 0..20u32, 0..700u64), 1..100)) {
            let mut door = Door::default();
            let mut now = ms(0);
            for (op, count, passed) in ops {
                now += ms(passed);
                match op {
                    0 => { let _ = door.admit(now, count, false, false); }
                    1 => door.reserve(now, count),
                    _ => door.arrived(count),
                }
                let promised = door.promised(now);
                prop_assert_eq!(promised, door.promised.iter().map(|(_, n)| n).sum::<u32>());
                prop_assert!(door.promised.iter().is_sorted_by_key(|(until, _)| until));
                prop_assert!(door.promised.len() < 200);
            }
        }
    }
}
