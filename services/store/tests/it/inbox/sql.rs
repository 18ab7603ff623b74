//! Adopters who handle events in a transaction of their own.

use hooklane_store::inbox::Mode;
use sqlx::{Connection as _, PgConnection, Row as _};
use uuid::Uuid;

use super::{Shop, order};
use crate::ledger::{Ledger, at};

/// Three events of one order and one of another, decided.
async fn decided() -> Ledger {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Sql);
    for (id, name, key) in [
        ("1", "created", "A"),
        ("2", "paid", "A"),
        ("3", "shipped", "A"),
        ("4", "created", "B"),
    ] {
        ledger
            .received(0, order(id, &format!("order.{name}"), key))
            .await;
    }
    ledger.settled(0, &reader).await;
    ledger
        .sql("CREATE TABLE effects (event text PRIMARY KEY)")
        .await;
    ledger
}

async fn claim(conn: &mut PgConnection, seconds: i64) -> Vec<(Uuid, String)> {
    sqlx::query("SELECT id, partner_event_id FROM hooklane.inbox_claim('shop', 10, $1)")
        .bind(at(seconds))
        .fetch_all(conn)
        .await
        .unwrap()
        .into_iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect()
}

fn names(claimed: &[(Uuid, String)]) -> Vec<&str> {
    claimed.iter().map(|(_, name)| name.as_str()).collect()
}

/// The one that is called `1`.
fn first(claimed: &[(Uuid, String)]) -> Uuid {
    claimed.iter().find(|(_, name)| name == "1").unwrap().0
}

/// Handles an event: an effect of the adopter's own, and the word that it is done.
async fn handle(conn: &mut PgConnection, (id, name): &(Uuid, String)) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effects VALUES ($1)")
        .bind(name)
        .execute(&mut *conn)
        .await?;
    sqlx::query("SELECT hooklane.inbox_done($1)")
        .bind(id)
        .execute(conn)
        .await?;
    Ok(())
}

async fn fail(conn: &mut PgConnection, id: Uuid, seconds: i64) -> String {
    sqlx::query_scalar("SELECT hooklane.inbox_fail($1, 'boom', $2)")
        .bind(id)
        .bind(at(seconds))
        .fetch_one(conn)
        .await
        .unwrap()
}

#[tokio::test]
async fn an_effect_and_its_event_commit_together_or_not_at_all() {
    let ledger = decided().await;
    let mut conn = ledger.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let claimed = claim(&mut tx, 1).await;
    assert_eq!(names(&claimed), ["1", "4"]);
    handle(&mut tx, &claimed[0]).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(ledger.sql("SELECT count(*) FROM effects").await, "0");
    assert_eq!(
        ledger.inbox().await,
        "1:PENDING:1 2:PENDING:2 3:PENDING:3 4:PENDING:1"
    );

    for expected in [vec!["1", "4"], vec!["2"], vec!["3"], vec![]] {
        let mut tx = conn.begin().await.unwrap();
        let claimed = claim(&mut tx, 1).await;
        assert_eq!(names(&claimed), expected);
        for one in &claimed {
            handle(&mut tx, one).await.unwrap();
        }
        tx.commit().await.unwrap();
    }
    assert_eq!(ledger.sql("SELECT count(*) FROM effects").await, "4");
    assert_eq!(
        ledger.inbox().await,
        "1:PROCESSED:1 2:PROCESSED:2 3:PROCESSED:3 4:PROCESSED:1"
    );
}

#[tokio::test]
async fn what_somebody_has_claimed_nobody_else_gets_and_nothing_waits_for_it() {
    let ledger = decided().await;
    let (mut one, mut other) = (ledger.connect().await, ledger.connect().await);
    let mut first = one.begin().await.unwrap();
    assert_eq!(names(&claim(&mut first, 1).await), ["1", "4"]);
    let mut second = other.begin().await.unwrap();
    assert!(claim(&mut second, 1).await.is_empty());
    second.rollback().await.unwrap();
    // New events of a claimed entity are decided meanwhile.
    let reader = Shop::new(Mode::Sql);
    ledger.received(2, order("5", "order.delivered", "A")).await;
    assert_eq!(ledger.stepped(2, &reader).await.applied, 1);
    first.rollback().await.unwrap();
    assert_eq!(names(&claim(&mut other, 3).await), ["1", "4"]);
}

#[tokio::test]
async fn a_claim_carries_what_a_handler_needs() {
    let ledger = decided().await;
    let row = sqlx::query("SELECT * FROM hooklane.inbox_claim('shop', 1)")
        .fetch_one(&mut ledger.connect().await)
        .await
        .unwrap();
    let body = br#"{"id":"1","type":"order.created","key":"A"}"#;
    assert_eq!(row.get::<Vec<u8>, _>("body"), body);
    assert_eq!(row.get::<serde_json::Value, _>("payload")["key"], "A");
    assert_eq!(row.get::<String, _>("event_type"), "order.created");
    assert_eq!(row.get::<i64, _>("sequence"), 1);
    assert_eq!(row.get::<String, _>("integrity"), "full");
    assert_eq!(row.get::<i32, _>("failures"), 0);
}

#[tokio::test]
async fn a_failure_comes_again_after_1_5_and_15_minutes_and_is_quarantined_then() {
    let ledger = decided().await;
    let mut conn = ledger.connect().await;
    let mut now = 0;
    for minutes in [1, 5, 15] {
        let id = first(&claim(&mut conn, now).await);
        assert_eq!(fail(&mut conn, id, now).await, "PENDING");
        // Those behind it go on.
        let next = claim(&mut conn, now + minutes * 60 - 1).await;
        assert_eq!(names(&next), ["2", "4"]);
        now += minutes * 60;
    }
    let id = first(&claim(&mut conn, now).await);
    assert_eq!(fail(&mut conn, id, now).await, "QUARANTINED");
    assert_eq!(ledger.why("1").await, "handler_failed: boom");
    let told = "SELECT payload->'data'->>'reason' FROM hooklane.operational_events
                 WHERE event_type = 'hooklane.inbox.quarantined'";
    assert_eq!(ledger.sql(told).await, "handler_failed");
}

#[tokio::test]
async fn what_does_not_wait_to_be_handled_is_refused_loudly() {
    let ledger = decided().await;
    let mut conn = ledger.connect().await;
    let claimed = claim(&mut conn, 1).await;
    handle(&mut conn, &claimed[0]).await.unwrap();
    for sql in [
        "SELECT hooklane.inbox_done($1)",
        "SELECT hooklane.inbox_fail($1, 'x')",
    ] {
        let error = sqlx::query(sql)
            .bind(claimed[0].0)
            .execute(&mut conn)
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("does not wait to be handled"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn only_roles_that_were_named_may_claim() {
    let ledger = decided().await;
    let role = "inbox_adopter_test";
    let mut conn = ledger.connect().await;
    let script = format!(
        "DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
         GRANT USAGE ON SCHEMA hooklane TO {role}; SET ROLE {role}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(script))
        .execute(&mut conn)
        .await
        .unwrap();
    let refused = sqlx::query("SELECT FROM hooklane.inbox_claim('shop')")
        .execute(&mut conn)
        .await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("permission denied")
    );
    let grant = format!(
        "RESET ROLE; GRANT EXECUTE ON FUNCTION hooklane.inbox_claim(text, integer, timestamptz) TO {role};
         SET ROLE {role}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(grant))
        .execute(&mut conn)
        .await
        .unwrap();
    assert_eq!(names(&claim(&mut conn, 1).await), ["1", "4"]);
}
