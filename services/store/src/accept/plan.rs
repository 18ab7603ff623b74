//! From a batch to what is written of it: who is refused, who repeats, who is new.
//!
//! Owns the order of the acceptance's statements and every decision between them; the statements
//! themselves are in `write`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::rules::partition::partition;
use hooklane_core::rules::subscription;
use hooklane_proto::event::{Event, Target};
use hooklane_proto::id::{EndpointId, MessageId};
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;
use tokio::time::Instant;

use super::write::{self, Endpoint, Held, KeyRow};
use super::{
    Accepted, Item, MAX_CONTENT_TYPE, MAX_KEY, MAX_PAYLOAD, NewMessage, Outcome, Reason, Receipt,
    Rejection, Settings,
};
use crate::{Error, operational};

/// Rounds of claiming keys that expire just then.
const CLAIMS: u32 = 5;

/// SHA-256 of what a key stands for.
pub(super) type Digest = [u8; 32];

/// What the transaction has written so far, and what is left to do.
pub(super) struct Prepared<'a> {
    /// One for each item taken.
    pub(super) outcomes: Vec<Outcome>,
    accepted_at: DateTime<Utc>,
    deadline: DateTime<Utc>,
    publish_within: Duration,
    partitions: NonZeroU16,
    fresh: Vec<Fresh<'a>>,
    driven_at: DateTime<Utc>,
}

/// An event that is new to the ledger.
struct Fresh<'a> {
    message: &'a NewMessage,
    id: MessageId,
    endpoints: Arc<[Endpoint]>,
}

/// An event that nothing speaks against but, perhaps, its key.
struct Candidate<'a> {
    item: usize,
    message: &'a NewMessage,
    id: MessageId,
    key: Option<String>,
    digest: Digest,
    endpoints: Arc<[Endpoint]>,
}

/// An item under a key that an earlier item of the batch has too.
struct Double<'a> {
    item: usize,
    of: usize,
    message: &'a NewMessage,
}

/// Everything up to the messages, within a transaction.
pub(super) async fn prepare<'a>(
    conn: &mut PgConnection,
    settings: &'a Settings,
    items: &'a [Item],
) -> Result<Prepared<'a>, Error> {
    let names = Names::of(items);
    let (accepted_at, event_types) = write::clock_and_event_types(conn, &names.event_types).await?;
    // Of all types of the batch: which of them an endpoint gets is decided below.
    let patterns: BTreeSet<String> = names
        .event_types
        .iter()
        .flat_map(|event_type| subscription::candidates(event_type))
        .collect();
    let patterns: Vec<String> = patterns.into_iter().collect();
    let enough = settings.max_deliveries;
    let subscribers = write::subscribers(conn, &names.consumers, &patterns, enough).await?;
    let named: Vec<EndpointId> = items.iter().flatten().filter_map(|one| one.only).collect();
    let named = write::named(conn, &named).await?;
    let mut choice = Choice {
        settings,
        event_types,
        subscribers,
        named,
        matched: HashMap::new(),
        deliveries: 0,
        outcomes: Vec::with_capacity(items.len()),
        candidates: Vec::with_capacity(items.len()),
        doubles: Vec::new(),
        keys: HashMap::new(),
        ids: HashSet::new(),
    };
    for (at, item) in items.iter().enumerate() {
        if !choice.take(at, item) {
            break;
        }
    }
    let Choice {
        mut outcomes,
        candidates,
        doubles,
        ..
    } = choice;
    let held = claim(conn, &candidates, accepted_at).await?;
    let mut fresh = Vec::with_capacity(candidates.len());
    for candidate in &candidates {
        outcomes[candidate.item] = match candidate.holder(&held) {
            Some(held) => against(held, &candidate.digest),
            None => {
                fresh.push(Fresh {
                    message: candidate.message,
                    id: candidate.id,
                    endpoints: Arc::clone(&candidate.endpoints),
                });
                Outcome::Accepted(Receipt {
                    message: candidate.id,
                    accepted_at,
                })
            }
        };
    }
    for double in doubles {
        let first = &candidates[double.of];
        let own;
        let holder = match first.holder(&held) {
            Some(held) => held,
            None => {
                own = Held {
                    digest: first.digest.to_vec(),
                    message: first.id,
                    accepted_at,
                };
                &own
            }
        };
        outcomes[double.item] = against(holder, &digest(double.message));
    }
    let rows: Vec<_> = fresh
        .iter()
        .map(|fresh| (fresh.id, fresh.message))
        .collect();
    write::messages(conn, accepted_at, &rows).await?;
    Ok(Prepared {
        outcomes,
        accepted_at,
        deadline: accepted_at + settings.deadline,
        publish_within: settings.publish_within,
        partitions: settings.partitions,
        fresh,
        driven_at: accepted_at,
    })
}

