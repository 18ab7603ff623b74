//! What a receiver does with a request: the answers of good endpoints and of bad ones.

use std::time::Duration;

use bytes::Bytes;

/// What to do with one request. Unless said otherwise the request is read whole first.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) act: Act,
    pub(super) delay: Duration,
    /// Answer when the head is there, before the body is read.
    pub(super) early: bool,
    /// Close the connection afterwards, and say so in a header.
    pub(super) close: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Act {
    Answer {
        status: u16,
        headers: Vec<(String, String)>,
        body: Body,
    },
    Raw(Bytes),
    HalfClose(Bytes),
    Hang,
    Reset,
    Close,
    CloseUnread,
}

/// The body of an answer.
#[derive(Debug, Clone)]
pub enum Body {
    /// These bytes, with their length announced.
    Whole(Bytes),
    /// `chunk` again and again, `times` in all, `every` so often; its length announced.
    Drip {
        /// The bytes of one drop.
        chunk: Bytes,
        /// The time before each drop.
        every: Duration,
        /// How many drops.
        times: u32,
    },
    /// Bytes without end, as fast as the client takes them, in chunks.
    Endless,
    /// These bytes, of an announced length that is larger; then the connection is reset.
    CutShort {
        /// What is sent.
        sent: Bytes,
        /// What was announced, in bytes.
        announced: u64,
    },
}

impl Default for Reply {
    fn default() -> Self {
        Self::status(200)
    }
}

impl Reply {
    /// An answer with `status` and an empty body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::act(Act::Answer {
            status,
            headers: Vec::new(),
            body: Body::Whole(Bytes::new()),
        })
    }

    /// One answer for each status.
    #[must_use]
    pub fn statuses(statuses: impl IntoIterator<Item = u16>) -> Vec<Self> {
        statuses.into_iter().map(Self::status).collect()
    }

    /// Writes `bytes` in place of an answer, whatever they are, and closes.
    #[must_use]
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::act(Act::Raw(bytes.into()))
    }

    /// Writes `bytes`, ends its own direction and reads on until the client closes.
    #[must_use]
    pub fn half_close(bytes: impl Into<Bytes>) -> Self {
        Self::act(Act::HalfClose(bytes.into()))
    }

    /// Never answers; ends when the client goes away.
    #[must_use]
    pub fn hang() -> Self {
        Self::act(Act::Hang)
    }

    /// Resets the connection in place of an answer.
    #[must_use]
    pub fn reset() -> Self {
        Self::act(Act::Reset)
    }

    /// Closes the connection in order in place of an answer.
    #[must_use]
    pub fn close() -> Self {
        Self::act(Act::Close)
    }

    /// Closes when the head is there, without reading the body. If body bytes have arrived, the
    /// client sees a reset.
    #[must_use]
    pub fn close_unread() -> Self {
        Self::act(Act::CloseUnread).early()
    }

    /// Adds a header to an answer, as in `.header("Retry-After", "120")`.
    ///
    /// # Panics
    ///
    /// If this isn't an answer.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl ToString) -> Self {
        match &mut self.act {
            Act::Answer { headers, .. } => headers.push((name.to_owned(), value.to_string())),
            act => panic!("{act:?} has no headers"),
        }
        self
    }

    /// Adds `Retry-After`: seconds, an HTTP date, or whatever else a server may write.
    ///
    /// # Panics
    ///
    /// If this isn't an answer.
    #[must_use]
    pub fn retry_after(self, value: impl ToString) -> Self {
        self.header("Retry-After", value)
    }

    /// Gives an answer these bytes as its body.
    ///
    /// # Panics
    ///
    /// If this isn't an answer.
    #[must_use]
    pub fn body(self, bytes: impl Into<Bytes>) -> Self {
        self.body_of(Body::Whole(bytes.into()))
    }

    /// Gives an answer a body of any kind.
    ///
    /// # Panics
    ///
    /// If this isn't an answer.
    #[must_use]
    pub fn body_of(mut self, of: Body) -> Self {
        match &mut self.act {
            Act::Answer { body, .. } => *body = of,
            act => panic!("{act:?} has no body"),
        }
        self
    }

    /// Waits before answering, from when the request was read (or, early, its head).
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Answers when the head is there. The body is read, and recorded, afterwards.
    #[must_use]
    pub fn early(mut self) -> Self {
        self.early = true;
        self
    }

    /// Answers with `Connection: close` and closes.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    fn act(act: Act) -> Self {
        Self {
            act,
            delay: Duration::ZERO,
            early: false,
            close: false,
        }
    }
}
