//! The log's share of an answer: bounded headers, bounded body, and a note on how it ended.

use http::HeaderMap;
use tokio::time::Instant;

/// What of an answer goes to the ledger.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Names and values, made readable.
    pub(super) headers: Vec<(String, String)>,
    /// The first bytes.
    pub(super) body: Vec<u8>,
    end: End,
    /// Headers that were left out.
    dropped: usize,
    sent_again: bool,
}

const SENT_AGAIN: &str = "a kept connection was closed, sent once more on a new one";

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum End {
    #[default]
    Whole,
    Cut,
    Late,
    Broken,
}

impl Answer {
    /// Keeps headers up to that many bytes. One that does not fit is left out, which is noted, and
    /// those behind it are kept as far as they fit.
    pub(super) fn take_headers(&mut self, headers: &HeaderMap, max: usize) {
        let mut left = max;
        for (name, value) in headers {
            let Some(rest) = left.checked_sub(name.as_str().len() + value.len()) else {
                self.dropped += 1;
                continue;
            };
            left = rest;
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            self.headers.push((name.as_str().to_owned(), value));
        }
    }

    /// Reads the body up to that many bytes and until the deadline. Whoever drops the response
    /// afterwards closes the connection where there was more.
    pub(super) async fn read_body(
        &mut self,
        response: &mut reqwest::Response,
        max: usize,
        deadline: Instant,
    ) {
        loop {
            let chunk = match tokio::time::timeout_at(deadline, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => return,
                Ok(Err(_broken)) => {
                    self.end = End::Broken;
                    return;
                }
                Err(_elapsed) => {
                    self.end = End::Late;
                    return;
                }
            };
            let room = max.saturating_sub(self.body.len());
            self.body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                self.end = End::Cut;
                return;
            }
        }
    }

    /// The request went out a second time within this attempt.
    pub(super) fn sent_again(&mut self) {
        self.sent_again = true;
    }

    /// What there is to say beside the answer itself.
    pub(super) fn note(&self) -> Option<String> {
        let body = match self.end {
            End::Whole => None,
            End::Cut => Some("the body was cut for the log"),
            End::Late => Some("the body did not end in time"),
            End::Broken => Some("the body broke off"),
        };
        let headers = match self.dropped {
            0 => None,
            1 => Some("a header was too long for the log".to_owned()),
            many => Some(format!("{many} headers were too long for the log")),
        };
        let notes: Vec<String> = self
            .sent_again
            .then(|| SENT_AGAIN.to_owned())
            .into_iter()
            .chain(headers)
            .chain(body.map(str::to_owned))
            .collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// The same where there is no answer but a reason.
    pub(super) fn explain(&self, why: String) -> Option<String> {
        Some(match self.sent_again {
            false => why,
            true => format!("{SENT_AGAIN}; {why}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn header_values_are_made_readable_and_one_too_long_hides_none_behind_it() {
        let mut headers = HeaderMap::new();
        let latin = HeaderValue::from_bytes(b"caf\xe9").unwrap();
        headers.insert(HeaderName::from_static("x-name"), latin);
        headers.insert(
            HeaderName::from_static("x-long"),
            HeaderValue::from_static("0123456789"),
        );
        headers.insert(
            HeaderName::from_static("x-last"),
            HeaderValue::from_static("1"),
        );
        let mut answer = Answer::default();
        answer.take_headers(&headers, 20);
        let kept = [("x-name", "caf\u{fffd}"), ("x-last", "1")];
        let kept = kept.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(answer.headers, kept);
        answer.sent_again();
        let note = answer.note().unwrap();
        assert_eq!(
            note,
            format!("{SENT_AGAIN}; a header was too long for the log")
        );
        let mut whole = Answer::default();
        whole.take_headers(&headers, 100);
        assert_eq!(whole.note(), None);
    }
}
