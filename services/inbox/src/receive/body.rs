//! A request's body, within its limits.
//!
//! Owns the limits in size, in time and in the memory of all bodies together. Memory is taken for what
//! is there, never for what is announced.

use std::time::Duration;

use axum::body::BodyDataStream;
use bytes::Bytes;
use futures::StreamExt as _;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

/// In what pieces bodies share memory, in bytes.
pub(super) const PIECE: usize = 16 * 1024;
/// How much of a refused body is read and thrown away, in bytes.
const THROW_AWAY: usize = 1 << 20;
/// How long that may take.
const THROW_AWAY_WITHIN: Duration = Duration::from_millis(200);

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoBody {
    /// It is larger than the source takes.
    TooLarge,
    /// It did not come in time.
    TooSlow,
    /// It ended before its end, or is no body.
    Broken,
    /// All bodies together are as large as they may be.
    NoRoom,
}

/// A body, and the memory that it takes of what all share until this is dropped.
#[derive(Debug)]
pub(super) struct Read<'a> {
    pub(super) bytes: Bytes,
    _room: Option<SemaphorePermit<'a>>,
}

/// Reads a body of at most `limit` bytes until `until`. `all` has a permit for each [`PIECE`].
pub(super) async fn read<'a>(
    headers: &HeaderMap,
    body: &mut BodyDataStream,
    limit: usize,
    until: Instant,
    all: &'a Semaphore,
) -> Result<Read<'a>, NoBody> {
    if announced(headers).is_some_and(|length| length > limit as u64) {
        return Err(NoBody::TooLarge);
    }
    timeout_at(until, collect(body, limit, all))
        .await
        .unwrap_or(Err(NoBody::TooSlow))
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn collect<'a>(
    body: &mut BodyDataStream,
    limit: usize,
    all: &'a Semaphore,
) -> Result<Read<'a>, NoBody> {
    let mut room = Room { all, taken: None };
    let chunks = body;
    let Some(first) = chunks.next().await else {
        return Ok(room.holding(Bytes::new()));
    };
    let first = first.map_err(|_| NoBody::Broken)?;
    room.grow(first.len(), limit)?;
    // Most bodies come in one piece, which is kept as it is.
    let Some(second) = chunks.next().await else {
        return Ok(room.holding(first));
    };
    let mut whole = first.to_vec();
    let mut next = Some(second);
    while let Some(chunk) = next {
        let chunk = chunk.map_err(|_| NoBody::Broken)?;
        room.grow(whole.len() + chunk.len(), limit)?;
        whole.extend_from_slice(&chunk);
        next = chunks.next().await;
    }
    Ok(room.holding(whole.into()))
}

struct Room<'a> {
    all: &'a Semaphore,
    taken: Option<SemaphorePermit<'a>>,
}

impl<'a> Room<'a> {
    /// Makes room for so many bytes.
    fn grow(&mut self, bytes: usize, limit: usize) -> Result<(), NoBody> {
        if bytes > limit {
            return Err(NoBody::TooLarge);
        }
        let has = self.taken.as_ref().map_or(0, SemaphorePermit::num_permits);
        let Some(more) = bytes
            .div_ceil(PIECE)
            .checked_sub(has)
            .filter(|&more| more > 0)
        else {
            return Ok(());
        };
        let more = u32::try_from(more).map_err(|_| NoBody::NoRoom)?;
        let more = self
            .all
            .try_acquire_many(more)
            .map_err(|_| NoBody::NoRoom)?;
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }

    fn holding(self, bytes: Bytes) -> Read<'a> {
        Read {
            bytes,
            _room: self.taken,
        }
    }
}

/// Reads some of a body that is refused: a client that is still sending when its connection closes
/// would see a reset and no answer. One that waits to be told to go on has sent nothing.
pub(super) async fn throw_away(headers: &HeaderMap, mut chunks: BodyDataStream) {
    if headers.contains_key(EXPECT) {
        return;
    }

    let reading = async {
        let mut left = THROW_AWAY;
        while let Some(Ok(chunk)) = chunks.next().await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(THROW_AWAY_WITHIN, reading).await;
}
