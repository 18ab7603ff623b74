//! PostgreSQL and NATS under a running Hooklane: gone, read-only, half alive. What goes on, what
//! stops, and what `/readyz` says of it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hooklane_local::{Install, nats_server, quiet};
use hooklane_testkit::nats::Server as Nats;
use hooklane_testkit::postgres::Server as Postgres;
use hooklane_testkit::wait::until;
use hooklane_testkit::{Receiver, Reply};
use tokio::time::Instant;

use crate::bench::Bench;
use crate::load::{arrived, settled};
use crate::process::{Process, http};
use crate::system::{BUDGET, add_endpoint, count, ready, system, write_row, write_rows};

/// As [`system`], with a PostgreSQL that the test may stop.
async fn own_servers() -> (Bench, Postgres, Nats, String) {
    let postgres = Postgres::start().await.unwrap();
    let (mut bench, nats, health) = system().await;
    bench.on(postgres.empty().await.unwrap());
    bench.set("HOOKLANE__DATABASE__ACQUIRE_TIMEOUT", "1s");
    bench.ok(&["migrate"]);
    (bench, postgres, nats, health)
}

/// Waits until `/readyz` refuses with those words, and `/livez` does not.
async fn says(health: &str, expected: &str) {
    until(expected, BUDGET, || async {
        let answer = http(health, "/readyz").await;
        answer.is_some_and(|(status, body)| status == 503 && body.contains(expected))
    })
    .await
    .unwrap();
    assert_eq!(http(health, "/livez").await.unwrap().0, 200);
}

/// Sees to it that a process without a store waits, and does not try without a pause.
async fn waits(process: &Process) {
    const WATCHED: Duration = Duration::from_secs(2);
    let (since, used) = (Instant::now(), process.cpu());
    let lines = process.log().lines().count();
    until("the time to be over", BUDGET, || async {
        since.elapsed() >= WATCHED
    })
    .await
    .unwrap();
    let used = process.cpu() - used;
    assert!(used < since.elapsed() / 2, "{used:?}");
    let lines = process.log().lines().count() - lines;
    assert!(lines < 200, "{lines} lines");
}

/// Makes the database read-only or not, for every session.
async fn read_only(bench: &Bench, on: bool) {
    let sql = format!(
        "SET transaction_read_only = off;
         DO $$ BEGIN EXECUTE format(
             'ALTER DATABASE %I SET default_transaction_read_only = {on}', current_database());
         END $$;
         SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid()"
    );
    bench.database().psql(&sql).await.unwrap();
}

/// A nats-server without JetStream in the place of another; killed when dropped.
struct CoreOnly(Child);

impl CoreOnly {
    fn start(bench: &Bench, url: &str) -> Self {
        let program = nats_server(&bench.dir().join(".hooklane"), Install::Never, &quiet).unwrap();
        let port = url.rsplit(':').next().unwrap();
        let child = Command::new(program)
            .args(["--addr", "127.0.0.1", "--port", port])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for CoreOnly {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_names_the_part_that_is_down_and_work_goes_on_after_it() {
    let (mut bench, postgres, nats, health) = own_servers().await;
    bench.with_tools();
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(204));
    add_endpoint(&bench, &receiver.url("/hook"));
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;

    postgres.kill9().await.unwrap();
    says(&health, r#""postgres":"down","nats":"up""#).await;
    waits(&up).await;
    postgres.restart().await.unwrap();
    ready(&health).await;

    read_only(&bench, true).await;
    says(&health, r#""postgres":"read_only","nats":"up""#).await;
    waits(&up).await;
    read_only(&bench, false).await;
    ready(&health).await;
    let first = write_row(&bench).await;
    settled(&bench).await;

    nats.kill9().await.unwrap();
    says(&health, r#""postgres":"up","nats":"down""#).await;
    waits(&up).await;
    let core_only = CoreOnly::start(&bench, nats.url());
    says(&health, r#""postgres":"up","nats":"no_jetstream""#).await;
    // Acceptance does not wait for the broker; delivery does.
    let second = write_row(&bench).await;
    let accepted = format!("SELECT count(*) FROM hooklane.messages WHERE id = '{second}'");
    bench
        .database()
        .until(&accepted, "1", BUDGET)
        .await
        .unwrap();
    drop(core_only);
    nats.restart().await.unwrap();
    ready(&health).await;
    settled(&bench).await;
    let mut ids = [first, second];
    ids.sort_unstable();
    assert_eq!(arrived(&receiver), ids);

    up.signal("TERM");
    let ended = up.wait(BUDGET).await;
    assert_eq!(ended.code, 0, "{}", ended.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_ledger_first_attempts_go_on_and_are_recorded_once_it_is_back() {
    const ROWS: u64 = 60;
    let (bench, postgres, _nats, health) = own_servers().await;
    let receiver = Receiver::start().await.unwrap();
    receiver.fallback(Reply::status(204));
    let (endpoint, _) = add_endpoint(&bench, &receiver.url("/hook"));
    // Slow enough that most are still to come when the ledger goes.
    let slow = ["--rate", "15", "--burst", "1"];
    bench.ok(&[["endpoint", "update", &endpoint].as_slice(), &slow].concat());
    let _up = Process::start(&bench, &["up"]);
    ready(&health).await;
    write_rows(&bench, ROWS).await;
    let fed = "SELECT count(*) FROM hooklane.outbox_events WHERE processed_at IS NOT NULL";
    let all = ROWS.to_string();
    bench.database().until(fed, &all, BUDGET).await.unwrap();
    receiver.wait_for(5, BUDGET).await.unwrap();

    postgres.kill9().await.unwrap();
    let before = receiver.requests().len();
    assert!(before < 50, "{before} requests before the ledger went");
    receiver.wait_for(ROWS, BUDGET).await.unwrap();
    postgres.restart().await.unwrap();
    settled(&bench).await;
    assert_eq!(
        count(&bench, "deliveries WHERE status = 'sent'").await,
        ROWS
    );
    let attempts = "SELECT count(*) FROM hooklane.attempts";
    bench
        .database()
        .until(attempts, &all, BUDGET)
        .await
        .unwrap();
    assert_eq!(u64::try_from(arrived(&receiver).len()).unwrap(), ROWS);
}
