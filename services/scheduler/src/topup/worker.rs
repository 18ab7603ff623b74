//! One partition's top-up: ask for room, claim, publish.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use hooklane_core::clock;
use hooklane_nats::{Client, Outgoing, PublishError, Publisher};
use hooklane_proto::delivery::Delivery;
use hooklane_proto::id::EndpointId;
use hooklane_proto::record::{Drive, ParkReason, Parked, Record};
use hooklane_proto::room::{Reply, Request};
use hooklane_proto::subject;
use hooklane_store::Store;
use hooklane_store::topup::Claim;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::rooms;
use crate::Config;
use crate::stats::{Count, Handle};

/// How long a delivery that the broker refuses waits for its next drive; five make it poison.
const REFUSED: TimeDelta = TimeDelta::seconds(60);

/// Tops up one partition.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) partition: u16,
    pub(super) config: Config,
    pub(super) store: Store,
    pub(super) client: Client,
    pub(super) publisher: Publisher,
    /// Who holds a permit may claim.
    pub(super) claims: Arc<Semaphore>,
    pub(super) handle: Handle,
}

impl Worker {
    pub(super) async fn run(
        self,
        mut shares: mpsc::Receiver<Vec<EndpointId>>,
        term: CancellationToken,
    ) {
        while let Some(endpoints) = shares.recv().await {
            tokio::select! {
                biased;
                () = term.cancelled() => return,
                () = self.round(endpoints) => {}
            }
        }
    }

    /// Names the endpoints with due work and drives what the lanes have room for.
    async fn round(&self, endpoints: Vec<EndpointId>) {
        let request = Request { endpoints };
        let asked = Instant::now();
        let Some(reply) = self.ask(&request).await else {
            self.handle.add(Count::Unanswered, 1);
            return;
        };
        for rooms in rooms::claims(&request.endpoints, reply, self.config.claim_deliveries) {
            let permit = self.claims.acquire().await;
            if asked.elapsed() > self.config.room_good_for {
                debug!(
                    partition = self.partition,
                    "the answer is too old, asking again"
                );
                return;
            }
            let claim = Claim {
                rooms: &rooms,
                partition: self.partition,
                max_bytes: self.config.claim_bytes,
                not_after: self.config.not_after,
            };
            let claimed = self.store.claim(claim).await;
            // Not held while publishing, which may take until the not-after.
            drop(permit);
            match claimed {
                Ok(deliveries) => {
                    self.handle.add(Count::Claimed, deliveries.len() as u64);
                    self.publish(deliveries).await;
                }
                Err(fault) => {
                    warn!(partition = self.partition, %fault, "due deliveries can't be claimed now");
                    return;
                }
            }
        }
    }

    async fn ask(&self, request: &Request) -> Option<Reply> {
        let body = match serde_json::to_vec(request) {
            Ok(body) => Bytes::from(body),
            Err(fault) => {
                error!(%fault, "a request for room has no JSON form");
                return None;
            }
        };
        let subject = subject::room(self.partition);
        let answer = self
            .client
            .request(subject, body, self.config.room_timeout)
            .await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(fault) => {
                debug!(partition = self.partition, %fault, "nobody says what the lanes have room for");
                return None;
            }
        };
        serde_json::from_slice(&answer)
            .inspect_err(|fault| {
                warn!(partition = self.partition, %fault, "an answer about room can't be read");
            })
            .ok()
    }

    async fn publish(&self, deliveries: Vec<Delivery>) {
        let Some(first) = deliveries.iter().map(|delivery| delivery.not_after).min() else {
            return;
        };
        let left = (first - clock::now()).to_std().unwrap_or(Duration::ZERO);
        let give_up = Instant::now() + left.min(self.config.not_after);
        let messages = deliveries
            .iter()
            .map(|delivery| Outgoing {
                subject: delivery.subject(),
                headers: delivery.headers(),
                payload: delivery.payload.clone(),
            })
            .collect();
        let mut refused = Vec::new();
        let (mut published, mut unconfirmed) = (0, 0);
        for (delivery, result) in deliveries
            .iter()
            .zip(self.publisher.publish_all(messages, give_up).await)
        {
            match result {
                Ok(_ack) => published += 1,
                Err(PublishError::GaveUp(_)) => unconfirmed += 1,
                Err(fault @ PublishError::Permanent(_)) => {
                    let (message, endpoint) = (delivery.key.message, delivery.key.endpoint);
                    error!(%message, %endpoint, %fault, "the broker refuses a delivery");
                    refused.push(refusal(delivery));
                }
            }
        }
        self.handle.add(Count::Published, published);
        self.handle.add(Count::Unconfirmed, unconfirmed);
        if unconfirmed > 0 {
            warn!(
                partition = self.partition,
                unconfirmed,
                "the broker did not confirm deliveries, the sweep will find those it lost"
            );
        }
        if !refused.is_empty() {
            self.handle.add(Count::Refused, refused.len() as u64);
            // Where this fails they stay `received`, and the sweep brings them here again.
            if let Err(fault) = self.store.apply(&refused).await {
                warn!(%fault, "refused deliveries were not put back");
            }
        }
    }
}

/// A delivery that the broker will never take has a fault of ours: it is never attempted, and must
/// not go round for ever.
fn refusal(delivery: &Delivery) -> Record {
    Record::Parked(Parked {
        drive: Drive {
            key: delivery.key,
            series: delivery.series,
            drive: delivery.drive,
        },
        reason: ParkReason::Fault,
        next_attempt_at: clock::now() + REFUSED,
    })
}
