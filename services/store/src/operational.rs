//! What operators are told: events about endpoints and deliveries, as messages of the built-in
//! consumer [`CONSUMER`], to which an operator subscribes like any customer.
//!
//! Owns what such an event says and its row. A row is written in the transaction of what happened,
//! into a table that the relay reads like any outbox ([`source`]), so that none is lost and none
//! tells of what was rolled back. Nobody else may write to the consumer or use the event types
//! below [`PREFIX`]: acceptance asks `refusal`.
//!
//! Events about the built-in consumer's own endpoints and deliveries are not written: an operator's
//! endpoint that fails would otherwise bring ever more of them. Every row goes through `write`,
//! which sees to that.
//!
//! One event is written by a trigger of the ledger instead: `hooklane.inbox.quarantined`, about a
//! partner's event and no endpoint, because SQL functions that adopters call quarantine, too.
//!
//! An event is sent as `{"type": …, "timestamp": …, "data": {…}}`. It holds ids, states and counts,
//! and nothing of a customer's payloads or URLs.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use hooklane_core::rules::health::Run;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::route::State;
use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Error;
use crate::accept::{NewMessage, Origin, Reason, Rejection};
use crate::outbox::{Columns, Source};

/// The built-in consumer, made with the schema. Its endpoints are the operators' own.
pub const CONSUMER: &str = "hooklane";
/// What the built-in event types begin with.
pub const PREFIX: &str = "hooklane.";
/// The name of the source that holds the events.
pub const SOURCE: &str = "operational";
/// Its table.
pub const TABLE: &str = "hooklane.operational_events";

/// Events are told soon, but looking for them must cost next to nothing.
const POLL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The outbox that every relay reads besides the configured ones.
#[must_use]
pub fn source() -> Source {
    Source {
        name: SOURCE.to_owned(),
        table: TABLE.to_owned(),
        columns: Columns {
            headers: String::new(),
            ..Columns::default()
        },
        poll_min: POLL.0,
        poll_max: POLL.1,
        ..Source::default()
    }
}

/// Why a message may not be accepted that is not Hooklane's own and pretends to be.
pub(crate) fn refusal(message: &NewMessage) -> Option<Rejection> {
    let built_in = matches!(&message.origin, Origin::Outbox(name) if **name == *SOURCE);
    if built_in {
        return None;
    }
    let refused = |reason, detail: String| Some(Rejection { reason, detail });
    if message.consumer.as_str() == CONSUMER {
        return refused(
            Reason::BadConsumer,
            format!(
                "the consumer `{CONSUMER}` gets operational events alone; name one of your own"
            ),
        );
    }
    if message.event_type.as_str().starts_with(PREFIX) {
        return refused(
            Reason::BadEventType,
            format!("event types below `{PREFIX}` are Hooklane's own; name one of your own"),
        );
    }
    None
}

/// Something that an operator is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    id: Uuid,
    event_type: &'static str,
    /// What may be noticed twice has a key, and is told once.
    key: Option<String>,
    /// Whom it is about.
    consumer: String,
    payload: String,
}

/// A change of an endpoint's state.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Whose it is.
    pub consumer: &'a str,
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// Why: a reason of health, or `manual`.
    pub reason: &'a str,
    /// The failures that led to it, or that have ended.
    pub run: Option<Run>,
    /// When it happened.
    pub at: DateTime<Utc>,
}

/// A delivery that failed.
#[derive(Debug, Clone)]
pub struct Failed {
    /// Which.
    pub key: DeliveryKey,
    /// Whose endpoint it is.
    pub consumer: String,
    /// The series that ended, from 1.
    pub series: i32,
    /// Attempts made, in all series.
    pub attempts: i32,
    /// Why it failed, as the ledger names it.
    pub reason: String,
    /// The last answer's status code.
    pub last_status: Option<i16>,
    /// The last attempt's error class.
    pub last_error: Option<String>,
    /// When it happened.
    pub at: DateTime<Utc>,
}

#[derive(Serialize)]
struct Envelope<T> {
    r#type: &'static str,
    timestamp: String,
    data: T,
}

#[derive(Serialize)]
struct EndpointData<'a> {
    endpoint: String,
    consumer: &'a str,
    state: &'static str,
    previous_state: &'static str,
    reason: &'a str,
    consecutive_failures: u32,
    failing_since: Option<String>,
}

#[derive(Serialize)]
struct DeliveryData<'a> {
    message: String,
    endpoint: String,
    consumer: &'a str,
    accepted_at: String,
    series: i32,
    attempts: i32,
    reason: &'a str,
    last_status: Option<i16>,
    last_error: Option<&'a str>,
}

impl Event {
    /// An endpoint's state has changed.
    #[must_use]
    pub fn changed(change: &Change<'_>) -> Self {
        let Change {
            endpoint,
            consumer,
            from,
            to,
            reason,
            run,
            at,
        } = *change;
        let event_type = match to {
            State::Failing => "hooklane.endpoint.failing",
            State::Active if from == State::Failing => "hooklane.endpoint.recovered",
            State::Active => "hooklane.endpoint.resumed",
            State::Paused => "hooklane.endpoint.paused",
            State::Disabled => "hooklane.endpoint.disabled",
            State::Deleted => "hooklane.endpoint.deleted",
        };
        let data = EndpointData {
            endpoint: endpoint.to_string(),
            consumer,
            state: to.as_str(),
            previous_state: from.as_str(),
            reason,
            consecutive_failures: run.map_or(0, |run| run.failures),
            failing_since: run.map(|run| time(run.since)),
        };
        Self::new(event_type, None, consumer, at, data)
    }

