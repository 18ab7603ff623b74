//! Acceptance: what gets in, what does not, and for whom.

use std::num::NonZeroU16;
use std::time::Duration;

use bytes::Bytes;
use hooklane_core::rules::partition::partition;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_proto::trace::TraceContext;
use hooklane_store::accept::{
    Accepted, MAX_PAYLOAD, NewMessage, Origin, Outcome, Reason, Receipt, Settings,
};
use sqlx::{Connection as _, PgConnection};

use crate::ledger::Ledger;

pub(crate) fn settings() -> Settings {
    Settings::new(NonZeroU16::new(16).unwrap())
}

pub(crate) fn message(consumer: &str, event_type: &str, payload: &str) -> NewMessage {
    NewMessage {
        id: None,
        consumer: ConsumerId::new(consumer).unwrap(),
        event_type: EventType::new(event_type).unwrap(),
        content_type: "application/json".to_owned(),
        payload: Bytes::from(payload.to_owned()),
        key: None,
        only: None,
        origin: Origin::Api,
        trace: None,
    }
}

fn keyed(key: &str, payload: &str) -> NewMessage {
    NewMessage {
        key: Some(key.to_owned()),
        ..message("acme", "invoice.paid", payload)
    }
}

/// Consumers `acme` and `other`, and two event types.
pub(crate) async fn names(ledger: &Ledger) {
    ledger
        .sql(
            "INSERT INTO hooklane.consumers (id) VALUES ('acme'), ('other');
             INSERT INTO hooklane.event_types (name) VALUES ('invoice.paid'), ('user.created')",
        )
        .await;
}

pub(crate) async fn endpoint(
    ledger: &Ledger,
    n: u64,
    consumer: &str,
    filters: &str,
    state: &str,
) -> EndpointId {
    let id = EndpointId::for_test(n);
    ledger
        .sql(&format!(
            "INSERT INTO hooklane.endpoints (id, consumer_id, url, filters, state)
             VALUES ('{}', '{consumer}', 'https://example.com/', '{{{filters}}}', '{state}')",
            id.uuid()
        ))
        .await;
    id
}

async fn accept(ledger: &Ledger, batch: &[NewMessage]) -> Accepted {
    ledger.store.accept(&settings(), batch).await.unwrap()
}

fn receipt(outcome: &Outcome) -> Receipt {
    match outcome {
        Outcome::Accepted(receipt) | Outcome::Repeat(receipt) => *receipt,
        Outcome::Rejected(rejection) => panic!("rejected: {rejection:?}"),
    }
}

