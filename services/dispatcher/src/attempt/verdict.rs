//! What an attempt means: its record, and what the lane learns from it.

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_core::rules::outcome::{Class, ErrorClass};
use hooklane_core::rules::schedule::{Exhausted, Next, Schedule};
use hooklane_proto::delivery::Delivery;
use hooklane_proto::id::AttemptId;
use hooklane_proto::record::{Attempt, Drive, FailureReason, Record, Verdict};
use hooklane_proto::trace::TraceContext;

use super::answer::Answer;
use super::{Facts, Made};
use crate::lane::machine::End;

/// The record and the lesson of an attempt that has just ended.
pub(super) fn made(
    delivery: &Delivery,
    facts: Facts,
    schedule: &Schedule,
    trace: Option<TraceContext>,
) -> Made {
    let Facts {
        started_at,
        started,
        outcome,
        answer,
        detail,
    } = facts;
    let now = clock::now();
    let class = outcome.class();
    let hold = match class {
        Class::Throttled {
            retry_after: Some(wait),
        } if !wait.is_zero() => Some(wait.min(schedule.retry_after_cap)),
        _ => None,
    };
    let end = match (class, hold) {
        (Class::Success, _) => End::Success,
        (Class::Gone, _) => End::Gone,
        (Class::OwnFault, _) => End::Void,
        (_, Some(wait)) => End::Hold(wait),
        _ if outcome.error().is_some_and(ErrorClass::is_timeout) => End::Timeout,
        _ => End::Other,
    };
    let counted = delivery
        .counted
        .saturating_add(i32::from(class.is_counted()));
    let duration = i64::try_from(started.elapsed().as_micros()).unwrap_or(i64::MAX);
    let hold_until = hold
        .and_then(|wait| TimeDelta::from_std(wait).ok())
        .and_then(|wait| now.checked_add_signed(wait));
    let Answer { headers, body, .. } = answer;
    let record = Record::Attempt(Attempt {
        drive: drive(delivery),
        id: AttemptId::generate(),
        number: delivery.attempts.saturating_add(1),
        counted,
        started_at,
        duration_us: duration,
        status: outcome.status(),
        headers,
        body,
        error: outcome.error().map(|error| error.as_str().to_owned()),
        detail,
        verdict: verdict(delivery, class, counted, now, schedule),
        hold_until,
        trace,
    });
    Made { record, end }
}

/// The record of an attempt that nobody saw the end of: its lane failed, or it was dropped.
pub(crate) fn interrupted(
    delivery: &Delivery,
    started_at: DateTime<Utc>,
    why: &str,
    schedule: &Schedule,
) -> Record {
    let lasted = clock::now() - started_at;
    Record::Attempt(Attempt {
        drive: drive(delivery),
        id: AttemptId::generate(),
        number: delivery.attempts.saturating_add(1),
        counted: delivery.counted,
        started_at,
        duration_us: lasted.num_microseconds().unwrap_or(i64::MAX).max(0),
        status: None,
        headers: Vec::new(),
        body: Vec::new(),
        error: Some(ErrorClass::Interrupted.as_str().to_owned()),
        detail: Some(why.to_owned()),
        verdict: verdict(
            delivery,
            Class::OwnFault,
            delivery.counted,
            clock::now(),
            schedule,
        ),
        hold_until: None,
        trace: None,
    })
}

/// Which drive a delivery is.
pub(crate) fn drive(delivery: &Delivery) -> Drive {
    Drive {
        key: delivery.key,
        series: delivery.series,
        drive: delivery.drive,
    }
}

