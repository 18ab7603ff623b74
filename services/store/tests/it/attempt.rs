//! Attempts listed and shown, and what an endpoint's attempts say.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{AttemptId, EndpointId};
use hooklane_proto::record::{Record, Verdict};
use hooklane_store::attempt::{self, Failures, Listing, Place, Which};
use hooklane_store::manage::Error;

use crate::ledger::{Ledger, attempt as made, drive};

/// An attempt that started then, took so long, and was answered with this.
fn record(
    key: DeliveryKey,
    number: i32,
    at: DateTime<Utc>,
    millis: i64,
    status: Option<u16>,
) -> Record {
    let verdict = match status {
        Some(200) => Verdict::Sent,
        _ => Verdict::Retry {
            next_attempt_at: at + TimeDelta::hours(1),
        },
    };
    let mut attempt = made(drive(key, number), 0, number, verdict);
    attempt.id = AttemptId::generate();
    attempt.started_at = at;
    attempt.duration_us = millis * 1000;
    attempt.status = status;
    attempt.error = status.is_none().then(|| "timeout".to_owned());
    Record::Attempt(attempt)
}

fn place(record: &Record) -> Place {
    match record {
        Record::Attempt(attempt) => (attempt.started_at, attempt.id),
        other => panic!("{other:?}"),
    }
}

async fn listed(ledger: &Ledger, which: Which, limit: u32) -> Vec<Place> {
    let mut found = Vec::new();
    let mut listing = Listing::of(which);
    loop {
        let page = attempt::list(&ledger.store, &listing, limit).await.unwrap();
        found.extend(page.items.iter().map(|one| (one.started_at, one.id)));
        match page.next {
            Some(next) => listing.after = Some(next),
            None => return found,
        }
    }
}

#[tokio::test]
async fn attempts_are_listed_by_message_and_by_endpoint_the_last_first() {
    let ledger = Ledger::new().await;
    let (one, two) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    let now = clock::now();
    let early = now - TimeDelta::days(2);
    let first = ledger.delivery(1, one, early).await;
    let beside = ledger.delivery(1, two, early).await;
    let second = ledger.delivery(2, one, now - TimeDelta::minutes(1)).await;
    let records = [
        record(first, 1, early, 5, None),
        record(beside, 1, early + TimeDelta::seconds(1), 5, Some(200)),
        record(first, 2, early + TimeDelta::days(1), 5, Some(500)),
        record(second, 1, now, 5, Some(200)),
    ];
    ledger.store.apply(&records).await.unwrap();
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| place(&records[at]));
    for limit in [1, 2, 10] {
        assert_eq!(
            listed(&ledger, Which::Endpoint(one), limit).await,
            [d, c, a]
        );
        assert_eq!(listed(&ledger, Which::Endpoint(two), limit).await, [b]);
        let message = Which::Message(first.message, None);
        assert_eq!(listed(&ledger, message, limit).await, [c, b, a]);
        let delivery = Which::Message(first.message, Some(one));
        assert_eq!(listed(&ledger, delivery, limit).await, [c, a]);
    }
    let nobodys = Which::Endpoint(EndpointId::for_test(3));
    assert!(listed(&ledger, nobodys, 10).await.is_empty());
}

#[tokio::test]
async fn a_listing_out_of_patience_says_where_to_go_on() {
    let ledger = Ledger::new().await;
    let (busy, rare) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    let now = clock::now();
    let early = now - TimeDelta::minutes(100);
    let first = record(ledger.delivery(1, rare, early).await, 1, early, 5, None);
    let last = record(ledger.delivery(2, busy, now).await, 1, now, 5, None);
    ledger.store.apply(&[first.clone(), last]).await.unwrap();
    let mut listing = Listing {
        patience: Duration::ZERO,
        ..Listing::of(Which::Endpoint(rare))
    };
    let mut looks = Vec::new();
    loop {
        let page = attempt::list(&ledger.store, &listing, 10).await.unwrap();
        looks.push(page.items.len());
        match page.next {
            Some(next) => listing.after = Some(next),
            None => break,
        }
    }
    assert!(looks.len() > 2 && looks[0] == 0, "{looks:?}");
    assert_eq!(looks.iter().sum::<usize>(), 1);
    assert_eq!(
        listed(&ledger, Which::Endpoint(rare), 10).await,
        [place(&first)]
    );
}

