//! What an answer that is no success looks like: `application/problem+json` (RFC 9457).
//!
//! Owns the form and the mapping from faults to codes. A [`Problem`] is only completed, with the
//! request's id, by the layer around all routes: so every refusal has one, wherever it came from.

use axum::response::{IntoResponse, Response};
use hooklane_core::error::ErrorCode;
use hooklane_store::manage;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tracing::error;
use utoipa::ToSchema;

/// When to come again where PostgreSQL or NATS does not answer, in seconds.
pub(crate) const COME_AGAIN: u32 = 2;

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    code: ErrorCode,
    detail: String,
    errors: Vec<Pointer>,
    retry_after: Option<u32>,
    /// For the log alone: what went wrong inside.
    cause: Option<String>,
}

/// One thing that is wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Pointer {
    /// Where, as a JSON pointer (RFC 6901) into the body.
    #[schema(example = "/payload/amount")]
    pub(crate) pointer: String,
    /// What.
    #[schema(example = "\"10\" is not of type \"number\"")]
    pub(crate) detail: String,
}

/// Why a request was not done, in the form of RFC 9457.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Body<'a> {
    /// The code as a URI.
    #[serde(rename = "type")]
    #[schema(example = "urn:hooklane:error:not_found")]
    kind: String,
    /// The HTTP status in words.
    #[schema(example = "Not Found")]
    title: &'a str,
    /// The HTTP status.
    #[schema(example = 404)]
    status: u16,
    /// What is wrong and what helps.
    detail: &'a str,
    /// The code, from a closed set.
    #[schema(example = "not_found")]
    code: &'a str,
    /// The request's id, as in the header `request-id`.
    request_id: &'a str,
    /// What is wrong with the body, item by item.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [Pointer],
}

impl Problem {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            retry_after: None,
            cause: None,
        }
    }

    /// What can be read and can't be done.
    pub(crate) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unprocessable, detail)
    }

    /// What can't be read.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidData, detail)
    }

    /// Nothing there.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, detail)
    }

    /// Says when to come again, in seconds.
    #[must_use]
    pub(crate) fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Says what is wrong with the body, item by item.
    #[must_use]
    pub(crate) fn with_errors(mut self, errors: Vec<Pointer>) -> Self {
        self.errors = errors;
        self
    }

    pub(crate) fn code(&self) -> ErrorCode {
        self.code
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// What is wrong with the body, item by item.
    pub(crate) fn errors(&self) -> &[Pointer] {
        &self.errors
    }

    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The whole answer. A fault of our own goes into the log, under the request's id.
    pub(crate) fn render(&self, request_id: &str) -> Response {
        if let Some(cause) = &self.cause {
            error!(
                request_id,
                cause, "a request failed for a reason of our own"
            );
        }
        let status = self.status();
        let body = Body {
            kind: format!("urn:hooklane:error:{}", self.code),
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: &self.detail,
            code: self.code.as_str(),
            request_id,
            errors: &self.errors,
        };
        // Plain fields: this has a JSON form.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, problem);
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == ErrorCode::UnsupportedMediaType {
            let json = HeaderValue::from_static("application/json");
            headers.insert(ACCEPT, json);
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if self.code == ErrorCode::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<manage::Error> for Problem {
    fn from(error: manage::Error) -> Self {
        match &error {
            manage::Error::Store(_) => {}
            manage::Error::NotFound { kind, id } => {
                return Self::not_found(format!("there is no {} `{id}`", kind.noun()));
            }
            manage::Error::UnknownEventTypes(names) => {
                let names = names.join(", ");
                let detail = format!("no such event type: {names}; add it first");
                return Self::new(ErrorCode::UnknownEventType, detail);
            }
            other if other.code() == ErrorCode::InvalidData => {
                return Self::unprocessable(other.to_string());
            }
            other if other.code() != ErrorCode::Internal => {
                return Self::new(other.code(), other.to_string());
            }
            _ => {}
        }
        match error {
            manage::Error::Store(error) => error.into(),
            error => internal(&error),
        }
    }
}

impl From<hooklane_store::Error> for Problem {
    fn from(error: hooklane_store::Error) -> Self {
        match error.code() {
            code @ (ErrorCode::PostgresUnavailable | ErrorCode::SchemaOutdated) => {
                Self::new(code, "the ledger can't be reached at present; come again")
                    .with_retry_after(COME_AGAIN)
            }
            _ if error.is_data_fault() => {
                Self::unprocessable("a value is out of the range that the ledger can hold")
            }
            _ => internal(&error),
        }
    }
}

/// Our own fault: the log has it, the answer does not.
fn internal(error: &dyn std::error::Error) -> Problem {
    let detail = "this is a fault of the server; its log has it under the request's id";
    let mut problem = Problem::new(ErrorCode::Internal, detail);
    problem.cause = Some(error.to_string());
    problem
}
