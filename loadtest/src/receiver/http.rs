//! Just enough of HTTP/1.1 to read a webhook: a head, a content length, and the three headers.

use std::borrow::Cow;

use httparse::{EMPTY_HEADER, Status};
use uuid::Uuid;

/// Longest head, in bytes.
pub(super) const MOST_HEAD: usize = 16 * 1024;
/// Longest body, in bytes.
pub(super) const MOST_BODY: usize = 1024 * 1024;

/// A request's head. Offsets are into the buffer it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the head, the empty line included.
    pub(super) length: usize,
    /// Bytes of the body.
    pub(super) body: usize,
    /// The `webhook-id`, where it is one of ours.
    pub(super) id: Option<Uuid>,
}

/// What is in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parsed {
    /// Not yet a whole head.
    Partial,
    /// A head.
    Head(Head),
    /// No request that this server takes.
    Malformed,
}

/// The three headers that a signature is checked with.
pub(super) const SIGNED: [&str; 3] = ["webhook-id", "webhook-timestamp", "webhook-signature"];

pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if bytes.len() < MOST_HEAD => return Parsed::Partial,
        _ => return Parsed::Malformed,
    };
    let mut body = None;
    let mut id = None;
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            body = std::str::from_utf8(header.value)
                .ok()
                .and_then(|text| text.parse().ok());
        } else if header.name.eq_ignore_ascii_case(SIGNED[0]) {
            id = std::str::from_utf8(header.value)
                .ok()
                .and_then(|text| text.strip_prefix("msg_"))
                .and_then(|text| Uuid::try_parse(text).ok());
        }
    }
    match body {
        Some(body) if body <= MOST_BODY => Parsed::Head(Head { length, body, id }),
        _ => Parsed::Malformed,
    }
}

/// The signed headers of a head that was parsed before.
pub(super) fn signed_headers(head: &[u8]) -> http::HeaderMap {
    let mut found = http::HeaderMap::with_capacity(SIGNED.len());
    let mut headers = [EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(head).is_err() {
        return found;
    }
    for header in request.headers.iter() {
        let name = SIGNED
            .iter()
            .find(|name| header.name.eq_ignore_ascii_case(name));
        if let Some(name) = name
            && let Ok(value) = http::HeaderValue::from_bytes(header.value)
        {
            found.insert(*name, value);
        }
    }
    found
}

/// The head of an answer without a body.
pub(super) fn answer(status: u16) -> Cow<'static, [u8]> {
    if status == 200 {
        // Nearly every answer; the hot path formats nothing.
        return Cow::Borrowed(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
    let reason = http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Unknown");
    // A 204 has no length: it can't have a body.
    let length = if status == 204 {
        ""
    } else {
        "content-length: 0\r\n"
    };
    Cow::Owned(format!("HTTP/1.1 {status} {reason}\r\n{length}\r\n").into_bytes())
}

/// An answer that asks to be left alone for a while.
pub(super) fn busy(status: u16, seconds: u16) -> Vec<u8> {
    format!("HTTP/1.1 {status} Busy\r\nretry-after: {seconds}\r\ncontent-length: 0\r\n\r\n")
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_gives_its_length_its_bodys_and_the_id() {
        let text = b"POST /hooks/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\
            webhook-id: msg_00000000-0000-7000-8000-000000000007\r\n\r\nhello";
        let Parsed::Head(head) = parse(text) else {
            panic!("not a head");
        };
        assert_eq!(&text[head.length..], b"hello");
        assert_eq!(head.body, 5);
        assert_eq!(head.id.unwrap().as_u128() & 0xff, 7);
    }

    #[test]
    fn half_a_head_waits_for_more_and_rubbish_does_not() {
        assert_eq!(parse(b"POST / HTTP/1.1\r\nHost"), Parsed::Partial);
        assert_eq!(parse(b"\x16\x03\x01\x02"), Parsed::Malformed);
        assert_eq!(parse(b"POST / HTTP/1.1\r\n\r\n"), Parsed::Malformed);
        let endless = [b"POST / HTTP/1.1\r\nx: ".as_slice(), &vec![b'a'; MOST_HEAD]].concat();
        assert_eq!(parse(&endless), Parsed::Malformed);
    }
}
