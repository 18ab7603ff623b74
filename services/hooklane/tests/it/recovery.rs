//! Recovery on a whole Hooklane: what an endpoint missed, through a kill; an endpoint that was down
//! for longer than the schedule; one with a huge backlog beside quiet ones.

mod backlog;
mod down;
mod missed;

use hooklane_testkit::receiver::Options;
use hooklane_testkit::{Receiver, Reply};

use crate::bench::Bench;
use crate::messages::sql;

/// A receiver that answers everything with success and keeps so many requests.
async fn receiver(keep: u64) -> Receiver {
    let receiver = Receiver::start_with(Options {
        keep: usize::try_from(keep).unwrap(),
        keep_bytes: 256 << 20,
        ..Options::default()
    })
    .await
    .unwrap();
    receiver.fallback(Reply::status(204));
    receiver
}

/// Commits so many outbox rows for `acme`.
async fn write_rows(bench: &Bench, events: u64) {
    sql(
        bench,
        &format!(
            "INSERT INTO hooklane.outbox_events (event_type, payload, consumer_id)
             SELECT 'invoice.paid', '{{}}', 'acme' FROM generate_series(1, {events})"
        ),
    )
    .await;
}

/// A count by SQL.
async fn count(bench: &Bench, what: &str) -> u64 {
    let text = sql(bench, &format!("SELECT count(*) FROM hooklane.{what}")).await;
    text.parse().unwrap()
}
