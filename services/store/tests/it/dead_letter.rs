//! Dead letters in the ledger: which are to be put into `DLQ`, faults, listing, discarding, replay.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::record::{Drive, FailureReason, Record};
use hooklane_store::dead_letter::{
    Exhausted, Filter, Order, Outcome, Refusal, Series, Terms, Which,
};

use crate::ledger::{Ledger, drive, failed, retry, sent};

const TERMS: Terms = Terms {
    deadline: Duration::from_secs(48 * 3600),
    retention_days: 35,
};
const STATES: &str =
    "SELECT string_agg(status || ':' || series || ':' || faults, ' ' ORDER BY message_id)
                        FROM hooklane.deliveries";

fn series(key: DeliveryKey, series: i32) -> Series {
    Series { key, series }
}

impl Ledger {
    /// Failed deliveries, accepted now, one a second before the other, the first the longest ago.
    async fn dead(&self, count: u64) -> Vec<DeliveryKey> {
        let endpoint = self.endpoint(1).await;
        let keys = self.deliveries(1..count + 1, endpoint, clock::now()).await;
        let records: Vec<Record> = (1..)
            .zip(&keys)
            .map(|(n, key)| failed(drive(*key, 1), n, 1, FailureReason::Exhausted))
            .collect();
        self.store.apply(&records).await.unwrap();
        self.sql(&format!(
            "UPDATE hooklane.deliveries d SET settled_at = clock_timestamp() - make_interval(secs => {count} - n)
               FROM (SELECT message_id, row_number() OVER (ORDER BY message_id) AS n
                       FROM hooklane.deliveries) o
              WHERE o.message_id = d.message_id"
        ))
        .await;
        keys
    }

    async fn unfiled(
        &self,
        which: Which,
        limit: u32,
        bytes: u64,
    ) -> (usize, Option<DateTime<Utc>>) {
        let page = self.store.unfiled_dead_letters(which, limit, bytes).await;
        let page = page.unwrap();
        (page.letters.len(), page.at)
    }
}

#[tokio::test]
async fn what_failed_is_unfiled_until_it_is_noted_and_again_for_a_stream_made_later() {
    let ledger = Ledger::new().await;
    let keys = ledger.dead(3).await;
    let lots = 1 << 20;
    assert_eq!(ledger.unfiled(Which::New, 2, lots).await.0, 2);
    // One at the least, whatever its size.
    assert_eq!(ledger.unfiled(Which::New, 9, 1).await.0, 1);
    let (found, at) = ledger.unfiled(Which::New, 9, lots).await;
    let at = at.unwrap();
    assert_eq!(found, 3);
    let filed: Vec<_> = keys.iter().map(|key| (series(*key, 1), Some(7))).collect();
    let marked = ledger.store.mark_dead_lettered(&filed, at).await.unwrap();
    assert_eq!((marked.first, marked.again), (3, 0));
    // As another mover would, a moment earlier.
    let marked = ledger.store.mark_dead_lettered(&filed, at).await.unwrap();
    assert_eq!((marked.first, marked.again), (0, 0));
    let told = "SELECT count(*) FROM hooklane.operational_events
                 WHERE event_type = 'hooklane.delivery.dead_lettered'
                   AND payload->'data'->>'reason' = 'exhausted'";
    assert_eq!(ledger.sql(told).await, "3");
    assert_eq!(ledger.unfiled(Which::New, 9, lots).await.0, 0);

    let made = at + TimeDelta::microseconds(1);
    assert_eq!(ledger.unfiled(Which::FiledBefore(at), 9, lots).await.0, 0);
    assert_eq!(ledger.unfiled(Which::FiledBefore(made), 9, lots).await.0, 3);
    ledger.store.discard(&[series(keys[0], 1)]).await.unwrap();
    let (found, again) = ledger.unfiled(Which::FiledBefore(made), 9, lots).await;
    assert_eq!(found, 2);
    let marked = ledger
        .store
        .mark_dead_lettered(&filed, again.unwrap())
        .await;
    assert_eq!(marked.unwrap().again, 3);
    assert_eq!(ledger.sql(told).await, "3");
    assert_eq!(ledger.unfiled(Which::FiledBefore(made), 9, lots).await.0, 0);
}

