//! Claims, backlogs, deadlines.

use std::collections::HashSet;
use std::time::Duration;

use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_proto::delivery::{Delivery, DeliveryKey};
use hooklane_proto::id::EndpointId;
use hooklane_proto::record::{ParkReason, Record};
use hooklane_store::Store;
use hooklane_store::topup::{Claim, Room};

use crate::ledger::{Ledger, drive, parked, sent};

const NOT_AFTER: Duration = Duration::from_secs(20);

async fn claim(store: &Store, rooms: &[(EndpointId, u32)], max_bytes: u64) -> Vec<Delivery> {
    let rooms: Vec<Room> = rooms
        .iter()
        .map(|&(endpoint, room)| Room { endpoint, room })
        .collect();
    store
        .claim(Claim {
            rooms: &rooms,
            partition: 3,
            max_bytes,
            not_after: NOT_AFTER,
        })
        .await
        .unwrap()
}

/// Deliveries that wait in the ledger, due one a second up to now, the first the longest.
async fn stalled(ledger: &Ledger, n: u64, first: u64, endpoint: EndpointId) -> Vec<DeliveryKey> {
    let now = clock::now();
    let keys = ledger.deliveries(first..first + n, endpoint, now).await;
    let records: Vec<Record> = (0..)
        .zip(&keys)
        .map(|(i, key)| {
            let due = now - TimeDelta::seconds(i64::try_from(n).unwrap() - i);
            parked(drive(*key, 1), ParkReason::NoRoom, due)
        })
        .collect();
    ledger.store.apply(&records).await.unwrap();
    keys
}

#[tokio::test]
async fn the_longest_due_are_claimed_first_and_as_many_as_there_is_room_for() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let keys = stalled(&ledger, 5, 1, endpoint).await;
    ledger
        .sql("UPDATE hooklane.messages SET traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', payload = '{ \"a\": 1 }'")
        .await;
    let before = clock::now();
    let claimed = claim(&ledger.store, &[(endpoint, 2)], 1 << 20).await;
    let first: Vec<DeliveryKey> = claimed.iter().map(|delivery| delivery.key).collect();
    assert_eq!(first, keys[..2]);
    let delivery = &claimed[0];
    assert_eq!((delivery.series, delivery.drive), (1, 2));
    assert_eq!(delivery.payload, r#"{ "a": 1 }"#);
    assert_eq!(delivery.event_type.as_str(), "invoice.paid");
    assert!(delivery.trace.is_some());
    let left = delivery.not_after - before;
    assert!(
        (TimeDelta::seconds(20)..TimeDelta::seconds(40)).contains(&left),
        "{left}"
    );
    assert!(delivery.due_at < before);
    let rows = "SELECT string_agg(concat_ws(':', status, drive, settled, partition), ' ' ORDER BY message_id) FROM hooklane.deliveries";
    assert_eq!(
        ledger.sql(rows).await,
        "received:2:0:3 received:2:0:3 stalled:1:1:7 stalled:1:1:7 stalled:1:1:7"
    );
}

#[tokio::test]
async fn what_is_not_due_overdue_or_of_a_stopped_endpoint_is_not_claimed() {
    let ledger = Ledger::new().await;
    let (running, paused) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    stalled(&ledger, 3, 1, running).await;
    stalled(&ledger, 1, 4, paused).await;
    ledger
        .sql(&format!(
            "UPDATE hooklane.endpoints SET state = 'paused' WHERE id = '{}';
             UPDATE hooklane.deliveries SET next_attempt_at = now() + '1 h'::interval
              WHERE message_id = (SELECT min(message_id::text)::uuid FROM hooklane.deliveries);
             UPDATE hooklane.deliveries SET deadline = now() - '1 s'::interval
              WHERE message_id = (SELECT max(message_id::text)::uuid FROM hooklane.deliveries WHERE endpoint_id = '{}')",
            paused.uuid(),
            running.uuid()
        ))
        .await;
    let claimed = claim(&ledger.store, &[(running, 10), (paused, 10)], 1 << 20).await;
    assert_eq!(claimed.len(), 1);
    let due = ledger.store.due(None, 10).await.unwrap();
    assert!(due.iter().all(|due| due.endpoint == running), "{due:?}");
    assert_eq!(
        ledger.store.stopped_with_backlog(10).await.unwrap(),
        [paused]
    );
}

