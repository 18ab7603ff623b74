//! Keys for the HTTP API: what each is good for, and for how long.
//!
//! Owns making, checking and revoking them. A key's text is told once, when it is made; what is kept
//! is its digest, by which it is found again. It has 256 random bits, so that a plain SHA-256 is as
//! good as anything slower. Does not own what a scope allows: that is the API's.

mod scope;
mod write;

use chrono::{DateTime, Utc};
use hooklane_core::secrets::is_api_key;
use hooklane_proto::id::ApiKeyId;
use hooklane_proto::token::ConsumerId;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::manage::{Error, Kind, Page};
use crate::{Error as Fault, Store};

pub use scope::{InvalidScope, Scope};
pub use write::{Created, MAX_LIFETIME, MAX_NAME, New, create, revoke, touch};

/// A key as its owner knows it. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its id.
    pub id: ApiKeyId,
    /// For people.
    pub name: String,
    /// What it is good for.
    pub scope: Scope,
    /// The one consumer that it is good for; `None` is all of them.
    pub consumer: Option<ConsumerId>,
    /// Its last four characters.
    pub hint: String,
    /// Requests a second, 1 to 10,000; `None` takes the deployment's.
    pub rate_limit: Option<u16>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Who made it: `cli`, a key's id, or `hooklane` for nobody.
    pub created_by: String,
    /// From when on it is no good; `None` is never.
    pub expires_at: Option<DateTime<Utc>>,
    /// When somebody revoked it.
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<DateTime<Utc>>,
}

/// Whether a key is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is.
    Active,
    /// Its time is over.
    Expired,
    /// Somebody revoked it.
    Revoked,
}

impl Standing {
    /// The name in output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl ApiKey {
    /// Whether it is good at `now`.
    #[must_use]
    pub fn standing(&self, now: DateTime<Utc>) -> Standing {
        if self.revoked_at.is_some() {
            Standing::Revoked
        } else if self.expires_at.is_some_and(|at| at <= now) {
            Standing::Expired
        } else {
            Standing::Active
        }
    }
}

struct Row {
    id: Uuid,
    name: String,
    scope: String,
    consumer_id: Option<String>,
    hint: String,
    rate_limit: Option<i32>,
    created_at: DateTime<Utc>,
    created_by: String,
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
}

impl Row {
    fn key(self) -> Result<ApiKey, Fault> {
        let doing = "reading an API key";
        let Self {
            id,
            name,
            scope,
            consumer_id,
            hint,
            rate_limit,
            created_at,
            created_by,
            expires_at,
            revoked_at,
            last_used_at,
        } = self;
        Ok(ApiKey {
            id: ApiKeyId::from_uuid(id),
            name,
            scope: scope.parse().map_err(Fault::unreadable(doing))?,
            consumer: consumer_id
                .map(|id| ConsumerId::new(&id))
                .transpose()
                .map_err(Fault::unreadable(doing))?,
            hint,
            rate_limit: rate_limit
                .map(u16::try_from)
                .transpose()
                .map_err(Fault::unreadable(doing))?,
            created_at,
            created_by,
            expires_at,
            revoked_at,
            last_used_at,
        })
    }
}

/// Keys, by what follows the list of columns.
macro_rules! keys {
    ($rest:literal $(, $value:expr)* $(,)?) => {
        sqlx::query_as!(
            crate::api_key::Row,
            "SELECT id, name, scope, consumer_id, hint, rate_limit, created_at, created_by, expires_at,
                    revoked_at, last_used_at
               FROM hooklane.api_keys "
                + $rest
            $(, $value)*
        )
    };
}
use keys;

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// The key that was presented, where it is good: `None` for one that is unknown, expired or revoked.
/// What does not have a key's form never gets as far as the database.
///
/// # Errors
/// A fault of the database.
pub async fn authenticate(store: &Store, presented: &str) -> Result<Option<ApiKey>, Fault> {
    if !is_api_key(presented) {
        return Ok(None);
    }
    let digest = digest(presented);
    let row = keys!(
        "WHERE digest = $1 AND revoked_at IS NULL
           AND (expires_at IS NULL OR expires_at > clock_timestamp())",
        digest.as_slice(),
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing("checking an API key"))?;
    row.map(Row::key).transpose()
}

/// The key with this id.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn show(store: &Store, id: ApiKeyId) -> Result<ApiKey, Error> {
    let row = keys!("WHERE id = $1", id.uuid())
        .fetch_optional(store.pool())
        .await
        .map_err(Fault::doing("reading an API key"))?;
    let row = row.ok_or_else(|| Error::not_found(Kind::ApiKey, id))?;
    Ok(row.key()?)
}

/// Which keys to list.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Those that are good for one consumer alone.
    pub consumer: Option<ConsumerId>,
    /// Those behind this one.
    pub after: Option<ApiKeyId>,
}

/// Keys in the order of their ids, which is that of their making; expired and revoked ones too.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    listing: &Listing,
    limit: u32,
) -> Result<Page<ApiKey, ApiKeyId>, Error> {
    let rows = keys!(
        "WHERE ($1::text IS NULL OR consumer_id = $1) AND ($2::uuid IS NULL OR id > $2)
         ORDER BY id LIMIT $3",
        listing.consumer.as_ref().map(ConsumerId::as_str),
        listing.after.map(ApiKeyId::uuid),
        i64::from(limit) + 1,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing API keys"))?;
    let keys: Result<Vec<ApiKey>, Fault> = rows.into_iter().map(Row::key).collect();
    Ok(Page::cut(keys?, limit, |key| key.id))
}
