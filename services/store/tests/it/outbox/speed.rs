//! How many events a second one relay takes in. Ignored: a figure to look at, not a gate.

use hooklane_store::outbox::Source;
use tokio::time::Instant;

use super::{lead, ledger, round};

const ROWS: usize = 50_000;

#[tokio::test]
#[ignore = "a figure to look at: cargo test -p hooklane-store -- --ignored --nocapture an_outbox_is_taken"]
async fn an_outbox_is_taken_in_at_this_pace() {
    for endpoints in [1_u64, 10] {
        let ledger = ledger().await;
        for n in 0..endpoints {
            crate::accept::endpoint(&ledger, n, "acme", "invoice.*", "active").await;
        }
        ledger
            .sql(&format!(
                "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
                 SELECT 'acme', 'invoice.paid', to_json(repeat('x', 1022))
                 FROM generate_series(1, {ROWS})"
            ))
            .await;
        let mut reader = lead(&ledger, &Source::default()).await;
        let started = Instant::now();
        let (mut rows, mut rounds) = (0, 0);
        loop {
            let (_, settled) = round(&mut reader).await;
            if settled == 0 {
                break;
            }
            rows += settled;
            rounds += 1;
        }
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{endpoints} endpoints: {:.0} events and {:.0} deliveries a second, {:.1} ms a batch of {}",
            rows as f64 / seconds,
            rows as f64 * endpoints as f64 / seconds,
            seconds * 1000.0 / f64::from(rounds),
            rows / rounds as usize,
        );
    }
}
