//! Putting back what was lost.

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_proto::record::ParkReason;
use hooklane_store::sweep::Lost;

use crate::ledger::{Ledger, at, drive, noon, parked, sent};

fn lost(partition: u16, before: DateTime<Utc>) -> Lost {
    Lost {
        partition,
        not_after: before,
        driven_before: before,
    }
}

const ROWS: &str =
    "SELECT string_agg(status || ':' || drive, ' ' ORDER BY message_id) FROM hooklane.deliveries";

#[tokio::test]
async fn only_what_is_older_than_the_horizon_and_of_the_partition_is_put_back() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    ledger.delivery(1, endpoint, noon()).await;
    ledger.delivery(2, endpoint, at(10)).await;
    ledger.delivery(3, endpoint, noon()).await;
    ledger
        .sql("UPDATE hooklane.deliveries SET partition = 8 WHERE message_id = (SELECT max(message_id::text)::uuid FROM hooklane.deliveries)")
        .await;
    // Not-afters are noon + 20 s and noon + 30 s.
    assert_eq!(
        ledger.store.stall_lost(lost(7, at(25)), 10).await.unwrap(),
        1
    );
    assert_eq!(ledger.sql(ROWS).await, "stalled:1 received:1 received:1");
    assert_eq!(
        ledger
            .sql("SELECT count(*) FROM hooklane.backlogs WHERE due_at <= now()")
            .await,
        "1"
    );
    assert_eq!(
        ledger.store.stall_lost(lost(7, at(25)), 10).await.unwrap(),
        0
    );
}

#[tokio::test]
async fn a_record_that_comes_after_all_wins_over_the_sweep() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let first = ledger.delivery(1, endpoint, noon()).await;
    let second = ledger.delivery(2, endpoint, noon()).await;
    assert_eq!(
        ledger.store.stall_lost(lost(7, at(60)), 10).await.unwrap(),
        2
    );
    let later = clock::now() + TimeDelta::seconds(300);
    ledger
        .store
        .apply(&[
            sent(drive(first, 1), 1, 1),
            parked(drive(second, 1), ParkReason::Held, later),
        ])
        .await
        .unwrap();
    assert_eq!(ledger.sql(ROWS).await, "sent:1 stalled:1");
    assert_eq!(
        ledger
            .sql("SELECT count(*) FROM hooklane.deliveries WHERE next_attempt_at > now()")
            .await,
        "1"
    );
}

#[tokio::test]
async fn partitions_with_something_out_for_too_long_are_suspect() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let grace = TimeDelta::seconds(10);
    ledger.delivery(1, endpoint, clock::now()).await;
    assert!(ledger.store.suspect(16, grace).await.unwrap().is_empty());
    let earlier = clock::now() - TimeDelta::seconds(31);
    let key = ledger.delivery(2, endpoint, earlier).await;
    assert_eq!(ledger.store.suspect(16, grace).await.unwrap(), [7]);
    ledger
        .store
        .apply(&[sent(drive(key, 1), 1, 1)])
        .await
        .unwrap();
    assert!(ledger.store.suspect(16, grace).await.unwrap().is_empty());
}

#[tokio::test]
async fn deliveries_of_a_former_number_of_partitions_are_moved() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    ledger.deliveries(1..6, endpoint, noon()).await;
    ledger.delivery(9, endpoint, at(1)).await;
    // Pages that end among deliveries of one moment, which all five first are.
    let mut pages = Vec::new();
    let mut from = None;
    loop {
        let (placed, next) = ledger.store.placed(from, 2).await.unwrap();
        pages.extend(placed);
        from = next;
        if from.is_none() {
            break;
        }
    }
    assert!(pages.len() >= 2 && pages.iter().all(|placed| placed.partition == 7));
    assert_eq!(ledger.store.move_to(&pages[0], 2, 3).await.unwrap(), 3);
    assert_eq!(ledger.store.move_to(&pages[0], 2, 3).await.unwrap(), 3);
    assert_eq!(ledger.store.move_to(&pages[0], 2, 3).await.unwrap(), 0);
    let there = "SELECT count(*) FROM hooklane.deliveries WHERE partition = 2";
    assert_eq!(ledger.sql(there).await, "6");
}
