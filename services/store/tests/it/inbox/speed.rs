//! How many events a second are kept and decided. Ignored: figures to look at, not a gate.

#![allow(clippy::print_stdout, reason = "the figures are what this is for")]

use std::time::Duration;

use hooklane_store::inbox::{Incoming, Mode, StepLimits};
use tokio::time::Instant;

use super::{Shop, incoming};
use crate::ledger::{Ledger, at};

const EVENTS: usize = 20_000;
/// As many requests as wait for one statement while another one runs.
const BATCH: usize = 32;

/// An event of 2 KB.
fn event(n: usize) -> Incoming {
    let pad = "x".repeat(1_900);
    let body = format!(
        r#"{{"id":"{n}","type":"order.created","key":"{}","pad":"{pad}"}}"#,
        n / 2
    );
    incoming(&n.to_string(), &body)
}

fn rate(what: &str, n: usize, took: Duration) {
    #[allow(clippy::cast_precision_loss, reason = "a figure")]
    let rate = n as f64 / took.as_secs_f64();
    println!("{what}: {rate:.0} a second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "figures to look at: cargo test --release -p hooklane-store -- --ignored --nocapture an_inbox"]
async fn an_inbox_keeps_and_decides_at_this_pace() {
    let ledger = Ledger::new().await;
    let events: Vec<Incoming> = (0..EVENTS).map(event).collect();
    ledger
        .sql("CREATE TABLE plain (partner text, id text, body bytea, PRIMARY KEY (partner, id))")
        .await;
    let begun = Instant::now();
    let inserts = events.chunks(EVENTS / 32).map(async |part: &[Incoming]| {
        let mut conn = ledger.connect().await;
        for one in part {
            sqlx::query("INSERT INTO plain VALUES ($1, $2, $3) ON CONFLICT DO NOTHING")
                .bind(one.partner.as_str())
                .bind(&one.partner_event_id)
                .bind(one.body.as_ref())
                .execute(&mut conn)
                .await
                .unwrap();
        }
    });
    futures::future::join_all(inserts).await;
    rate("plain inserts on 32 connections", EVENTS, begun.elapsed());

    let begun = Instant::now();
    let halves = events.chunks(EVENTS / 2).map(async |half: &[Incoming]| {
        for batch in half.chunks(BATCH) {
            ledger.store.inbox_receive(at(0), batch).await.unwrap();
        }
    });
    futures::future::join_all(halves).await;
    rate(
        "kept in batches of 32, two at a time",
        EVENTS,
        begun.elapsed(),
    );

    let shop = Shop::without_machine(Mode::Stream);
    let begun = Instant::now();
    let limits = StepLimits::default();
    let mut decided = 0;
    while decided < EVENTS {
        let stepped = ledger
            .store
            .inbox_step(at(1), &limits, &shop)
            .await
            .unwrap();
        decided += stepped.applied as usize;
    }
    rate("decided by one worker", EVENTS, begun.elapsed());

    let begun = Instant::now();
    loop {
        let page = ledger.store.inbox_publications(256, 8 << 20).await.unwrap();
        if page.is_empty() {
            break;
        }
        let positions: Vec<i64> = page.iter().map(|one| one.position).collect();
        ledger.store.inbox_published(&positions).await.unwrap();
    }
    rate(
        "read and forgotten by one publisher",
        EVENTS,
        begun.elapsed(),
    );
}
