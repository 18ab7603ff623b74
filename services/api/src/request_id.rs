//! The id of a request: what the client gave in `request-id`, or a new one; on every answer, in
//! every problem, and in the span that log lines of the request belong to.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue};
use tracing::{Instrument as _, debug, info_span};
use uuid::Uuid;

use crate::problem::Problem;

/// The header, in both directions.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("request-id");
/// Longest id that is taken from a client, in bytes.
const LONGEST: usize = 128;

/// A request's id.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Gives the request its id, and completes its answer.
pub(crate) async fn attach(mut request: Request, next: Next) -> Response {
    let id = given(&request).unwrap_or_else(|| format!("req_{}", Uuid::now_v7()));
    request.extensions_mut().insert(RequestId(id.clone()));
    let method = request.method().clone();
    let span = info_span!("request", %method, path = request.uri().path(), request_id = %id);
    let mut response = next.run(request).instrument(span.clone()).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let headers = std::mem::take(response.headers_mut());
        response = problem.render(&id);
        // What a layer or the router has put there, such as `allow`.
        for (name, value) in headers {
            if let Some(name) = name.filter(|name| !response.headers().contains_key(name)) {
                response.headers_mut().insert(name, value);
            }
        }
    }
    span.in_scope(|| debug!(status = response.status().as_u16(), "answered"));
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

/// The client's, where it can be put into a log line.
fn given(request: &Request) -> Option<String> {
    let text = request.headers().get(HEADER)?.to_str().ok()?;
    let fits = (1..=LONGEST).contains(&text.len());
    (fits && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| text.to_owned())
}
