//! What the ledger refuses of endpoints whatever its caller checked, and who may ask for its id.

use std::time::Duration;

use hooklane_core::secrets::{MasterKeyConfig, MasterKeys, generate_master_key};
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