#[tokio::test]
async fn an_attempt_is_shown_with_its_answer_by_its_id_alone() {
    let ledger = Ledger::new().await;
    let now = clock::now();
    let key = ledger.delivery(1, ledger.endpoint(1).await, now).await;
    // Its id was made when it ended, a minute after its start.
    let started = now - TimeDelta::seconds(60);
    let mut record = record(key, 1, started, 60_000, Some(500));
    let headers = vec![
        ("set-cookie".to_owned(), "a=1".to_owned()),
        ("set-cookie".to_owned(), "b=\"2\"".to_owned()),
    ];
    if let Record::Attempt(attempt) = &mut record {
        attempt.headers = headers.clone();
        attempt.body = vec![0xff, 0x00, b'x'];
    }
    ledger
        .store
        .apply(std::slice::from_ref(&record))
        .await
        .unwrap();
    let (_, id) = place(&record);
    let shown = attempt::show(&ledger.store, id).await.unwrap();
    assert_eq!(
        (shown.headers, shown.body),
        (headers, vec![0xff, 0x00, b'x'])
    );
    assert_eq!(shown.attempt.key, key);
    assert_eq!(shown.attempt.duration, Duration::from_secs(60));
    assert_eq!((shown.attempt.status, shown.attempt.number), (Some(500), 1));
    for nobodys in [
        AttemptId::generate(),
        AttemptId::for_test(1),
        AttemptId::from_uuid(Default::default()),
    ] {
        let missing = attempt::show(&ledger.store, nobodys).await;
        assert!(
            matches!(missing, Err(Error::NotFound { .. })),
            "{missing:?}"
        );
    }
}

#[tokio::test]
async fn an_endpoints_statistics_say_how_it_answered_and_how_fast() {
    let ledger = Ledger::new().await;
    let (one, two) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    let now = clock::now();
    let ago = |minutes| now - TimeDelta::minutes(minutes);
    let mut records = Vec::new();
    let keys = ledger.deliveries(1..101, one, ago(30)).await;
    for (n, key) in (1..).zip(keys) {
        let status = match n {
            1..=90 => Some(200),
            91..=97 => Some(503),
            _ => None,
        };
        records.push(record(key, 1, ago(30), n, status));
    }
    // Neither what is another's nor what is too old counts.
    let others = ledger.delivery(500, two, ago(1)).await;
    records.push(record(others, 1, ago(1), 9_999, Some(404)));
    let old = ledger.delivery(501, one, ago(90)).await;
    records.push(record(old, 1, ago(90), 9_999, Some(404)));
    ledger.store.apply(&records).await.unwrap();

    let hour = Duration::from_secs(3600);
    let told = attempt::statistics(&ledger.store, one, hour).await.unwrap();
    assert!(told.complete);
    assert_eq!((told.attempts, told.succeeded, told.failed), (100, 90, 10));
    let millis = |n| Some(Duration::from_millis(n));
    assert_eq!(
        (told.p50, told.p95, told.p99),
        (millis(50), millis(95), millis(99))
    );
    let failures = Failures::from([("503".to_owned(), 7), ("timeout".to_owned(), 3)]);
    assert_eq!(told.failures, failures);

    let quiet = ledger.endpoint(3).await;
    let told = attempt::statistics(&ledger.store, quiet, hour)
        .await
        .unwrap();
    assert_eq!((told.attempts, told.p50, told.failures.len()), (0, None, 0));
    let nobody = attempt::statistics(&ledger.store, EndpointId::for_test(9), hour).await;
    assert!(matches!(nobody, Err(Error::NotFound { .. })), "{nobody:?}");
    let long = attempt::MAX_WINDOW + Duration::from_secs(1);
    let refused = attempt::statistics(&ledger.store, one, long).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}
