//! What holding a delivery takes, and what is given back when it is let go: the right to settle
//! the message, its place in the partition's memory, a permit and bytes.
//!
//! A grip that is dropped gives its message back to the broker, for whoever pulls next: so a lane
//! that fails with deliveries in its mailbox loses none of them.

use std::sync::Arc;

use futures::FutureExt as _;
use hooklane_nats::AckToken;
use hooklane_proto::record::Drive;
use tokio::sync::OwnedSemaphorePermit;

use crate::budget::HeldBytes;
use crate::memory::Memory;

/// The memory of a partition's messages.
pub(crate) type Tokens = Memory<AckToken>;

/// A delivery's message, held.
pub(crate) struct Grip {
    /// `None` only in the hands of `drop` and the methods that consume `self`.
    token: Option<AckToken>,
    drive: Drive,
    memory: Arc<Tokens>,
    bytes: HeldBytes,
    _permit: OwnedSemaphorePermit,
}

impl Grip {
    pub(crate) fn new(
        token: AckToken,
        drive: Drive,
        memory: Arc<Tokens>,
        bytes: HeldBytes,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            token: Some(token),
            drive,
            memory,
            bytes,
            _permit: permit,
        }
    }

    /// Bytes held.
    pub(crate) fn size(&self) -> usize {
        self.bytes.count()
    }

    /// Holds another number of bytes from now on.
    pub(crate) fn resize(&mut self, bytes: usize) {
        self.bytes.resize(bytes);
    }

    /// Tells the broker that the message is still in hand, if the connection takes it at once;
    /// otherwise the next time has to do.
    pub(crate) fn progress(&self) {
        if let Some(token) = &self.token {
            let _ = token.progress().now_or_never();
        }
    }

    /// The drive's record is safe: gives the right to settle its message, and copies of it that
    /// came meanwhile. Permit and bytes are free from here on.
    pub(crate) fn recorded(mut self) -> (Option<AckToken>, Vec<AckToken>) {
        let copies = self.memory.settle(self.drive);
        (self.token.take(), copies)
    }

    /// Gives up the message without an outcome: these are to be nakked.
    pub(crate) fn release(mut self) -> Vec<AckToken> {
        let mut tokens = self.memory.forget(self.drive);
        tokens.extend(self.token.take());
        tokens
    }
}

impl Drop for Grip {
    fn drop(&mut self) {
        if self.token.is_some() {
            // Forgotten before the tokens nak by being dropped, or the next copy would be taken
            // for one of a drive in hand.
            drop(self.memory.forget(self.drive));
        }
    }
}

impl std::fmt::Debug for Grip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grip")
            .field("drive", &self.drive)
            .finish_non_exhaustive()
    }
}

/// Naks many messages; they come again at once.
pub(crate) async fn nak_all(tokens: Vec<AckToken>) {
    for token in tokens {
        token.nak(None).await;
    }
}
