//! Due work goes to the lanes that have room.

use hooklane_proto::subject;
use hooklane_testkit::wait;

use crate::bench::{BUDGET, Bench, Owner};

/// The partition, of 16, of the consumer `globex`.
const GLOBEX: u16 = 14;
const STALLED: &str = "SELECT count(*) FROM hooklane.deliveries WHERE status = 'stalled'";

#[tokio::test(flavor = "multi_thread")]
async fn due_work_is_driven_the_longest_due_first() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.stalled(7, 1, endpoint).await;
    let owner = Owner::of(&bench).await;
    owner.set_room(endpoint, 2);
    let scheduler = bench.schedule();
    let mut lanes = bench.lanes();
    let mut driven = Vec::new();
    for _ in 0..7 {
        let delivery = lanes.next().await;
        assert_eq!(delivery.drive, 2);
        assert!(delivery.not_after > delivery.due_at);
        driven.push(delivery.key);
    }
    assert_eq!(driven, keys);
    // Once there is no more, the owner is told.
    wait::until("a request that names nobody", BUDGET, || async {
        owner.asked().last().is_some_and(Vec::is_empty)
    })
    .await
    .unwrap();
    assert!(
        owner
            .asked()
            .iter()
            .take(4)
            .all(|named| named == &[endpoint])
    );
    scheduler
        .until("all confirmed", |stats| stats.published == 7)
        .await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_claimed_without_an_answer_or_without_room() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    bench.stalled(3, 1, endpoint).await;
    let scheduler = bench.schedule();
    scheduler
        .until("three rounds unanswered", |stats| stats.unanswered >= 3)
        .await;
    let owner = Owner::of(&bench).await;
    wait::until("three rounds without room", BUDGET, || async {
        owner.asked().len() >= 3
    })
    .await
    .unwrap();
    assert_eq!(bench.ledger.sql(STALLED).await, "3");
    assert_eq!(scheduler.stats().claimed, 0);
    owner.set_room(endpoint, 10);
    bench.until(STALLED, "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_the_broker_refuses_is_a_fault_and_in_the_end_poison() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    bench.stalled(1, 1, endpoint).await;
    // Headers can't carry it.
    bench
        .ledger
        .sql("UPDATE hooklane.messages SET content_type = E'a\\r\\nb'")
        .await;
    let owner = Owner::of(&bench).await;
    owner.set_room(endpoint, 1);
    let scheduler = bench.schedule();
    for faults in 1..=5_u64 {
        let refused = |stats: hooklane_scheduler::Stats| stats.refused == faults;
        scheduler.until("a refusal", refused).await;
        bench
            .until(
                "SELECT faults FROM hooklane.deliveries",
                &faults.to_string(),
            )
            .await;
        // A minute passes.
        bench
            .ledger
            .sql(
                "UPDATE hooklane.deliveries SET next_attempt_at = now() WHERE status = 'stalled';
                 UPDATE hooklane.backlogs SET due_at = now()",
            )
            .await;
    }
    bench
        .until(
            "SELECT status, failure_reason FROM hooklane.deliveries",
            "failed|poison",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_does_not_answer_holds_up_no_other() {
    let bench = Bench::new().await;
    let (silent, answered) = (
        bench.ledger.endpoint(1).await,
        bench.ledger.endpoint(2).await,
    );
    bench.stalled(1, 1, answered).await;
    bench.stalled(1, 2, silent).await;
    // The consumer `globex` is of another partition, which hears requests and says nothing.
    bench
        .ledger
        .sql(&format!(
            "INSERT INTO hooklane.consumers (id) VALUES ('globex');
             UPDATE hooklane.endpoints SET consumer_id = 'globex' WHERE id = '{0}';
             UPDATE hooklane.backlogs SET consumer_id = 'globex' WHERE endpoint_id = '{0}'",
            silent.uuid()
        ))
        .await;
    let mut deaf = bench.client.serve(subject::room(GLOBEX)).await.unwrap();
    let owner = Owner::of(&bench).await;
    owner.set_room(answered, 1);
    let scheduler = bench.schedule();
    let first = deaf.next().await;
    for round in 1..=5 {
        bench.stalled(1, 10 + round, answered).await;
        scheduler
            .until("the other's delivery", |stats| stats.published > round)
            .await;
    }
    drop(first);
}
