//! What the process bounds over all lanes: attempts in flight and bytes held.
//!
//! Up to half of a bound anybody takes what he asks for. Past it a lane gets no more than its fair
//! share of the other half, though at least one: so many hanging endpoints together can't take
//! what the others need, and a lone busy one can use half. What is taken is given back by
//! dropping it, whatever ends its holder.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Told when a permit may be had again.
pub(crate) trait Waiter: Send + Sync {
    /// Must not block. `false` where the waiter is gone and the next one is to be told.
    fn wake(&self) -> bool;
}

/// The process's bounds.
pub(crate) struct Budget {
    max_in_flight: u32,
    max_bytes: usize,
    in_flight: AtomicU32,
    bytes: AtomicUsize,
    /// Lanes with something held or in flight.
    active: AtomicU32,
    braked: AtomicBool,
    released: Notify,
    waiting: Mutex<VecDeque<Arc<dyn Waiter>>>,
    /// The length of `waiting`, so that giving back takes no lock while nobody waits.
    waiters: AtomicUsize,
}

/// The right to one attempt.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Budget>);

/// Bytes held.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    budget: Arc<Budget>,
    count: usize,
}

/// A lane that has something to do.
#[derive(Debug)]
pub(crate) struct Active(Arc<Budget>);

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("in_flight", &self.in_flight())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl Budget {
    pub(crate) fn new(max_in_flight: u32, max_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            max_in_flight,
            max_bytes,
            in_flight: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            active: AtomicU32::new(0),
            braked: AtomicBool::new(false),
            released: Notify::new(),
            waiting: Mutex::new(VecDeque::new()),
            waiters: AtomicUsize::new(0),
        })
    }

    /// Attempts in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Grants up to `wanted` attempts to a lane that has `has` in flight.
    pub(crate) fn grant(self: &Arc<Self>, has: u32, wanted: u32) -> Vec<Slot> {
        if self.braked.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let half = self.max_in_flight / 2;
        let fair = self.fair_in_flight();
        let mut granted = 0;
        let take = |used: u32| {
            let free = half.saturating_sub(used).min(wanted);
            let fairly = (wanted - free).min(fair.saturating_sub(has.saturating_add(free)));
            granted = (free + fairly).min(self.max_in_flight.saturating_sub(used));
            (granted > 0).then(|| used + granted)
        };
        let order = Ordering::Relaxed;
        if self.in_flight.fetch_update(order, order, take).is_err() {
            return Vec::new();
        }
        (0..granted).map(|_| Slot(Arc::clone(self))).collect()
    }

    /// Attempts that a lane may have in flight at the present pressure.
    pub(crate) fn in_flight_share(&self) -> u32 {
        if self.in_flight() < self.max_in_flight / 2 {
            self.max_in_flight
        } else {
            self.fair_in_flight()
        }
    }

    fn fair_in_flight(&self) -> u32 {
        let half = self.max_in_flight / 2;
        let active = self.active.load(Ordering::Relaxed).max(1);
        ((self.max_in_flight - half) / active).max(1)
    }

    /// Whether a lane that holds `has` bytes may hold `more`. One that holds none always may.
    pub(crate) fn admits(&self, has: usize, more: usize) -> bool {
        let half = self.max_bytes / 2;
        if has == 0 || self.bytes() < half {
            return true;
        }
        let active = self.active.load(Ordering::Relaxed).max(1) as usize;
        has + more <= half / active
    }

    /// Counts bytes as held, beyond the bound if need be: see [`Budget::below_bytes`].
    pub(crate) fn hold(self: &Arc<Self>, count: usize) -> HeldBytes {
        self.bytes.fetch_add(count, Ordering::Relaxed);
        HeldBytes {
            budget: Arc::clone(self),
            count,
        }
    }

    /// Waits until less than the bound is held. Whoever brings in new bytes waits for this first.
    pub(crate) async fn below_bytes(&self) {
        loop {
            let released = self.released.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            if self.bytes() < self.max_bytes {
                return;
            }
            released.await;
        }
    }

    /// Counts a lane as active.
    pub(crate) fn activate(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(Arc::clone(self))
    }

    /// While braked no attempt is granted.
    pub(crate) fn brake(&self, on: bool) {
        let was = self.braked.swap(on, Ordering::Relaxed);
        if was && !on {
            while let Some(waiter) = self.next_waiter() {
                waiter.wake();
            }
        }
    }

    /// Tells the next waiter, if there is anything to have: for a waiter that was told and did not
    /// need it.
    pub(crate) fn pass_on(&self) {
        if self.in_flight() < self.max_in_flight && !self.braked.load(Ordering::Relaxed) {
            self.wake_next();
        }
    }

    fn wake_next(&self) {
        while let Some(waiter) = self.next_waiter() {
            if waiter.wake() {
                return;
            }
        }
    }

    /// Wakes `waiter` once when an attempt has ended: for a lane that was granted less than it
    /// wanted. One may have ended just before, so the lane asks once more afterwards.
    pub(crate) fn wait(&self, waiter: Arc<dyn Waiter>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(waiter);
        self.waiters.store(waiting.len(), Ordering::SeqCst);
    }

    fn next_waiter(&self) -> Option<Arc<dyn Waiter>> {
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let next = waiting.pop_front();
        self.waiters.store(waiting.len(), Ordering::SeqCst);
        next
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.0.wake_next();
    }
}

