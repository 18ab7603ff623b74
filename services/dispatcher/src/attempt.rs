//! One attempt: sign, POST, read the log's share of the answer, and say what it means.
//!
//! Owns the process's one HTTP client, the address guard at every connect, the classes of errors
//! and the record of an attempt. Does not own when an attempt starts (the lane's machine), what
//! is done with its record (the recorder's batcher), or the retry schedule (a rule of `core`).
//!
//! The outcome is decided when a valid head of an answer has arrived; whatever the body does
//! afterwards is logged and changes nothing. A total deadline covers everything from the
//! connection to the last byte read.

mod answer;
mod classify;
mod client;
mod resolver;
mod target;
mod verdict;

use chrono::{DateTime, Utc};
use hooklane_core::rules::outcome::{ErrorClass, Outcome};
use hooklane_core::rules::schedule::Schedule;
use hooklane_core::rules::signing::{self, HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP};
use hooklane_core::{clock, trace};
use hooklane_proto::delivery::Delivery;
use hooklane_proto::record::Record;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::lane::machine::End;
use answer::Answer;
use classify::Failure;
use client::{Client, Sent};

pub use client::BuildError;
pub(crate) use client::build as build_client;
pub(crate) use target::{Opener, Target};
pub(crate) use verdict::{drive, interrupted};

/// What makes attempts; one a process, shared by all lanes.
#[derive(Debug)]
pub(crate) struct Engine {
    client: Client,
    schedule: Schedule,
    max_body: usize,
    max_headers: usize,
}

/// What an attempt came to.
#[derive(Debug)]
pub(crate) struct Made {
    /// What goes to the ledger.
    pub(crate) record: Record,
    /// What the lane learns.
    pub(crate) end: End,
}

/// What is known of an attempt before and after the POST, besides the delivery.
struct Facts {
    started_at: DateTime<Utc>,
    started: Instant,
    outcome: Outcome,
    answer: Answer,
    detail: Option<String>,
}

impl Engine {
    pub(crate) fn new(client: Client, schedule: Schedule, http: &crate::config::Http) -> Self {
        Self {
            client,
            schedule,
            max_body: http.max_body,
            max_headers: http.max_headers,
        }
    }

    /// Makes one attempt. `cut` ends it early, as interrupted.
    pub(crate) async fn attempt(
        &self,
        delivery: &Delivery,
        target: &Target,
        cut: &CancellationToken,
    ) -> Made {
        let started_at = clock::now();
        let started = Instant::now();
        let mut answer = Answer::default();
        let posted = tokio::select! {
            biased;
            posted = self.post(delivery, target, started_at, started, &mut answer) => posted,
            () = cut.cancelled() => Err(Failure::new(ErrorClass::Interrupted, "cut while stopping")),
        };
        let (outcome, detail) = match posted {
            Ok(outcome) => (outcome, answer.note()),
            Err(failure) => (
                Outcome::Failed(failure.class),
                answer.explain(failure.detail),
            ),
        };
        let facts = Facts {
            started_at,
            started,
            outcome,
            answer,
            detail,
        };
        verdict::made(
            delivery,
            facts,
            &self.schedule,
            trace::context_of(&Span::current()),
        )
    }

    /// Sends the request and reads the answer, within the endpoint's timeout.
    async fn post(
        &self,
        delivery: &Delivery,
        target: &Target,
        started_at: DateTime<Utc>,
        started: Instant,
        answer: &mut Answer,
    ) -> Result<Outcome, Failure> {
        let ready = target.ready()?;
        let first = request(delivery, ready, started_at)?;
        let deadline = started + ready.timeout;
        let sending = async {
            let Sent { result, reused } = self.client.send(first).await;
            match result.map_err(classify::failure) {
                Err(failure) if reused && failure.class == ErrorClass::Reset => {
                    // A kept connection that was closed just then, as far as anybody can tell: once
                    // more within this attempt, and said so in its record.
                    answer.sent_again();
                    let second = request(delivery, ready, started_at)?;
                    let result = self.client.send_fresh(second).await;
                    result.map_err(classify::failure)
                }
                other => other,
            }
        };
        let mut response = match tokio::time::timeout_at(deadline, sending).await {
            Ok(sent) => sent?,
            Err(_elapsed) => return Err(Failure::new(ErrorClass::Timeout, "no answer in time")),
        };
        let headers = response.headers();
        let retry_after = headers.get(RETRY_AFTER).map(HeaderValue::as_bytes);
        let outcome = Outcome::answered(response.status().as_u16(), retry_after, clock::now());
        answer.take_headers(headers, self.max_headers);
        answer
            .read_body(&mut response, self.max_body, deadline)
            .await;
        Ok(outcome)
    }
}

fn request(
    delivery: &Delivery,
    ready: &target::Ready,
    now: DateTime<Utc>,
) -> Result<reqwest::Request, Failure> {
    let own = |text: String| Failure::new(ErrorClass::OwnFault, text);
    let id = delivery.key.message.to_string();
    let timestamp = now.timestamp();
    let signature = signing::sign(&id, timestamp, &delivery.payload, &ready.keys)
        .map_err(|error| own(error.to_string()))?;
    let text = |value: &str| {
        HeaderValue::from_str(value).map_err(|_| own("a header has a line break".to_owned()))
    };
    let mut headers = HeaderMap::with_capacity(ready.headers.len() + 4);
    headers.clone_from(&ready.headers);
    // Inserted last, so that nothing of the endpoint's own can take their place.
    headers.insert(HeaderName::from_static(HEADER_ID), text(&id)?);
    headers.insert(
        HeaderName::from_static(HEADER_TIMESTAMP),
        HeaderValue::from(timestamp),
    );
    headers.insert(HeaderName::from_static(HEADER_SIGNATURE), text(&signature)?);
    headers.insert(CONTENT_TYPE, text(&delivery.content_type)?);
    let mut request = reqwest::Request::new(Method::POST, ready.url.clone());
    *request.headers_mut() = headers;
    *request.body_mut() = Some(delivery.payload.clone().into());
    Ok(request)
}

impl Engine {
    /// The retry schedule.
    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }
}
