//! What survives: the real `hooklane up`, killed with `kill -9` at random moments under load, and
//! the same with everything that JetStream keeps deleted in between.
//!
//! Every accepted event is delivered, the ledger keeps I1, I4 and I5, and whatever a crash excuses
//! (a request repeated after a success, a request without a record) was under way at a crash.
//!
//! The moments come from a seed, which is printed; `HOOKLANE_CRASH_SEED` sets it.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests; the seed comes from the environment and is printed"
)]

mod storm;
mod takeover;

use storm::Storm;

/// Servers and a debug build under load: one such test is as much as a small machine can take.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_under_load_lose_nothing_and_repeat_only_what_was_under_way() {
    let _turn = TURN.lock().await;
    Storm {
        kills: 20,
        wipes: 0,
    }
    .run()
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wiping_the_jetstream_store_three_times_in_between_loses_nothing_either() {
    let _turn = TURN.lock().await;
    Storm {
        kills: 20,
        wipes: 3,
    }
    .run()
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_dispatcher_held_is_under_way_in_twenty_seconds_without_a_flood() {
    let _turn = TURN.lock().await;
    takeover::run().await.unwrap();
}
