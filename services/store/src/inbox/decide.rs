//! What becomes of the events that a step took: pure, in memory, with the entities locked.
//!
//! Events are looked at in the order in which they were due. One that is deferred is looked at again as
//! soon as another one of the same step moves its entity, so that what arrived together takes effect
//! together.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::rules::transition::{self, Current, Machine, Verdict};
use uuid::Uuid;

use super::claim::{EntityKey, Standing, Taken};
use super::reader::{Item, Reader, Reading};
use super::step::Stepped;
use super::{Mode, Reason, Stage, Status, detail, entity_key, event_type};

/// How long an event is left alone whose source this process does not know.
const UNKNOWN: Duration = Duration::from_secs(60);
/// The longest pause before a deferred event is looked at without anything having happened.
const LONGEST: Duration = Duration::from_secs(300);
/// How often looking at an event may fail.
pub(super) const MAX_FAULTS: i16 = 3;

/// What is known of an event by now.
#[derive(Debug)]
pub(super) enum Known {
    /// It took effect before, and is published again.
    Again,
    /// Nobody here knows its source.
    Unknown,
    /// Its body is gone.
    Bodiless,
    /// Reading it panicked.
    Panicked,
    /// What it says.
    Read(Reading),
}

/// An event's row as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct After {
    pub(super) id: Uuid,
    pub(super) status: Status,
    pub(super) stage: Stage,
    pub(super) mode: Option<Mode>,
    pub(super) event_type: Option<String>,
    pub(super) entity: Option<(String, String)>,
    pub(super) order: Option<i64>,
    pub(super) sequence: Option<i64>,
    pub(super) next_at: DateTime<Utc>,
    pub(super) deadline_at: Option<DateTime<Utc>>,
    pub(super) deferrals: i32,
    pub(super) handed_out: i32,
    pub(super) faults: i16,
    pub(super) reason: Option<Reason>,
    pub(super) detail: Option<String>,
}

/// An entry of the trail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Noted {
    pub(super) event: Uuid,
    pub(super) action: &'static str,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) sequence: Option<i64>,
    pub(super) reason: Option<&'static str>,
    pub(super) detail: Option<String>,
    pub(super) machine: Option<String>,
}

/// A row of the inbox's outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Published {
    pub(super) event: Uuid,
    pub(super) received_at: DateTime<Utc>,
    pub(super) attempt: i32,
}

/// Everything that a step writes.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// One for each event.
    pub(super) after: Vec<After>,
    pub(super) trail: Vec<Noted>,
    /// In the order in which they took effect.
    pub(super) published: Vec<Published>,
    /// Items of the events with these numbers.
    pub(super) split: Vec<(usize, Vec<Item>)>,
    pub(super) standings: BTreeMap<EntityKey, Standing>,
    /// Entities that were moved.
    pub(super) moved: Vec<EntityKey>,
    pub(super) counts: Stepped,
}

/// The entity that an event is about, as it is kept.
pub(super) fn entity_of(taken: &Taken, known: &Known) -> Option<EntityKey> {
    let Known::Read(Reading::Event {
        entity: Some(entity),
        ..
    }) = known
    else {
        return None;
    };
    Some((
        taken.partner.clone(),
        event_type(&entity.entity_type),
        entity_key(&entity.key),
    ))
}

