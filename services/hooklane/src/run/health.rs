//! `/livez` and `/readyz`: whether the process runs, and whether it can work.
//!
//! `/livez` answers as long as the process does, and says nothing of PostgreSQL or NATS: starting
//! a process anew does not mend these. `/readyz` asks both at the moment of the request, and names
//! the one that does not answer, or answers and can't be written to.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::response::IntoResponse;
use axum::routing::get;
use hooklane_core::error::ErrorCode;
use hooklane_nats::{Client, inspect};
use hooklane_proto::subject;
use hooklane_store::{Store, Writes};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::config::Health;
use crate::failure::Failure;

/// How long each may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

const UP: &str = "up";
const DOWN: &str = "down";
const READ_ONLY: &str = "read_only";
const NO_JETSTREAM: &str = "no_jetstream";

const JSON: [(HeaderName, &str); 2] = [
    (CONTENT_TYPE, "application/json"),
    (CACHE_CONTROL, "no-store"),
];

/// The state of the process, as JSON has it.
#[derive(Debug, Serialize)]
struct Ready {
    ready: bool,
    postgres: &'static str,
    nats: &'static str,
    stopping: bool,
}

#[derive(Debug, Clone)]
struct Parts {
    store: Store,
    client: Client,
    shutdown: CancellationToken,
}

/// A bound port; `None` where health is not served.
///
/// # Errors
/// Where the port is taken or not ours to have.
pub(crate) async fn bind(config: &Health) -> Result<Option<TcpListener>, Failure> {
    if !config.enabled {
        return Ok(None);
    }
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        Failure::new(
            ErrorCode::Config,
            format!(
                "health can't be served at {} ({error}); set health.listen to a free address, or \
                 health.enabled to false",
                config.listen
            ),
        )
    })?;
    Ok(Some(listener))
}

/// Serves health until dropped: a process that stops still says so. `shutdown` is that it does.
pub(crate) async fn serve(
    listener: TcpListener,
    store: Store,
    client: Client,
    shutdown: CancellationToken,
) {
    let parts = Parts {
        store,
        client,
        shutdown,
    };
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(parts);
    if let Err(error) = axum::serve(listener, router).await {
        error!(%error, "health is not served any more");
    }
}

async fn livez() -> impl IntoResponse {
    (JSON, "{\"live\":true}")
}

async fn readyz(State(parts): State<Parts>) -> impl IntoResponse {
    let (postgres, nats) = tokio::join!(postgres(&parts.store), nats(&parts.client));
    let stopping = parts.shutdown.is_cancelled();
    let ready = postgres == UP && nats == UP && !stopping;
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = Ready {
        ready,
        postgres,
        nats,
        stopping,
    };
    // Four plain fields: this has a JSON form.
    let body = serde_json::to_string(&body).unwrap_or_default();
    (status, JSON, body)
}

async fn postgres(store: &Store) -> &'static str {
    match timeout(ANSWER_WITHIN, store.ping()).await {
        Ok(Ok(Writes::Taken)) => UP,
        Ok(Ok(Writes::Refused)) => READ_ONLY,
        Ok(Err(_)) | Err(_) => DOWN,
    }
}

/// A server that lives may have a JetStream that does not: switched off, without a leader, or shut
/// down by the server after a fault of its disk.
async fn nats(client: &Client) -> &'static str {
    let flush = async { client.is_connected() && client.flush().await.is_ok() };
    if timeout(ANSWER_WITHIN, flush).await != Ok(true) {
        return DOWN;
    }
    let state = inspect::stream_state(client, subject::DELIVERIES);
    match timeout(ANSWER_WITHIN, state).await {
        Ok(Ok(_)) => UP,
        // Wiped: it answers, and the streams are being made anew.
        Ok(Err(error)) if error.is_not_found() => UP,
        Ok(Err(_)) | Err(_) => NO_JETSTREAM,
    }
}
