//! What handlers take out of a request, with refusals as problems.
//!
//! Owns the limits of bodies, in size and time, and how ids and versions are read. A body is JSON:
//! keys that nobody knows and keys given twice are refused, by `serde` for what has fields.

use std::str::FromStr;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use hooklane_core::error::ErrorCode;
use hooklane_store::Store;
use hooklane_store::audit_log::By;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH};
use http::request::Parts;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{ObjectBuilder, Required, Type};

use crate::Api;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::request_id::RequestId;

/// Largest body of a management request, in bytes.
pub(crate) const SMALL: usize = 512 * 1024;

/// The parameters in the path.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, api).await {
            Ok(axum::extract::Path(path)) => Ok(Self(path)),
            Err(rejection) => Err(Problem::invalid(rejection.body_text())),
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
            Err(rejection) => Err(Problem::invalid(rejection.body_text())),
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
        let bytes = read(request, LIMIT, api.config().body_within).await?;
        let body = serde_json::from_slice(&bytes).map_err(|error| {
            // Its text names the field, line and column; a value is shown only where it is short.
            let detail = cut(&error.to_string());
            if error.is_data() {
                Problem::unprocessable(format!("the body is not what is expected: {detail}"))
            } else {
                Problem::invalid(format!("the body can't be read: {detail}"))
            }
        })?;
        Ok(Self(body))
    }
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
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

/// The whole body, within its limits.
async fn read(request: Request, limit: usize, within: Duration) -> Result<Bytes, Problem> {
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
        let mut body = BytesMut::with_capacity(announced.unwrap_or(0));
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|_| Problem::invalid("the body ended early"))?;
            if body.len() + chunk.len() > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
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
        match text.trim_matches('"').parse() {
            Ok(version) => Ok(Self(Some(version))),
            Err(_) => Err(Problem::unprocessable(
                "`if-match` can't be read; give the `etag` of an earlier answer",
            )),
        }
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
