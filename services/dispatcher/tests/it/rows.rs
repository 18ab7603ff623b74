//! Behaviours of receivers as rows: one endpoint, one delivery and one attempt each.

use hooklane_proto::delivery::Delivery;
use hooklane_proto::record::{Attempt, Verdict};

use crate::bench::Bench;

/// What has to come of one behaviour.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expect {
    /// Sent, with this status.
    Sent(u16),
    /// Again by the schedule after this status.
    Retry(u16),
    /// Again by the schedule after no answer, with this error class.
    Error(&'static str),
    /// As `Error`, with either class: which of two events comes first is up to the network.
    EitherError(&'static str, &'static str),
    /// Failed as gone.
    Gone,
}

/// One behaviour.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) expect: Expect,
    pub(crate) timeout_ms: u32,
    pub(crate) payload: Option<Vec<u8>>,
}

impl Row {
    pub(crate) fn new(id: impl Into<String>, url: impl Into<String>, expect: Expect) -> Self {
        Self {
            id: id.into(),
            url: url.into(),
            expect,
            timeout_ms: 2_000,
            payload: None,
        }
    }

    pub(crate) fn timeout(mut self, millis: u32) -> Self {
        self.timeout_ms = millis;
        self
    }

    pub(crate) fn payload(mut self, payload: Vec<u8>) -> Self {
        self.payload = Some(payload);
        self
    }
}

/// Makes one attempt for each row, all at once, and checks what every attempt has in common.
pub(crate) async fn attempt_all(bench: &Bench, rows: Vec<Row>) -> Vec<(String, Attempt)> {
    let mut made: Vec<(Row, Delivery)> = Vec::new();
    for row in rows {
        let mut route = bench.route(&row.url);
        route.timeout_ms = row.timeout_ms;
        bench.routes.put(&route).await.unwrap();
        let mut delivery = bench.delivery(&route);
        if let Some(payload) = &row.payload {
            delivery.payload = payload.clone().into();
        }
        bench.publish(&delivery).await;
        made.push((row, delivery));
    }
    let mut attempts = Vec::new();
    for (row, delivery) in made {
        let attempt = bench.recorded.attempt(&delivery).await;
        check(&row, &attempt);
        let records = bench.recorded.of(&delivery);
        assert_eq!(records.len(), 1, "{}: {records:?}", row.id);
        attempts.push((row.id, attempt));
    }
    attempts
}

fn check(row: &Row, attempt: &Attempt) {
    let Row { id, expect, .. } = row;
    let seen = (attempt.status, attempt.error.as_deref());
    let retries = matches!(attempt.verdict, Verdict::Retry { .. });
    let right = match *expect {
        Expect::Sent(status) => seen == (Some(status), None) && attempt.verdict == Verdict::Sent,
        Expect::Retry(status) => seen == (Some(status), None) && retries,
        Expect::Error(class) => seen == (None, Some(class)) && retries,
        Expect::EitherError(one, other) => {
            seen.0.is_none() && retries && (seen.1 == Some(one) || seen.1 == Some(other))
        }
        Expect::Gone => {
            seen == (Some(410), None) && matches!(attempt.verdict, Verdict::Failed { .. })
        }
    };
    assert!(right, "{id}: expected {expect:?}, got {attempt:?}");
    let counted = i32::from(!matches!(seen.1, Some("own_fault" | "interrupted")));
    assert_eq!((attempt.number, attempt.counted), (1, counted), "{id}");
    // A refusal asks nobody, and may take less than a microsecond.
    let least = i64::from(seen.1 != Some("address_refused"));
    let timeout = i64::from(row.timeout_ms) * 1_000;
    assert!(
        (least..timeout + 1_500_000).contains(&attempt.duration_us),
        "{id}: took {} µs",
        attempt.duration_us
    );
    assert!(attempt.body.len() <= 4 << 10, "{id}");
    let headers: usize = attempt.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
    assert!(headers <= 9 << 10, "{id}: {headers} bytes of headers");
    assert!(
        attempt
            .detail
            .as_ref()
            .is_none_or(|d| d.chars().count() <= 500),
        "{id}"
    );
}

/// Finds a row's attempt.
pub(crate) fn of<'a>(attempts: &'a [(String, Attempt)], id: &str) -> &'a Attempt {
    let found = attempts.iter().find(|(other, _)| other == id);
    &found.unwrap_or_else(|| panic!("no row {id}")).1
}
