//! From `RECORDS` into rows, whatever happens on the way.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_proto::record::{ParkReason, Record, Verdict};
use hooklane_recorder::Config;
use hooklane_testkit::postgres::Server;
use hooklane_testkit::wait;

use crate::bench::{BUDGET, Bench, config};
use crate::ledger::{Ledger, at, attempt, drive, noon, parked, retry, sent};

const STATES: &str = "SELECT coalesce(string_agg(status || coalesce(':' || failure_reason, ''), ' '
                             ORDER BY message_id), '') FROM hooklane.deliveries";

#[tokio::test(flavor = "multi_thread")]
async fn records_end_in_the_ledger_and_leave_the_broker() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..4, endpoint, noon()).await;
    let recorder = bench.record(config());
    bench
        .publish(vec![
            sent(drive(keys[0], 1), 1, 1),
            retry(drive(keys[1], 1), 2, 1, at(5)),
        ])
        .await;
    bench
        .publish(vec![parked(drive(keys[2], 1), ParkReason::NoRoom, noon())])
        .await;
    bench.drained().await;
    assert_eq!(bench.ledger.sql(STATES).await, "sent stalled stalled");
    let stats = recorder.handle.stats();
    assert_eq!((stats.records, stats.attempts), (3, 2));
    recorder.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_messages_share_transactions() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..301, endpoint, noon()).await;
    for (n, key) in (1..).zip(keys) {
        bench.publish(vec![sent(drive(key, 1), n, 1)]).await;
    }
    let recorder = bench.record(config());
    bench.drained().await;
    let stats = recorder.handle.stats();
    assert_eq!(stats.records, 300);
    assert!(stats.batches < 30, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unwritable_record_takes_no_neighbour_along_and_leaves_no_row_received() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..8, endpoint, noon()).await;
    let mut records: Vec<Record> = (1..)
        .zip(&keys)
        .map(|(n, key)| sent(drive(*key, 1), n, 1))
        .collect();
    records[4] = parked(
        drive(keys[4], 1),
        ParkReason::NoRoom,
        DateTime::<Utc>::MIN_UTC,
    );
    let recorder = bench.record(config());
    bench.publish(records).await;
    bench.drained().await;
    assert_eq!(
        bench.ledger.sql(STATES).await,
        "sent sent sent sent failed:poison sent sent"
    );
    let stats = recorder.handle.stats();
    assert_eq!((stats.unwritable, stats.poisoned, stats.records), (1, 1, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_writable_only_without_its_body_is_written_without() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let key = bench.ledger.delivery(1, endpoint, noon()).await;
    bench
        .ledger
        .sql("ALTER TABLE hooklane.attempts ADD CHECK (body <> 'unwritable')")
        .await;
    let recorder = bench.record(config());
    let mut record = attempt(drive(key, 1), 1, 1, Verdict::Sent);
    record.body = b"unwritable".to_vec();
    bench.publish(vec![Record::Attempt(record)]).await;
    bench.drained().await;
    assert_eq!(bench.ledger.sql(STATES).await, "sent");
    let attempts = "SELECT status, body IS NULL FROM hooklane.attempts";
    assert_eq!(bench.ledger.sql(attempts).await, "200|t");
    assert_eq!(recorder.handle.stats().stripped, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_batch_of_records_is_ended_and_blocks_nothing() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let key = bench.ledger.delivery(1, endpoint, noon()).await;
    let recorder = bench.record(config());
    bench.publish_bytes(b"nonsense".to_vec()).await;
    bench.publish(vec![sent(drive(key, 1), 1, 1)]).await;
    bench.drained().await;
    assert_eq!(bench.ledger.sql(STATES).await, "sent");
    assert_eq!(recorder.handle.stats().undecodable, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_wait_for_a_ledger_that_is_down_and_each_is_written_once() {
    let server = Server::start().await.unwrap();
    let bench = Bench::with(Ledger::on(&server).await).await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..101, endpoint, noon()).await;
    let recorder = bench.record(Config {
        longest_pause: Duration::from_millis(200),
        ..config()
    });
    server.kill9().await.unwrap();
    for (n, key) in (1..).zip(keys) {
        bench.publish(vec![sent(drive(key, 1), n, 1)]).await;
    }
    wait::until("a failed try", BUDGET, || async {
        recorder.handle.stats().retries > 0
    })
    .await
    .unwrap();
    server.restart().await.unwrap();
    bench.drained().await;
    let count = "SELECT count(*), count(*) FILTER (WHERE status = 'sent') FROM hooklane.deliveries";
    assert_eq!(bench.ledger.sql(count).await, "100|100");
    let attempts = "SELECT count(*) FROM hooklane.attempts";
    assert_eq!(bench.ledger.sql(attempts).await, "100");
    recorder.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_the_ledger_cannot_take_before_a_stop_go_back_to_the_broker() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let key = bench.ledger.delivery(1, endpoint, noon()).await;
    bench
        .ledger
        .sql("ALTER TABLE hooklane.attempts RENAME TO elsewhere")
        .await;
    let recorder = bench.record(Config {
        stop_within: Duration::from_millis(100),
        ..config()
    });
    bench.publish(vec![sent(drive(key, 1), 1, 1)]).await;
    wait::until("a failed try", BUDGET, || async {
        recorder.handle.stats().retries > 0
    })
    .await
    .unwrap();
    recorder.stop().await;
    bench
        .ledger
        .sql("ALTER TABLE hooklane.elsewhere RENAME TO attempts")
        .await;
    let recorder = bench.record(config());
    bench.drained().await;
    assert_eq!(bench.ledger.sql(STATES).await, "sent");
    recorder.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_recorders_share_the_work() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let keys = bench.ledger.deliveries(1..201, endpoint, noon()).await;
    let first = bench.record(config());
    let second = bench.record_into(bench.ledger.another_store().await, config());
    for (n, key) in (1..).zip(keys) {
        // Each twice, so that both may hold the same delivery at once.
        bench.publish(vec![sent(drive(key, 1), n, 1)]).await;
        bench.publish(vec![sent(drive(key, 1), n, 1)]).await;
    }
    bench.drained().await;
    bench
        .until(
            "SELECT count(*) FROM hooklane.deliveries WHERE status = 'sent'",
            "200",
        )
        .await;
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.attempts")
            .await,
        "200"
    );
    first.stop().await;
    second.stop().await;
}