    /// A delivery is out of retries, or past its deadline. Told once for each series.
    #[must_use]
    pub fn exhausted(failed: &Failed) -> Self {
        Self::failed("hooklane.delivery.exhausted", "exhausted", failed)
    }

    /// A failed delivery is in the dead letters. Told once for each series.
    #[must_use]
    pub fn dead_lettered(failed: &Failed) -> Self {
        Self::failed("hooklane.delivery.dead_lettered", "dead_lettered", failed)
    }

    fn failed(event_type: &'static str, word: &str, failed: &Failed) -> Self {
        let Failed {
            key,
            consumer,
            series,
            attempts,
            reason,
            last_status,
            last_error,
            at,
        } = failed;
        let DeliveryKey {
            accepted_at,
            message,
            endpoint,
        } = key;
        let data = DeliveryData {
            message: message.to_string(),
            endpoint: endpoint.to_string(),
            consumer,
            accepted_at: time(*accepted_at),
            series: *series,
            attempts: *attempts,
            reason,
            last_status: *last_status,
            last_error: last_error.as_deref(),
        };
        let key = format!("{word}:{message}:{endpoint}:{series}");
        Self::new(event_type, Some(key), consumer, *at, data)
    }

    fn new(
        event_type: &'static str,
        key: Option<String>,
        consumer: &str,
        at: DateTime<Utc>,
        data: impl Serialize,
    ) -> Self {
        let envelope = Envelope {
            r#type: event_type,
            timestamp: time(at),
            data,
        };
        Self {
            id: MessageId::generate().uuid(),
            event_type,
            key,
            consumer: consumer.to_owned(),
            // Strings and numbers always have a JSON form.
            payload: serde_json::to_string(&envelope).unwrap_or_default(),
        }
    }
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Writes events, within the transaction of what they tell of. Those about the built-in consumer
/// are left out, and those told before.
pub(crate) async fn write(conn: &mut PgConnection, events: &[Event]) -> Result<(), Error> {
    let mut events: Vec<&Event> = events
        .iter()
        .filter(|event| event.consumer != CONSUMER)
        .collect();
    if events.is_empty() {
        return Ok(());
    }
    // Keys are taken in one order by everybody, so nobody waits in a circle.
    events.sort_by(|a, b| a.key.cmp(&b.key));
    let ids: Vec<Uuid> = events.iter().map(|event| event.id).collect();
    let types: Vec<&str> = events.iter().map(|event| event.event_type).collect();
    let keys: Vec<Option<&str>> = events.iter().map(|event| event.key.as_deref()).collect();
    let payloads: Vec<&str> = events.iter().map(|event| event.payload.as_str()).collect();
    sqlx::query!(
        "INSERT INTO hooklane.operational_events (id, event_type, idempotency_key, payload)
         SELECT id, type, key, payload::json
           FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS u (id, type, key, payload)
         ON CONFLICT (idempotency_key) DO NOTHING",
        &ids,
        &types as &[&str],
        &keys as &[Option<&str>],
        &payloads as &[&str],
    )
    .execute(conn)
    .await
    .map_err(Error::doing("writing operational events"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use hooklane_proto::token::{ConsumerId, EventType};

    use super::*;

    fn message(origin: Origin, consumer: &str, event_type: &str) -> NewMessage {
        NewMessage {
            id: None,
            consumer: ConsumerId::new(consumer).unwrap(),
            event_type: EventType::new(event_type).unwrap(),
            content_type: "application/json".to_owned(),
            payload: Bytes::new(),
            key: None,
            only: None,
            origin,
            trace: None,
        }
    }

    #[test]
    fn only_our_own_source_may_write_to_the_built_in_consumer() {
        let own = Origin::Outbox(Arc::from(SOURCE));
        let others = [
            Origin::Intake,
            Origin::Api,
            Origin::Outbox(Arc::from("main")),
        ];
        for origin in others {
            let to_us = message(origin.clone(), CONSUMER, "invoice.paid");
            assert_eq!(refusal(&to_us).unwrap().reason, Reason::BadConsumer);
            let like_us = message(origin.clone(), "acme", "hooklane.endpoint.failing");
            assert_eq!(refusal(&like_us).unwrap().reason, Reason::BadEventType);
            let theirs = message(origin, "acme", "hooklanes.invoice");
            assert_eq!(refusal(&theirs), None);
        }
        let ours = message(own, CONSUMER, "hooklane.endpoint.failing");
        assert_eq!(refusal(&ours), None);
    }

    #[test]
    fn an_event_says_what_happened_and_is_valid_everywhere() {
        let change = Change {
            endpoint: EndpointId::for_test(1),
            consumer: "acme",
            from: State::Failing,
            to: State::Disabled,
            reason: "gone",
            run: Some(Run {
                failures: 7,
                since: DateTime::UNIX_EPOCH,
                last: DateTime::UNIX_EPOCH,
            }),
            at: DateTime::UNIX_EPOCH,
        };
        let event = Event::changed(&change);
        let told: serde_json::Value = serde_json::from_str(&event.payload).unwrap();
        assert_eq!(
            told,
            serde_json::json!({
                "type": "hooklane.endpoint.disabled",
                "timestamp": "1970-01-01T00:00:00.000000Z",
                "data": {
                    "endpoint": EndpointId::for_test(1).to_string(),
                    "consumer": "acme",
                    "state": "disabled",
                    "previous_state": "failing",
                    "reason": "gone",
                    "consecutive_failures": 7,
                    "failing_since": "1970-01-01T00:00:00.000000Z",
                }
            })
        );
        assert!(EventType::new(event.event_type).is_ok());
    }
}
