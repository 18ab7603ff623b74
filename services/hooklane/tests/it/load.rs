//! Steady load for a Hooklane under test, and what became of it.

use std::time::Duration;

use hooklane_proto::id::MessageId;
use hooklane_store::producer::{End, Producer, Row};
use hooklane_testkit::Receiver;
use hooklane_testkit::receiver::Recorded;

use crate::bench::Bench;
use crate::system::BUDGET;

/// Commits rows for `acme`, a hundred a second, until dropped.
pub(crate) struct Load(tokio::task::JoinHandle<()>);

impl Load {
    pub(crate) async fn start(bench: &Bench) -> Self {
        let producer = Producer::connect(bench.database().url(), 1).await.unwrap();
        Self(tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(100));
            loop {
                ticks.tick().await;
                let rows: Vec<Row> = (0..10).map(|_| row()).collect();
                producer.write(&rows, End::Commit, || {}).await.unwrap();
            }
        }))
    }
}

fn row() -> Row {
    Row {
        id: MessageId::generate().uuid(),
        consumer: "acme".to_owned(),
        event_type: "invoice.paid".to_owned(),
        payload: "{}".to_owned(),
        traceparent: None,
        idempotency_key: None,
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits until every committed row's deliveries have ended.
pub(crate) async fn settled(bench: &Bench) {
    const OPEN: &str =
        "SELECT (SELECT count(*) FROM hooklane.outbox_events WHERE processed_at IS NULL)
              + (SELECT count(*) FROM hooklane.deliveries WHERE status IN ('received', 'stalled'))";
    bench.database().until(OPEN, "0", BUDGET).await.unwrap();
}

/// The message ids of all requests, sorted.
pub(crate) fn arrived(receiver: &Receiver) -> Vec<String> {
    let requests = receiver.requests();
    let id = |request: &Recorded| {
        let id = request.header("webhook-id").unwrap();
        id.strip_prefix("msg_").unwrap().to_owned()
    };
    let mut ids: Vec<String> = requests.iter().map(id).collect();
    ids.sort_unstable();
    ids
}
