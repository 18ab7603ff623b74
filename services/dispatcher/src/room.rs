//! Serving `room.<p>`: the scheduler's question, put to the partition's fan-out.

use std::time::Duration;

use hooklane_nats::{Client, Request};
use hooklane_proto::{room, subject};
use tokio::sync::oneshot;
use tracing::debug;

use crate::fanout::{self, Msg};

/// An answer later than this is of no use to the asker.
const WITHIN: Duration = Duration::from_secs(1);
/// The pause before serving again after the subscription broke.
const AGAIN: Duration = Duration::from_secs(1);

/// Serves one partition until dropped.
pub(crate) async fn serve(nats: Client, partition: u16, fanout: fanout::Ref) {
    loop {
        match nats.serve(subject::room(partition)).await {
            Ok(mut requests) => {
                while let Some(request) = requests.next().await {
                    answer(partition, &fanout, request).await;
                }
            }
            Err(error) => debug!(partition, %error, "room can't be served now"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn answer(partition: u16, fanout: &fanout::Ref, request: Request) {
    let asked: room::Request = match serde_json::from_slice(&request.payload) {
        Ok(asked) => asked,
        Err(error) => {
            debug!(partition, %error, "a request for room can't be read");
            return;
        }
    };
    let (reply, answer) = oneshot::channel();
    if fanout.cast(Msg::Room(asked, reply)).is_err() {
        return;
    }
    // Without an answer the asker claims nothing, which is right.
    let Ok(Ok(reply)) = tokio::time::timeout(WITHIN, answer).await else {
        return;
    };
    let Ok(body) = serde_json::to_vec(&reply) else {
        return;
    };
    if let Err(error) = request.reply(body.into()).await {
        debug!(partition, %error, "room could not be answered");
    }
}
