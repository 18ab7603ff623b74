//! Partition ownership.

use std::time::Duration;

use anyhow::Result;
use hooklane_nats::leases::MAX_AGE;
use hooklane_nats::{Lease, LeaseError, Leases};
use tokio::time::Instant;

use crate::broker::{Broker, SOON};

const POLL: Duration = Duration::from_millis(50);

#[tokio::test]
async fn one_owner_at_a_time_and_release_frees_it_at_once() -> Result<()> {
    let broker = Broker::start().await?;
    let leases = Leases::new(&broker.client);
    let (one, two) = tokio::join!(leases.acquire(0, "one"), leases.acquire(0, "two"));
    let mut held: Vec<_> = [one?, two?].into_iter().flatten().collect();
    assert_eq!(held.len(), 1);
    let first = held.remove(0);
    assert!(leases.acquire(0, "three").await?.is_none());
    let other = leases.acquire(1, "three").await?.unwrap();
    let owners = leases.list().await?;
    assert_eq!(
        owners.iter().map(|o| o.partition).collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!(owners[1].owner, "three");

    let epoch = first.epoch();
    first.release().await?;
    let mut again = leases.acquire(0, "three").await?.unwrap();
    assert!(again.epoch() > epoch);
    let epoch = again.epoch();
    again.renew().await?;
    again.renew().await?;
    assert_eq!(again.epoch(), epoch);
    other.release().await?;
    assert_eq!(leases.list().await?.len(), 1);

    let knowing = leases.clone().with_keys(vec!["two".to_owned()]);
    let _told = knowing.acquire(1, "four").await?.unwrap();
    let keys: Vec<_> = leases.list().await?.into_iter().map(|of| of.keys).collect();
    assert_eq!(keys, [vec![], vec!["two".to_owned()]]);
    Ok(())
}

#[tokio::test]
async fn a_lease_not_renewed_is_taken_over_and_its_holder_learns_it() -> Result<()> {
    let broker = Broker::start().await?;
    let leases = Leases::new(&broker.client);
    let started = Instant::now();
    let mut first = leases.acquire(0, "one").await?.unwrap();
    let mut kept = leases.acquire(1, "one").await?.unwrap();
    let second = loop {
        kept.renew().await?;
        if let Some(lease) = leases.acquire(0, "two").await? {
            break lease;
        }
        assert!(started.elapsed() < MAX_AGE * 2);
        tokio::time::sleep(POLL).await;
    };
    let took = started.elapsed();
    assert!(took >= MAX_AGE - Duration::from_millis(500), "{took:?}");
    assert!(took <= MAX_AGE + Duration::from_secs(3), "{took:?}");
    assert!(second.epoch() > first.epoch());
    let lost = first.renew().await;
    assert!(matches!(lost, Err(LeaseError::Lost(0))), "{lost:?}");
    assert_eq!(leases.list().await?[0].owner, "two");
    // A release that comes too late takes nothing from the new owner.
    first.release().await?;
    assert_eq!(leases.list().await?[0].owner, "two");
    Ok(())
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_is_not_taken_for_a_loss() -> Result<()> {
    let broker = Broker::start().await?;
    let leases = Leases::new(&broker.client);
    let mut lease = leases.acquire(0, "one").await?.unwrap();
    // The same entry written again behind its back, as by a renewal that got no answer.
    let jetstream = broker.jetstream().await?;
    let bucket = jetstream.get_key_value("LEASES").await?;
    let value = bucket.get("owner.0").await?.unwrap();
    bucket.put("owner.0", value).await?;
    lease.renew().await?;
    lease.renew().await?;
    Ok(())
}

#[tokio::test]
async fn a_restart_keeps_leases_and_a_wiped_store_loses_them() -> Result<()> {
    let broker = Broker::start().await?;
    let leases = Leases::new(&broker.client);
    let mut lease = leases.acquire(0, "one").await?.unwrap();
    let epoch = lease.epoch();
    broker.server.kill9().await?;
    broker.server.restart().await?;
    let renewed = answered(&mut lease).await;
    assert!(renewed.is_ok(), "{renewed:?}");
    broker.server.wipe_store().await?;
    let lost = answered(&mut lease).await;
    assert!(matches!(lost, Err(LeaseError::Lost(0))), "{lost:?}");
    let anew = leases.acquire(0, "two").await?.unwrap();
    assert!(anew.epoch() > epoch);
    Ok(())
}

/// Renews until the broker answers.
async fn answered(lease: &mut Lease) -> Result<(), LeaseError> {
    let started = Instant::now();
    loop {
        match lease.renew().await {
            Err(LeaseError::Unavailable(_)) if started.elapsed() < SOON => {
                tokio::time::sleep(POLL).await;
            }
            answer => return answer,
        }
    }
}
