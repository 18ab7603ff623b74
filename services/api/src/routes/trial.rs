//! A test delivery: one message to one endpoint, now, and what became of it.
//!
//! It goes the way of every message, through the ledger and the endpoint's own lane: what it shows is
//! what customers get. It is a message of its own in the log.

mod waiting;

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use hooklane_core::error::ErrorCode;
use hooklane_proto::id::MessageId;
use hooklane_proto::route;
use hooklane_proto::token::EventType;
use hooklane_store::accept::Outcome;
use hooklane_store::{attempt, endpoint, event_type};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::attempts::Attempt;
use super::deliveries::DeliveryPath;
use super::endpoints::EndpointPath;
use crate::Api;
use crate::extract::{Acting, Body, Path};
use crate::intake;
use crate::problem::Problem;
use waiting::{Dispatcher, Waiting};

/// How often the log is asked for the attempt.
const LOOK: Duration = Duration::from_millis(100);
/// How much longer than an attempt may take it is waited for.
const MARGIN: Duration = Duration::from_secs(5);
/// The longest wait: within what clients and proxies wait for.
const LONGEST: Duration = Duration::from_secs(25);

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(test))
}

/// What to send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Trial {
    /// The event type whose example is sent. It need not be one that the endpoint wants.
    #[schema(
        value_type = String, max_length = 100, pattern = r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$",
        example = "invoice.paid"
    )]
    event_type: EventType,
}

/// What became of a test delivery.
#[derive(Debug, Serialize, ToSchema)]
struct Tried {
    /// The message: the `webhook-id`.
    message: String,
    /// The first attempt; null where there was none in time: the log has it later.
    attempt: Option<Attempt>,
    /// Why there was none in time; null where there is one.
    waiting: Option<Waiting>,
}

/// Send the example of an event type to an endpoint, and say what happened.
///
/// It goes to this endpoint alone, whatever its filters say, and waits for the first attempt, up to 25
/// seconds. An attempt that fails is tried again like any other. Where none was made in time, the answer
/// says what it waits for.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/endpoints/{endpoint}/test", tag = "Endpoints",
    operation_id = "test_endpoint", params(EndpointPath), request_body = Trial,
    responses(
        (status = 200, description = "What happened.", body = Tried),
        (status = 409, description = "The endpoint is paused or disabled, or the event type has no example."),
    ),
)]
async fn test(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<EndpointPath>,
    Body(trial): Body<Trial>,
) -> Result<Json<Tried>, Problem> {
    let endpoint = path.endpoint(&store).await?;
    if matches!(
        endpoint.state,
        route::State::Paused | route::State::Disabled
    ) {
        let detail = format!(
            "the endpoint is {}; resume it first",
            endpoint.state.as_str()
        );
        return Err(Problem::new(ErrorCode::Conflict, detail));
    }
    let found = event_type::show(&store, &trial.event_type).await;
    let found = found.map_err(|error| match Problem::from(error) {
        missing if missing.code() == ErrorCode::NotFound => {
            Problem::new(ErrorCode::UnknownEventType, missing.detail())
        }
        other => other,
    })?;
    let example = found.example.ok_or_else(|| {
        let detail = format!(
            "the event type `{}` has no example; set one first",
            found.name
        );
        Problem::new(ErrorCode::Conflict, detail)
    })?;
    let payload = Bytes::from(example.get().to_owned());
    let mut message = intake::new_message(path.consumer.clone(), found.name, payload);
    message.only = Some(path.endpoint);
    let answer = api.committer().commit(vec![message]).await?;
    let receipt = match (answer.outcomes.into_iter().next(), answer.fault) {
        (Some(Outcome::Accepted(receipt) | Outcome::Repeat(receipt)), _) => receipt,
        (Some(Outcome::Rejected(rejection)), _) => {
            return Err(Problem::new(ErrorCode::Conflict, rejection.detail));
        }
        (None, fault) => return Err(fault.unwrap_or(intake::Refused::CutOff).into()),
    };
    let until = Instant::now() + (endpoint.timeout + MARGIN).min(LONGEST);
    let which = attempt::Which::Message(receipt.message, Some(path.endpoint));
    let mut made = None;
    while made.is_none() && Instant::now() < until {
        tokio::time::sleep(LOOK).await;
        let page = attempt::list(&store, &attempt::Listing::of(which), 1).await?;
        made = page.items.into_iter().next();
    }
    let waiting = match made {
        Some(_) => None,
        None => Some(why(&api, &path, receipt.message).await?),
    };
    Ok(Json(Tried {
        message: receipt.message.to_string(),
        attempt: made.map(Attempt::from),
        waiting,
    }))
}

/// Why there is no attempt of this message yet.
async fn why(api: &Api, path: &EndpointPath, message: MessageId) -> Result<Waiting, Problem> {
    let dispatcher = Dispatcher::of(api.client(), &path.consumer).await;
    let which = DeliveryPath {
        consumer: path.consumer.clone(),
        message,
        endpoint: path.endpoint,
    };
    let delivery = which.delivery(api.store()).await?.delivery;
    // Also where it was deleted meanwhile.
    let endpoint = endpoint::show(api.store(), path.endpoint).await?;
    Ok(Waiting::why(&delivery, &endpoint, dispatcher))
}
