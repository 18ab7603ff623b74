//! Publishing an event's copies to `DELIVERIES`, and acknowledging the event when every part of
//! it is safe: each copy at the broker, each parked one in a record.
//!
//! # Copies that the broker does not take
//!
//! They are tried until their not-after, and the event is held meanwhile. Then the event is
//! acknowledged without them. What they were for is still `received` in the ledger, so that the
//! sweep finds them to be lost and drives them again; as it would an event that came too late. The
//! event is never given back once a part of it was parked: it would come again, be copied to every
//! endpoint, and what was parked would be attempted beside the ledger's own drive of it.
//!
//! # Without the lease
//!
//! Whoever owns the partition now may have had the event already and copied what would be parked
//! here, or have parked what would be given up. So the event is left to him, unless it was copied
//! whole.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt as _;
use hooklane_core::{clock, trace};
use hooklane_nats::{AckToken, Outgoing, PublishError};
use hooklane_proto::delivery::{Delivery, DeliveryKey};
use hooklane_proto::event::{Event, Target};
use hooklane_proto::id::EndpointId;
use hooklane_proto::record::{Drive, ParkReason, Parked, Record};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior, sleep_until};
use tracing::{debug, error, info_span, warn};

use crate::budget::HeldBytes;
use crate::lane::settle::after_fault;
use crate::partition::Context;
use crate::records::{Entry, Owner, Parts};

/// The pause before an event comes again that is left to the partition's next owner.
const AGAIN: Duration = Duration::from_secs(1);

/// An event with the right to settle it.
pub(crate) struct HeldEvent {
    pub(crate) event: Event,
    pub(crate) token: AckToken,
    /// When it was pulled.
    pub(crate) pulled_at: DateTime<Utc>,
    /// Whether it was delivered before.
    pub(crate) again: bool,
    pub(crate) bytes: HeldBytes,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Where one copy goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Decision {
    /// To the lane.
    Go(Target),
    /// Back into the ledger.
    Park(EndpointId, ParkReason, Option<DateTime<Utc>>),
}

/// An event and where its copies go.
pub(super) struct Job {
    pub(super) held: HeldEvent,
    pub(super) decisions: Vec<Decision>,
}

/// What has to be published for some events.
#[derive(Default)]
struct Work {
    events: Vec<Event>,
    /// With the event's place.
    records: Vec<(usize, Record)>,
    copies: Vec<Outgoing>,
    /// Of each copy: the event's place and the endpoint.
    targets: Vec<(usize, EndpointId)>,
    /// They last until everything is safe.
    spans: Vec<tracing::Span>,
}

/// What became of it.
#[derive(Default)]
struct Done {
    /// Endpoints whose copies will not come.
    lost: Vec<EndpointId>,
    /// Places of events that are left to the next owner.
    left: HashSet<usize>,
}

/// Leaves events to whoever owns the partition now. Not at once: that may be us once more, and what
/// another has in hand is not to come again while he has it.
pub(super) async fn give_back(events: Vec<HeldEvent>) {
    for held in events {
        held.token.nak(Some(AGAIN)).await;
    }
}

/// Does everything for some events; gives the endpoints whose copies will not come.
pub(super) async fn publish(context: Arc<Context>, jobs: Vec<Job>) -> Vec<EndpointId> {
    let mut tokens = Vec::with_capacity(jobs.len());
    let mut kept = Vec::with_capacity(jobs.len());
    let mut work = Work::default();
    let mut last = Instant::now();
    for Job { held, decisions } in jobs {
        let HeldEvent {
            event,
            token,
            pulled_at,
            again: _,
            bytes,
            permit,
        } = held;
        tokens.push(token);
        kept.push((bytes, permit));
        let not_after = pulled_at + signed(context.config.not_after);
        let left = (not_after - clock::now()).to_std().unwrap_or_default();
        last = last.max(Instant::now() + left);
        work.add(event, decisions, not_after);
    }
    let every = context.config.progress_every;
    let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let doing = work.carry_out(&context, last);
    tokio::pin!(doing);
    let Done { lost, left } = loop {
        tokio::select! {
            biased;
            done = &mut doing => break done,
            _ = ticks.tick() => {
                for token in &tokens {
                    let _ = token.progress().now_or_never();
                }
            }
        }
    };
    for (at, token) in tokens.into_iter().enumerate() {
        if left.contains(&at) {
            token.nak(Some(AGAIN)).await;
        } else {
            token.ack().await;
        }
    }
    drop(kept);
    lost
}

impl Work {
    fn add(&mut self, event: Event, decisions: Vec<Decision>, not_after: DateTime<Utc>) {
        let span =
            info_span!(parent: None, "fanout", message = %event.message, targets = decisions.len());
        if let Some(parent) = &event.trace {
            trace::set_parent(&span, parent);
        }
        let carried = trace::carry(&span, event.trace.as_ref());
        for decision in decisions {
            match decision {
                Decision::Go(target) => {
                    let mut delivery = Delivery::first(&event, target, not_after);
                    delivery.trace.clone_from(&carried);
                    self.copies.push(Outgoing {
                        subject: delivery.subject(),
                        headers: delivery.headers(),
                        payload: delivery.payload,
                    });
                    self.targets.push((self.events.len(), target.endpoint));
                }
                Decision::Park(endpoint, reason, not_before) => {
                    let record = parked(&event, endpoint, reason, not_before);
                    self.records.push((self.events.len(), record));
                }
            }
        }
        self.events.push(event);
        self.spans.push(span);
    }