#[tokio::test]
async fn bytes_are_shared_by_turns_and_one_delivery_always_fits() {
    let ledger = Ledger::new().await;
    let (a, b) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    stalled(&ledger, 5, 1, a).await;
    stalled(&ledger, 5, 6, b).await;
    ledger
        .sql("UPDATE hooklane.messages SET payload = repeat('x', 100)::bytea")
        .await;
    let claimed = claim(&ledger.store, &[(a, 5), (b, 5)], 400).await;
    let of_a = claimed
        .iter()
        .filter(|delivery| delivery.key.endpoint == a)
        .count();
    assert_eq!((claimed.len(), of_a), (4, 2));
    assert_eq!(claim(&ledger.store, &[(a, 5), (b, 5)], 1).await.len(), 1);
}

#[tokio::test]
async fn an_exhausted_backlog_is_removed_and_another_is_set_to_the_truth() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    stalled(&ledger, 3, 1, endpoint).await;
    claim(&ledger.store, &[(endpoint, 2)], 1 << 20).await;
    let truth = "SELECT b.due_at = (SELECT min(next_attempt_at) FROM hooklane.deliveries WHERE status = 'stalled') FROM hooklane.backlogs b";
    assert_eq!(ledger.sql(truth).await, "t");
    claim(&ledger.store, &[(endpoint, 2)], 1 << 20).await;
    assert_eq!(
        ledger.sql("SELECT count(*) FROM hooklane.backlogs").await,
        "0"
    );
}

#[tokio::test]
async fn pages_of_due_endpoints_go_on_where_the_last_ended() {
    let ledger = Ledger::new().await;
    for n in 1..=5 {
        let endpoint = ledger.endpoint(n).await;
        stalled(&ledger, 1, n, endpoint).await;
    }
    let first = ledger.store.due(None, 3).await.unwrap();
    let second = ledger.store.due(first.last(), 3).await.unwrap();
    let all: HashSet<EndpointId> = first
        .iter()
        .chain(&second)
        .map(|due| due.endpoint)
        .collect();
    assert_eq!((first.len(), second.len(), all.len()), (3, 2, 5));
}

#[tokio::test]
async fn what_waits_past_its_deadline_fails() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    stalled(&ledger, 3, 1, endpoint).await;
    ledger
        .sql("UPDATE hooklane.deliveries SET deadline = now() - '1 s'::interval")
        .await;
    assert_eq!(ledger.store.fail_overdue(2).await.unwrap(), 2);
    assert_eq!(ledger.store.fail_overdue(2).await.unwrap(), 1);
    assert_eq!(ledger.store.fail_overdue(2).await.unwrap(), 0);
    let rows =
        "SELECT DISTINCT status, failure_reason, settled_at IS NOT NULL FROM hooklane.deliveries";
    assert_eq!(ledger.sql(rows).await, "failed|deadline|t");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_claimed_twice_by_many_at_once() {
    let ledger = Ledger::new().await;
    let mut rooms = Vec::new();
    for n in 1..=4 {
        let endpoint = ledger.endpoint(n).await;
        stalled(&ledger, 250, n * 1_000, endpoint).await;
        rooms.push((endpoint, 40));
    }
    let mut claims = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = ledger.another_store().await;
        let rooms = rooms.clone();
        claims.spawn(async move {
            let mut all = Vec::new();
            for _ in 0..12 {
                all.extend(claim(&store, &rooms, 1 << 20).await);
            }
            all
        });
    }
    let claimed = claims.join_all().await.concat();
    let distinct: HashSet<DeliveryKey> = claimed.iter().map(|delivery| delivery.key).collect();
    assert_eq!((claimed.len(), distinct.len()), (1_000, 1_000));
    assert!(claimed.iter().all(|delivery| delivery.drive == 2));
}