/// Decides about all of them.
pub(super) fn decide(
    now: DateTime<Utc>,
    taken: &[Taken],
    known: &[Known],
    standings: BTreeMap<EntityKey, Standing>,
    reader: &impl Reader,
) -> Plan {
    let mut deciding = Deciding {
        now,
        reader,
        waiting: HashMap::new(),
        plan: Plan {
            after: taken.iter().map(|one| unchanged(now, one)).collect(),
            standings,
            ..Plan::default()
        },
    };
    for (n, (one, known)) in taken.iter().zip(known).enumerate() {
        deciding.follow(n, one, known);
    }
    for n in 0..taken.len() {
        let mut queue = std::collections::VecDeque::from([n]);
        while let Some(n) = queue.pop_front() {
            let moved = deciding.one(n, &taken[n], &known[n]);
            let woken = moved.and_then(|key| deciding.waiting.remove(&key));
            queue.extend(woken.into_iter().flatten());
        }
    }
    let mut plan = deciding.plan;
    plan.moved.sort_unstable();
    plan.moved.dedup();
    plan.counts.claimed = count(taken.len());
    plan.counts.handed = count(plan.published.len());
    for (after, known) in plan.after.iter().zip(known) {
        match (after.status, known) {
            (Status::Deferred, Known::Read(_)) => plan.counts.deferred += 1,
            (Status::Superseded, _) => plan.counts.superseded += 1,
            _ => {}
        }
    }
    for (after, one) in plan.after.iter().zip(taken) {
        if let (Status::Quarantined, Some(reason)) = (after.status, after.reason) {
            plan.counts.quarantined.push((one.partner.clone(), reason));
        }
    }
    plan
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn after(now: DateTime<Utc>, time: Duration) -> DateTime<Utc> {
    let delta = TimeDelta::from_std(time).unwrap_or(TimeDelta::MAX);
    now.checked_add_signed(delta)
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// The pause after so many deferrals: 1 s, twice that each time, up to five minutes.
pub(super) fn back_off(deferrals: i32) -> Duration {
    let doubled = 2u32.saturating_pow(u32::try_from(deferrals).unwrap_or_default());
    Duration::from_secs(doubled.into()).min(LONGEST)
}

/// The entity among whose deferred events this one is counted.
pub(super) fn waited_for(taken: &Taken) -> Option<EntityKey> {
    let (kind, key) = taken.entity.clone()?;
    (taken.status == Status::Deferred).then(|| (taken.partner.clone(), kind, key))
}

fn unchanged(now: DateTime<Utc>, taken: &Taken) -> After {
    After {
        id: taken.id,
        status: taken.status,
        stage: taken.stage,
        mode: None,
        event_type: taken.event_type.clone(),
        entity: taken.entity.clone(),
        order: taken.order,
        sequence: taken.sequence,
        next_at: now,
        deadline_at: taken.deadline_at,
        deferrals: taken.deferrals,
        handed_out: taken.handed_out,
        faults: taken.faults,
        reason: None,
        detail: None,
    }
}

struct Deciding<'a, R> {
    now: DateTime<Utc>,
    reader: &'a R,
    /// Those of this step that wait for an entity to move.
    waiting: HashMap<EntityKey, Vec<usize>>,
    plan: Plan,
}

impl<R: Reader> Deciding<'_, R> {
    /// One that waited for an entity and turns out to be about another one, or none, as after a change
    /// of the configuration, does not wait for the first any more.
    fn follow(&mut self, n: usize, taken: &Taken, known: &Known) {
        let read = matches!(known, Known::Read(_) | Known::Bodiless);
        let before = waited_for(taken).filter(|_| read);
        if let Some(before) = before.filter(|key| entity_of(taken, known).as_ref() != Some(key)) {
            self.leave(n, &before, Status::Pending);
            self.plan.after[n].entity = None;
        }
    }

    /// Decides about one event; answers which entity it moved.
    fn one(&mut self, n: usize, taken: &Taken, known: &Known) -> Option<EntityKey> {
        match known {
            Known::Again => self.publish(n, taken),
            Known::Unknown => {
                self.plan.counts.unknown += 1;
                self.plan.after[n].next_at = after(self.now, UNKNOWN);
            }
            Known::Bodiless => {
                let why = "its body is past the retention";
                self.quarantine(n, taken, Reason::Unparseable, why, None);
            }
            Known::Panicked => self.panicked(n, taken),
            Known::Read(Reading::Unreadable { reason, detail }) => {
                self.quarantine(n, taken, *reason, detail, None);
            }
            Known::Read(Reading::Items(_)) if taken.parent.is_some() => {
                let why = "an item of a batch is a batch";
                self.quarantine(n, taken, Reason::Unparseable, why, None);
            }
            Known::Read(Reading::Items(items)) => {
                self.plan.after[n].status = Status::Processed;
                self.plan.counts.split += 1;
                self.plan.counts.items += count(items.len());
                self.plan.split.push((n, items.clone()));
            }
            Known::Read(Reading::Event {
                event_type: name,
                entity,
            }) => {
                self.plan.after[n].event_type = Some(event_type(name));
                let Some(entity) = entity else {
                    self.apply(n, taken, None, None);
                    return None;
                };
                let key = entity_of(taken, known)?;
                let event = transition::Event {
                    event_type: name,
                    order: entity.order,
                    to_field: entity.to_field.as_deref(),
                };
                return self.entity(n, taken, key, &event);
            }
        }
        None
    }

    /// Decides about an event of an entity.
    fn entity(
        &mut self,
        n: usize,
        taken: &Taken,
        key: EntityKey,
        event: &transition::Event<'_>,
    ) -> Option<EntityKey> {
        let reader = self.reader;
        let row = &mut self.plan.after[n];
        row.entity = Some((key.1.clone(), key.2.clone()));
        row.order = event.order;
        let standing = self.plan.standings.entry(key.clone()).or_default().clone();
        let Some(machine) = reader.machine(&taken.partner, &key.1) else {
            self.apply(n, taken, Some((&key, None)), None);
            return Some(key);
        };
        let current = Current {
            state: standing.state.as_deref().unwrap_or(machine.initial()),
            fresh: standing.state.is_none(),
            last_order: standing.last_order,
        };
        match machine.decide(&current, event) {
            Verdict::Apply { to } => {
                self.apply(n, taken, Some((&key, Some(to))), Some((machine, &current)));
                return Some(key);
            }
            Verdict::Defer { missing } => {
                self.defer(n, taken, &key, machine, &current, &missing.to_string());
            }
            Verdict::Late { why } => {
                self.leave(n, &key, Status::Superseded);
                self.plan.after[n].detail = Some(detail(&why));
                self.note(n, "superseded", None, Some(&why), Some((machine, &current)));
            }
            Verdict::Quarantine { why } => {
                self.leave(n, &key, Status::Quarantined);
                let by = Some((machine, &current));
                self.quarantine(n, taken, Reason::ImpossibleTransition, &why, by);
            }
        }
        None
    }

    /// It takes effect.
    fn apply(
        &mut self,
        n: usize,
        taken: &Taken,
        entity: Option<(&EntityKey, Option<String>)>,
        by: Option<(&Machine, &Current<'_>)>,
    ) {
        let mut to = None;
        if let Some((key, state)) = entity {
            self.leave(n, key, Status::Pending);
            let order = self.plan.after[n].order;
            let standing = self.plan.standings.entry(key.clone()).or_default();
            standing.sequence += 1;
            standing.last_order = standing.last_order.max(order);
            // What the machine doesn't know leaves an entity where it begins.
            let begins = by.is_some_and(|(machine, current)| {
                current.fresh && state.as_deref() == Some(machine.initial())
            });
            if state.is_some() && !begins {
                standing.state.clone_from(&state);
            }
            to = state;
            self.plan.after[n].sequence = Some(standing.sequence);
            self.plan.moved.push(key.clone());
        }
        self.plan.counts.applied += 1;
        self.note(n, "applied", to, None, by);
        let row = &mut self.plan.after[n];
        row.stage = Stage::HandOff;
        row.mode = self.reader.mode(&taken.partner);
        (row.deferrals, row.deadline_at, row.faults) = (0, None, 0);
        if row.mode == Some(Mode::Stream) {
            self.publish(n, taken);
        } else {
            self.plan.after[n].status = Status::Pending;
        }
    }

    fn publish(&mut self, n: usize, taken: &Taken) {
        let row = &mut self.plan.after[n];
        row.status = Status::Processed;
        row.mode = Some(Mode::Stream);
        row.handed_out += 1;
        self.plan.published.push(Published {
            event: taken.id,
            received_at: taken.received_at,
            attempt: row.handed_out,
        });
        if taken.stage == Stage::HandOff {
            let attempt = format!("attempt {}", row.handed_out);
            self.note(n, "published_again", None, Some(&attempt), None);
        }
    }

    /// It waits for what comes before it, unless it has waited too long or too many do.
    fn defer(
        &mut self,
        n: usize,
        taken: &Taken,
        key: &EntityKey,
        machine: &Machine,
        current: &Current<'_>,
        missing: &str,
    ) {
        let by = Some((machine, current));
        let policy = machine.policy();
        let row = &mut self.plan.after[n];
        let deadline = row
            .deadline_at
            .unwrap_or_else(|| after(self.now, policy.defer_for));
        if self.now >= deadline {
            self.leave(n, key, Status::Quarantined);
            let why = format!("still missing: {missing}");
            self.quarantine(n, taken, Reason::DeferralExpired, &why, by);
            return;
        }
        let waited = row.status == Status::Deferred;
        if !waited {
            let standing = self.plan.standings.entry(key.clone()).or_default();
            if i64::from(standing.deferred) >= i64::from(policy.max_deferred) {
                let why = format!("{} events wait already", standing.deferred);
                self.quarantine(n, taken, Reason::TooManyDeferred, &why, by);
                return;
            }
            standing.deferred += 1;
        }
        row.status = Status::Deferred;
        row.deadline_at = Some(deadline);
        row.next_at = after(self.now, back_off(taken.deferrals)).min(deadline);
        row.deferrals = taken.deferrals.saturating_add(1);
        row.detail = Some(detail(&format!("missing: {missing}")));
        // Not each time that it is looked at.
        if !waited {
            self.note(
                n,
                "deferred",
                None,
                Some(&format!("missing: {missing}")),
                by,
            );
        }
        self.waiting.entry(key.clone()).or_default().push(n);
    }

    /// It waits no more, if it did.
    fn leave(&mut self, n: usize, key: &EntityKey, status: Status) {
        let row = &mut self.plan.after[n];
        if row.status == Status::Deferred {
            let standing = self.plan.standings.entry(key.clone()).or_default();
            standing.deferred = (standing.deferred - 1).max(0);
        }
        row.status = status;
        row.detail = None;
    }

    fn panicked(&mut self, n: usize, taken: &Taken) {
        self.plan.counts.panicked += 1;
        let faults = taken.faults.saturating_add(1);
        self.plan.after[n].faults = faults;
        if faults >= MAX_FAULTS {
            self.quarantine(n, taken, Reason::Poison, "reading it fails each time", None);
        } else {
            self.plan.after[n].next_at = after(self.now, back_off(faults.into()));
            self.note(n, "failed", None, Some("reading it failed"), None);
        }
    }

    fn quarantine(
        &mut self,
        n: usize,
        taken: &Taken,
        reason: Reason,
        why: &str,
        by: Option<(&Machine, &Current<'_>)>,
    ) {
        // One that waited waits no more; where it was looked at, that is said already.
        if let Some(key) = waited_for(taken) {
            self.leave(n, &key, Status::Quarantined);
        }
        let row = &mut self.plan.after[n];
        row.status = Status::Quarantined;
        row.reason = Some(reason);
        row.detail = Some(detail(why));
        self.note(n, "quarantined", None, Some(why), by);
        if let Some(noted) = self.plan.trail.last_mut() {
            noted.reason = Some(reason.as_str());
        }
    }

    fn note(
        &mut self,
        n: usize,
        action: &'static str,
        to: Option<String>,
        why: Option<&str>,
        by: Option<(&Machine, &Current<'_>)>,
    ) {
        let row = &self.plan.after[n];
        self.plan.trail.push(Noted {
            event: row.id,
            action,
            from: by.map(|(_, current)| current.state.to_owned()),
            to,
            sequence: row.sequence.filter(|_| action == "applied"),
            reason: None,
            detail: why.map(detail),
            machine: by.map(|(machine, _)| machine.fingerprint().to_owned()),
        });
    }
}
