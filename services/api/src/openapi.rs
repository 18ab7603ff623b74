//! The document: OpenAPI 3.1 from the handlers' own annotations, with what all of them share.
//!
//! Owns the refusals that any route may answer with, the scopes of each operation (from the one
//! table, [`crate::scope`]) and the page that shows it. An operation declares what is its own:
//! parameters, bodies, and the refusals that only it has.

use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Content, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Response, ResponseBuilder,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::{problem, scope};

/// The name of the one security scheme.
const KEY: &str = "api_key";

/// What any request may be refused with.
const ALWAYS: [(u16, &str); 8] = [
    (400, "The request can't be read."),
    (401, "There is no API key, or it is not valid."),
    (403, "The key's scope does not allow it."),
    (422, "What is asked for can be read, and can't be done."),
    (429, "More is asked for than is taken at a time."),
    (431, "The request's head is too large."),
    (500, "A fault of the server."),
    (503, "The ledger can't be reached at present."),
];

/// What a request with a body may be refused with.
const WITH_BODY: [(u16, &str); 3] = [
    (408, "The body came too slowly."),
    (413, "The body is too large."),
    (415, "The body is not JSON, or is encoded."),
];

/// A document without operations.
pub(crate) fn base() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Hooklane")
        .version("1")
        .description(Some(
            "Signed webhooks, delivered for certain. Every answer carries `request-id`; a refusal \
             is `application/problem+json`. Lists have pages: `next` of one is `cursor` of the \
             next. `etag` of an answer goes into `if-match` of a change, which is refused with 412 \
             where somebody else was faster.",
        ))
        .build();
    OpenApiBuilder::new().info(info).build()
}

/// Adds to a document what its operations share.
pub(crate) fn complete(mut document: OpenApi) -> OpenApi {
    let components = document.components.get_or_insert_default();
    let mut nested = Vec::new();
    problem::Body::schemas(&mut nested);
    components.schemas.extend(nested);
    components
        .schemas
        .insert("Problem".to_owned(), problem::Body::schema());
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("An API key, `hlk_...`."))
        .build();
    components.add_security_scheme(KEY, SecurityScheme::Http(bearer));
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            share(&method, path, operation);
        }
    }
    document
}

fn operations(item: &mut PathItem) -> Vec<(http::Method, &mut Operation)> {
    [
        (http::Method::GET, item.get.as_mut()),
        (http::Method::POST, item.post.as_mut()),
        (http::Method::PATCH, item.patch.as_mut()),
        (http::Method::DELETE, item.delete.as_mut()),
    ]
    .into_iter()
    .filter_map(|(method, operation)| operation.map(|operation| (method, operation)))
    .collect()
}

fn share(method: &http::Method, path: &str, operation: &mut Operation) {
    let mut add = |status: u16, text: &str| {
        operation
            .responses
            .responses
            .entry(status.to_string())
            .or_insert_with(|| refusal(text));
    };
    for (status, text) in ALWAYS {
        add(status, text);
    }
    if path.contains('{') {
        add(404, "Nothing has this id.");
    }
    if operation.request_body.is_some() {
        for (status, text) in WITH_BODY {
            add(status, text);
        }
    }
    // A refusal that the operation itself declares has the same form.
    for (status, response) in &mut operation.responses.responses {
        let refused = status.parse().is_ok_and(|status: u16| status >= 400);
        if let (true, RefOr::T(response)) = (refused, response)
            && response.content.is_empty()
        {
            *response = problem_response(&response.description);
        }
    }
    let scopes = scope::of(method, path).map_or(&[][..], |rule| rule.scopes);
    let names: Vec<&str> = scopes
        .iter()
        .map(|scope| scope.as_str())
        .chain(["admin"])
        .collect();
    let text = format!("Scopes: {}.", names.join(", "));
    operation.description = Some(match operation.description.take() {
        Some(description) if !description.is_empty() => format!("{description}\n\n{text}"),
        _ => text,
    });
    operation.security = Some(vec![utoipa::openapi::SecurityRequirement::new(
        KEY,
        Vec::<String>::new(),
    )]);
}

fn refusal(text: &str) -> RefOr<Response> {
    RefOr::T(problem_response(text))
}

fn problem_response(text: &str) -> Response {
    let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
    ResponseBuilder::new()
        .description(text)
        .content("application/problem+json", Content::new(Some(schema)))
        .build()
}