#[tokio::test]
async fn an_exhausted_drive_is_one_fault_however_often_it_is_said() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let keys = ledger.deliveries(1..4, endpoint, clock::now()).await;
    ledger
        .sql(&format!(
            "UPDATE hooklane.deliveries SET faults = 4 WHERE message_id = '{}'",
            keys[1].message.uuid()
        ))
        .await;
    // The third is in another drive by now.
    let drives = [drive(keys[0], 1), drive(keys[1], 1), drive(keys[2], 9)];
    let exhausted = Exhausted {
        drives: &drives,
        pause: Duration::from_secs(60),
    };
    let done = ledger.store.fault_exhausted(exhausted).await.unwrap();
    assert_eq!((done.stalled, done.poisoned), (1, 1));
    let done = ledger.store.fault_exhausted(exhausted).await.unwrap();
    assert_eq!((done.stalled, done.poisoned), (0, 0));
    assert_eq!(
        ledger.sql(STATES).await,
        "stalled:1:1 failed:1:5 received:1:0"
    );
    let reason = "SELECT failure_reason FROM hooklane.deliveries WHERE status = 'failed' AND settled_at IS NOT NULL";
    assert_eq!(ledger.sql(reason).await, "poison");
    let backlog =
        "SELECT count(*) FROM hooklane.backlogs WHERE due_at > clock_timestamp() + '50 s'";
    assert_eq!(ledger.sql(backlog).await, "1");
    // What the lane has recorded after all wins.
    ledger
        .store
        .apply(&[sent(drive(keys[0], 1), 1, 1)])
        .await
        .unwrap();
    assert!(ledger.sql(STATES).await.starts_with("sent"));
}

#[tokio::test]
async fn listings_are_narrowed_and_paged_from_both_ends() {
    let ledger = Ledger::new().await;
    let keys = ledger.dead(5).await;
    let list = async |filter: &Filter, order, after, limit| {
        let page = ledger.store.dead_letters(filter, order, after, limit).await;
        let page = page.unwrap();
        let found: Vec<DeliveryKey> = page.items.iter().map(|l| l.series.key).collect();
        (found, page.next)
    };
    let all = Filter::default();
    let (oldest, _) = list(&all, Order::OldestFirst, None, 9).await;
    assert_eq!(oldest, keys);
    let (first, next) = list(&all, Order::NewestFirst, None, 3).await;
    assert_eq!(first, [keys[4], keys[3], keys[2]]);
    let (second, next) = list(&all, Order::NewestFirst, next, 3).await;
    assert_eq!((second, next), (vec![keys[1], keys[0]], None));

    let now = clock::now();
    for (filter, expected) in [
        (
            Filter {
                message: Some(keys[1].message),
                ..all.clone()
            },
            1,
        ),
        (
            Filter {
                endpoint: Some(keys[0].endpoint),
                ..all.clone()
            },
            5,
        ),
        (
            Filter {
                consumer: Some("acme".parse().unwrap()),
                ..all.clone()
            },
            5,
        ),
        (
            Filter {
                consumer: Some("other".parse().unwrap()),
                ..all.clone()
            },
            0,
        ),
        (
            Filter {
                event_type: Some("invoice.paid".parse().unwrap()),
                ..all.clone()
            },
            5,
        ),
        (
            Filter {
                event_type: Some("invoice".parse().unwrap()),
                ..all.clone()
            },
            0,
        ),
        (
            Filter {
                reason: Some("exhausted".to_owned()),
                ..all.clone()
            },
            5,
        ),
        (
            Filter {
                reason: Some("gone".to_owned()),
                ..all.clone()
            },
            0,
        ),
        (
            Filter {
                since: Some(now),
                ..all.clone()
            },
            0,
        ),
        (
            Filter {
                until: Some(now - TimeDelta::hours(1)),
                ..all.clone()
            },
            0,
        ),
    ] {
        let (found, _) = list(&filter, Order::NewestFirst, None, 9).await;
        assert_eq!(found.len(), expected, "{filter:?}");
    }
    ledger.store.discard(&[series(keys[2], 1)]).await.unwrap();
    let (left, _) = list(&all, Order::OldestFirst, None, 9).await;
    assert_eq!(left.len(), 4);
    let whole = [series(keys[3], 1), series(keys[0], 1), series(keys[0], 2)];
    let whole = ledger.store.whole_dead_letters(&whole).await.unwrap();
    let found: Vec<DeliveryKey> = whole.iter().map(|letter| letter.key).collect();
    assert_eq!(found, [keys[3], keys[0]]);
}

