//! Why a request is not taken, and what it is answered.

use axum::body::Body;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Response, StatusCode};

use super::NOSNIFF;
use crate::source::Reject;
use crate::stats::Count;

/// When to come again after there was no room for a moment, in seconds.
const COME_AGAIN: u16 = 1;
/// When to come again after the ledger did not answer, in seconds.
const COME_BACK_LATER: u16 = 5;

/// Why a request is not taken.
#[derive(Debug, Clone)]
pub(super) enum Refusal {
    /// No source has this address, or it is switched off: nobody is to find out which.
    NotFound,
    /// The source takes others.
    Method(Vec<Method>),
    /// The body is compressed.
    Encoding,
    /// More requests come than the source takes.
    TooMany,
    /// The body has more bytes than this.
    TooLarge(usize),
    /// The body did not come in time.
    TooSlow,
    /// The body ended early.
    Broken,
    /// The signature is not accepted.
    Rejected(Reject),
    /// The ledger can't hold it.
    Unstorable,
    /// As much waits as may.
    Full,
    /// This process is stopping.
    Stopping,
    /// The ledger failed, or did not answer in time. It may have the event all the same.
    Ledger,
    /// The deadline has come.
    Overdue,
}

impl Refusal {
    pub(super) fn count(&self) -> Count {
        match self {
            Self::NotFound
            | Self::Method(_)
            | Self::Encoding
            | Self::TooMany
            | Self::TooLarge(_)
            | Self::TooSlow
            | Self::Broken
            | Self::Unstorable => Count::Refused,
            Self::Rejected(_) => Count::Rejected,
            Self::Full | Self::Stopping | Self::Ledger | Self::Overdue => Count::Unavailable,
        }
    }

    /// Whether there may be a body, or more of it, that was not read.
    pub(super) fn leaves_a_body(&self) -> bool {
        matches!(
            self,
            Self::NotFound
                | Self::Method(_)
                | Self::Encoding
                | Self::TooMany
                | Self::TooLarge(_)
                | Self::Full
        )
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Encoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken | Self::Unstorable => StatusCode::BAD_REQUEST,
            Self::Rejected(reject) => reject.status(),
            Self::Full | Self::Stopping | Self::Ledger | Self::Overdue => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// Says no more of a signature than that it is not accepted: which part of it was wrong is in the
    /// list of rejects.
    fn text(&self) -> String {
        match self {
            Self::NotFound => "there is nothing here\n".to_owned(),
            Self::Method(_) => "this method is not taken here\n".to_owned(),
            Self::Encoding => {
                "bodies are taken as they are signed, without an encoding\n".to_owned()
            }
            Self::TooMany => "more requests come than are taken\n".to_owned(),
            Self::TooLarge(limit) => format!("the body has more than {limit} bytes\n"),
            Self::TooSlow => "the body did not come in time\n".to_owned(),
            Self::Broken => "the body ended early\n".to_owned(),
            Self::Rejected(_) if self.status() == StatusCode::SERVICE_UNAVAILABLE => {
                "the signature can't be checked now\n".to_owned()
            }
            Self::Rejected(_) => "the signature is not accepted\n".to_owned(),
            Self::Unstorable => "this can't be stored\n".to_owned(),
            Self::Full | Self::Stopping | Self::Ledger | Self::Overdue => {
                "this can't be stored now, send it again\n".to_owned()
            }
        }
    }

    fn retry_after(&self) -> Option<u16> {
        match self {
            Self::TooMany | Self::Full | Self::Stopping => Some(COME_AGAIN),
            Self::Ledger | Self::Overdue => Some(COME_BACK_LATER),
            Self::Rejected(_) if self.status() == StatusCode::SERVICE_UNAVAILABLE => {
                Some(COME_BACK_LATER)
            }
            _ => None,
        }
    }

    pub(super) fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.text()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.extend([NOSNIFF]);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Self::Method(methods) = self {
            let methods: Vec<&str> = methods.iter().map(Method::as_str).collect();
            if let Ok(value) = HeaderValue::from_str(&methods.join(", ")) {
                headers.insert(ALLOW, value);
            }
        }
        // What is left of the body would be taken for the next request.
        if self.leaves_a_body() || matches!(self, Self::TooSlow | Self::Broken | Self::Overdue) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_to_be_sent_again_and_what_is_theirs_is_not() {
        for refusal in [
            Refusal::Full,
            Refusal::Stopping,
            Refusal::Ledger,
            Refusal::Overdue,
        ] {
            let response = refusal.response();
            assert_eq!(response.status(), 503, "{refusal:?}");
            assert!(response.headers().contains_key(RETRY_AFTER), "{refusal:?}");
        }
        for refusal in [
            Refusal::NotFound,
            Refusal::Encoding,
            Refusal::TooLarge(1),
            Refusal::Broken,
        ] {
            let response = refusal.response();
            assert!(response.status().is_client_error(), "{refusal:?}");
            assert!(!response.headers().contains_key(RETRY_AFTER), "{refusal:?}");
            assert_eq!(response.headers()[CONNECTION], "close", "{refusal:?}");
        }
    }

    #[test]
    fn no_part_of_a_signature_is_told_right_or_wrong() {
        let texts: Vec<String> = Reject::ALL
            .iter()
            .filter(|reject| reject.status() != StatusCode::SERVICE_UNAVAILABLE)
            .map(|reject| Refusal::Rejected(*reject).text())
            .collect();
        assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "{texts:?}");
    }
}