fn verdict(
    delivery: &Delivery,
    class: Class,
    counted: i32,
    now: DateTime<Utc>,
    schedule: &Schedule,
) -> Verdict {
    let failed = |reason| Verdict::Failed { reason };
    let next = match class {
        Class::Success => return Verdict::Sent,
        Class::Gone => return failed(FailureReason::Gone),
        Class::OwnFault => schedule.next_after_own_fault(now, delivery.deadline, rand::random()),
        Class::Throttled { .. } | Class::Unavailable { .. } | Class::Retry => schedule.next(
            u8::try_from(counted).unwrap_or(u8::MAX),
            now,
            delivery.deadline,
            class.retry_after(),
            rand::random(),
        ),
    };
    match next {
        Next::At(at) => Verdict::Retry {
            next_attempt_at: at,
        },
        Next::Exhausted(Exhausted::Attempts) => failed(FailureReason::Exhausted),
        Next::Exhausted(Exhausted::Deadline) => failed(FailureReason::Deadline),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use hooklane_core::rules::outcome::Outcome;
    use hooklane_proto::delivery::DeliveryKey;
    use hooklane_proto::id::{EndpointId, MessageId};
    use hooklane_proto::token::{ConsumerId, EventType};
    use tokio::time::Instant;

    use super::*;

    fn delivery(counted: i32) -> Delivery {
        let now = clock::now();
        Delivery {
            key: DeliveryKey {
                accepted_at: now,
                message: MessageId::for_test(1),
                endpoint: EndpointId::for_test(2),
            },
            consumer: ConsumerId::new("acme").unwrap(),
            event_type: EventType::new("invoice.paid").unwrap(),
            content_type: "application/json".to_owned(),
            series: 1,
            drive: 3,
            attempts: counted + 2,
            counted,
            endpoint_version: 1,
            due_at: now,
            deadline: now + TimeDelta::hours(48),
            not_after: now,
            trace: None,
            payload: Bytes::new(),
        }
    }

    async fn judge(delivery: &Delivery, outcome: Outcome) -> (Attempt, End) {
        let facts = Facts {
            started_at: clock::now(),
            started: Instant::now(),
            outcome,
            answer: Answer::default(),
            detail: None,
        };
        let made = made(delivery, facts, &Schedule::default(), None);
        match made.record {
            Record::Attempt(attempt) => (attempt, made.end),
            other => panic!("{other:?}"),
        }
    }

    fn wait(attempt: &Attempt) -> Duration {
        match attempt.verdict {
            Verdict::Retry { next_attempt_at } => {
                (next_attempt_at - attempt.started_at).to_std().unwrap()
            }
            ref other => panic!("{other:?}"),
        }
    }

    fn answered(status: u16, retry_after: Option<&str>) -> Outcome {
        Outcome::answered(status, retry_after.map(str::as_bytes), clock::now())
    }

    #[tokio::test(start_paused = true)]
    async fn second_failure_waits_five_minutes() {
        let (attempt, end) = judge(&delivery(1), answered(500, None)).await;
        assert_eq!((attempt.number, attempt.counted), (4, 2));
        let wait = wait(&attempt);
        assert!((300..361).contains(&wait.as_secs()), "{wait:?}");
        assert_eq!(end, End::Other);
    }

    #[tokio::test(start_paused = true)]
    async fn the_eighth_failure_is_the_last() {
        let (attempt, _) = judge(&delivery(7), answered(500, None)).await;
        let reason = FailureReason::Exhausted;
        assert_eq!(attempt.verdict, Verdict::Failed { reason });
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_is_planned_after_the_deadline() {
        let mut late = delivery(3);
        late.deadline = clock::now() + TimeDelta::minutes(10);
        let (attempt, _) = judge(&late, answered(500, None)).await;
        let reason = FailureReason::Deadline;
        assert_eq!(attempt.verdict, Verdict::Failed { reason });
    }

    #[tokio::test(start_paused = true)]
    async fn a_429_holds_the_lane_up_to_the_cap_and_a_503_does_not() {
        let (attempt, end) = judge(&delivery(0), answered(429, Some("7200"))).await;
        assert_eq!(end, End::Hold(Duration::from_secs(3600)));
        assert!(wait(&attempt) >= Duration::from_secs(3600));
        let held = attempt.hold_until.unwrap() - attempt.started_at;
        assert!(held.num_seconds() >= 3599);

        let (attempt, end) = judge(&delivery(0), answered(503, Some("60"))).await;
        assert_eq!((end, attempt.hold_until), (End::Other, None));
        assert!(wait(&attempt) >= Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_never_brings_an_attempt_closer() {
        let (attempt, end) = judge(&delivery(2), answered(429, Some("1"))).await;
        assert!(wait(&attempt) >= Duration::from_secs(30 * 60));
        assert_eq!(end, End::Hold(Duration::from_secs(1)));
        for garbage in ["-5", "soon", "", "12.5", "300s", "1e3", "0x10", "+5"] {
            let (attempt, end) = judge(&delivery(0), answered(429, Some(garbage))).await;
            assert_eq!((end, attempt.hold_until), (End::Other, None), "{garbage}");
            assert!(wait(&attempt) < Duration::from_secs(7), "{garbage}");
        }
        for status in [500, 502, 504, 408, 301] {
            let (attempt, _) = judge(&delivery(0), answered(status, Some("3000"))).await;
            assert!(wait(&attempt) < Duration::from_secs(7), "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_faults_are_not_counted() {
        for class in [ErrorClass::OwnFault, ErrorClass::Interrupted] {
            let (attempt, end) = judge(&delivery(7), Outcome::Failed(class)).await;
            assert_eq!((attempt.number, attempt.counted), (10, 7));
            assert_eq!(end, End::Void);
            let wait = wait(&attempt);
            assert!((5..7).contains(&wait.as_secs()), "{wait:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts_tell_the_lane_to_open_fewer() {
        for class in [ErrorClass::Timeout, ErrorClass::ConnectTimeout] {
            let (_, end) = judge(&delivery(0), Outcome::Failed(class)).await;
            assert_eq!(end, End::Timeout);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn success_and_410_end_the_delivery() {
        let (attempt, end) = judge(&delivery(0), answered(204, None)).await;
        assert_eq!((attempt.verdict, end), (Verdict::Sent, End::Success));
        let (attempt, end) = judge(&delivery(0), answered(410, None)).await;
        let reason = FailureReason::Gone;
        assert_eq!(
            (attempt.verdict, end),
            (Verdict::Failed { reason }, End::Gone)
        );
    }
}
