//! Listing deliveries.

use std::time::Duration;

use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_store::delivery::{DeliveryStatus, Listing, list};

use crate::ledger::{Ledger, drive, sent};

/// Every page of a listing, one after the other.
async fn pages(ledger: &Ledger, mut listing: Listing, limit: u32) -> Vec<Vec<DeliveryKey>> {
    let mut pages = Vec::new();
    loop {
        let page = list(&ledger.store, &listing, limit).await.unwrap();
        pages.push(page.items.iter().map(|delivery| delivery.key).collect());
        match page.next {
            Some(next) => listing.after = Some(next),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn the_pages_hold_every_delivery_once_the_last_accepted_first() {
    let ledger = Ledger::new().await;
    let (one, two) = (ledger.endpoint(1).await, ledger.endpoint(2).await);
    let now = clock::now();
    let mut keys = Vec::new();
    for (n, minutes) in (0_u64..).step_by(10).zip([0, 1, 29, 31, 90, 3 * 24 * 60]) {
        let then = now - TimeDelta::minutes(minutes);
        keys.extend(ledger.deliveries(n..n + 3, one, then).await);
        keys.extend(ledger.deliveries(n..n + 2, two, then).await);
    }
    let order = |key: &DeliveryKey| (key.accepted_at, key.message.uuid(), key.endpoint.uuid());
    keys.sort_by_key(|key| std::cmp::Reverse(order(key)));

    let all = pages(&ledger, Listing::default(), 4).await;
    assert_eq!(all.concat(), keys);
    assert!(all[..all.len() - 1].iter().all(|page| page.len() == 4));

    let to_two = Listing {
        endpoint: Some(two),
        since: Some(now - TimeDelta::minutes(31)),
        ..Listing::default()
    };
    let expected: Vec<_> = keys
        .iter()
        .filter(|key| key.endpoint == two && key.accepted_at >= now - TimeDelta::minutes(31))
        .copied()
        .collect();
    assert_eq!(expected.len(), 8);
    assert_eq!(pages(&ledger, to_two, 3).await.concat(), expected);
}

#[tokio::test]
async fn a_listing_out_of_patience_says_where_to_go_on() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let now = clock::now();
    let earlier = ledger
        .delivery(1, endpoint, now - TimeDelta::minutes(100))
        .await;
    ledger.deliveries(2..5, endpoint, now).await;
    let records = [sent(drive(earlier, 1), 1, 1)];
    ledger.store.apply(&records).await.unwrap();

    let listing = Listing {
        status: Some(DeliveryStatus::Sent),
        patience: Duration::ZERO,
        ..Listing::default()
    };
    let looks = pages(&ledger, listing.clone(), 10).await;
    assert!(looks.len() > 2 && looks[0].is_empty(), "{looks:?}");
    assert_eq!(looks.concat(), [earlier]);

    let patient = Listing {
        patience: Duration::from_secs(20),
        ..listing
    };
    assert_eq!(pages(&ledger, patient, 10).await, [[earlier]]);
}

#[tokio::test]
async fn an_empty_ledger_lists_nothing() {
    let ledger = Ledger::new().await;
    let looks = pages(&ledger, Listing::default(), 10).await;
    assert_eq!(looks, [[]]);
}