impl HeldBytes {
    /// Holds another number of bytes from now on.
    pub(crate) fn resize(&mut self, count: usize) {
        self.budget.bytes.fetch_add(count, Ordering::Relaxed);
        self.give_back();
        self.count = count;
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn give_back(&self) {
        let before = self.budget.bytes.fetch_sub(self.count, Ordering::Relaxed);
        if before >= self.budget.max_bytes {
            self.budget.released.notify_waiters();
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Waiter for Woken {
        fn wake(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            true
        }
    }

    #[test]
    fn past_half_a_lane_gets_only_its_fair_share_and_at_least_one() {
        let budget = Budget::new(100, 1000);
        let _active: Vec<_> = (0..10).map(|_| budget.activate()).collect();
        let first = budget.grant(0, 256);
        assert_eq!(first.len(), 50, "half is free for all");
        assert_eq!(budget.grant(50, 1).len(), 0);
        let second = budget.grant(0, 256);
        assert_eq!(second.len(), 5, "a tenth of the other half");
        assert_eq!(budget.in_flight_share(), 5);
        let _many: Vec<_> = (0..100).map(|_| budget.activate()).collect();
        assert_eq!(budget.grant(0, 256).len(), 1);
        assert_eq!(budget.grant(1, 256).len(), 0);
        drop((first, second));
        assert_eq!(budget.in_flight(), 0);
        assert_eq!(budget.in_flight_share(), 100);
    }

    #[test]
    fn the_bound_on_attempts_is_never_exceeded() {
        let budget = Budget::new(4, 1000);
        let _active: Vec<_> = (0..9).map(|_| budget.activate()).collect();
        let taken: Vec<_> = (0..9).flat_map(|_| budget.grant(0, 1)).collect();
        assert_eq!(taken.len(), 4);
    }

    #[test]
    fn whoever_waits_is_woken_once_in_turn() {
        let budget = Budget::new(2, 1000);
        let (one, two) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let mut slots = budget.grant(0, 1);
        slots.extend(budget.grant(0, 1));
        budget.wait(Arc::clone(&one) as Arc<dyn Waiter>);
        budget.wait(Arc::clone(&two) as Arc<dyn Waiter>);
        slots.pop();
        let counts = || (one.0.load(Ordering::Relaxed), two.0.load(Ordering::Relaxed));
        assert_eq!(counts(), (1, 0));
        slots.pop();
        assert_eq!(counts(), (1, 1));
    }

    #[test]
    fn a_brake_stops_grants_and_its_release_wakes_all() {
        let budget = Budget::new(8, 1000);
        budget.brake(true);
        assert_eq!(budget.grant(0, 1).len(), 0);
        let woken = Arc::new(Woken::default());
        budget.wait(Arc::clone(&woken) as Arc<dyn Waiter>);
        budget.brake(false);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(budget.grant(0, 1).len(), 1);
    }

    #[test]
    fn past_half_of_the_bytes_a_lane_holds_its_fair_share() {
        let budget = Budget::new(8, 1000);
        let _active: Vec<_> = (0..5).map(|_| budget.activate()).collect();
        assert!(budget.admits(400, 50));
        let mut held = budget.hold(500);
        assert!(!budget.admits(90, 20));
        assert!(budget.admits(80, 20));
        assert!(budget.admits(0, 900), "at least one");
        held.resize(100);
        assert_eq!(budget.bytes(), 100);
        assert!(budget.admits(400, 50));
        drop(held);
        assert_eq!(budget.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn new_bytes_wait_until_there_is_room() {
        let budget = Budget::new(8, 1000);
        let held = budget.hold(1000);
        let waiting = tokio::spawn({
            let budget = Arc::clone(&budget);
            async move { budget.below_bytes().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.unwrap();
    }
}
