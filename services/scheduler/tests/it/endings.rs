//! What ends without a lane.

use crate::bench::{Bench, Owner};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_overdue_fails_and_what_is_of_a_stopped_endpoint_is_ended() {
    let bench = Bench::new().await;
    let mut endpoints = Vec::new();
    for n in 1..=4 {
        let endpoint = bench.ledger.endpoint(n).await;
        bench.stalled(2, n * 10, endpoint).await;
        endpoints.push(endpoint.uuid());
    }
    bench
        .ledger
        .sql(&format!(
            "UPDATE hooklane.deliveries SET deadline = now() - '1 s'::interval WHERE endpoint_id = '{}';
             UPDATE hooklane.endpoints SET state = 'paused' WHERE id = '{}';
             UPDATE hooklane.endpoints SET state = 'disabled' WHERE id = '{}';
             UPDATE hooklane.endpoints SET state = 'deleted' WHERE id = '{}';",
            endpoints[0], endpoints[1], endpoints[2], endpoints[3]
        ))
        .await;
    let owner = Owner::of(&bench).await;
    owner.set_room(hooklane_proto::id::EndpointId::for_test(1), 5);
    let scheduler = bench.schedule();
    bench
        .until(
            "SELECT string_agg(DISTINCT status || ':' || failure_reason, ' ') FROM hooklane.deliveries",
            "cancelled:deleted failed:deadline skipped:disabled skipped:paused",
        )
        .await;
    // Nothing is left that would be looked at again and again.
    bench
        .until("SELECT count(*) FROM hooklane.backlogs", "0")
        .await;
    let stats = scheduler.stats();
    assert_eq!((stats.overdue, stats.settled, stats.claimed), (2, 6, 0));
    scheduler.stop().await;
}
