//! A noisy consumer's backlog and everybody else.

use hooklane_store::outbox::{Columns, Source};

use super::{lead, ledger, round};
use crate::ledger::Ledger;

async fn backlog(ledger: &Ledger, consumer: &str, rows: u32) {
    ledger
        .sql(&format!(
            "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             SELECT '{consumer}', 'invoice.paid', to_json(n) FROM generate_series(1, {rows}) n"
        ))
        .await;
}

/// Rounds until a row of `consumer` comes, having written one.
async fn rounds_until(ledger: &Ledger, reader: &mut hooklane_store::outbox::Reader) -> usize {
    super::row(ledger, "other", "invoice.paid", "\"quiet\"").await;
    for n in 1..100 {
        let (events, settled) = round(reader).await;
        assert_ne!(settled, 0, "the backlog is not that short");
        if events
            .iter()
            .any(|event| event.consumer.as_str() == "other")
        {
            return n;
        }
    }
    panic!("it never came");
}

#[tokio::test]
async fn a_backlog_of_200_000_rows_does_not_delay_a_quiet_consumer() {
    let ledger = ledger().await;
    backlog(&ledger, "acme", 200_000).await;
    let mut reader = lead(&ledger, &Source::default()).await;
    for _ in 0..5 {
        let rounds = rounds_until(&ledger, &mut reader).await;
        assert!(rounds <= 2, "{rounds}");
    }
}

#[tokio::test]
async fn a_table_without_an_order_column_is_fair_too() {
    let ledger = ledger().await;
    backlog(&ledger, "acme", 20_000).await;
    let source = Source {
        columns: Columns {
            order: String::new(),
            ..Columns::default()
        },
        ..Source::default()
    };
    let mut reader = lead(&ledger, &source).await;
    round(&mut reader).await;
    super::row(&ledger, "other", "invoice.paid", "\"quiet\"").await;
    // It is found when the table is next looked through, within a second.
    let started = tokio::time::Instant::now();
    loop {
        let (events, settled) = round(&mut reader).await;
        assert_ne!(settled, 0, "the backlog is not that short");
        if events
            .iter()
            .any(|event| event.consumer.as_str() == "other")
        {
            break;
        }
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(3));
}

#[tokio::test]
async fn every_row_of_a_backlog_of_many_consumers_comes_exactly_once() {
    let ledger = ledger().await;
    ledger
        .sql(
            "INSERT INTO hooklane.consumers (id) SELECT 'c' || n FROM generate_series(1, 30) n;
             INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             SELECT 'c' || (1 + n % 30), 'invoice.paid', to_json(n) FROM generate_series(1, 6000) n;
             INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             SELECT 'acme', 'invoice.paid', to_json(n) FROM generate_series(1, 7000) n;
             INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             SELECT 'other', 'invoice.paid', to_json(n) FROM generate_series(1, 5000) n",
        )
        .await;
    let mut reader = lead(&ledger, &Source::default()).await;
    let mut of_acme = Vec::new();
    let mut total = 0;
    loop {
        let (events, settled) = round(&mut reader).await;
        if settled == 0 {
            break;
        }
        total += events.len();
        let own = events.iter().filter(|e| e.consumer.as_str() == "acme");
        of_acme.extend(own.map(|e| String::from_utf8_lossy(&e.payload).parse::<u32>().unwrap()));
    }
    assert_eq!(total, 18_000);
    assert!(of_acme.is_sorted(), "a consumer's own order is kept");
    let left = "SELECT count(*) FROM hooklane.outbox_events WHERE processed_at IS NULL";
    assert_eq!(ledger.sql(left).await, "0");
    assert_eq!(
        ledger.sql("SELECT count(*) FROM hooklane.messages").await,
        "18000"
    );
}