fn reason(outcome: &Outcome) -> Reason {
    match outcome {
        Outcome::Rejected(rejection) => rejection.reason,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test]
async fn the_set_of_deliveries_is_who_is_subscribed_at_this_moment() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let exact = endpoint(&ledger, 1, "acme", "invoice.paid", "active").await;
    let prefix = endpoint(&ledger, 2, "acme", "invoice.*", "failing").await;
    let all = endpoint(&ledger, 3, "acme", "*", "active").await;
    endpoint(&ledger, 4, "acme", "user.created,invoice", "active").await;
    endpoint(&ledger, 5, "acme", "*", "deleted").await;
    endpoint(&ledger, 6, "other", "*", "active").await;
    let paused = endpoint(&ledger, 7, "acme", "*", "paused").await;
    let disabled = endpoint(&ledger, 8, "acme", "invoice.*", "disabled").await;

    let accepted = accept(&ledger, &[message("acme", "invoice.paid", "{}")]).await;

    let [event] = &accepted.events[..] else {
        panic!("one event: {accepted:?}")
    };
    let mut targets: Vec<EndpointId> = event.targets.iter().map(|t| t.endpoint).collect();
    targets.sort_unstable();
    assert_eq!(targets, [exact, prefix, all]);
    assert_eq!(event.message, receipt(&accepted.outcomes[0]).message);
    assert!(accepted.publish_until.is_some());
    let rows = ledger
        .sql(
            "SELECT endpoint_id, status, series, drive, settled, failure_reason,
                    next_attempt_at = accepted_at, deadline = accepted_at + interval '48 h',
                    not_after = driven_at + interval '20 s', driven_at >= accepted_at, partition
             FROM hooklane.deliveries ORDER BY endpoint_id",
        )
        .await;
    let acme = partition(settings().partitions, "acme");
    let row = |id: EndpointId, end: &str| format!("{}|{end}|t|t|t|t|{acme}", id.uuid());
    let expected = [
        row(exact, "received|1|1|0|"),
        row(prefix, "received|1|1|0|"),
        row(all, "received|1|1|0|"),
        row(paused, "skipped|1|1|1|paused"),
        row(disabled, "skipped|1|1|1|disabled"),
    ];
    assert_eq!(rows.lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn each_event_of_a_batch_goes_to_its_own_subscribers() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let invoices = endpoint(&ledger, 1, "acme", "invoice.*", "active").await;
    let users = endpoint(&ledger, 2, "acme", "user.created", "active").await;
    let others = endpoint(&ledger, 3, "other", "*", "active").await;
    let batch = [
        message("acme", "invoice.paid", "1"),
        message("acme", "user.created", "2"),
        message("other", "user.created", "3"),
    ];
    let accepted = accept(&ledger, &batch).await;
    let targets: Vec<Vec<EndpointId>> = accepted
        .events
        .iter()
        .map(|event| event.targets.iter().map(|t| t.endpoint).collect())
        .collect();
    assert_eq!(targets, [[invoices], [users], [others]]);
}

#[tokio::test]
async fn an_event_nobody_wants_is_accepted_and_published_all_the_same() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let accepted = accept(&ledger, &[message("acme", "invoice.paid", "{}")]).await;
    assert_eq!(accepted.events.len(), 1);
    assert!(accepted.events[0].targets.is_empty());
    assert_eq!(
        ledger.sql("SELECT count(*) FROM hooklane.messages").await,
        "1"
    );
}

#[tokio::test]
async fn the_bytes_the_content_type_and_the_trace_are_kept() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let trace = TraceContext::parse(
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        Some("a=b"),
    );
    let mut new = message("acme", "invoice.paid", "");
    new.payload = Bytes::from_static(b"\x00\xff{\"a\":1,\"a\":2}\r\n");
    new.content_type = "application/x-thing; v=1".to_owned();
    new.trace = trace.clone();
    let accepted = accept(&ledger, std::slice::from_ref(&new)).await;
    assert_eq!(accepted.events[0].payload, new.payload);
    assert_eq!(accepted.events[0].trace, trace);
    let row = ledger
        .sql("SELECT encode(payload, 'hex'), content_type, source, traceparent, tracestate FROM hooklane.messages")
        .await;
    let hex: String = new.payload.iter().map(|b| format!("{b:02x}")).collect();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert_eq!(
        row,
        format!("{hex}|application/x-thing; v=1|api|{parent}|a=b")
    );
}

#[tokio::test]
async fn a_repetition_gets_the_first_receipt_and_is_not_published() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let first = accept(&ledger, &[keyed("order-1", "{}")]).await;
    let again = accept(&ledger, &[keyed("order-1", "{}")]).await;
    assert_eq!(
        again.outcomes,
        [Outcome::Repeat(receipt(&first.outcomes[0]))]
    );
    assert!(again.events.is_empty() && again.publish_until.is_none());
}

#[tokio::test]
async fn a_key_stands_for_its_content_and_for_one_consumer() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let first = accept(&ledger, &[keyed("order-1", "{}")]).await;
    let mut other_type = keyed("order-1", "{}");
    other_type.content_type = "text/plain".to_owned();
    let mut other_event = keyed("order-1", "{}");
    other_event.event_type = EventType::new("user.created").unwrap();
    let mut elsewhere = keyed("order-1", "{\"x\":1}");
    elsewhere.consumer = ConsumerId::new("other").unwrap();
    let batch = [keyed("order-1", "[]"), other_type, other_event, elsewhere];
    let then = accept(&ledger, &batch).await;
    for outcome in &then.outcomes[..3] {
        assert_eq!(reason(outcome), Reason::Conflict);
    }
    assert!(matches!(then.outcomes[3], Outcome::Accepted(_)));
    let message = receipt(&first.outcomes[0]).message.to_string();
    let Outcome::Rejected(rejection) = &then.outcomes[0] else {
        unreachable!()
    };
    assert!(rejection.detail.contains(&message), "{}", rejection.detail);
}

