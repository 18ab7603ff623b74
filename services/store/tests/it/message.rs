//! Listing messages.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::MessageId;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_store::delivery::DeliveryStatus;
use hooklane_store::message::{Deliveries, Listing, Place, list};

use crate::ledger::{Ledger, drive, sent};

fn place(key: &DeliveryKey) -> Place {
    (key.accepted_at, key.message)
}

/// The places of all pages, one page after the other.
async fn pages(ledger: &Ledger, mut listing: Listing, limit: u32) -> Vec<Vec<Place>> {
    let mut pages = Vec::new();
    loop {
        let page = list(&ledger.store, &listing, limit).await.unwrap();
        let places = page.items.iter().map(|one| (one.accepted_at, one.id));
        pages.push(places.collect());
        match page.next {
            Some(next) => listing.after = Some(next),
            None => return pages,
        }
    }
}

async fn all(ledger: &Ledger, listing: Listing) -> Vec<Place> {
    pages(ledger, listing, 100).await.concat()
}

/// A message without deliveries.
async fn message(
    ledger: &Ledger,
    n: u64,
    consumer: &str,
    event_type: &str,
    at: DateTime<Utc>,
) -> Place {
    let id = MessageId::for_test(n);
    ledger.store.ensure_days([at]).await.unwrap();
    ledger
        .sql(&format!(
            "INSERT INTO hooklane.messages (accepted_at, id, consumer_id, event_type, payload, source)
             VALUES ('{}', '{}', '{consumer}', '{event_type}', '12345', 'intake')",
            at.to_rfc3339(),
            id.uuid()
        ))
        .await;
    (at, id)
}

#[tokio::test]
async fn the_pages_hold_every_message_once_the_last_accepted_first() {
    let ledger = Ledger::new().await;
    let (one, two) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    let now = clock::now();
    let mut expected = Vec::new();
    for (n, minutes) in (0_u64..).step_by(10).zip([0, 1, 29, 31, 90, 3 * 24 * 60]) {
        let then = now - TimeDelta::minutes(minutes);
        let keys = ledger.deliveries(n..n + 3, one, then).await;
        ledger.deliveries(n..n + 3, two, then).await;
        expected.extend(keys.iter().map(place));
    }
    expected.sort_by(|one, other| other.cmp(one));
    for consumer in [None, Some(ConsumerId::new("acme").unwrap())] {
        let listing = Listing {
            consumer,
            ..Listing::default()
        };
        let paged = pages(&ledger, listing, 4).await;
        assert_eq!(paged.concat(), expected);
        assert!(paged[..paged.len() - 1].iter().all(|page| page.len() == 4));
    }
}

#[tokio::test]
async fn a_listing_is_narrowed_by_each_of_its_filters() {
    let ledger = Ledger::new().await;
    let (one, two) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    let now = clock::now();
    let ago = |minutes| now - TimeDelta::minutes(minutes);
    let first = ledger.delivery(1, one, ago(40)).await;
    let second = ledger.delivery(2, one, ago(20)).await;
    ledger.delivery(2, two, ago(20)).await;
    let other = message(&ledger, 3, "other", "user.created", ago(10)).await;
    let records = [sent(drive(first, 1), 1, 1), sent(drive(second, 1), 2, 1)];
    ledger.store.apply(&records).await.unwrap();
    let (first, second) = (place(&first), place(&second));

    let everything = Listing::default;
    assert_eq!(all(&ledger, everything()).await, [other, second, first]);
    let consumer = ConsumerId::new("other").ok();
    assert_eq!(
        all(
            &ledger,
            Listing {
                consumer,
                ..everything()
            }
        )
        .await,
        [other]
    );
    let event_type = EventType::new("invoice.paid").ok();
    let typed = Listing {
        event_type,
        ..everything()
    };
    assert_eq!(all(&ledger, typed.clone()).await, [second, first]);
    let since = Some(ago(20));
    assert_eq!(
        all(
            &ledger,
            Listing {
                since,
                ..typed.clone()
            }
        )
        .await,
        [second]
    );
    let until = Some(ago(20));
    assert_eq!(all(&ledger, Listing { until, ..typed }).await, [first]);
    let endpoint = Some(two);
    assert_eq!(
        all(
            &ledger,
            Listing {
                endpoint,
                ..everything()
            }
        )
        .await,
        [second]
    );
    let of = |status| Listing {
        status: Some(status),
        ..everything()
    };
    assert_eq!(
        all(&ledger, of(DeliveryStatus::Sent)).await,
        [second, first]
    );
    assert_eq!(all(&ledger, of(DeliveryStatus::Received)).await, [second]);
    let sent_to_two = Listing {
        endpoint,
        ..of(DeliveryStatus::Sent)
    };
    assert!(all(&ledger, sent_to_two).await.is_empty());
}

#[tokio::test]
async fn a_message_is_listed_with_what_became_of_it() {
    let ledger = Ledger::new().await;
    let now = clock::now();
    message(&ledger, 9, "acme", "invoice.paid", now).await;
    let mut keys = Vec::new();
    for n in 1..=3 {
        keys.push(ledger.delivery(1, ledger.endpoint(n).await, now).await);
    }
    ledger
        .store
        .apply(&[sent(drive(keys[0], 1), 1, 1)])
        .await
        .unwrap();
    let page = list(&ledger.store, &Listing::default(), 10).await.unwrap();
    let [bare, one] = page.items.as_slice() else {
        panic!("{page:?}");
    };
    assert_eq!((bare.size, bare.source.as_str()), (5, "intake"));
    assert_eq!(bare.deliveries, Deliveries::default());
    let expected = Deliveries {
        sent: 1,
        received: 2,
        ..Deliveries::default()
    };
    assert_eq!((one.deliveries, one.deliveries.total()), (expected, 3));
    assert_eq!(
        (one.size, one.content_type.as_str()),
        (2, "application/json")
    );
}

#[tokio::test]
async fn a_listing_out_of_patience_says_where_to_go_on() {
    let ledger = Ledger::new().await;
    let now = clock::now();
    let earlier = message(
        &ledger,
        1,
        "acme",
        "rare.one",
        now - TimeDelta::minutes(100),
    )
    .await;
    message(&ledger, 2, "acme", "invoice.paid", now).await;
    let listing = Listing {
        event_type: EventType::new("rare.one").ok(),
        patience: Duration::ZERO,
        ..Listing::default()
    };
    let looks = pages(&ledger, listing.clone(), 10).await;
    assert!(looks.len() > 2 && looks[0].is_empty(), "{looks:?}");
    assert_eq!(looks.concat(), [earlier]);
    let patient = Listing {
        patience: Duration::from_secs(60),
        ..listing
    };
    assert_eq!(pages(&ledger, patient, 10).await, [[earlier]]);
}
