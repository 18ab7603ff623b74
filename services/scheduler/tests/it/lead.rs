//! One of several puts work back.

use crate::bench::{Bench, Owner};

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_the_other_takes_over_when_it_is_gone() {
    let bench = Bench::new().await;
    let endpoint = bench.ledger.endpoint(1).await;
    let owner = Owner::of(&bench).await;
    owner.set_room(endpoint, 10);
    let first = bench.schedule();
    first.until("the lead", |stats| stats.leads).await;
    let second = bench.schedule();
    bench.stalled(3, 1, endpoint).await;
    first.until("claims", |stats| stats.claimed == 3).await;
    assert!(!second.stats().leads);
    first.stop().await;
    second.until("the lead", |stats| stats.leads).await;
    bench.stalled(3, 10, endpoint).await;
    second.until("claims", |stats| stats.claimed == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_gives_up_the_lead_and_it_is_sought_again() {
    let bench = Bench::new().await;
    let scheduler = bench.schedule();
    scheduler.until("the lead", |stats| stats.leads).await;
    let holder = "SELECT pid FROM pg_locks JOIN pg_database d ON d.oid = database
                   WHERE locktype = 'advisory' AND classid = 7261004 AND datname = current_database()";
    let before = bench.ledger.sql(holder).await;
    bench
        .ledger
        .sql(&format!("SELECT pg_terminate_backend({before})"))
        .await;
    hooklane_testkit::wait::until(
        "another session with the lead",
        crate::bench::BUDGET,
        || async {
            let now = bench.ledger.sql(holder).await;
            !now.is_empty() && now != before
        },
    )
    .await
    .unwrap();
    scheduler.stop().await;
}
