//! From an outbox to `EVENTS`, whatever happens on the way.

use std::time::Duration;

use hooklane_core::config::ConnectionUrl;
use hooklane_nats::inspect;
use hooklane_proto::subject;
use hooklane_store::outbox::Source;
use hooklane_testkit::{postgres, wait};
use tokio::time::Instant;

use crate::bench::{BUDGET, Bench, endpoint, outbox_only, source};
use crate::ledger::Ledger;

const PENDING: &str = "SELECT count(*) FROM hooklane.outbox_events WHERE processed_at IS NULL";

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_row_is_published_and_a_rolled_back_one_is_not() {
    let bench = Bench::new().await;
    let relay = bench.relay(outbox_only());
    let mut events = bench.events("acme");
    bench
        .ledger
        .sql(
            "BEGIN; INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             VALUES ('acme', 'invoice.paid', '\"never\"'); ROLLBACK",
        )
        .await;
    bench.rows("acme", &[r#"{"a":1, "a":2}"#]).await;
    let event = events.next().await;
    assert_eq!(&*event.payload, br#"{"a":1, "a":2}"#);
    assert_eq!(event.targets.len(), 1);
    assert_eq!(event.targets[0].endpoint, endpoint());
    let row = "SELECT o.processed_at IS NOT NULL, d.status FROM hooklane.outbox_events o
               JOIN hooklane.deliveries d ON d.message_id = o.id";
    assert_eq!(bench.ledger.sql(row).await, "t|received");
    assert!(events.is_quiet().await);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_relay_takes_a_row_up_within_its_longest_poll() {
    let bench = Bench::new().await;
    let relay = bench.relay(outbox_only());
    let mut events = bench.events("acme");
    // The best of three: the host may be busy.
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        // Idle for longer than it takes to slow down.
        assert!(events.is_quiet().await);
        bench.rows("acme", &["1"]).await;
        let started = Instant::now();
        events.next().await;
        quickest = quickest.min(started.elapsed());
    }
    assert!(quickest < Duration::from_secs(1), "{quickest:?}");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notify_shortens_a_long_poll() {
    let bench = Bench::new().await;
    bench
        .ledger
        .sql("ALTER TABLE hooklane.outbox_events ENABLE TRIGGER outbox_wake")
        .await;
    let mut config = outbox_only();
    config.sources = vec![Source {
        poll_min: Duration::from_secs(60),
        poll_max: Duration::from_secs(60),
        notify: true,
        ..source()
    }];
    let relay = bench.relay(config);
    let listening = "SELECT count(*) > 0 FROM pg_stat_activity
                     WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    bench.until_sql(listening, "t").await;
    bench.rows("acme", &["1"]).await;
    bench.until_sql(PENDING, "0").await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_relay_takes_over_when_the_first_is_gone() {
    let bench = Bench::new().await;
    let first = bench.relay(outbox_only());
    bench.rows("acme", &["1"]).await;
    bench.until_sql(PENDING, "0").await;
    let second = bench.relay(outbox_only());
    first.kill().await;
    bench.rows("acme", &["2"]).await;
    bench.until_sql(PENDING, "0").await;
    assert_eq!(
        bench
            .ledger
            .sql("SELECT count(*) FROM hooklane.messages")
            .await,
        "2"
    );
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_session_is_replaced_and_nothing_comes_twice() {
    let bench = Bench::new().await;
    let relay = bench.relay(outbox_only());
    bench.rows("acme", &["1"]).await;
    bench.until_sql(PENDING, "0").await;
    bench
        .ledger
        .sql(
            "SELECT pg_terminate_backend(pid) FROM pg_locks
             WHERE locktype = 'advisory' AND classid = 7261003
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .await;
    bench.rows("acme", &["2"]).await;
    bench.until_sql(PENDING, "0").await;
    let mut events = bench.events("acme");
    assert_eq!(events.payloads(2).await, ["1", "2"]);
    assert!(events.is_quiet().await);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acceptance_goes_on_while_nats_is_down_and_publishing_comes_back() {
    let bench = Bench::new().await;
    let mut config = outbox_only();
    config.publish_within = Duration::from_secs(1);
    config.sources[0].batch = 10;
    let relay = bench.relay(config);
    bench.rows("acme", &["1"]).await;
    bench.until_sql(PENDING, "0").await;
    wait::until("the first event", BUDGET, async || {
        relay.handle.counted().published == 1
    })
    .await
    .unwrap();

    bench.nats.stop().await.unwrap();
    let started = Instant::now();
    for _ in 0..10 {
        bench.rows("acme", &["2"; 20]).await;
    }
    bench.until_sql(PENDING, "0").await;
    // Twenty batches, none of which waited for its second to pass.
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
    wait::until("everything is left to the sweep", BUDGET, async || {
        relay.handle.counted().left == 200
    })
    .await
    .unwrap();
    assert!(relay.handle.is_publishing_down());
    let received = "SELECT count(*) FROM hooklane.deliveries WHERE status = 'received'";
    assert_eq!(bench.ledger.sql(received).await, "201");

    bench.nats.restart().await.unwrap();
    wait::until("publishing works again", BUDGET, async || {
        bench.rows("acme", &["3"]).await;
        relay.handle.counted().published > 1
    })
    .await
    .unwrap();
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_store_gets_its_stream_of_events_back() {
    let bench = Bench::new().await;
    let mut config = outbox_only();
    config.publish_within = Duration::from_secs(1);
    let relay = bench.relay(config);
    bench.nats.wipe_store().await.unwrap();
    wait::until("events are published again", BUDGET, async || {
        bench.rows("acme", &["1"]).await;
        relay.handle.counted().published > 0
    })
    .await
    .unwrap();
    let state = inspect::stream_state(&bench.client, subject::EVENTS)
        .await
        .unwrap();
    assert!(state.last_sequence > 0);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_ledger_is_waited_for() {
    let server = postgres::Server::start().await.unwrap();
    let ledger = Ledger::on(&server).await;
    let mut bench = Bench::new().await;
    ledger.endpoint(1).await;
    ledger
        .sql("INSERT INTO hooklane.event_types (name) VALUES ('invoice.paid')")
        .await;
    bench.ledger = ledger;
    let relay = bench.relay(outbox_only());
    bench.rows("acme", &["1"]).await;
    bench.until_sql(PENDING, "0").await;
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    bench.rows("acme", &["2"]).await;
    bench.until_sql(PENDING, "0").await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_in_several_databases_are_relayed_side_by_side() {
    let bench = Bench::new().await;
    let shop = postgres::database("empty", |_| async { Ok::<_, std::io::Error>(()) })
        .await
        .unwrap();
    shop.psql(include_str!("../../../../migrations/0002_outbox.sql"))
        .await
        .unwrap();
    let mut config = outbox_only();
    config.sources.push(Source {
        name: "shop".to_owned(),
        database_url: Some(ConnectionUrl::new(shop.url())),
        ..source()
    });
    let relay = bench.relay(config);
    shop.psql(
        "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
         VALUES ('acme', 'invoice.paid', '\"shop\"')",
    )
    .await
    .unwrap();
    bench.rows("acme", &["\"own\""]).await;
    let mut events = bench.events("acme");
    let mut payloads = events.payloads(2).await;
    payloads.sort_unstable();
    assert_eq!(payloads, ["\"own\"", "\"shop\""]);
    bench.until_sql(PENDING, "0").await;
    wait::until("the shop's row is marked", BUDGET, async || {
        shop.psql(PENDING).await.unwrap().trim() == "0"
    })
    .await
    .unwrap();
    let sources = "SELECT string_agg(source, ',' ORDER BY source) FROM hooklane.messages";
    assert_eq!(bench.ledger.sql(sources).await, "outbox:main,outbox:shop");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_waited_is_published_once_its_names_are_known() {
    let bench = Bench::new().await;
    let relay = bench.relay(outbox_only());
    bench
        .ledger
        .sql(
            "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             VALUES ('acme', 'brand.new', '\"waited\"')",
        )
        .await;
    bench
        .until_sql("SELECT count(*) FROM hooklane.rejected_events", "1")
        .await;
    bench
        .ledger
        .sql("INSERT INTO hooklane.event_types (name) VALUES ('brand.new')")
        .await;
    assert_eq!(bench.events("acme").payloads(1).await, ["\"waited\""]);
    bench
        .until_sql("SELECT count(*) FROM hooklane.rejected_events", "0")
        .await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_once_takes_what_is_there_and_ends() {
    let bench = Bench::new().await;
    bench.rows("acme", &["1"; 700]).await;
    bench.rows("other", &["2"; 5]).await;
    bench.intake("intake.acme.invoice.paid", &[], b"3").await;
    let done = bench
        .service(hooklane_relay::Config::default())
        .run_once()
        .await
        .unwrap();
    assert_eq!(done.read, ["main", "operational"]);
    assert!(done.led_elsewhere.is_empty(), "{done:?}");
    let counted = done.counted;
    assert_eq!((counted.accepted, counted.published), (706, 706));
    assert_eq!(counted.routed, 1);
    assert_eq!(bench.ledger.sql(PENDING).await, "0");
    // What a relay that runs reads is left to it; the rest is done.
    let relay = bench.relay(outbox_only());
    bench.rows("acme", &["4"]).await;
    bench.until_sql(PENDING, "0").await;
    bench.intake("intake.acme.invoice.paid", &[], b"5").await;
    let done = bench
        .service(hooklane_relay::Config::default())
        .run_once()
        .await
        .unwrap();
    assert_eq!(done.led_elsewhere, ["main", "operational"]);
    assert_eq!((done.read.len(), done.counted.accepted), (0, 1));
    relay.stop().await;
}