    async fn carry_out(self, context: &Context, not_after: Instant) -> Done {
        let Self {
            events,
            mut records,
            copies,
            targets,
            spans,
        } = self;
        let mut done = Done::default();
        let mut refused = Vec::new();
        let results = match copies.is_empty() {
            true => Vec::new(),
            false => context.copies.publish_all(copies, not_after).await,
        };
        for (result, (at, endpoint)) in results.into_iter().zip(targets) {
            match result {
                Ok(ack) if !ack.duplicate => continue,
                Ok(_) => {}
                Err(PublishError::Permanent(reason)) => {
                    let event = &events[at];
                    error!(message = %event.message, %endpoint, %reason, "a delivery can't be published");
                    let later = Some(after_fault());
                    records.push((at, parked(event, endpoint, ParkReason::Fault, later)));
                }
                Err(reason) => {
                    debug!(%endpoint, %reason, "a delivery was not published in time");
                    refused.push(at);
                }
            }
            done.lost.push(endpoint);
        }
        if !refused.is_empty() {
            // The broker may still get one that it has not answered. It is lost only when a reader
            // would drop it, and the sweep may know of it only then.
            sleep_until(not_after).await;
        }
        if !context.term.holds() {
            done.left.extend(records.iter().map(|(at, _)| *at));
            done.left.extend(refused);
            return done;
        }
        if !refused.is_empty() {
            warn!(
                partition = context.partition,
                deliveries = refused.len(),
                "deliveries were not published in time, the sweep will find them"
            );
        }
        let parts = Parts::new(records.len());
        for (_, record) in records {
            let owner = Owner::Part(Arc::clone(&parts));
            context.recorder.park(Entry { record, owner }).await;
        }
        parts.all_done().await;
        drop(spans);
        done
    }
}

fn parked(
    event: &Event,
    endpoint: EndpointId,
    reason: ParkReason,
    not_before: Option<DateTime<Utc>>,
) -> Record {
    let due_at = event.accepted_at;
    Record::Parked(Parked {
        drive: Drive {
            key: DeliveryKey {
                accepted_at: event.accepted_at,
                message: event.message,
                endpoint,
            },
            series: 1,
            drive: 1,
        },
        reason,
        next_attempt_at: not_before.map_or(due_at, |at| at.max(due_at)),
    })
}

fn signed(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}
