//! What handlers take out of a request, with refusals as problems.
//!
//! Owns the limits of bodies, in size, time and the memory of all together, and how ids and versions
//! are read. A body is JSON: keys that nobody knows and keys given twice are refused, by `serde` for
//! what has fields.

use std::str::FromStr;
use std::time::Duration;

use axum::Json;
use axum::body::HttpBody as _;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::IntoResponse;
use futures::StreamExt as _;
use hooklane_core::error::ErrorCode;
use hooklane_store::Store;
use hooklane_store::audit_log::By;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH};
use http::request::Parts;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{ObjectBuilder, Required, Type};

use crate::Api;
use crate::auth::Caller;
use crate::json;
use crate::problem::Problem;
use crate::request_id::RequestId;

/// Largest body of a management request, in bytes.
pub(crate) const SMALL: usize = 512 * 1024;
/// In what pieces bodies share memory, in bytes.
pub(crate) const PIECE: usize = 64 * 1024;
/// When to come again after there was no room for a body, in seconds.
const COME_AGAIN: u32 = 1;

/// The parameters in the path.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, api).await {
            Ok(axum::extract::Path(path)) => Ok(Self(path)),
            Err(rejection) => Err(Problem::invalid(json::in_terms(&rejection.body_text()))),
        }
    }
}

/// The parameters after the question mark.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        match axum::extract::Query::from_request_parts(parts, api).await {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(rejection) => Err(Problem::invalid(json::in_terms(&rejection.body_text()))),
        }
    }
}

/// A JSON body of at most `LIMIT` bytes.
#[derive(Debug)]
pub(crate) struct Body<T, const LIMIT: usize = SMALL>(pub(crate) T);

impl<T: DeserializeOwned, const LIMIT: usize> FromRequest<Api> for Body<T, LIMIT> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(
                ErrorCode::UnsupportedMediaType,
                "a body is read as JSON alone; send it with `content-type: application/json`",
            ));
        }
        if is_encoded(request.headers()) {
            return Err(Problem::new(
                ErrorCode::UnsupportedMediaType,
                "a body is read as it is sent; send it without `content-encoding`",
            ));
        }
        let mut room = Room::of(api.bodies());
        let bytes = read(request, LIMIT, api.config().body_within, &mut room).await?;
        Ok(Self(json::parse(&bytes)?))
    }
}

/// That there is no body: what nobody reads is refused like a field that nobody knows.
#[derive(Debug)]
pub(crate) struct NoBody;

impl FromRequest<Api> for NoBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let refusal = || Problem::invalid("this takes no body; send none");
        let body = request.into_body();
        if body.is_end_stream() {
            return Ok(Self);
        }
        // One whose length is not told may be empty all the same.
        let mut stream = body.into_data_stream();
        let reading = async {
            while let Some(chunk) = stream.next().await {
                if !chunk.map_err(|_| refusal())?.is_empty() {
                    return Err(refusal());
                }
            }
            Ok(Self)
        };
        let read = tokio::time::timeout(api.config().body_within, reading).await;
        read.unwrap_or_else(|_| Err(refusal()))
    }
}

/// Whether a body is anything but as it is.
fn is_encoded(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let mut codings = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    codings.any(|coding| {
        let coding = coding.trim_ascii();
        !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// What a body takes of the memory that all bodies share; given back when dropped.
struct Room<'a> {
    all: &'a Semaphore,
    taken: Option<SemaphorePermit<'a>>,
    bytes: usize,
}

impl<'a> Room<'a> {
    fn of(all: &'a Semaphore) -> Self {
        Self {
            all,
            taken: None,
            bytes: 0,
        }
    }

    /// Makes room for a body of so many bytes, and for as much again if it grows, up to `limit`.
    fn grow(&mut self, body: &mut Vec<u8>, bytes: usize, limit: usize) -> Result<(), Problem> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let wanted = bytes.max(self.bytes * 2).min(limit);
        let more = wanted.div_ceil(PIECE) - self.bytes / PIECE;
        let more = u32::try_from(more).ok();
        let Some(more) = more.and_then(|more| self.all.try_acquire_many(more).ok()) else {
            let detail = "more bodies come in than there is room for; send it again later";
            return Err(Problem::new(ErrorCode::Busy, detail).with_retry_after(COME_AGAIN));
        };
        self.bytes += more.num_permits() * PIECE;
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            none => *none = Some(more),
        }
        if self.bytes > PIECE {
            body.reserve_exact(self.bytes - body.len());
        }
        Ok(())
    }
}

/// The whole body, within its limits. Memory is taken for what is there, not for what is announced.
async fn read(
    request: Request,
    limit: usize,
    within: Duration,
    room: &mut Room<'_>,
) -> Result<Vec<u8>, Problem> {
    let too_large = || {
        let detail = format!("the body is too large; send at most {limit} bytes");
        Problem::new(ErrorCode::PayloadTooLarge, detail)
    };
    let announced = request.headers().get(CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut stream = request.into_body().into_data_stream();
    let reading = async {
        let mut body = Vec::new();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|_| Problem::invalid("the body ended early"))?;
            let bytes = body.len() + chunk.len();
            if bytes > limit {
                return Err(too_large());
            }
            room.grow(&mut body, bytes, limit)?;
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    tokio::time::timeout(within, reading)
        .await
        .unwrap_or_else(|_| {
            let detail = format!("the body did not come within {} s", within.as_secs());
            Err(Problem::new(ErrorCode::RequestTimeout, detail))
        })
}

/// An id in its text form, with its prefix or without.
pub(crate) fn id<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

/// An id in its text form that may be absent.
pub(crate) fn optional_id<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    id(deserializer).map(Some)
}

/// A member that is told apart from its absence where it is null: `Some(None)`.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

/// The version that the client has seen, from `If-Match`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IfMatch(pub(crate) Option<i64>);

impl IntoParams for IfMatch {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let text = "The `etag` that the change rests on: refused where it is no longer that.";
        let schema = ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^(\\*|\"[0-9]{1,18}\")$"))
            .build();
        let parameter = ParameterBuilder::new()
            .name("if-match")
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some(text))
            .schema(Some(schema));
        vec![parameter.build()]
    }
}

/// The `etag` of a version.
pub(crate) fn etag(version: i64) -> String {
    format!("\"{version}\"")
}

/// The version of an `etag`: nothing but what [`etag`] makes.
fn version_of(etag: &str) -> Option<i64> {
    let digits = etag.strip_prefix('"')?.strip_suffix('"')?;
    let plain = matches!(digits.len(), 1..=18) && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// A body with the `etag` of its version.
pub(crate) fn tagged<T: Serialize>(version: i64, body: T) -> impl IntoResponse {
    ([(ETAG, etag(version))], Json(body))
}

impl FromRequestParts<Api> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get(IF_MATCH) else {
            return Ok(Self(None));
        };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Self(None));
        }
        version_of(text).map(Some).map(Self).ok_or_else(|| {
            Problem::unprocessable("`if-match` can't be read; give the `etag` of an earlier answer")
        })
    }
}

/// The ledger in the caller's name: what is changed through it goes into the audit log.
#[derive(Debug)]
pub(crate) struct Acting(pub(crate) Store);

impl FromRequestParts<Api> for Acting {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = parts
            .extensions
            .get::<Caller>()
            .ok_or_else(|| Problem::new(ErrorCode::Unauthenticated, "this needs an API key"))?;
        let request_id = parts.extensions.get::<RequestId>();
        Ok(Self(api.store().acting(By {
            actor: caller.actor(),
            request_id: request_id.map(|id| id.0.clone()),
        })))
    }
}
