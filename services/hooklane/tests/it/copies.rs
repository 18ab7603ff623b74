//! Several Hooklanes on one ledger and one broker.

use hooklane_testkit::{Receiver, Reply};

use crate::bench::Bench;
use crate::load::{Load, arrived, settled};
use crate::process::{Process, free_address};
use crate::system::{BUDGET, add_endpoint, count, ready, system};

/// A whole Hooklane with an address of its own for health, once it is ready.
async fn another(bench: &Bench) -> Process {
    let health = free_address();
    let mut command = bench.command(&["up"]);
    command.env("HOOKLANE__HEALTH__LISTEN", &health);
    let process = Process::of(bench, command);
    ready(&health).await;
    process
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_loses_nothing_doubles_nothing_and_makes_nothing_late() {
    let (mut bench, _nats, _) = system().await;
    // Were a part given up only when its lease expires, some delivery would be this late.
    bench.set("HOOKLANE__DISPATCHER__LEASE__MAX_AGE", "60s");
    bench.set("HOOKLANE__NATS__PARTITIONS", "4");
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(204));
    let (endpoint, _) = add_endpoint(&bench, &receiver.url("/hook"));
    bench.ok(&["endpoint", "update", &endpoint, "--rate", "none"]);
    let mut running = vec![another(&bench).await, another(&bench).await];
    let load = Load::start(&bench).await;
    receiver.wait_for(50, BUDGET).await.unwrap();

    for _ in 0..2 {
        running.push(another(&bench).await);
        let oldest = running.remove(0);
        oldest.signal("TERM");
        let ended = oldest.wait(BUDGET).await;
        assert_eq!(ended.code, 0, "{}", ended.log);
        let more = receiver.requests().len() + 50;
        let more = u64::try_from(more).unwrap();
        receiver.wait_for(more, BUDGET).await.unwrap();
    }
    drop(load);
    settled(&bench).await;

    let arrived = arrived(&receiver);
    assert_eq!(arrived.len() as u64, count(&bench, "outbox_events").await);
    assert!(arrived.is_sorted_by(|one, next| one < next));
    let late = bench
        .database()
        .psql(
            "SELECT max(a.started_at - o.created_at) < interval '20 seconds'
               FROM hooklane.attempts a JOIN hooklane.outbox_events o ON o.id = a.message_id",
        )
        .await
        .unwrap();
    assert_eq!(late.trim(), "t");
}
