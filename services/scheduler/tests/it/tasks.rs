//! Tasks are taken further, and what they make due is driven.

use hooklane_core::clock;
use hooklane_proto::record::{FailureReason, Record, SkipReason};
use hooklane_store::task::{self, Span, Status, Work};

use crate::bench::{Bench, Owner, TERMS};
use crate::ledger::{drive, failed, skipped};

fn last_hour() -> Span {
    Span {
        since: clock::now() - chrono::TimeDelta::hours(1),
        until: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_task_makes_due_is_driven_and_counted() {
    let bench = Bench::new().await;
    let (missed, down) = (
        bench.ledger.endpoint(1).await,
        bench.ledger.endpoint(2).await,
    );
    let keys = bench.ledger.deliveries(1..6, missed, clock::now()).await;
    let mut records: Vec<Record> = keys
        .iter()
        .map(|key| skipped(drive(*key, 1), SkipReason::Paused))
        .collect();
    let keys = bench.ledger.deliveries(10..13, down, clock::now()).await;
    let fails = (1..).zip(&keys);
    records.extend(fails.map(|(n, key)| failed(drive(*key, 1), n, 1, FailureReason::Exhausted)));
    bench.ledger.store.apply(&records).await.unwrap();
    bench
        .ledger
        .sql("UPDATE hooklane.deliveries SET settled_at = now() WHERE status = 'failed'")
        .await;
    let owner = Owner::of(&bench).await;
    owner.set_room(missed, 10);
    owner.set_room(down, 10);
    let store = &bench.ledger.store;
    let span = last_hour();
    let works = [
        Work::ReplayMissing {
            endpoint: missed,
            span,
        },
        Work::Recover {
            endpoint: down,
            span,
        },
    ];
    let mut ids = Vec::new();
    for work in works {
        ids.push(task::create(store, work, TERMS).await.unwrap().id);
    }
    let mut lanes = bench.lanes();
    let scheduler = bench.schedule();
    let mut series = Vec::new();
    for _ in 0..8 {
        series.push(lanes.next().await.series);
    }
    assert_eq!(series, [2; 8]);
    for id in ids {
        let task = task::show(store, id).await.unwrap();
        assert_eq!((task.status, task.total), (Status::Done, Some(task.due)));
    }
    let stats = scheduler.stats();
    assert_eq!((stats.task_due, stats.task_refused), (8, 0));
    scheduler.stop().await;
}
