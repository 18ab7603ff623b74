//! Watching the `ROUTES` bucket.
//!
//! A watch is a short-lived JetStream consumer that gives the last entry of every key and then what
//! comes. It is begun anew, with everything told again, whenever something may have been missed: a
//! gap in its own numbers, a new connection, missed heartbeats, a deleted or re-made bucket. So
//! readers keep the higher version and need nothing else.

use chrono::{DateTime, Utc};
use hooklane_proto::route::Route;
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, info, warn};
use uuid::Uuid;

use crate::api;
use crate::bucket::{self, Bucket};
use crate::error::Error;
use crate::incoming::Place;
use crate::puller::feed::{Feed, Turn};
use crate::puller::{Pauses, PullConfig};

/// The server forgets a watch that nobody pulls from after this.
const INACTIVE_NS: u64 = 60_000_000_000;

/// What a watch tells.
#[derive(Debug, Clone, PartialEq)]
pub enum RouteUpdate {
    /// A watch begins: every route follows, those known already included.
    Begin {
        /// When the bucket was made. Another time than at the last `Begin`: it was made anew, and
        /// what is not told again is not in it.
        created: DateTime<Utc>,
    },
    /// A route, old or new.
    Route(Box<Route>),
    /// Everything that was there at `Begin` has been told; changes follow.
    Current,
}

/// Updates of the bucket, without end.
pub struct RouteUpdates {
    bucket: Bucket,
    state: State,
    pauses: Pauses,
}

enum State {
    Waiting(Option<Instant>),
    Starting(JoinHandle<Result<Begun, Error>>),
    Running(Box<Running>),
}

/// A watch that was begun on the server.
struct Begun {
    created: DateTime<Utc>,
    durable: String,
    waiting: u64,
    connects: u64,
}

struct Running {
    feed: Feed,
    connects: u64,
    /// The number that the next message must have.
    expected: u64,
    /// `Current` is told after this many more.
    snapshot: Option<u64>,
}

impl std::fmt::Debug for RouteUpdates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RouteUpdates")
    }
}

impl Drop for RouteUpdates {
    fn drop(&mut self) {
        if let State::Starting(task) = &self.state {
            task.abort();
        }
    }
}

impl RouteUpdates {
    pub(super) fn new(bucket: Bucket) -> Self {
        Self {
            bucket,
            state: State::Waiting(None),
            pauses: Pauses::new(),
        }
    }

    /// The next update, however long that takes. Cancel-safe.
    pub async fn next(&mut self) -> RouteUpdate {
        loop {
            match &mut self.state {
                State::Waiting(until) => {
                    if let Some(until) = *until {
                        tokio::time::sleep_until(until).await;
                    }
                    let bucket = self.bucket.clone();
                    self.state = State::Starting(tokio::spawn(begin(bucket)));
                }
                State::Starting(task) => match task.await {
                    Ok(Ok(begun)) => {
                        let created = begun.created;
                        self.state = State::Running(Box::new(Running::new(&self.bucket, begun)));
                        return RouteUpdate::Begin { created };
                    }
                    Ok(Err(error)) => {
                        warn!(%error, "routes can't be watched yet");
                        self.again();
                    }
                    Err(_ended) => self.again(),
                },
                State::Running(running) => match running.step(&self.bucket).await {
                    Step::Told(update) => {
                        self.pauses.reset();
                        return update;
                    }
                    Step::Nothing => {}
                    Step::Over(reason) => {
                        info!(reason, "watching routes anew");
                        self.again();
                    }
                },
            }
        }
    }

    fn again(&mut self) {
        self.state = State::Waiting(Some(self.pauses.next()));
    }
}

enum Step {
    Told(RouteUpdate),
    Nothing,
    Over(&'static str),
}

impl Running {
    fn new(bucket: &Bucket, begun: Begun) -> Self {
        let Begun {
            created: _,
            durable,
            waiting,
            connects,
        } = begun;
        let config = PullConfig::default();
        Self {
            feed: Feed::new(&bucket.client, &bucket.stream(), &durable, config),
            connects,
            expected: 1,
            snapshot: Some(waiting),
        }
    }

    async fn step(&mut self, bucket: &Bucket) -> Step {
        if self.snapshot == Some(0) {
            self.snapshot = None;
            return Step::Told(RouteUpdate::Current);
        }
        let turn = self.feed.turn().await;
        // Nothing is acknowledged here, so nothing comes twice: what was under way on another
        // connection is lost.
        if bucket.client.connects() != self.connects {
            return Step::Over("the connection is a new one");
        }
        match turn {
            Turn::Message(message) => {
                let reply = message.reply.as_deref();
                let place = reply.and_then(Place::parse);
                if place.map(|place| place.consumer_sequence) != Some(self.expected) {
                    return Step::Over("an update was missed");
                }
                self.expected += 1;
                self.snapshot = self.snapshot.map(|left| left.saturating_sub(1));
                if bucket::is_marker(message.headers.as_ref()) {
                    return Step::Nothing;
                }
                match bucket::json::<Route>(&message.payload) {
                    Some(route) => Step::Told(RouteUpdate::Route(Box::new(route))),
                    None => {
                        warn!(subject = %message.subject, "an entry is not a route");
                        Step::Nothing
                    }
                }
            }
            Turn::Alive | Turn::Again | Turn::Cut => Step::Nothing,
            Turn::Refused(reason) => {
                debug!(reason, "pull refused");
                Step::Over("the pull was refused")
            }
            Turn::Gone(reason) => Step::Over(reason),
        }
    }
}

async fn begin(bucket: Bucket) -> Result<Begun, Error> {
    let client = &bucket.client;
    let connects = client.connects();
    let created = bucket.created().await?;
    let stream = bucket.stream();
    let durable = format!("watch-{}", Uuid::now_v7().simple());
    let config = json!({
        "stream_name": stream,
        "action": "create",
        "config": {
            "name": durable,
            "description": "a dispatcher's watch, forgotten when it stops",
            "deliver_policy": "last_per_subject",
            "ack_policy": "none",
            "replay_policy": "instant",
            "filter_subject": bucket.subject(">"),
            "inactive_threshold": INACTIVE_NS,
            "mem_storage": true,
            "num_replicas": 1,
        },
    });
    let request = format!("CONSUMER.CREATE.{stream}.{durable}");
    let begun: ConsumerInfo = api::call(client, &request, &config).await?;
    if bucket.created().await? != created {
        return Err(Error::Disconnected);
    }
    Ok(Begun {
        created,
        durable,
        waiting: begun.num_pending,
        connects,
    })
}

#[derive(Deserialize)]
struct ConsumerInfo {
    num_pending: u64,
}
