//! Whether the configured master keys are the ledger's, and moving everything to the current one.
//!
//! Owns the check value and the rotation. Does not own the keys or the envelope
//! (`hooklane_core::secrets`).
//!
//! Rotation goes through the endpoints in batches, each one short transaction. What is under the
//! current key already is passed over, so that a rotation that was interrupted is simply begun
//! again. Each changed endpoint takes a new version: its settings in the broker carry sealed
//! secrets too, and the old key is needed until those are replaced.

use hooklane_core::secrets::{self, MasterKeys};
use hooklane_proto::id::EndpointId;
use uuid::Uuid;

use crate::manage::Error;
use crate::{Error as Fault, Store};

/// Holds the configured keys against the ledger's check value. On a new ledger it is made.
///
/// # Errors
/// [`Error::Secrets`] where no configured key is the one that sealed what is here, or a fault of
/// the database.
pub async fn verify(store: &Store, keys: &MasterKeys) -> Result<(), Error> {
    let doing = "checking the master key";
    let made = keys.check_value()?;
    sqlx::query!(
        "INSERT INTO hooklane.master_key_check (sealed) VALUES ($1) ON CONFLICT DO NOTHING",
        made,
    )
    .execute(store.pool())
    .await
    .map_err(Fault::doing(doing))?;
    let kept = sqlx::query_scalar!("SELECT sealed FROM hooklane.master_key_check")
        .fetch_one(store.pool())
        .await
        .map_err(Fault::doing(doing))?;
    Ok(keys.verify_check_value(&kept)?)
}

/// How much is to be looked at, for a progress bar.
///
/// # Errors
/// A fault of the database.
pub async fn endpoints(store: &Store) -> Result<u64, Error> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM hooklane.endpoints WHERE state <> 'deleted'"#
    )
    .fetch_one(store.pool())
    .await
    .map_err(Fault::doing("counting endpoints"))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// A rotation under way.
#[derive(Debug, Default)]
pub struct Rotation {
    after: Option<EndpointId>,
    /// Endpoints looked at.
    pub seen: u64,
    /// Secrets and sets of headers sealed anew.
    pub resealed: u64,
}

impl Rotation {
    /// A rotation from the start.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Seals what `limit` more endpoints have anew, where another key sealed it; false once
    /// everything was looked at and the ledger's check value is under the current key.
    ///
    /// # Errors
    /// [`Error::Secrets`] where a key that is needed is not configured, or a fault of the
    /// database. Nothing of the batch is changed then.
    pub async fn step(
        &mut self,
        store: &Store,
        keys: &MasterKeys,
        limit: u32,
    ) -> Result<bool, Error> {
        let doing = "rotating the master key";
        let mut tx = store.pool().begin().await.map_err(Fault::doing(doing))?;
        let rows = sqlx::query!(
            "SELECT id, headers FROM hooklane.endpoints
              WHERE ($1::uuid IS NULL OR id > $1) AND state <> 'deleted'
              ORDER BY id LIMIT $2 FOR NO KEY UPDATE",
            self.after.map(EndpointId::uuid),
            i64::from(limit),
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Fault::doing(doing))?;
        let Some(last) = rows.last().map(|row| row.id) else {
            finish(&mut tx, keys).await?;
            tx.commit().await.map_err(Fault::doing(doing))?;
            return Ok(false);
        };
        let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
        let mut headers = Resealed::default();
        for row in rows {
            if let Some(sealed) = row.headers {
                headers.add(keys, row.id, None, &sealed)?;
            }
        }
        let kept = sqlx::query!(
            "SELECT endpoint_id, created_at, sealed FROM hooklane.endpoint_secrets
              WHERE endpoint_id = ANY($1) FOR UPDATE",
            &ids,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Fault::doing(doing))?;
        let mut signing = Resealed::default();
        for row in kept {
            signing.add(keys, row.endpoint_id, Some(row.created_at), &row.sealed)?;
        }
        let resealed = headers.ids.len() + signing.ids.len();
        if resealed > 0 {
            write(&mut tx, headers, signing)
                .await
                .map_err(Fault::doing(doing))?;
        }
        tx.commit().await.map_err(Fault::doing(doing))?;
        self.after = Some(EndpointId::from_uuid(last));
        self.seen += ids.len() as u64;
        self.resealed += resealed as u64;
        Ok(true)
    }
}

/// What is to be written back.
#[derive(Default)]
struct Resealed {
    ids: Vec<Uuid>,
    made: Vec<chrono::DateTime<chrono::Utc>>,
    sealed: Vec<Vec<u8>>,
}

impl Resealed {
    fn add(
        &mut self,
        keys: &MasterKeys,
        id: Uuid,
        made: Option<chrono::DateTime<chrono::Utc>>,
        sealed: &[u8],
    ) -> Result<(), secrets::Error> {
        use secrecy::ExposeSecret as _;

        if keys.needs_rotation(sealed)? {
            let aad = EndpointId::from_uuid(id).to_string();
            let opened = keys.decrypt(sealed, aad.as_bytes())?;
            self.ids.push(id);
            self.made.extend(made);
            self.sealed
                .push(keys.encrypt(opened.expose_secret(), aad.as_bytes())?);
        }
        Ok(())
    }
}

async fn write(
    conn: &mut sqlx::PgConnection,
    headers: Resealed,
    signing: Resealed,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE hooklane.endpoint_secrets s SET sealed = n.sealed
           FROM unnest($1::uuid[], $2::timestamptz[], $3::bytea[]) AS n (id, made, sealed)
          WHERE s.endpoint_id = n.id AND s.created_at = n.made",
        &signing.ids,
        &signing.made,
        &signing.sealed,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "UPDATE hooklane.endpoints e SET headers = n.sealed
           FROM unnest($1::uuid[], $2::bytea[]) AS n (id, sealed) WHERE e.id = n.id",
        &headers.ids,
        &headers.sealed,
    )
    .execute(&mut *conn)
    .await?;
    let changed: Vec<Uuid> = headers.ids.into_iter().chain(signing.ids).collect();
    sqlx::query!(
        "UPDATE hooklane.endpoints
            SET version = nextval('hooklane.endpoint_version'), updated_at = clock_timestamp()
          WHERE id = ANY($1)",
        &changed,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The check value goes last: while it is under an old key, the rotation is not done.
async fn finish(conn: &mut sqlx::PgConnection, keys: &MasterKeys) -> Result<(), Error> {
    let doing = "renewing the master key's check value";
    let kept = sqlx::query_scalar!("SELECT sealed FROM hooklane.master_key_check FOR UPDATE")
        .fetch_optional(&mut *conn)
        .await
        .map_err(Fault::doing(doing))?;
    let current = match kept {
        Some(kept) => {
            keys.verify_check_value(&kept)?;
            !keys.needs_rotation(&kept)?
        }
        None => false,
    };
    if !current {
        sqlx::query!(
            "INSERT INTO hooklane.master_key_check (sealed) VALUES ($1)
             ON CONFLICT (singleton) DO UPDATE SET sealed = excluded.sealed",
            keys.check_value()?,
        )
        .execute(conn)
        .await
        .map_err(Fault::doing(doing))?;
    }
    Ok(())
}

/// Endpoints whose settings in the broker are still those of before their last change.
///
/// # Errors
/// A fault of the database.
pub async fn unrouted(store: &Store) -> Result<u64, Error> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM hooklane.endpoints
            WHERE routed_version IS DISTINCT FROM version"#
    )
    .fetch_one(store.pool())
    .await
    .map_err(Fault::doing("counting endpoints"))?;
    Ok(u64::try_from(count).unwrap_or(0))
}