#[tokio::test]
async fn doubles_within_a_batch_are_told_apart() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    endpoint(&ledger, 1, "acme", "*", "active").await;
    let id = MessageId::for_test(1);
    let same_id = |key: &str| NewMessage {
        id: Some(id),
        ..keyed(key, "{}")
    };
    let batch = [
        keyed("a", "1"),
        keyed("a", "1"),
        keyed("a", "2"),
        same_id("b"),
        same_id("c"),
    ];
    let accepted = accept(&ledger, &batch).await;
    let first = receipt(&accepted.outcomes[0]);
    assert_eq!(accepted.outcomes[1], Outcome::Repeat(first));
    assert_eq!(reason(&accepted.outcomes[2]), Reason::Conflict);
    assert_eq!(receipt(&accepted.outcomes[3]).message, id);
    assert_eq!(reason(&accepted.outcomes[4]), Reason::Conflict);
    assert_eq!(accepted.events.len(), 2);
    assert_eq!(
        ledger.sql("SELECT count(*) FROM hooklane.deliveries").await,
        "2"
    );

    // The doubles of a key that was taken before.
    let again = accept(&ledger, &batch[..3]).await;
    assert_eq!(
        again.outcomes[..2],
        [Outcome::Repeat(first), Outcome::Repeat(first)]
    );
    assert_eq!(reason(&again.outcomes[2]), Reason::Conflict);
}

#[tokio::test]
async fn without_a_key_the_id_is_the_key_and_without_either_there_is_none() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let with_id = NewMessage {
        id: Some(MessageId::for_test(1)),
        ..message("acme", "invoice.paid", "{}")
    };
    let first = accept(&ledger, std::slice::from_ref(&with_id)).await;
    let again = accept(&ledger, &[with_id]).await;
    assert_eq!(
        again.outcomes,
        [Outcome::Repeat(receipt(&first.outcomes[0]))]
    );
    let bare = message("acme", "invoice.paid", "{}");
    let twice = accept(&ledger, &[bare.clone(), bare]).await;
    assert_eq!(twice.events.len(), 2);
}

#[tokio::test]
async fn sixty_four_accepts_with_one_key_make_one_message() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    endpoint(&ledger, 1, "acme", "*", "active").await;
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let store = ledger.store.clone();
            tokio::spawn(async move {
                // Half of them say something else.
                let payload = if n % 2 == 0 { "{}" } else { "[]" };
                store.accept(&settings(), &[keyed("once", payload)]).await
            })
        })
        .collect();
    let (mut fresh, mut repeats, mut conflicts) = (vec![], vec![], 0);
    for task in tasks {
        let accepted = task.await.unwrap().unwrap();
        match &accepted.outcomes[0] {
            Outcome::Accepted(receipt) => fresh.push(*receipt),
            Outcome::Repeat(receipt) => repeats.push(*receipt),
            Outcome::Rejected(rejection) => {
                assert_eq!(rejection.reason, Reason::Conflict);
                conflicts += 1;
            }
        }
    }
    assert_eq!((fresh.len(), repeats.len(), conflicts), (1, 31, 32));
    assert!(repeats.iter().all(|receipt| *receipt == fresh[0]));
    assert_eq!(
        ledger.sql("SELECT count(*) FROM hooklane.messages").await,
        "1"
    );
    assert_eq!(
        ledger.sql("SELECT count(*) FROM hooklane.deliveries").await,
        "1"
    );
}

#[tokio::test]
async fn batches_with_common_keys_in_any_order_do_not_deadlock() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    let tasks: Vec<_> = (0..12)
        .map(|n| {
            let mut batch: Vec<_> = keys.iter().map(|key| keyed(key, "{}")).collect();
            batch.rotate_left(n * 3);
            if n % 2 == 0 {
                batch.reverse();
            }
            let store = ledger.store.clone();
            tokio::spawn(async move { store.accept(&settings(), &batch).await })
        })
        .collect();
    let mut events = 0;
    for task in tasks {
        events += task.await.unwrap().unwrap().events.len();
    }
    assert_eq!(events, 40);
    assert_eq!(
        ledger.sql("SELECT count(*) FROM hooklane.messages").await,
        "40"
    );
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(ledger.sql(deadlocks).await, "0");
}

