//! Which drives of a partition are in hand and which were settled lately, so that a copy that the
//! broker delivers again is never attempted again.
//!
//! A copy of a drive in hand is set aside, and settled with it. A copy of a settled one is only
//! acknowledged again, and so is one of a drive before the latest that came: the ledger has driven
//! that delivery again, and its word holds. A broker that was killed may have forgotten that an event
//! was acknowledged; it comes again, and with it the first drive of deliveries that were parked then
//! and driven since. What is remembered of settled drives is bounded and only bridges the time in
//! which an acknowledgement may have been lost.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::record::Drive;

/// Drives of one partition; `T` is the right to settle a copy.
pub(crate) struct Memory<T>(Mutex<Inner<T>>);

struct Inner<T> {
    drives: HashMap<Drive, State<T>>,
    /// The latest drive of each delivery of which one is above.
    latest: HashMap<DeliveryKey, i32>,
    /// Settled drives, the oldest first.
    settled: VecDeque<Drive>,
    remember: usize,
}

enum State<T> {
    /// With the copies that came since.
    InHand(Vec<T>),
    Settled,
}

/// What a copy is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen<T> {
    /// The first of its drive: from now on in hand.
    New(T),
    /// One of a drive in hand; it was set aside.
    InHand,
    /// One of a drive that is settled or overtaken, to be acknowledged again.
    Settled(T),
}

impl<T> Memory<T> {
    pub(crate) fn new(remember: usize) -> Self {
        Self(Mutex::new(Inner {
            drives: HashMap::new(),
            latest: HashMap::new(),
            settled: VecDeque::new(),
            remember,
        }))
    }

    /// A copy has come.
    pub(crate) fn enter(&self, drive: Drive, token: T) -> Seen<T> {
        let mut inner = self.lock();
        if inner.is_overtaken(drive) {
            return Seen::Settled(token);
        }
        match inner.drives.get_mut(&drive) {
            Some(State::InHand(copies)) => {
                copies.push(token);
                Seen::InHand
            }
            Some(State::Settled) => Seen::Settled(token),
            None => {
                inner.drives.insert(drive, State::InHand(Vec::new()));
                inner.latest.insert(drive.key, drive.drive);
                Seen::New(token)
            }
        }
    }

    /// A drive's record is safe. Gives the copies that came meanwhile, to be acknowledged too.
    pub(crate) fn settle(&self, drive: Drive) -> Vec<T> {
        let mut inner = self.lock();
        let before = inner.drives.insert(drive, State::Settled);
        if !matches!(before, Some(State::Settled)) {
            inner.settled.push_back(drive);
        }
        while inner.settled.len() > inner.remember {
            if let Some(oldest) = inner.settled.pop_front() {
                inner.let_go(oldest);
            }
        }
        copies(before)
    }

    /// A drive was given back unsettled. Gives the copies that came meanwhile, to go the same way.
    pub(crate) fn forget(&self, drive: Drive) -> Vec<T> {
        let mut inner = self.lock();
        // Settled by someone else's hand: stays so.
        if matches!(inner.drives.get(&drive), Some(State::Settled)) {
            return Vec::new();
        }
        copies(inner.let_go(drive))
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Inner<T> {
    fn is_overtaken(&self, drive: Drive) -> bool {
        let latest = self.latest.get(&drive.key);
        latest.is_some_and(|latest| *latest > drive.drive)
    }

    fn let_go(&mut self, drive: Drive) -> Option<State<T>> {
        if self.latest.get(&drive.key) == Some(&drive.drive) {
            self.latest.remove(&drive.key);
        }
        self.drives.remove(&drive)
    }
}

fn copies<T>(state: Option<State<T>>) -> Vec<T> {
    match state {
        Some(State::InHand(copies)) => copies,
        Some(State::Settled) | None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use hooklane_proto::delivery::DeliveryKey;
    use hooklane_proto::id::{EndpointId, MessageId};

    use super::*;

    fn drive(n: u64) -> Drive {
        Drive {
            key: DeliveryKey {
                accepted_at: DateTime::UNIX_EPOCH,
                message: MessageId::for_test(n),
                endpoint: EndpointId::for_test(1),
            },
            series: 1,
            drive: 1,
        }
    }

    #[test]
    fn a_second_copy_goes_the_way_of_the_first() {
        let memory = Memory::new(10);
        assert_eq!(memory.enter(drive(1), 'a'), Seen::New('a'));
        assert_eq!(memory.enter(drive(1), 'b'), Seen::InHand);
        assert_eq!(memory.settle(drive(1)), ['b']);
        assert_eq!(memory.enter(drive(1), 'c'), Seen::Settled('c'));
        assert_eq!(memory.enter(drive(2), 'd'), Seen::New('d'));
        assert_eq!(memory.enter(drive(2), 'e'), Seen::InHand);
        assert_eq!(memory.forget(drive(2)), ['e']);
        assert_eq!(memory.enter(drive(2), 'f'), Seen::New('f'));
    }

    #[test]
    fn another_drive_of_the_delivery_is_another_thing() {
        let memory = Memory::new(10);
        let mut second = drive(1);
        second.drive = 2;
        memory.enter(drive(1), ());
        memory.settle(drive(1));
        assert_eq!(memory.enter(second, ()), Seen::New(()));
    }

    #[test]
    fn a_drive_that_the_ledger_has_overtaken_is_not_made() {
        let memory = Memory::new(10);
        let mut second = drive(1);
        second.drive = 2;
        assert_eq!(memory.enter(second, 'a'), Seen::New('a'));
        assert_eq!(memory.enter(drive(1), 'b'), Seen::Settled('b'), "in hand");
        memory.settle(second);
        assert_eq!(memory.enter(drive(1), 'c'), Seen::Settled('c'), "settled");
        let mut given_back = drive(2);
        given_back.drive = 2;
        memory.enter(given_back, 'd');
        memory.forget(given_back);
        assert_eq!(memory.enter(drive(2), 'e'), Seen::New('e'), "forgotten");
    }

    #[test]
    fn only_the_latest_settled_are_remembered() {
        let memory = Memory::new(3);
        for n in 0..5 {
            memory.enter(drive(n), n);
            memory.settle(drive(n));
        }
        assert_eq!(memory.enter(drive(0), 9), Seen::New(9));
        assert_eq!(memory.enter(drive(4), 9), Seen::Settled(9));
        let inner = memory.lock();
        assert_eq!((inner.drives.len(), inner.latest.len()), (4, 4));
    }
}
