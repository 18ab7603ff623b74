//! Asking the adopter's handler about one event, over NATS or HTTP, and reading what it says.
//!
//! A handler answers with JSON, `{"outcome": "processed" | "deferred" | "failed", "reason": "…"}`. Over
//! HTTP the status says the same: 2xx is processed unless the body says otherwise, 425 is deferred, and
//! everything else failed. A handler that can't be reached has not been asked, and has not failed.

use std::time::Duration;

use bytes::Bytes;
use hooklane_nats::{Client, Error, Outgoing};
use hooklane_proto::header;
use hooklane_proto::inbox::InboxEvent;
use hooklane_store::inbox::Answer;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use url::Url;

/// Most bytes of an answer that are read.
const MAX: usize = 64 << 10;
/// Most characters of a reason that are kept.
const REASON: usize = 300;
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(2);

/// Where the handler is.
#[derive(Debug, Clone)]
pub(super) enum Handler {
    /// Whoever serves a subject.
    Nats { client: Client, subject: String },
    /// Whatever is at an internal address.
    Http { client: reqwest::Client, url: Url },
}

/// What came of asking.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It said so, or took too long.
    Answered(Answer),
    /// It was not asked, for this reason.
    Unreached(String),
}

/// The client of all HTTP handlers: no redirects, no proxy.
pub(super) fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    hooklane_core::tls::install_provider();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .build()
}

impl Handler {
    /// Asks, for `within` at the most.
    pub(super) async fn ask(&self, event: InboxEvent, within: Duration) -> Outcome {
        match self {
            Self::Nats { client, subject } => {
                let message = Outgoing {
                    subject: subject.clone(),
                    headers: event.headers(),
                    payload: event.body,
                };
                let answer = client.request_with_headers(message, within).await;
                over_nats(answer, within)
            }
            Self::Http { client, url } => {
                let posting = post(client, url, event);
                match tokio::time::timeout(within, posting).await {
                    Ok(outcome) => outcome,
                    Err(_elapsed) => failed(no_answer(within)),
                }
            }
        }
    }
}

fn over_nats(answer: Result<Bytes, Error>, within: Duration) -> Outcome {
    match answer {
        Ok(answer) if answer.is_empty() => Outcome::Answered(Answer::Processed),
        Ok(answer) => match said(&answer) {
            Some(answer) => Outcome::Answered(answer),
            None => failed("the handler's answer can't be read".to_owned()),
        },
        Err(Error::TimedOut { .. }) => failed(no_answer(within)),
        Err(error @ (Error::NoResponders { .. } | Error::Disconnected)) => {
            Outcome::Unreached(error.to_string())
        }
        // Too large, or no subject: it is so next time.
        Err(error) => failed(error.to_string()),
    }
}

async fn post(client: &reqwest::Client, url: &Url, event: InboxEvent) -> Outcome {
    let request = client
        .post(url.clone())
        .headers(headers(&event))
        .body(event.body);
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) if error.is_connect() => {
            return Outcome::Unreached(error.without_url().to_string());
        }
        Err(error) => return failed(error.without_url().to_string()),
    };
    let status = response.status();
    let mut body = Vec::new();
    while body.len() < MAX {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk[..chunk.len().min(MAX - body.len())]),
            Ok(None) => break,
            Err(error) => return failed(error.without_url().to_string()),
        }
    }
    over_http(status, &body)
}

fn over_http(status: StatusCode, body: &[u8]) -> Outcome {
    let said = said(body);
    let reason = || match &said {
        Some(Answer::Deferred(reason) | Answer::Failed(reason)) => reason.clone(),
        _ => format!("the handler answered {status}"),
    };
    if status == StatusCode::TOO_EARLY {
        return Outcome::Answered(Answer::Deferred(reason()));
    }
    if !status.is_success() {
        return failed(reason());
    }
    Outcome::Answered(said.unwrap_or(Answer::Processed))
}

/// The headers of the message, without the broker's.
fn headers(event: &InboxEvent) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in event.headers().iter() {
        if name == header::MSG_ID {
            continue;
        }
        let name = HeaderName::from_bytes(name.as_bytes());
        // Control characters are encoded already, so that every value is one.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            map.insert(name, value);
        }
    }
    map
}

#[derive(Deserialize)]
struct Said {
    outcome: Word,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Processed,
    Deferred,
    Failed,
}

/// What a handler's JSON says; `None` where it is none of its words.
fn said(body: &[u8]) -> Option<Answer> {
    let Said { outcome, reason } = serde_json::from_slice(body).ok()?;
    let reason = reason
        .as_deref()
        .map_or("the handler gave no reason".to_owned(), shown);
    Some(match outcome {
        Word::Processed => Answer::Processed,
        Word::Deferred => Answer::Deferred(reason),
        Word::Failed => Answer::Failed(reason),
    })
}

fn shown(text: &str) -> String {
    let printable = text.chars().filter(|c| !c.is_control());
    printable.take(REASON).collect()
}

fn failed(reason: String) -> Outcome {
    Outcome::Answered(Answer::Failed(shown(&reason)))
}

fn no_answer(within: Duration) -> String {
    format!("the handler gave no answer within {within:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answer: Answer) -> Outcome {
        Outcome::Answered(answer)
    }

    #[test]
    fn http_answers_are_read_by_status_and_then_by_body() {
        let deferred = br#"{"outcome":"deferred","reason":"no stock"}"#;
        let not = br#"{"outcome":"failed","reason":"a\u0000b"}"#;
        let cases: [(u16, &[u8], Answer); 7] = [
            (200, b"", Answer::Processed),
            (204, b"", Answer::Processed),
            (200, b"thanks", Answer::Processed),
            (200, deferred, Answer::Deferred("no stock".to_owned())),
            (425, deferred, Answer::Deferred("no stock".to_owned())),
            (200, not, Answer::Failed("ab".to_owned())),
            (500, not, Answer::Failed("ab".to_owned())),
        ];
        for (status, body, expected) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(over_http(status, body), answered(expected), "{status}");
        }
        for status in [302, 404, 429, 500, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            let processed = br#"{"outcome":"processed"}"#;
            let expected = format!("the handler answered {status}");
            assert_eq!(over_http(status, processed), failed(expected));
        }
    }

    #[test]
    fn over_nats_an_answer_is_json_or_empty_and_nobody_is_not_a_failure() {
        let within = Duration::from_secs(1);
        let over = |text: &'static str| over_nats(Ok(Bytes::from_static(text.as_bytes())), within);
        assert_eq!(over(""), answered(Answer::Processed));
        assert_eq!(
            over(r#"{"outcome":"processed"}"#),
            answered(Answer::Processed)
        );
        for bad in ["ok", "{}", r#"{"outcome":"done"}"#] {
            assert!(
                matches!(over(bad), Outcome::Answered(Answer::Failed(_))),
                "{bad}"
            );
        }
        let nobody = Error::NoResponders {
            subject: "x".to_owned(),
        };
        assert!(matches!(
            over_nats(Err(nobody), within),
            Outcome::Unreached(_)
        ));
        let late = Error::TimedOut {
            subject: "x".to_owned(),
            after: within,
        };
        assert_eq!(over_nats(Err(late), within), failed(no_answer(within)));
    }
}
