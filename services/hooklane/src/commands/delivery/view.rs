//! A delivery as JSON has it.

use hooklane_proto::delivery::DeliveryKey;
use hooklane_store::delivery::Delivery;
use serde::Serialize;

use crate::output::time;

/// A delivery.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct View {
    pub(in crate::commands) message: String,
    pub(in crate::commands) endpoint: String,
    consumer: String,
    accepted_at: String,
    pub(in crate::commands) status: String,
    series: i32,
    drive: i32,
    attempts: i32,
    counted: i32,
    pub(in crate::commands) next_attempt_at: Option<String>,
    deadline: String,
    faults: i32,
    last_status: Option<i16>,
    last_error: Option<String>,
    pub(in crate::commands) failure_reason: Option<String>,
    settled_at: Option<String>,
}

impl From<Delivery> for View {
    fn from(delivery: Delivery) -> Self {
        let Delivery {
            key:
                DeliveryKey {
                    accepted_at,
                    message,
                    endpoint,
                },
            consumer,
            status,
            series,
            drive,
            attempts,
            counted,
            next_attempt_at,
            deadline,
            faults,
            last_status,
            last_error,
            failure_reason,
            settled_at,
        } = delivery;
        Self {
            message: message.to_string(),
            endpoint: endpoint.to_string(),
            consumer: consumer.to_string(),
            accepted_at: time(accepted_at),
            status: status.as_str().to_owned(),
            series,
            drive,
            attempts,
            counted,
            next_attempt_at: next_attempt_at.map(time),
            deadline: time(deadline),
            faults,
            last_status,
            last_error,
            failure_reason,
            settled_at: settled_at.map(time),
        }
    }
}