impl Prepared<'_> {
    /// The deliveries: the transaction's last statement, whose clock starts the drives.
    pub(super) async fn finish(&mut self, conn: &mut PgConnection) -> Result<(), Error> {
        let mut rows = write::DeliveryRows::default();
        for fresh in &self.fresh {
            let consumer = fresh.message.consumer.as_str();
            let partition = partition(self.partitions, consumer);
            for endpoint in fresh.endpoints.iter() {
                rows.push(fresh.id, endpoint, consumer, partition);
            }
        }
        if !self.fresh.is_empty() {
            let publish_within = self.publish_within;
            self.driven_at =
                write::deliveries(conn, self.accepted_at, self.deadline, publish_within, &rows)
                    .await?;
        }
        Ok(())
    }

    /// What to tell, once the transaction is committed; it ended `since` after [`Self::finish`].
    pub(super) fn accepted(self, settings: &Settings, since: Duration) -> Accepted {
        let not_after = self.driven_at + settings.publish_within;
        let events: Vec<Event> = self
            .fresh
            .into_iter()
            .flat_map(|fresh| {
                let NewMessage {
                    id: _,
                    consumer,
                    event_type,
                    content_type,
                    payload,
                    key: _,
                    only: _,
                    origin: _,
                    trace,
                } = fresh.message;
                let targets = fresh.endpoints.iter().filter(|e| e.skipped.is_none());
                Event {
                    message: fresh.id,
                    consumer: consumer.clone(),
                    event_type: event_type.clone(),
                    content_type: content_type.clone(),
                    accepted_at: self.accepted_at,
                    not_after,
                    deadline: self.deadline,
                    part: 0,
                    targets: targets.map(|e| e.target).collect::<Vec<Target>>(),
                    trace: trace.clone(),
                    payload: payload.clone(),
                }
                .split()
            })
            .collect();
        let left = settings.publish_within.saturating_sub(since);
        Accepted {
            outcomes: self.outcomes,
            publish_until: (!events.is_empty()).then(|| Instant::now() + left),
            events,
        }
    }
}

/// The distinct names of a batch, in order of appearance.
struct Names<'a> {
    consumers: Vec<&'a str>,
    event_types: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn of(items: &'a [Item]) -> Self {
        let mut seen = (HashSet::new(), HashSet::new());
        let mut names = Self {
            consumers: Vec::new(),
            event_types: Vec::new(),
        };
        for message in items.iter().flatten() {
            let (consumer, event_type) = (message.consumer.as_str(), message.event_type.as_str());
            if seen.0.insert(consumer) {
                names.consumers.push(consumer);
            }
            if seen.1.insert(event_type) {
                names.event_types.push(event_type);
            }
        }
        names
    }
}

/// Goes through the batch and chooses what this transaction takes.
struct Choice<'a> {
    settings: &'a Settings,
    event_types: HashSet<String>,
    subscribers: write::Subscribers,
    /// The endpoints that messages name, with their consumers.
    named: HashMap<EndpointId, (String, Endpoint)>,
    matched: HashMap<(&'a str, &'a str), Arc<[Endpoint]>>,
    deliveries: usize,
    outcomes: Vec<Outcome>,
    candidates: Vec<Candidate<'a>>,
    doubles: Vec<Double<'a>>,
    keys: HashMap<(&'a str, Arc<str>), usize>,
    ids: HashSet<MessageId>,
}

