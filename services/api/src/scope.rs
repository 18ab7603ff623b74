//! Which key may do what: the one table.
//!
//! A request whose method and path are not in it is refused, so that a route that nobody thought
//! about is closed. A key that belongs to a consumer is let through only where the path names that
//! consumer, or where what is there belongs to nobody, as the event types do.

use hooklane_store::api_key::{ApiKey, Scope};
use http::Method;

/// Who may use a route, beside `admin`, who may use all.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) scopes: &'static [Scope],
}

const fn rule(method: Method, path: &'static str, scopes: &'static [Scope]) -> Rule {
    Rule {
        method,
        path,
        scopes,
    }
}

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// Those who publish.
const PUBLISH: &[Scope] = &[Scope::Publish];
/// Those who look at what is the consumer's own.
const LOOK: &[Scope] = &[Scope::Consumer, Scope::Read];
/// Those who change what is the consumer's own.
const CHANGE: &[Scope] = &[Scope::Consumer];
/// Those who look at what is of the whole account.
const LOOK_AT_ALL: &[Scope] = &[Scope::Read];
/// `admin` alone.
const ADMIN: &[Scope] = &[];

/// Every route.
pub(crate) static RULES: &[Rule] = &[
    rule(POST, "/v1/consumers/{consumer}/messages", PUBLISH),
    rule(POST, "/v1/consumers/{consumer}/messages/batch", PUBLISH),
    rule(GET, "/v1/consumers/{consumer}/messages", LOOK),
    rule(GET, "/v1/consumers/{consumer}/messages/{message}", LOOK),
    rule(
        GET,
        "/v1/consumers/{consumer}/messages/{message}/payload",
        LOOK,
    ),
    rule(
        POST,
        "/v1/consumers/{consumer}/messages/{message}/replay",
        CHANGE,
    ),
    rule(GET, "/v1/consumers/{consumer}/deliveries", LOOK),
    rule(
        GET,
        "/v1/consumers/{consumer}/deliveries/{message}/{endpoint}",
        LOOK,
    ),
    rule(
        POST,
        "/v1/consumers/{consumer}/deliveries/{message}/{endpoint}/retry",
        CHANGE,
    ),
    rule(
        POST,
        "/v1/consumers/{consumer}/deliveries/{message}/{endpoint}/cancel",
        CHANGE,
    ),
    rule(GET, "/v1/consumers/{consumer}/attempts", LOOK),
    rule(GET, "/v1/consumers/{consumer}/attempts/{attempt}", LOOK),
    rule(GET, "/v1/event-types", LOOK),
    rule(POST, "/v1/event-types", ADMIN),
    rule(GET, "/v1/event-types/{event_type}", LOOK),
    rule(PATCH, "/v1/event-types/{event_type}", ADMIN),
    rule(GET, "/v1/consumers", LOOK_AT_ALL),
    rule(POST, "/v1/consumers", ADMIN),
    rule(GET, "/v1/consumers/{consumer}", LOOK),
    rule(PATCH, "/v1/consumers/{consumer}", ADMIN),
    rule(DELETE, "/v1/consumers/{consumer}", ADMIN),
    rule(GET, "/v1/endpoints", LOOK_AT_ALL),
    rule(GET, "/v1/endpoints/failing", LOOK_AT_ALL),
    rule(GET, "/v1/consumers/{consumer}/endpoints", LOOK),
    rule(POST, "/v1/consumers/{consumer}/endpoints", CHANGE),
    rule(GET, "/v1/consumers/{consumer}/endpoints/{endpoint}", LOOK),
    rule(
        PATCH,
        "/v1/consumers/{consumer}/endpoints/{endpoint}",
        CHANGE,
    ),
    rule(
        DELETE,
        "/v1/consumers/{consumer}/endpoints/{endpoint}",
        CHANGE,
    ),
    rule(
        POST,
        "/v1/consumers/{consumer}/endpoints/{endpoint}/pause",
        CHANGE,
    ),
    rule(
        POST,
        "/v1/consumers/{consumer}/endpoints/{endpoint}/resume",
        CHANGE,
    ),
    rule(
        GET,
        "/v1/consumers/{consumer}/endpoints/{endpoint}/secrets",
        ADMIN,
    ),
    rule(
        POST,
        "/v1/consumers/{consumer}/endpoints/{endpoint}/secrets/rotate",
        CHANGE,
    ),
    rule(
        GET,
        "/v1/consumers/{consumer}/endpoints/{endpoint}/statistics",
        LOOK,
    ),
    rule(
        POST,
        "/v1/consumers/{consumer}/endpoints/{endpoint}/test",
        CHANGE,
    ),
    rule(
        POST,
        "/v1/consumers/{consumer}/endpoints/{endpoint}/recover",
        CHANGE,
    ),
    rule(
        POST,
        "/v1/consumers/{consumer}/endpoints/{endpoint}/replay-missing",
        CHANGE,
    ),
    rule(GET, "/v1/consumers/{consumer}/dead-letters", LOOK),
    rule(POST, "/v1/consumers/{consumer}/dead-letters/replay", CHANGE),
    rule(
        POST,
        "/v1/consumers/{consumer}/dead-letters/discard",
        CHANGE,
    ),
    rule(GET, "/v1/dead-letters", LOOK_AT_ALL),
    rule(GET, "/v1/consumers/{consumer}/tasks", LOOK),
    rule(GET, "/v1/consumers/{consumer}/tasks/{task}", LOOK),
    rule(POST, "/v1/consumers/{consumer}/tasks/{task}/cancel", CHANGE),
    rule(GET, "/v1/tasks", LOOK_AT_ALL),
    rule(GET, "/v1/api-keys", ADMIN),
    rule(POST, "/v1/api-keys", ADMIN),
    rule(GET, "/v1/api-keys/{key}", ADMIN),
    rule(DELETE, "/v1/api-keys/{key}", ADMIN),
    rule(GET, "/v1/audit-log", ADMIN),
    rule(GET, "/v1/inbox/events", LOOK_AT_ALL),
    rule(GET, "/v1/inbox/events/{event}", LOOK_AT_ALL),
    rule(GET, "/v1/inbox/events/{event}/body", LOOK_AT_ALL),
    rule(POST, "/v1/inbox/events/{event}/replay", ADMIN),
    rule(POST, "/v1/inbox/events/{event}/discard", ADMIN),
    rule(GET, "/v1/inbox/rejects", LOOK_AT_ALL),
    rule(GET, "/v1/inbox/rejects/{reject}", LOOK_AT_ALL),
];

/// The rule of a route. `HEAD` is a `GET` without the body.
pub(crate) fn of(method: &Method, path: &str) -> Option<&'static Rule> {
    let method = if *method == Method::HEAD {
        &GET
    } else {
        method
    };
    RULES
        .iter()
        .find(|rule| rule.method == *method && rule.path == path)
}

impl Rule {
    /// Whether a key may. `consumer` is the one that the path names.
    pub(crate) fn allows(&self, key: &ApiKey, consumer: Option<&str>) -> bool {
        let scope = key.scope == Scope::Admin || self.scopes.contains(&key.scope);
        let owner = match (&key.consumer, consumer) {
            (None, _) => true,
            (Some(own), Some(named)) => own.as_str() == named,
            (Some(_), None) => self.is_of_nobody(),
        };
        scope && owner
    }

    /// Whether what is there belongs to no consumer, so that every consumer may see it.
    fn is_of_nobody(&self) -> bool {
        self.path.starts_with("/v1/event-types")
    }
}
