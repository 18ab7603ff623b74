//! Which ledger this is.

use uuid::Uuid;

use crate::{Error, Store};

/// The ledger's id: made when it is migrated first, and tied to the database that it is in, so that
/// a copy in another database, such as a restored dump, is another ledger. A physical copy of a
/// whole database server can't be told from the original.
///
/// # Errors
/// Where the database fails or was not migrated.
pub async fn id(store: &Store) -> Result<Uuid, Error> {
    sqlx::query_scalar!(
        r#"SELECT md5(concat_ws(' ', ledger.id, server.system_identifier, place.oid))::uuid AS "id!"
             FROM hooklane.ledger AS ledger, pg_control_system() AS server, pg_database AS place
            WHERE place.datname = current_database()"#
    )
    .fetch_one(store.pool())
    .await
    .map_err(Error::doing("asking for the ledger's id"))
}