impl<'a> Choice<'a> {
    /// Whether the item is taken; `false` ends the batch before it.
    fn take(&mut self, at: usize, item: &'a Item) -> bool {
        let message = match item {
            Ok(message) => message,
            Err(rejection) => {
                self.outcomes.push(Outcome::Rejected(rejection.clone()));
                return true;
            }
        };
        let consumer = message.consumer.as_str();
        if !self.subscribers.complete(consumer) {
            return false;
        }
        if let Err(rejection) = self.check(message) {
            self.outcomes.push(Outcome::Rejected(rejection));
            return true;
        }
        let key = effective_key(message);
        let key: Option<Arc<str>> = key.as_deref().map(Arc::from);
        let entry = key.clone().map(|key| self.keys.entry((consumer, key)));
        if let Some(Entry::Occupied(first)) = &entry {
            self.doubles.push(Double {
                item: at,
                of: *first.get(),
                message,
            });
            // Decided with the first one's outcome.
            self.outcomes.push(undecided());
            return true;
        }
        let id = message.id.unwrap_or_else(MessageId::generate);
        if self.ids.contains(&id) {
            self.outcomes.push(rejected(
                Reason::Conflict,
                format!("{id} stands in the same batch under another key"),
            ));
            return true;
        }
        let endpoints = match message.only {
            // There is one: it was checked.
            Some(only) => self
                .named
                .get(&only)
                .map(|(_, one)| *one)
                .into_iter()
                .collect(),
            None => {
                let matched = self.matched.entry((consumer, message.event_type.as_str()));
                let matched = matched.or_insert_with(|| {
                    let wanted = subscription::candidates(message.event_type.as_str());
                    self.subscribers.matching(consumer, &wanted)
                });
                Arc::clone(matched)
            }
        };
        let deliveries = self.deliveries + endpoints.len();
        if deliveries > self.settings.max_deliveries && self.deliveries > 0 {
            return false;
        }
        self.deliveries = deliveries;
        if let Some(Entry::Vacant(entry)) = entry {
            entry.insert(self.candidates.len());
        }
        self.ids.insert(id);
        self.candidates.push(Candidate {
            item: at,
            message,
            id,
            key: key.as_deref().map(str::to_owned),
            digest: digest(message),
            endpoints,
        });
        self.outcomes.push(undecided());
        true
    }

    fn check(&self, message: &NewMessage) -> Result<(), Rejection> {
        if message.payload.len() > MAX_PAYLOAD {
            return Err(too_large(message.payload.len()));
        }
        if let Some(rejection) = operational::refusal(message) {
            return Err(rejection);
        }
        let content_type = &message.content_type;
        let visible = |byte: u8| (0x20..0x7f).contains(&byte);
        if content_type.is_empty()
            || content_type.len() > MAX_CONTENT_TYPE
            || content_type.trim() != content_type
            || !content_type.bytes().all(visible)
        {
            return Err(Rejection {
                reason: Reason::BadContentType,
                detail: format!(
                    "the content type must be 1 to {MAX_CONTENT_TYPE} visible ASCII characters, such as application/json"
                ),
            });
        }
        if let Some(key) = &message.key
            && (key.is_empty()
                || key.chars().count() > MAX_KEY
                || key.chars().any(char::is_control))
        {
            return Err(Rejection {
                reason: Reason::BadKey,
                detail: format!(
                    "the idempotency key must be 1 to {MAX_KEY} characters, none of them a control character"
                ),
            });
        }
        let (consumer, event_type) = (&message.consumer, &message.event_type);
        if !self.subscribers.knows(consumer.as_str()) {
            return Err(Rejection {
                reason: Reason::UnknownConsumer,
                detail: format!("no consumer has the id `{consumer}`; add it"),
            });
        }
        if !self.event_types.contains(event_type.as_str()) {
            return Err(Rejection {
                reason: Reason::UnknownEventType,
                detail: format!("no event type has the name `{event_type}`; add it"),
            });
        }
        let is_theirs = |id| {
            let named = self.named.get(&id);
            named.is_some_and(|(owner, _)| owner == consumer.as_str())
        };
        if let Some(only) = message.only.filter(|&only| !is_theirs(only)) {
            return Err(Rejection {
                reason: Reason::UnknownEndpoint,
                detail: format!("the consumer `{consumer}` has no endpoint `{only}`"),
            });
        }
        Ok(())
    }
}

impl Candidate<'_> {
    fn holder<'h>(&self, held: &'h HashMap<(String, String), Held>) -> Option<&'h Held> {
        let key = self.key.as_ref()?;
        held.get(&(self.message.consumer.as_str().to_owned(), key.clone()))
    }
}