#[tokio::test]
async fn a_replay_opens_a_series_that_is_due_now_and_counts_anew() {
    let ledger = Ledger::new().await;
    let keys = ledger.dead(2).await;
    let filed = [(series(keys[0], 1), Some(4))];
    ledger
        .store
        .mark_dead_lettered(&filed, clock::now())
        .await
        .unwrap();
    let asked = [series(keys[1], 1), series(keys[0], 1)];
    let would = ledger.store.may_replay(&asked, TERMS).await.unwrap();
    assert!(would.iter().all(Outcome::is_ok));
    assert_eq!(ledger.sql(STATES).await, "failed:1:0 failed:1:0");

    let done = ledger.store.replay(&asked, TERMS).await.unwrap();
    assert_eq!(done[0], Ok(None));
    assert_eq!(done[1].unwrap().unwrap().sequence, 4);
    assert_eq!(ledger.sql(STATES).await, "stalled:2:0 stalled:2:0");
    let fresh = "SELECT count(*) FROM hooklane.deliveries d JOIN hooklane.backlogs b USING (endpoint_id)
                  WHERE d.counted = 0 AND d.attempt_count = 1 AND d.failure_reason IS NULL
                    AND d.dead_lettered_at IS NULL AND d.next_attempt_at <= clock_timestamp()
                    AND b.due_at <= d.next_attempt_at AND b.accepted_from <= d.accepted_at
                    AND d.deadline BETWEEN clock_timestamp() + '47 h' AND clock_timestamp() + '48 h'";
    assert_eq!(ledger.sql(fresh).await, "2");
    // Twice is once: it is under way, and it is another series.
    let again = ledger.store.replay(&asked[..1], TERMS).await.unwrap();
    assert_eq!(again, [Err(Refusal::Replayed)]);
    let again = ledger.store.replay(&[series(keys[0], 2)], TERMS).await;
    assert_eq!(again.unwrap(), [Err(Refusal::Open)]);
    // What the old series still has to say changes nothing.
    let late = retry(drive(keys[0], 1), 9, 8, clock::now());
    ledger.store.apply(&[late]).await.unwrap();
    assert_eq!(ledger.sql(STATES).await, "stalled:2:0 stalled:2:0");
    // The new one fails too: a dead letter again.
    let second = Drive {
        series: 2,
        ..drive(keys[0], 2)
    };
    let fails = failed(second, 10, 2, FailureReason::Gone);
    ledger.store.apply(&[fails]).await.unwrap();
    assert_eq!(ledger.unfiled(Which::New, 9, 1 << 20).await.0, 1);
}

#[tokio::test]
async fn a_replay_is_refused_with_its_reason_and_takes_no_neighbour_along() {
    let ledger = Ledger::new().await;
    let keys = ledger.dead(1).await;
    let old = clock::now() - TimeDelta::days(35);
    let stopped = ledger.endpoint(2).await;
    let stopped = ledger.delivery(50, stopped, clock::now()).await;
    let old = ledger.delivery(60, keys[0].endpoint, old).await;
    let records = [
        failed(drive(stopped, 1), 50, 1, FailureReason::Gone),
        failed(drive(old, 1), 60, 1, FailureReason::Exhausted),
    ];
    ledger.store.apply(&records).await.unwrap();
    let missing = DeliveryKey {
        message: stopped.message,
        ..keys[0]
    };
    let asked = [keys[0], stopped, old, missing].map(|key| series(key, 1));
    for (state, expected) in [
        ("paused", Refusal::Paused),
        ("disabled", Refusal::Disabled),
        ("deleted", Refusal::Deleted),
    ] {
        ledger
            .sql(&format!(
                "UPDATE hooklane.endpoints SET state = '{state}' WHERE id = '{}'",
                stopped.endpoint.uuid()
            ))
            .await;
        let outcomes = ledger.store.may_replay(&asked, TERMS).await.unwrap();
        let refusals = [expected, Refusal::Expires, Refusal::Missing].map(Err);
        assert_eq!(outcomes[1..], refusals);
    }
    let outcomes = ledger.store.replay(&asked, TERMS).await.unwrap();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    let stalled = "SELECT count(*) FROM hooklane.deliveries WHERE status = 'stalled'";
    assert_eq!(ledger.sql(stalled).await, "1");
}

#[tokio::test]
async fn looking_for_dead_letters_reads_indexes_alone() {
    let ledger = Ledger::new().await;
    ledger.dead(2).await;
    // Days of history without a dead letter.
    for days in 1..30 {
        let day = clock::now() - TimeDelta::days(days);
        ledger.store.ensure_days([day]).await.unwrap();
    }
    let plan = ledger
        .sql(
            "SET enable_seqscan = off; EXPLAIN (COSTS off)
             SELECT accepted_at FROM hooklane.deliveries
              WHERE status = 'failed' AND discarded_at IS NULL AND dead_lettered_at IS NULL LIMIT 10",
        )
        .await;
    // Also of a day that is still empty, whose plan may be kept until it is full.
    let scans = plan.lines().filter(|line| line.contains("Scan"));
    for scan in scans {
        assert!(scan.contains("_dead_lettered_at_idx"), "{plan}");
    }
}
