//! Who asks: the key in `authorization`, looked up, held against the route's rule, and within its
//! rate.
//!
//! A looked-up key is remembered for a few seconds ([`crate::Config::keys_for`]): a busy publisher
//! costs no statement a request, and a revocation is in force within that time. What is remembered
//! is bounded; so is what is remembered of keys that nobody has.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota};
use hooklane_core::clock;
use hooklane_core::error::ErrorCode;
use hooklane_proto::id::ApiKeyId;
use hooklane_store::api_key::{self, ApiKey};
use hooklane_store::audit_log::Actor;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::problem::Problem;
use crate::{Api, json, scope};

/// Keys remembered at the most, valid or not.
const REMEMBERED: usize = 10_000;

/// The key that a request was let through with.
#[derive(Debug, Clone)]
pub(crate) struct Caller(pub(crate) Arc<ApiKey>);

impl Caller {
    /// As the audit log names it.
    pub(crate) fn actor(&self) -> Actor {
        Actor::Key {
            id: self.0.id,
            name: self.0.name.clone(),
        }
    }
}

type Digest = [u8; 32];

/// What is known of keys, for a while.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<HashMap<Digest, Entry>>);

#[derive(Debug, Clone)]
struct Entry {
    /// `None` where nobody has this key.
    key: Option<Valid>,
    until: Instant,
}

#[derive(Debug, Clone)]
struct Valid {
    key: Arc<ApiKey>,
    limiter: Option<Arc<DefaultDirectRateLimiter>>,
    used: Option<DateTime<Utc>>,
}

/// Lets a request through that may pass.
pub(crate) async fn require(
    State(api): State<Api>,
    path: Option<MatchedPath>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = path.as_ref().map_or("", MatchedPath::as_str);
    let consumer = match &params {
        Ok(params) => {
            let consumer = params.iter().find(|(name, _)| *name == "consumer");
            Ok(consumer.map(|(_, value)| value))
        }
        Err(rejection) => Err(Problem::invalid(json::in_terms(&rejection.body_text()))),
    };
    let presented = match bearer(request.headers()) {
        Ok(presented) => presented.to_owned(),
        Err(problem) => return problem.into_response(),
    };
    let method = request.method().clone();
    match admit(&api, &presented, &method, path, consumer).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn admit(
    api: &Api,
    presented: &str,
    method: &Method,
    path: &str,
    consumer: Result<Option<&str>, Problem>,
) -> Result<Caller, Problem> {
    let valid = lookup(api, presented).await?;
    let key = &valid.key;
    let rule = scope::of(method, path);
    if let Some(limiter) = &valid.limiter
        && let Err(not_until) = limiter.check()
    {
        let wait = not_until.wait_time_from(DefaultClock::default().now());
        let seconds = u32::try_from(wait.as_secs())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let detail = "the key's rate limit is reached; come again later";
        return Err(Problem::new(ErrorCode::Busy, detail).with_retry_after(seconds));
    }
    let consumer = consumer?;
    match rule {
        Some(rule) if rule.allows(key, consumer) => Ok(Caller(Arc::clone(key))),
        Some(_) => Err(Problem::new(
            ErrorCode::Forbidden,
            format!(
                "a key with the scope `{}` may not do this here",
                key.scope.as_str()
            ),
        )),
        // Closed, too, where a handler is there that the table does not know.
        None => Err(method_not_allowed()),
    }
}

/// The address exists, but not with this method.
pub(crate) fn method_not_allowed() -> Problem {
    Problem::new(
        ErrorCode::MethodNotAllowed,
        "this address does not take this method",
    )
}

fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let problem = || {
        Problem::new(
            ErrorCode::Unauthenticated,
            "no API key; send `authorization: Bearer hlk_...`, and make the first key with: \
             hooklane api-key create",
        )
    };
    let value = headers.get(AUTHORIZATION).ok_or_else(problem)?;
    let (scheme, key) = value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .ok_or_else(problem)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        Ok(key.trim())
    } else {
        Err(problem())
    }
}

async fn lookup(api: &Api, presented: &str) -> Result<Valid, Problem> {
    let digest: Digest = Sha256::digest(presented.as_bytes()).into();
    let known = api.known_keys();
    let entry = match known.get(&digest) {
        Some(entry) => entry,
        None => {
            let found = api_key::authenticate(api.store(), presented).await?;
            known.put(
                digest,
                found,
                api.config().keys_for,
                api.config().rate_limit,
            )
        }
    };
    let expired = |valid: &Valid| {
        let now = clock::now();
        valid.key.expires_at.is_some_and(|expires| expires <= now)
    };
    entry.key.filter(|valid| !expired(valid)).ok_or_else(|| {
        let detail = "the API key is not valid: unknown, expired or revoked";
        Problem::new(ErrorCode::Unauthenticated, detail)
    })
}

impl Known {
    fn entries(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, digest: &Digest) -> Option<Entry> {
        let mut entries = self.entries();
        let entry = entries.get_mut(digest)?;
        if let Some(valid) = &mut entry.key {
            valid.used = Some(clock::now());
        }
        (entry.until > Instant::now()).then(|| entry.clone())
    }

    fn put(
        &self,
        digest: Digest,
        found: Option<ApiKey>,
        keep: Duration,
        rate: Option<u32>,
    ) -> Entry {
        let mut entries = self.entries();
        let now = Instant::now();
        if entries.len() >= REMEMBERED {
            entries.retain(|_, entry| entry.until > now);
        }
        if entries.len() >= REMEMBERED {
            entries.clear();
        }
        let before = entries.remove(&digest).and_then(|entry| entry.key);
        let key = found.map(|key| {
            let rate = key
                .rate_limit
                .map(u32::from)
                .or(rate)
                .and_then(NonZeroU32::new);
            // A limiter that is in use goes on, unless its rate was changed.
            let same = before.filter(|before| before.key.rate_limit == key.rate_limit);
            let limiter = match same {
                Some(before) => before.limiter,
                None => rate.map(|rate| {
                    Arc::new(DefaultDirectRateLimiter::direct(Quota::per_second(rate)))
                }),
            };
            Valid {
                key: Arc::new(key),
                limiter,
                used: Some(clock::now()),
            }
        });
        let entry = Entry {
            key,
            until: now + keep,
        };
        entries.insert(digest, entry.clone());
        entry
    }

    /// The keys that were used since the last call.
    pub(crate) fn take_used(&self) -> Vec<(ApiKeyId, DateTime<Utc>)> {
        let mut entries = self.entries();
        let valid = entries.values_mut().filter_map(|entry| entry.key.as_mut());
        let used = valid.filter_map(|valid| Some((valid.key.id, valid.used.take()?)));
        used.collect()
    }

    /// Forgets everything, so that a change of keys is in force at once in this process.
    pub(crate) fn forget(&self) {
        for entry in self.entries().values_mut() {
            entry.until = Instant::now();
        }
    }
}
