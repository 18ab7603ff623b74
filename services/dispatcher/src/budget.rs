//! What the process bounds over all lanes: attempts in flight and bytes held.
//!
//! Up to half of a bound anybody takes what he asks for. The other half is for those who have
//! little: a lane with nothing in flight may start one, and one that holds little may hold a little
//! more. A share that followed the number of lanes would not do: hanging endpoints come one after
//! the other, each is given what looks fair at that moment, nothing of it comes back for a minute,
//! and the next healthy one finds nothing left.
//!
//! Of the attempts, the last quarter is not for endpoints that hang, and the last eighth is only
//! for those that are known to answer: so any number of hanging ones, with one attempt each, leaves
//! the others their pace.
//!
//! What is taken is given back by dropping it, whatever ends its holder.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// What is left past half of the bytes is divided among as many.
const SHARES: usize = 256;

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
    braked: AtomicBool,
    released: Notify,
    waiting: Mutex<Waiting>,
    /// How many wait, so that giving back takes no lock while nobody does.
    waiters: AtomicUsize,
}

/// What an endpoint's last attempt has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It was answered, or refused at once.
    Answers,
    /// There was none yet.
    Unknown,
    /// It timed out.
    Hangs,
}

impl Standing {
    /// The best one first.
    const ALL: [Self; 3] = [Self::Answers, Self::Unknown, Self::Hangs];
}

/// Lanes that were granted less than they wanted, by standing, the oldest first.
#[derive(Default)]
struct Waiting([VecDeque<Arc<dyn Waiter>>; 3]);

impl Waiting {
    fn len(&self) -> usize {
        self.0.iter().map(VecDeque::len).sum()
    }
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
            braked: AtomicBool::new(false),
            released: Notify::new(),
            waiting: Mutex::default(),
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
    pub(crate) fn grant(self: &Arc<Self>, has: u32, wanted: u32, standing: Standing) -> Vec<Slot> {
        if self.braked.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let half = self.max_in_flight / 2;
        let most = self.most(standing);
        let least = u32::from(has == 0).min(wanted);
        let mut granted = 0;
        let take = |used: u32| {
            let free = half.saturating_sub(used).min(wanted);
            granted = free.max(least).min(most.saturating_sub(used));
            (granted > 0).then(|| used + granted)
        };
        let order = Ordering::SeqCst;
        if self.in_flight.fetch_update(order, order, take).is_err() {
            return Vec::new();
        }
        (0..granted).map(|_| Slot(Arc::clone(self))).collect()
    }

    /// Attempts in flight up to which an endpoint of this standing is granted any.
    fn most(&self, standing: Standing) -> u32 {
        let kept = match standing {
            Standing::Answers => 0,
            Standing::Unknown => self.max_in_flight / 8,
            Standing::Hangs => self.max_in_flight / 4,
        };
        self.max_in_flight - kept
    }

    /// Attempts that a lane may have in flight at the present pressure.
    pub(crate) fn in_flight_share(&self) -> u32 {
        let half = self.max_in_flight / 2;
        if self.in_flight() < half { half } else { 1 }
    }

    /// Whether a lane that holds `has` bytes may hold `more`. One that holds none always may.
    pub(crate) fn admits(&self, has: usize, more: usize) -> bool {
        let half = self.max_bytes / 2;
        has == 0 || self.bytes() < half || has + more <= half / SHARES
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

    /// While braked no attempt is granted.
    pub(crate) fn brake(&self, on: bool) {
        let was = self.braked.swap(on, Ordering::Relaxed);
        if was && !on {
            while let Some(waiter) = self.next_waiter(true) {
                waiter.wake();
            }
        }
    }

    /// Tells the next waiter, if there is anything to have: for a waiter that was told and did not
    /// need it.
    pub(crate) fn pass_on(&self) {
        if !self.braked.load(Ordering::Relaxed) {
            self.wake_next();
        }
    }

    /// Wakes `waiter` once when an attempt has ended: for a lane that was granted less than it
    /// wanted. One may have ended just before, so the lane asks once more afterwards.
    pub(crate) fn wait(&self, waiter: Arc<dyn Waiter>, standing: Standing) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.0[standing as usize].push_back(waiter);
        self.waiters.store(waiting.len(), Ordering::SeqCst);
    }

