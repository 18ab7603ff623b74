//! Why a test delivery was not attempted in time, as far as the ledger and the broker know it.
//!
//! What is sure comes first: that the delivery has ended, or that its endpoint takes none. Then what
//! holds it back, from the endpoint to the broker; at last, that it is on its way.

use std::num::NonZeroU16;
use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::clock;
use hooklane_core::rules::merge::DeliveryStatus;
use hooklane_core::rules::partition::partition;
use hooklane_nats::{Client, Leases};
use hooklane_proto::route::State;
use hooklane_proto::token::ConsumerId;
use hooklane_store::delivery::Delivery;
use hooklane_store::endpoint::Endpoint;
use serde::Serialize;
use utoipa::ToSchema;

/// How long the broker may take to tell who delivers.
const BROKER_WITHIN: Duration = Duration::from_secs(2);

/// Why a delivery was not attempted in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Waiting {
    /// What it waits for, or why it waits no more.
    reason: Reason,
    /// The same in words.
    detail: String,
    /// When it is due, where that is known.
    until: Option<DateTime<Utc>>,
}

/// What a delivery waits for, or why it waits no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Reason {
    /// The endpoint was paused.
    Paused,
    /// The endpoint was disabled.
    Disabled,
    /// The endpoint was deleted.
    Deleted,
    /// Somebody cancelled the delivery.
    Cancelled,
    /// It failed without an attempt.
    Failed,
    /// The endpoint asked to be left alone for a while.
    Held,
    /// It is in the ledger until its endpoint's lane has room.
    Parked,
    /// The lanes don't have the endpoint's settings yet.
    Unrouted,
    /// The broker does not answer.
    NoBroker,
    /// No dispatcher answers for the endpoint.
    NoDispatcher,
    /// It is with a dispatcher, or what became of it is still to be written down.
    OnItsWay,
}

/// Who delivers what is a consumer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dispatcher {
    /// Somebody.
    Answers,
    /// Nobody.
    Missing,
    /// Nobody can tell.
    Unknown,
}

impl Dispatcher {
    /// Asks the broker.
    pub(super) async fn of(client: &Client, consumer: &ConsumerId) -> Self {
        let partitions = NonZeroU16::new(client.partitions()).unwrap_or(NonZeroU16::MIN);
        let theirs = partition(partitions, consumer.as_str());
        let leases = Leases::new(client);
        match tokio::time::timeout(BROKER_WITHIN, leases.list()).await {
            Ok(Ok(owned)) if owned.iter().any(|owner| owner.partition == theirs) => Self::Answers,
            Ok(Ok(_)) => Self::Missing,
            Ok(Err(_)) | Err(_) => Self::Unknown,
        }
    }
}

impl Waiting {
    /// Why `delivery` to `endpoint` has no attempt. Both as they are now.
    pub(super) fn why(delivery: &Delivery, endpoint: &Endpoint, dispatcher: Dispatcher) -> Self {
        Self::at(clock::now(), delivery, endpoint, dispatcher)
    }

