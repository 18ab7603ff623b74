//! All routes, and the layers around them.

mod api_keys;
mod attempts;
mod audit_log;
mod consumers;
mod dead_letters;
mod deliveries;
mod endpoints;
mod event_types;
mod inbox;
mod message_log;
mod messages;
mod tasks;
mod trial;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use hooklane_core::error::ErrorCode;
use http::header::CONTENT_TYPE;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use crate::problem::Problem;
use crate::{Api, auth, openapi, patience, request_id};

/// Where the document is.
const DOCUMENT: &str = "/openapi.json";

fn v1() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(openapi::base())
        .merge(api_keys::routes())
        .merge(attempts::routes())
        .merge(audit_log::routes())
        .merge(consumers::routes())
        .merge(dead_letters::routes())
        .merge(deliveries::routes())
        .merge(endpoints::routes())
        .merge(event_types::routes())
        .merge(inbox::routes())
        .merge(message_log::routes())
        .merge(messages::routes())
        .merge(tasks::routes())
        .merge(trial::routes())
}

/// The document of all routes.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    openapi::complete(v1().into_openapi())
}

/// Everything that is served.
pub(crate) fn router(api: Api) -> Router {
    let (routes, document) = v1().split_for_parts();
    let document = openapi::complete(document);
    let text = Bytes::from(document.to_json().unwrap_or_default());
    let keyed = routes
        .method_not_allowed_fallback(async || auth::method_not_allowed())
        .route_layer(from_fn_with_state(api.clone(), auth::require))
        .route_layer(from_fn_with_state(api.clone(), patience::bound));
    Router::new()
        .merge(keyed)
        .route(
            DOCUMENT,
            get(async || ([(CONTENT_TYPE, "application/json")], text)),
        )
        .merge(SwaggerUi::new("/docs").config(utoipa_swagger_ui::Config::from(DOCUMENT)))
        .method_not_allowed_fallback(async || auth::method_not_allowed())
        .fallback(async || Problem::not_found("nothing is at this address; see /docs"))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(request_id::attach))
        .with_state(api)
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    // The panic itself is in the log, by the panic hook.
    Problem::new(
        ErrorCode::Internal,
        "this is a fault of the server; its log has it",
    )
    .into_response()
}
