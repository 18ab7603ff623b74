//! Taking dead letters off `DLQ` once they are none any more, so that whoever looks there sees what
//! is open.
//!
//! The ledger decides and the stream only shows, so a broker that is away is no fault: what stays
//! there goes with its age.

use futures::stream::{self, StreamExt as _};
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::{header, subject};

use crate::client::Client;
use crate::stored;

/// Requests on their way at a time.
const AT_ONCE: usize = 16;

/// Where a dead letter stands, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Letter {
    /// The delivery.
    pub key: DeliveryKey,
    /// The series that failed.
    pub series: i32,
    /// Its sequence in `DLQ`.
    pub sequence: u64,
}

/// Removes what stands there; answers how much did.
pub async fn remove(client: &Client, letters: impl IntoIterator<Item = Letter>) -> u64 {
    let removed = stream::iter(letters)
        .map(|letter| remove_one(client, letter))
        .buffer_unordered(AT_ONCE)
        .filter(|removed| std::future::ready(*removed))
        .count();
    removed.await as u64
}

/// Removes one message, unless it is another one: the stream may have been made anew.
async fn remove_one(client: &Client, letter: Letter) -> bool {
    let Letter {
        key,
        series,
        sequence,
    } = letter;
    let Ok(Some(message)) = stored::get(client, subject::DLQ, sequence).await else {
        return false;
    };
    let is = |name: &str, value: String| message.header(name) == Some(value.as_str());
    is(header::MESSAGE, key.message.to_string())
        && is(header::ENDPOINT, key.endpoint.to_string())
        && is(header::SERIES, series.to_string())
        && stored::delete(client, subject::DLQ, sequence)
            .await
            .unwrap_or(false)
}
