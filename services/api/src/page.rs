//! Pages of listings, and the opaque cursors that lead from one to the next.
//!
//! A cursor is the key of the last entry (keyset pagination): entries that come or go meanwhile
//! are neither repeated nor skipped around it, and a far page costs what the first one does.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hooklane_store::manage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::problem::Problem;

/// Longest cursor that is read, in bytes.
const LONGEST: usize = 512;
const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

/// Which page of a listing.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// Where the page starts: `next` of the page before.
    #[param(max_length = 512)]
    pub(crate) cursor: Option<String>,
    /// Entries at the most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    pub(crate) limit: Option<u32>,
}

/// One page of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// The entries.
    pub(crate) data: Vec<T>,
    /// The cursor of the next page; null where this is the last.
    pub(crate) next: Option<String>,
}

/// How many entries a page has.
pub(crate) fn limit(asked: Option<u32>) -> Result<u32, Problem> {
    match asked.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        other => Err(Problem::invalid(format!(
            "a limit of {other} is out of range; give 1 to {MAX_LIMIT}"
        ))),
    }
}

/// The key that a cursor of this listing stands for.
pub(crate) fn key<K: DeserializeOwned>(
    listing: &str,
    cursor: Option<&str>,
) -> Result<Option<K>, Problem> {
    let Some(cursor) = cursor else {
        return Ok(None);
    };
    let read = || {
        (cursor.len() <= LONGEST).then_some(())?;
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (of, key): (String, K) = rmp_serde::from_slice(&bytes).ok()?;
        (of == listing).then_some(key)
    };
    let problem = || {
        Problem::unprocessable(
            "the cursor can't be read; give `next` of the page before, unchanged",
        )
    };
    read().map(Some).ok_or_else(problem)
}

fn cursor<K: Serialize>(listing: &str, key: &K) -> Option<String> {
    let bytes = rmp_serde::to_vec(&(listing, key)).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

impl<T> Page<T> {
    /// A page of the ledger as the API shows it. The listing's name goes into the cursor, so that no
    /// other one takes it.
    pub(crate) fn of<U, K, C: Serialize>(
        listing: &str,
        page: manage::Page<U, K>,
        view: impl FnMut(U) -> T,
        key: impl FnOnce(K) -> C,
    ) -> Self {
        Self {
            data: page.items.into_iter().map(view).collect(),
            next: page.next.and_then(|next| cursor(listing, &key(next))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_nonsense_is_refused() {
        let text = cursor("one", &("a", 7_i64)).unwrap();
        assert_eq!(
            key::<(String, i64)>("one", Some(&text)).unwrap(),
            Some(("a".to_owned(), 7))
        );
        assert!(key::<(String, i64)>("another", Some(&text)).is_err());
        assert_eq!(key::<i64>("one", None).unwrap(), None);
        for nonsense in ["", "!", "AAAA", "x".repeat(600).as_str()] {
            assert!(
                key::<(String, i64)>("one", Some(nonsense)).is_err(),
                "{nonsense}"
            );
        }
    }

    #[test]
    fn limits_have_a_range() {
        assert_eq!(limit(None).unwrap(), 50);
        assert_eq!(limit(Some(200)).unwrap(), 200);
        assert!(limit(Some(0)).is_err());
        assert!(limit(Some(201)).is_err());
    }
}
