//! How long a request waits for a ledger that can't be reached.
//!
//! Each step of a request waits for a connection as long as the pool does (`database.acquire_timeout`),
//! and some wait behind those of others, so that a limit of each is none of the whole. The whole has
//! one: a request that takes longer is asked for, by a connection of its own, whether the ledger answers
//! at all. Where it does not, the request is refused. Where it does, the request may take its time, as a
//! large batch, a long search or a test delivery does, and the question comes again now and then. It is
//! one question for all that wait at that moment.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hooklane_core::error::ErrorCode;
use hooklane_store::Store;
use http::Method;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::Api;
use crate::problem::{COME_AGAIN, Problem};

/// How long a request may take before anybody asks.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// How long the ledger may take to answer a new connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How long after an answer it is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether the ledger can be reached, as far as somebody had to know.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Since when that is known, and what. Whoever holds it asks.
    last: Mutex<Option<(Instant, bool)>>,
}

impl Reach {
    /// Asks the ledger, or waits for whom is asking at this moment.
    async fn answers(&self, store: &Store) -> bool {
        let came = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((at, answers)) = *last
            && at >= came
        {
            return answers;
        }
        let before = last.is_none_or(|(_, answers)| answers);
        let answers = store.answers(ANSWER_WITHIN).await;
        *last = Some((Instant::now(), answers));
        match (before, answers) {
            (true, false) => warn!("the ledger can't be reached: requests are refused"),
            (false, true) => info!("the ledger can be reached again"),
            _ => {}
        }
        answers
    }
}

/// Bounds a request while the ledger can't be reached.
pub(crate) async fn bound(State(api): State<Api>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let mut answer = std::pin::pin!(next.run(request));
    let mut pause = PATIENCE;
    loop {
        if let Ok(answer) = tokio::time::timeout(pause, &mut answer).await {
            return answer;
        }
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            answers = api.reach().answers(api.store()) => {
                if !answers {
                    return refused(&method).into_response();
                }
            }
        }
        pause = AGAIN;
    }
}

fn refused(method: &Method) -> Problem {
    let detail = if method.is_safe() {
        "the ledger can't be reached at present; come again"
    } else {
        "the ledger can't be reached at present, and nobody can tell whether this was done; send it \
         again, a message with the same idempotency key"
    };
    Problem::new(ErrorCode::PostgresUnavailable, detail).with_retry_after(COME_AGAIN)
}