#[tokio::test]
async fn what_cant_be_accepted_does_not_hold_back_its_neighbours() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let mut large = message("acme", "invoice.paid", "");
    large.payload = Bytes::from(vec![b' '; MAX_PAYLOAD + 1]);
    let mut exactly = message("acme", "invoice.paid", "");
    exactly.payload = Bytes::from(vec![b' '; MAX_PAYLOAD]);
    let mut bad_type = message("acme", "invoice.paid", "{}");
    bad_type.content_type = "text/plain\r\nX: y".to_owned();
    let unreadable = NewMessage {
        trace: Some(TraceContext {
            traceparent: "\0".to_owned(),
            tracestate: String::new(),
        }),
        ..message("acme", "invoice.paid", "{}")
    };
    let batch = [
        message("nobody", "invoice.paid", "{}"),
        message("acme", "nothing.known", "{}"),
        large,
        exactly,
        bad_type,
        keyed("", "{}"),
        keyed(&"é".repeat(256), "{}"),
        unreadable,
        keyed(&"é".repeat(255), "{}"),
    ];
    let mut outcomes = Vec::new();
    while outcomes.len() < batch.len() {
        outcomes.extend(accept(&ledger, &batch[outcomes.len()..]).await.outcomes);
    }
    let expected = [
        Some(Reason::UnknownConsumer),
        Some(Reason::UnknownEventType),
        Some(Reason::PayloadTooLarge),
        None,
        Some(Reason::BadContentType),
        Some(Reason::BadKey),
        Some(Reason::BadKey),
        Some(Reason::Refused),
        None,
    ];
    for (outcome, expected) in outcomes.iter().zip(expected) {
        match expected {
            Some(expected) => assert_eq!(reason(outcome), expected),
            None => assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_batch_ends_at_its_deliveries_and_one_message_always_fits() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    for n in 0..5 {
        endpoint(&ledger, n, "acme", "*", "active").await;
    }
    endpoint(&ledger, 9, "other", "*", "active").await;
    let mut settings = settings();
    settings.max_deliveries = 12;
    let batch = vec![message("acme", "invoice.paid", "{}"); 7];
    let accepted = ledger.store.accept(&settings, &batch).await.unwrap();
    assert_eq!(accepted.outcomes.len(), 2);
    assert_eq!(
        ledger.sql("SELECT count(*) FROM hooklane.deliveries").await,
        "10"
    );

    settings.max_deliveries = 2;
    let batch = [
        message("acme", "invoice.paid", "{}"),
        message("other", "invoice.paid", "{}"),
    ];
    let accepted = ledger.store.accept(&settings, &batch).await.unwrap();
    assert_eq!(accepted.outcomes.len(), 1);
    assert_eq!(accepted.events[0].targets.len(), 5);
    let accepted = ledger.store.accept(&settings, &batch[1..]).await.unwrap();
    assert_eq!(accepted.events[0].targets.len(), 1);
}

#[tokio::test]
async fn a_missing_day_partition_is_made() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let _ = accept(&ledger, &[message("acme", "invoice.paid", "{}")]).await;
    ledger
        .sql(
            "DO $$ DECLARE child text; BEGIN
               FOR child IN SELECT inhrelid::regclass::text FROM pg_inherits
                            WHERE inhparent IN ('hooklane.messages'::regclass,
                                                'hooklane.deliveries'::regclass)
               LOOP EXECUTE 'DROP TABLE ' || child; END LOOP; END $$",
        )
        .await;
    let _ = accept(&ledger, &[message("acme", "invoice.paid", "{}")]).await;
    assert_eq!(
        ledger.sql("SELECT count(*) FROM hooklane.messages").await,
        "1"
    );
}

