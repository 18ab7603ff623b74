//! Reads HTTP/1.1 requests from a connection, as much as a client of ours sends.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

const MAX_HEAD: usize = 64 << 10;
const READ: usize = 16 << 10;
const MAX_AHEAD: usize = 1 << 20;

/// A connection's bytes that were read and not used yet.
#[derive(Debug)]
pub(super) struct Reader {
    buffer: BytesMut,
}

#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) length: Length,
    /// The client wants the connection closed afterwards.
    pub(super) close: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Known(u64),
    Chunked,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            buffer: BytesMut::with_capacity(READ),
        }
    }

    /// The next request's head; `None` at an orderly end.
    pub(super) async fn head(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<Head>> {
        let mut seen = 0_usize;
        loop {
            let from = seen.saturating_sub(3);
            if let Some(at) = find(&self.buffer[from..], b"\r\n\r\n") {
                let head = self.buffer.split_to(from + at + 4);
                return parse(&head).map(Some);
            }
            seen = self.buffer.len();
            if seen > MAX_HEAD {
                return Err(bad("the request's head is too long"));
            }
            if self.fill(stream).await? == 0 {
                return if seen == 0 {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// Reads a body and appends what came of it to `body` (if given), also when it fails.
    pub(super) async fn body(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        length: Length,
        mut body: Option<&mut BytesMut>,
    ) -> io::Result<()> {
        match length {
            Length::Known(length) => self.exactly(stream, length, &mut body).await,
            Length::Chunked => loop {
                let line = self.line(stream).await?;
                let digits = line.split(';').next().unwrap_or("").trim();
                let size = u64::from_str_radix(digits, 16).map_err(|_| bad("bad chunk size"))?;
                if size == 0 {
                    // Trailers end with an empty line.
                    while !self.line(stream).await?.is_empty() {}
                    return Ok(());
                }
                self.exactly(stream, size, &mut body).await?;
                self.line(stream).await?;
            },
        }
    }

    /// Reads and drops whatever comes until the client closes or the connection breaks.
    pub(super) async fn until_gone(&mut self, stream: &mut (impl AsyncRead + Unpin)) {
        loop {
            self.buffer.clear();
            match self.fill(stream).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Returns when the client has closed or the connection broke, keeping what comes until then.
    /// Cancel-safe.
    pub(super) async fn gone(&mut self, stream: &mut (impl AsyncRead + Unpin)) {
        while self.buffer.len() < MAX_AHEAD {
            if let Ok(0) | Err(_) = self.fill(stream).await {
                return;
            }
        }
        // Enough is waiting; a client that leaves now is noticed when it is written to.
        std::future::pending().await
    }

    async fn exactly(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        mut left: u64,
        body: &mut Option<&mut BytesMut>,
    ) -> io::Result<()> {
        while left > 0 {
            if self.buffer.is_empty() && self.fill(stream).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let have =
                usize::try_from(left).map_or(self.buffer.len(), |left| left.min(self.buffer.len()));
            if let Some(body) = body {
                body.extend_from_slice(&self.buffer[..have]);
            }
            self.buffer.advance(have);
            left -= have as u64;
        }
        Ok(())
    }

    async fn line(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let line: Bytes = self.buffer.split_to(at + 2).freeze();
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(bad("a line is too long"));
            }
            if self.fill(stream).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn fill(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        self.buffer.reserve(READ);
        stream.read_buf(&mut self.buffer).await
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn parse(head: &[u8]) -> io::Result<Head> {
    // Header values are bytes; those that aren't UTF-8 are kept as Latin-1, one to one.
    let text = match std::str::from_utf8(head) {
        Ok(text) => text.to_owned(),
        Err(_) => head.iter().map(|byte| char::from(*byte)).collect(),
    };
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let mut first = lines.next().unwrap_or("").split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (first.next(), first.next(), first.next(), first.next())
    else {
        return Err(bad("bad request line"));
    };
    let headers = lines
        .map(|line| {
            let (name, value) = line.split_once(':').ok_or_else(|| bad("bad header"))?;
            Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
        })
        .collect::<io::Result<Vec<_>>>()?;
    let header = |name: &str| {
        headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    };
    let length = match (header("transfer-encoding"), header("content-length")) {
        (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => Length::Chunked,
        (Some(_), _) => return Err(bad("unknown transfer coding")),
        (None, Some(length)) => {
            Length::Known(length.parse().map_err(|_| bad("bad content length"))?)
        }
        (None, None) => Length::Known(0),
    };
    let close = header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok(Head {
        method: method.to_owned(),
        target: target.to_owned(),
        length,
        close,
        headers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_of_both_forms_are_read_byte_for_byte_and_leave_the_next_request() {
        let wire = b"POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n\0\r\n\xff\
            POST /c HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n\
            GET /d HTTP/1.1\r\nConnection: close\r\n\r\n";
        // One byte at a time finds every boundary.
        let (mut ours, mut theirs) = tokio::io::duplex(1);
        let write = async {
            tokio::io::AsyncWriteExt::write_all(&mut theirs, wire)
                .await
                .unwrap();
            drop(theirs);
        };
        let read = async {
            let mut reader = Reader::new();
            let mut seen = Vec::new();
            while let Some(head) = reader.head(&mut ours).await.unwrap() {
                let mut body = BytesMut::new();
                reader
                    .body(&mut ours, head.length, Some(&mut body))
                    .await
                    .unwrap();
                seen.push((head.target, body.to_vec(), head.close));
            }
            seen
        };
        let ((), seen) = tokio::join!(write, read);
        assert_eq!(
            seen,
            [
                ("/a?b".to_owned(), b"\0\r\n\xff".to_vec(), false),
                ("/c".to_owned(), b"abcde".to_vec(), false),
                ("/d".to_owned(), Vec::new(), true),
            ]
        );
    }
}