/// Recorders park what top-ups drive, over and over and at once. Whenever nobody is at work, a
/// backlog that is later than the truth would be work that nobody finds.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backlog_is_never_later_than_the_truth() {
    let ledger = Ledger::new().await;
    let mut endpoints = Vec::new();
    for n in 1..=3 {
        let endpoint = ledger.endpoint(n).await;
        stalled(&ledger, 30, n * 1_000, endpoint).await;
        endpoints.push(endpoint);
    }
    let late = "SELECT count(*) FROM (
            SELECT endpoint_id, min(next_attempt_at) AS due, min(accepted_at) AS accepted
              FROM hooklane.deliveries WHERE status = 'stalled' GROUP BY 1) t
        LEFT JOIN hooklane.backlogs b USING (endpoint_id)
        WHERE b.due_at IS NULL OR b.due_at > t.due OR b.accepted_from > t.accepted";
    for round in 0..10 {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let store = ledger.another_store().await;
            let endpoints = endpoints.clone();
            tasks.spawn(async move {
                let mut random = round + 7_u64;
                for _ in 0..10 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let room = u32::try_from(random >> 60).unwrap() + 1;
                    let rooms: Vec<_> = endpoints.iter().map(|id| (*id, room)).collect();
                    let claimed = claim(&store, &rooms, 1 << 20).await;
                    let back: Vec<Record> = claimed
                        .iter()
                        .map(|delivery| {
                            let mut drive = drive(delivery.key, delivery.drive);
                            drive.series = delivery.series;
                            parked(drive, ParkReason::NoRoom, delivery.due_at)
                        })
                        .collect();
                    store.apply(&back).await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(ledger.sql(late).await, "0", "round {round}");
    }
    let stalled = "SELECT count(*) FROM hooklane.deliveries WHERE status = 'stalled'";
    assert_eq!(ledger.sql(stalled).await, "90");
}

/// A claim holds the backlog of the later endpoint. Then that of the earlier one appears, and
/// somebody locks both, in the order that everybody takes: he waits for the claim, so the claim must
/// not touch what he holds.
#[tokio::test]
async fn a_backlog_that_appears_meanwhile_is_not_locked_out_of_order() {
    const BUDGET: Duration = Duration::from_secs(20);
    let waiting = |n: &'static str| {
        let waiters = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock'";
        (waiters, n)
    };
    let ledger = Ledger::new().await;
    let (earlier, later) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    stalled(&ledger, 1, 1, later).await;
    let (first, second) = (earlier.uuid(), later.uuid());
    assert!(first < second);
    // What a claim reads once it holds its backlogs is held back.
    let held = ledger
        .database
        .psql("BEGIN; LOCK TABLE hooklane.messages IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(120)");
    let sleeping = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let claiming = async {
        ledger.database.until(sleeping, "1", BUDGET).await.unwrap();
        claim(&ledger.store, &[(earlier, 1), (later, 1)], 1 << 20).await
    };
    let both = async {
        let (waiters, one) = waiting("1");
        ledger.database.until(waiters, one, BUDGET).await.unwrap();
        ledger
            .sql(&format!(
                "INSERT INTO hooklane.backlogs (endpoint_id, consumer_id, partition, due_at, accepted_from)
                 VALUES ('{first}', 'acme', 7, now(), now())"
            ))
            .await;
        let both = format!(
            "BEGIN;
             SELECT FROM hooklane.backlogs WHERE endpoint_id = '{first}' FOR UPDATE;
             SELECT FROM hooklane.backlogs WHERE endpoint_id = '{second}' FOR UPDATE;
             COMMIT;"
        );
        ledger.database.psql(&both).await
    };
    let release = async {
        let (waiters, two) = waiting("2");
        ledger.database.until(waiters, two, BUDGET).await.unwrap();
        ledger
            .sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event = 'PgSleep'",
            )
            .await;
    };
    let (_ended, claimed, both, ()) = tokio::join!(held, claiming, both, release);
    both.unwrap();
    assert_eq!(claimed.len(), 1);
}

#[tokio::test]
async fn a_claim_wins_over_the_record_of_the_drive_before() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let keys = stalled(&ledger, 1, 1, endpoint).await;
    claim(&ledger.store, &[(endpoint, 1)], 1 << 20).await;
    let again = parked(drive(keys[0], 1), ParkReason::Horizon, clock::now());
    ledger.store.apply(&[again]).await.unwrap();
    assert_eq!(
        ledger
            .sql("SELECT status, drive FROM hooklane.deliveries")
            .await,
        "received|2"
    );
    ledger
        .store
        .apply(&[sent(drive(keys[0], 1), 1, 1)])
        .await
        .unwrap();
    assert_eq!(
        ledger.sql("SELECT status FROM hooklane.deliveries").await,
        "sent"
    );
}