#[tokio::test]
async fn a_batch_that_takes_too_long_is_halved() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let mut other = PgConnection::connect(ledger.database.url()).await.unwrap();
    let mut held = other.begin().await.unwrap();
    sqlx::query(
        "INSERT INTO hooklane.idempotency_keys VALUES ('acme', 'stuck', '', gen_random_uuid(), now())",
    )
    .execute(&mut *held)
    .await
    .unwrap();
    let mut settings = settings();
    settings.timeout = Duration::from_millis(300);
    let batch = [
        keyed("a", "{}"),
        keyed("b", "{}"),
        keyed("stuck", "{}"),
        keyed("c", "{}"),
    ];
    let accepted = ledger.store.accept(&settings, &batch).await.unwrap();
    assert_eq!(accepted.outcomes.len(), 2);
    let error = ledger
        .store
        .accept(&settings, &batch[2..])
        .await
        .unwrap_err();
    assert!(error.is_timeout() && error.is_transient(), "{error}");
    held.rollback().await.unwrap();
    let accepted = ledger.store.accept(&settings, &batch[2..]).await.unwrap();
    assert_eq!(accepted.events.len(), 2);
}

#[tokio::test]
async fn an_event_for_one_endpoint_goes_to_it_alone_whatever_it_wants() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let wants_others = endpoint(&ledger, 1, "acme", "user.created", "active").await;
    let all = endpoint(&ledger, 2, "acme", "*", "active").await;
    let paused = endpoint(&ledger, 3, "acme", "*", "paused").await;
    let to = |only| NewMessage {
        only: Some(only),
        ..message("acme", "invoice.paid", "{}")
    };
    let batch = [
        to(wants_others),
        message("acme", "invoice.paid", "{}"),
        to(paused),
    ];
    let accepted = accept(&ledger, &batch).await;
    let targets: Vec<Vec<EndpointId>> = accepted
        .events
        .iter()
        .map(|event| event.targets.iter().map(|t| t.endpoint).collect())
        .collect();
    assert_eq!(targets, [vec![wants_others], vec![all], vec![]]);
    let deliveries = "SELECT message_id, endpoint_id, status FROM hooklane.deliveries
                       ORDER BY endpoint_id, status DESC";
    let row = |at: usize, endpoint: EndpointId, status: &str| {
        let message = receipt(&accepted.outcomes[at]).message.uuid();
        format!("{message}|{}|{status}", endpoint.uuid())
    };
    let mut expected = [
        row(0, wants_others, "received"),
        row(1, all, "received"),
        row(1, paused, "skipped"),
        row(2, paused, "skipped"),
    ];
    let rows = ledger.sql(deliveries).await;
    let mut rows: Vec<&str> = rows.lines().collect();
    rows.sort_unstable();
    expected.sort_unstable();
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn an_event_for_an_endpoint_that_is_not_the_consumers_is_refused_alone() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let own = endpoint(&ledger, 1, "acme", "*", "active").await;
    let foreign = endpoint(&ledger, 2, "other", "*", "active").await;
    let deleted = endpoint(&ledger, 3, "acme", "*", "deleted").await;
    let to = |only| NewMessage {
        only: Some(only),
        ..message("acme", "invoice.paid", "{}")
    };
    let batch = [
        to(foreign),
        to(deleted),
        to(EndpointId::for_test(9)),
        to(own),
    ];
    let accepted = accept(&ledger, &batch).await;
    for outcome in &accepted.outcomes[..3] {
        assert_eq!(reason(outcome), Reason::UnknownEndpoint);
    }
    receipt(&accepted.outcomes[3]);
    let count = "SELECT count(*) FROM hooklane.messages";
    assert_eq!(ledger.sql(count).await, "1");
}

#[tokio::test]
async fn a_key_stands_for_the_one_endpoint_too() {
    let ledger = Ledger::new().await;
    names(&ledger).await;
    let (one, two) = (
        endpoint(&ledger, 1, "acme", "*", "active").await,
        endpoint(&ledger, 2, "acme", "*", "active").await,
    );
    let to = |only| NewMessage {
        only,
        ..keyed("k", "{}")
    };
    let first = accept(&ledger, &[to(Some(one)), to(Some(two)), to(None)]).await;
    let told = receipt(&first.outcomes[0]);
    for outcome in &first.outcomes[1..] {
        assert_eq!(reason(outcome), Reason::Conflict);
    }
    let again = accept(&ledger, &[to(Some(one))]).await;
    assert_eq!(again.outcomes, [Outcome::Repeat(told)]);
}