    fn wake_next(&self) {
        while let Some(waiter) = self.next_waiter(false) {
            if waiter.wake() {
                return;
            }
        }
    }

    /// The next who can have something; with `all`, anybody.
    fn next_waiter(&self, all: bool) -> Option<Arc<dyn Waiter>> {
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let used = self.in_flight();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Standing::ALL
            .into_iter()
            .filter(|&standing| all || used < self.most(standing))
            .find_map(|standing| waiting.0[standing as usize].pop_front());
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
    fn past_half_a_lane_with_nothing_in_flight_gets_one() {
        let budget = Budget::new(100, 1000);
        let first = budget.grant(0, 256, Standing::Answers);
        assert_eq!(first.len(), 50, "half is free for all");
        assert_eq!(budget.in_flight_share(), 1);
        assert_eq!(budget.grant(50, 1, Standing::Answers).len(), 0);
        let others: Vec<_> = (0..60)
            .flat_map(|_| budget.grant(0, 256, Standing::Answers))
            .collect();
        assert_eq!(others.len(), 50, "one each, and never more than the bound");
        drop((first, others));
        assert_eq!((budget.in_flight(), budget.in_flight_share()), (0, 50));
    }

    #[test]
    fn the_last_attempts_are_for_endpoints_that_answer() {
        let budget = Budget::new(80, 1000);
        let hanging: Vec<_> = (0..200)
            .flat_map(|_| budget.grant(0, 9, Standing::Hangs))
            .collect();
        assert_eq!(hanging.len(), 60);
        let unknown: Vec<_> = (0..200)
            .flat_map(|_| budget.grant(0, 9, Standing::Unknown))
            .collect();
        assert_eq!(unknown.len(), 10);
        let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        budget.wait(Arc::clone(&first) as Arc<dyn Waiter>, Standing::Hangs);
        budget.wait(Arc::clone(&second) as Arc<dyn Waiter>, Standing::Answers);
        let healthy = budget.grant(0, 9, Standing::Answers);
        assert_eq!(healthy.len(), 1);
        drop(healthy);
        let woken = |who: &Woken| who.0.load(Ordering::Relaxed);
        assert_eq!(
            (woken(&first), woken(&second)),
            (0, 1),
            "there is nothing for the other"
        );
        drop((hanging, unknown));
        assert_eq!(woken(&first), 1);
    }

    #[test]
    fn a_bound_of_one_is_kept() {
        let budget = Budget::new(1, 1000);
        let one = budget.grant(0, 4, Standing::Answers);
        assert_eq!(one.len(), 1);
        assert_eq!(budget.grant(0, 1, Standing::Answers).len(), 0);
    }

    #[test]
    fn whoever_waits_is_woken_once_in_turn() {
        let budget = Budget::new(2, 1000);
        let (one, two) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let mut slots = budget.grant(0, 1, Standing::Answers);
        slots.extend(budget.grant(0, 1, Standing::Answers));
        budget.wait(Arc::clone(&one) as Arc<dyn Waiter>, Standing::Hangs);
        budget.wait(Arc::clone(&two) as Arc<dyn Waiter>, Standing::Hangs);
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
        assert_eq!(budget.grant(0, 1, Standing::Answers).len(), 0);
        let woken = Arc::new(Woken::default());
        budget.wait(Arc::clone(&woken) as Arc<dyn Waiter>, Standing::Answers);
        budget.brake(false);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(budget.grant(0, 1, Standing::Answers).len(), 1);
    }

    #[test]
    fn past_half_of_the_bytes_a_lane_holds_little() {
        let budget = Budget::new(8, 512 << 10);
        assert!(budget.admits(100 << 10, 50 << 10));
        let mut held = budget.hold(256 << 10);
        assert!(!budget.admits(900, 200));
        assert!(budget.admits(800, 200));
        assert!(budget.admits(0, 300 << 10), "at least one");
        held.resize(100);
        assert_eq!(budget.bytes(), 100);
        assert!(budget.admits(100 << 10, 50 << 10));
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