    fn at(
        now: DateTime<Utc>,
        delivery: &Delivery,
        endpoint: &Endpoint,
        dispatcher: Dispatcher,
    ) -> Self {
        let because = |reason, detail: &str| Self {
            reason,
            detail: detail.to_owned(),
            until: None,
        };
        match endpoint.state {
            State::Paused => {
                return because(
                    Reason::Paused,
                    "the endpoint was paused meanwhile; resume it",
                );
            }
            State::Disabled => {
                let detail = "the endpoint was disabled meanwhile; resume it once it works";
                return because(Reason::Disabled, detail);
            }
            State::Deleted => {
                return because(Reason::Deleted, "the endpoint was deleted meanwhile");
            }
            State::Active | State::Failing => {}
        }
        let stalled = match delivery.status {
            DeliveryStatus::Skipped => {
                let detail = "the endpoint was paused or disabled meanwhile; send it again";
                return because(Reason::Paused, detail);
            }
            DeliveryStatus::Cancelled => {
                return because(Reason::Cancelled, "somebody cancelled the delivery");
            }
            DeliveryStatus::Failed => {
                let reason = delivery.failure_reason.as_deref().unwrap_or("unknown");
                let detail = format!("it failed without an attempt, with the reason `{reason}`");
                return because(Reason::Failed, &detail);
            }
            DeliveryStatus::Stalled => true,
            DeliveryStatus::Received | DeliveryStatus::Sent => false,
        };
        if let Some(until) = endpoint.held_until.filter(|&until| until > now) {
            let detail = "the endpoint asked to be left alone for a while (`retry-after`)";
            return Self {
                until: Some(until),
                ..because(Reason::Held, detail)
            };
        }
        match dispatcher {
            _ if !endpoint.routed => because(
                Reason::Unrouted,
                "the lanes don't have the endpoint's settings yet: no relay runs, or it can't reach \
                 the broker",
            ),
            Dispatcher::Unknown => because(
                Reason::NoBroker,
                "the broker does not answer; what is in the ledger is delivered once it does",
            ),
            Dispatcher::Missing => because(
                Reason::NoDispatcher,
                "no dispatcher answers for the endpoint: run one, with `hooklane up` or `hooklane \
                 dispatch`",
            ),
            Dispatcher::Answers if stalled => Self {
                until: delivery.next_attempt_at,
                ..because(
                    Reason::Parked,
                    "the endpoint's lane has no room for it: it waits in the ledger behind others, or \
                     for the endpoint's rate",
                )
            },
            Dispatcher::Answers => because(
                Reason::OnItsWay,
                "it is on its way: in an attempt that takes long, behind others in the endpoint's \
                 lane, or not written down yet",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use hooklane_core::rules::subscription::Filter;
    use hooklane_proto::delivery::DeliveryKey;
    use hooklane_proto::id::{EndpointId, MessageId};
    use hooklane_store::endpoint::Rate;

    use super::*;

    fn now() -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(20_000)
    }

    fn endpoint(state: State) -> Endpoint {
        Endpoint {
            id: EndpointId::for_test(1),
            consumer: ConsumerId::new("acme").unwrap(),
            url: "https://example.com/".to_owned(),
            description: String::new(),
            filter: Filter::parse(&["*"]).unwrap(),
            rate: Rate::Inherited,
            burst: None,
            concurrency: 16,
            timeout: Duration::from_secs(15),
            has_headers: false,
            state,
            auto_disable: None,
            consecutive_failures: 0,
            failing_since: None,
            failures_24h: 0,
            held_until: None,
            version: 1,
            routed: true,
            created_at: now(),
            updated_at: now(),
        }
    }

    fn delivery(status: DeliveryStatus) -> Delivery {
        Delivery {
            key: DeliveryKey {
                accepted_at: now(),
                message: MessageId::for_test(1),
                endpoint: EndpointId::for_test(1),
            },
            consumer: ConsumerId::new("acme").unwrap(),
            status,
            series: 1,
            drive: 1,
            attempts: 0,
            counted: 0,
            next_attempt_at: (!status.is_terminal()).then(now),
            deadline: now(),
            faults: 0,
            last_status: None,
            last_error: None,
            failure_reason: None,
            settled_at: None,
        }
    }

    #[test]
    fn what_is_sure_goes_before_what_may_be() {
        use DeliveryStatus::{Cancelled, Failed, Received, Skipped, Stalled};
        use Dispatcher::{Answers, Missing, Unknown};
        for (state, status, dispatcher, expected) in [
            (State::Paused, Received, Missing, Reason::Paused),
            (State::Disabled, Stalled, Answers, Reason::Disabled),
            (State::Deleted, Cancelled, Answers, Reason::Deleted),
            (State::Active, Skipped, Answers, Reason::Paused),
            (State::Active, Cancelled, Missing, Reason::Cancelled),
            (State::Failing, Failed, Answers, Reason::Failed),
            (State::Active, Received, Unknown, Reason::NoBroker),
            (State::Active, Stalled, Missing, Reason::NoDispatcher),
            (State::Failing, Stalled, Answers, Reason::Parked),
            (State::Active, Received, Answers, Reason::OnItsWay),
        ] {
            let waiting = Waiting::at(now(), &delivery(status), &endpoint(state), dispatcher);
            assert_eq!(
                waiting.reason, expected,
                "{state:?} {status:?} {dispatcher:?}"
            );
            let due = (expected == Reason::Parked).then(now);
            assert_eq!(waiting.until, due);
        }
    }

    #[test]
    fn an_endpoint_that_asked_for_a_pause_is_waited_for_and_no_longer() {
        let mut held = endpoint(State::Failing);
        let received = delivery(DeliveryStatus::Received);
        for (until, expected) in [
            (now() + TimeDelta::seconds(1), Reason::Held),
            (now(), Reason::NoDispatcher),
        ] {
            held.held_until = Some(until);
            let waiting = Waiting::at(now(), &received, &held, Dispatcher::Missing);
            assert_eq!(waiting.reason, expected);
        }
    }

    #[test]
    fn lanes_without_the_settings_are_told_of_first() {
        let mut unrouted = endpoint(State::Active);
        unrouted.routed = false;
        for dispatcher in [
            Dispatcher::Answers,
            Dispatcher::Missing,
            Dispatcher::Unknown,
        ] {
            let received = delivery(DeliveryStatus::Received);
            let waiting = Waiting::at(now(), &received, &unrouted, dispatcher);
            assert_eq!(waiting.reason, Reason::Unrouted);
        }
    }
}
