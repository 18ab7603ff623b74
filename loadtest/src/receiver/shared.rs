//! What the receiver's thread writes and the rest of the run reads.

use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use standardwebhooks::Webhook;
use tokio::sync::Notify;
use uuid::Uuid;

use super::lie::Lie;
use super::{Sampling, http};
use crate::epoch::Epoch;
use crate::plan::Plan;

/// What an endpoint does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers at once with this status.
    Answer(u16),
    /// Says nothing for this long, then answers 200.
    Hang(Duration),
    /// Answers with this status and asks to be left alone for that many seconds.
    Busy(u16, u16),
    /// Resets the connection in place of an answer.
    Reset,
    /// Closes the connection in place of an answer.
    Close,
    /// Answers with a lie.
    Lie(Lie),
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its place in the plan.
    pub slot: u32,
    /// The answer's status; 0 where the client left before there was one.
    pub status: u16,
    /// When it had been read, in microseconds since the run began.
    pub arrived: u64,
    /// When it was answered, or the client left.
    pub ended: u64,
}

impl Seen {
    /// Whether it was answered with 2xx.
    #[must_use]
    pub fn is_success(self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Counts over all endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests read.
    pub requests: u64,
    /// Of these, how many were verified byte by byte.
    pub verified: u64,
    /// Signatures that the Standard Webhooks library refused.
    pub bad_signatures: u64,
    /// Payloads that are not, byte for byte, what was written.
    pub bad_payloads: u64,
    /// Requests of no event of this run, or at an endpoint that the event is not for.
    pub strangers: u64,
    /// What was not a request that the receiver reads.
    pub malformed: u64,
}

#[derive(Debug, Default)]
struct Atomics {
    requests: AtomicU64,
    verified: AtomicU64,
    bad_signatures: AtomicU64,
    bad_payloads: AtomicU64,
    strangers: AtomicU64,
    malformed: AtomicU64,
}

struct Endpoint {
    behaviour: Mutex<Behaviour>,
    webhook: OnceLock<Webhook>,
    in_flight: AtomicU32,
    most_in_flight: AtomicU32,
}

pub(super) struct Shared {
    plan: Arc<Plan>,
    epoch: Epoch,
    sampling: Sampling,
    endpoints: Vec<Endpoint>,
    counts: Atomics,
    log: Mutex<Vec<Seen>>,
    changed: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(plan: Arc<Plan>, epoch: Epoch, sampling: Sampling) -> Self {
        let endpoints = (0..plan.endpoints())
            .map(|_| Endpoint {
                behaviour: Mutex::new(Behaviour::Answer(200)),
                webhook: OnceLock::new(),
                in_flight: AtomicU32::new(0),
                most_in_flight: AtomicU32::new(0),
            })
            .collect();
        Self {
            log: Mutex::new(Vec::with_capacity(plan.slots())),
            plan,
            epoch,
            sampling,
            endpoints,
            counts: Atomics::default(),
            changed: Notify::new(),
        }
    }

    pub(super) fn set_secret(&self, endpoint: u32, webhook: Webhook) {
        // Set once, before the endpoint gets anything.
        let _ = self.endpoints[endpoint as usize].webhook.set(webhook);
    }

    pub(super) fn behave(&self, endpoint: u32, behaviour: Behaviour) {
        *lock(&self.endpoints[endpoint as usize].behaviour) = behaviour;
        self.changed.notify_waiters();
    }

    pub(super) fn behaviour(&self, endpoint: u32) -> Behaviour {
        *lock(&self.endpoints[endpoint as usize].behaviour)
    }

    /// Completes at the next change of any endpoint's behaviour, counted from this call.
    pub(super) fn changed(&self) -> impl Future<Output = ()> {
        // A `Notified` receives `notify_waiters` from its creation on, polled or not.
        self.changed.notified()
    }

    pub(super) fn counters(&self) -> Counters {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            requests: get(&self.counts.requests),
            verified: get(&self.counts.verified),
            bad_signatures: get(&self.counts.bad_signatures),
            bad_payloads: get(&self.counts.bad_payloads),
            strangers: get(&self.counts.strangers),
            malformed: get(&self.counts.malformed),
        }
    }

    pub(super) fn most_in_flight(&self, endpoint: u32) -> u32 {
        self.endpoints[endpoint as usize]
            .most_in_flight
            .load(Ordering::Relaxed)
    }

    pub(super) fn log(&self) -> Vec<Seen> {
        lock(&self.log).clone()
    }

    pub(super) fn count_malformed(&self) {
        self.counts.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a request that has been read. The log gets it when the arrival ends.
    pub(super) fn arrive(
        &self,
        endpoint: u32,
        id: Option<Uuid>,
        head: &[u8],
        body: &[u8],
    ) -> Arrival<'_> {
        let arrived = self.epoch.micros();
        let nth = self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let ordinal = id.and_then(|id| self.plan.ordinal(id));
        let slot = ordinal.and_then(|ordinal| self.plan.slot(ordinal, endpoint));
        match (ordinal, slot) {
            (Some(ordinal), Some(_)) if nth.is_multiple_of(self.sampling.every.max(1)) => {
                self.verify(endpoint, ordinal, head, body);
            }
            (_, None) => {
                self.counts.strangers.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        let place = &self.endpoints[endpoint as usize];
        let in_flight = place.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        place.most_in_flight.fetch_max(in_flight, Ordering::Relaxed);
        Arrival {
            shared: self,
            endpoint,
            slot,
            arrived,
            status: 0,
        }
    }

    fn verify(&self, endpoint: u32, ordinal: u32, head: &[u8], body: &[u8]) {
        self.counts.verified.fetch_add(1, Ordering::Relaxed);
        if body != self.plan.payload(ordinal).as_bytes() {
            self.counts.bad_payloads.fetch_add(1, Ordering::Relaxed);
        }
        let verified = self.endpoints[endpoint as usize]
            .webhook
            .get()
            .is_some_and(|webhook| webhook.verify(body, &http::signed_headers(head)).is_ok());
        if !verified {
            self.counts.bad_signatures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A request in flight. Dropped unanswered, it is logged as cut.
pub(super) struct Arrival<'a> {
    shared: &'a Shared,
    endpoint: u32,
    slot: Option<u32>,
    arrived: u64,
    status: u16,
}

impl Arrival<'_> {
    pub(super) fn answered(mut self, status: u16) {
        self.status = status;
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let shared = self.shared;
        shared.endpoints[self.endpoint as usize]
            .in_flight
            .fetch_sub(1, Ordering::Relaxed);
        if let Some(slot) = self.slot {
            lock(&shared.log).push(Seen {
                slot,
                status: self.status,
                arrived: self.arrived,
                ended: shared.epoch.micros(),
            });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
