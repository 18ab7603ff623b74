//! What the ledger refuses of endpoints whatever its caller checked, who may ask for its id, and which
//! endpoints fail.

use std::time::Duration;

use hooklane_core::secrets::{MasterKeyConfig, MasterKeys, generate_master_key};
use hooklane_proto::id::EndpointId;
use hooklane_proto::token::ConsumerId;
use hooklane_store::endpoint::{self, MAX_GRACE};
use hooklane_store::manage::Error;

use crate::ledger::Ledger;

#[tokio::test]
async fn a_grace_beyond_its_bound_is_refused() {
    let ledger = Ledger::new().await;
    let id = ledger.endpoint(1).await;
    let keys = MasterKeys::new(&[MasterKeyConfig {
        id: "one".to_owned(),
        key: generate_master_key(),
    }])
    .unwrap();
    let rotate = async |grace| endpoint::rotate(&ledger.store, id, None, grace, &keys).await;
    for grace in [MAX_GRACE + Duration::from_millis(1), Duration::MAX] {
        let refused = rotate(grace).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    }
    let count = "SELECT count(*) FROM hooklane.endpoint_secrets";
    assert_eq!(ledger.sql(count).await, "0");
    rotate(MAX_GRACE).await.unwrap();
    assert_eq!(ledger.sql(count).await, "1");
}

#[tokio::test]
async fn any_role_may_ask_what_a_ledgers_id_is_made_of() {
    let ledger = Ledger::new().await;
    let role = format!("plain_{}", uuid::Uuid::now_v7().simple());
    let asked = ledger
        .sql(&format!(
            "CREATE ROLE {role}; SET ROLE {role};
             SELECT count(system_identifier) FROM pg_control_system(); RESET ROLE;
             DROP ROLE {role}"
        ))
        .await;
    assert!(asked.lines().any(|line| line == "1"), "{asked}");
}

#[tokio::test]
async fn every_failing_endpoint_is_listed_the_longest_failing_first() {
    let ledger = Ledger::new().await;
    for n in 1..=7 {
        ledger.endpoint(n).await;
    }
    let id = |n| EndpointId::for_test(n);
    // 6 fails and nobody knows since when; 7 has failed but is no longer failing.
    ledger
        .sql(
            "INSERT INTO hooklane.consumers (id) VALUES ('other');
             UPDATE hooklane.endpoints SET consumer_id = 'other' WHERE right(id::text, 1) = '3';
             UPDATE hooklane.endpoints SET state = 'failing' WHERE right(id::text, 1) IN ('2', '3', '4', '5', '6');
             INSERT INTO hooklane.endpoint_health (endpoint_id, consecutive_failures, failing_since)
             SELECT id, 5, now() - CASE right(id::text, 1) WHEN '3' THEN '3 h' WHEN '7' THEN '9 h' ELSE '1 h' END::interval
               FROM hooklane.endpoints WHERE right(id::text, 1) IN ('2', '3', '4', '5', '7')",
        )
        .await;
    for limit in [1, 2, 10] {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = endpoint::failing(&ledger.store, None, after, limit)
                .await
                .unwrap();
            found.extend(page.items.iter().map(|endpoint| endpoint.id));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, [id(3), id(2), id(4), id(5), id(6)], "{limit}");
    }
    let other = ConsumerId::new("other").unwrap();
    let page = endpoint::failing(&ledger.store, Some(&other), None, 10).await;
    let items = page.unwrap().items;
    assert_eq!(
        items.iter().map(|endpoint| endpoint.id).collect::<Vec<_>>(),
        [id(3)]
    );
}