/// Takes the keys that are free; returns who holds the others.
async fn claim(
    conn: &mut PgConnection,
    candidates: &[Candidate<'_>],
    accepted_at: DateTime<Utc>,
) -> Result<HashMap<(String, String), Held>, Error> {
    let mut open: Vec<KeyRow<'_>> = candidates
        .iter()
        .filter_map(|candidate| {
            Some(KeyRow {
                consumer: candidate.message.consumer.as_str(),
                key: candidate.key.as_deref()?,
                digest: &candidate.digest,
                message: candidate.id,
            })
        })
        .collect();
    // Everybody takes keys in this order, so nobody waits in a circle.
    open.sort_unstable_by_key(|row| (row.consumer, row.key));
    let mut held = HashMap::new();
    for _ in 0..CLAIMS {
        let taken = write::claim_keys(conn, accepted_at, &open).await?;
        open.retain(|row| !taken.contains(&(row.consumer.to_owned(), row.key.to_owned())));
        if open.is_empty() {
            return Ok(held);
        }
        held.extend(write::held_keys(conn, &open).await?);
        // A key that nobody holds any more was purged between the two statements.
        open.retain(|row| !held.contains_key(&(row.consumer.to_owned(), row.key.to_owned())));
        if open.is_empty() {
            return Ok(held);
        }
    }
    Err(Error::TimedOut {
        doing: "claiming idempotency keys",
        after: Duration::ZERO,
    })
}

fn against(held: &Held, digest: &Digest) -> Outcome {
    if held.digest == digest {
        Outcome::Repeat(Receipt {
            message: held.message,
            accepted_at: held.accepted_at,
        })
    } else {
        rejected(
            Reason::Conflict,
            format!(
                "the idempotency key stands for {} with other content since {}",
                held.message, held.accepted_at
            ),
        )
    }
}

/// The key that an event goes by: its own, else its id.
pub(super) fn effective_key(message: &NewMessage) -> Option<String> {
    let by_id = || message.id.map(|id| id.uuid().to_string());
    message.key.clone().or_else(by_id)
}

/// The rejection of a payload of this many bytes.
pub(crate) fn too_large(size: usize) -> Rejection {
    Rejection {
        reason: Reason::PayloadTooLarge,
        detail: format!("the payload has {size} bytes, {MAX_PAYLOAD} are the limit"),
    }
}

fn rejected(reason: Reason, detail: String) -> Outcome {
    Outcome::Rejected(Rejection { reason, detail })
}

/// Holds an item's place until its outcome is known.
fn undecided() -> Outcome {
    rejected(Reason::Refused, String::new())
}

/// Each part with its length before it, so that no two contents read alike.
fn digest(message: &NewMessage) -> Digest {
    let mut hasher = Sha256::new();
    let parts: [&[u8]; 3] = [
        message.event_type.as_str().as_bytes(),
        message.content_type.as_bytes(),
        &message.payload,
    ];
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    if let Some(only) = message.only {
        hasher.update(only.uuid().as_bytes());
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hooklane_proto::token::{ConsumerId, EventType};

    use super::super::Origin;
    use super::*;

    fn message(event_type: &str, content_type: &str, payload: &'static str) -> NewMessage {
        NewMessage {
            id: None,
            consumer: ConsumerId::new("acme").unwrap(),
            event_type: EventType::new(event_type).unwrap(),
            content_type: content_type.to_owned(),
            payload: Bytes::from(payload),
            key: None,
            only: None,
            origin: Origin::Api,
            trace: None,
        }
    }

    #[test]
    fn content_that_moves_between_the_parts_is_other_content() {
        let digests = [
            digest(&message("ab", "c", "d")),
            digest(&message("a", "bc", "d")),
            digest(&message("a", "b", "cd")),
            digest(&message("a", "bcd", "")),
        ];
        for (at, one) in digests.iter().enumerate() {
            assert!(!digests[at + 1..].contains(one), "{at}");
        }
        assert_eq!(digests[0], digest(&message("ab", "c", "d")));
        let to = |n| NewMessage {
            only: Some(EndpointId::for_test(n)),
            ..message("ab", "c", "d")
        };
        assert_ne!(digest(&to(1)), digests[0]);
        assert_ne!(digest(&to(1)), digest(&to(2)));
    }

    #[test]
    fn the_key_is_the_id_where_none_is_given() {
        let mut message = message("a", "b", "c");
        assert_eq!(effective_key(&message), None);
        let id = MessageId::for_test(1);
        message.id = Some(id);
        assert_eq!(effective_key(&message), Some(id.uuid().to_string()));
        message.key = Some("order-1".to_owned());
        assert_eq!(effective_key(&message).as_deref(), Some("order-1"));
    }
}
