//! The connection: made with retries, kept for ever, and told about without credentials.
//!
//! Owns the async-nats client, the shared inbox and the connection's generation, which grows
//! whenever the connection is lost or made, so that pulls and watches start again at once. Does
//! not own any stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{ConnectErrorKind, ConnectOptions, Event, HeaderMap};
use backon::{BackoffBuilder as _, ExponentialBuilder};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use crate::config::{Config, Credentials};
use crate::error::Error;
use crate::publisher::Outgoing;
use crate::replies::{Pending, Permits, Replies};
use crate::requests::Requests;

/// Commands waiting for the connection's task; more make their senders wait.
const COMMANDS: usize = 8_192;
/// Longest pause between two attempts to reconnect, before jitter.
const RECONNECT_CAP: Duration = Duration::from_secs(2);
/// How long the server may take to answer a flush.
const FLUSH: Duration = Duration::from_secs(5);
/// A lost event about the connection is noticed after this.
const TICK: Duration = Duration::from_millis(250);
/// The oldest nats-server that has what the streams use.
const OLDEST: (i64, i64, i64) = (2, 12, 0);

/// A connection to NATS. Clones share it; it ends when the last one is dropped.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) nats: async_nats::Client,
    replies: Arc<Replies>,
    reader: tokio::task::AbortHandle,
    generation: watch::Receiver<u64>,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) abandoned: AtomicU64,
    pub(crate) partitions: u16,
    pub(crate) replicas: u8,
    pub(crate) stream_size_percent: u32,
    pub(crate) ledger: Option<Uuid>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("connected", &self.is_connected())
            .field("partitions", &self.inner.partitions)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects, trying for `config.connect_timeout`; afterwards the connection comes back by
    /// itself, however long that takes. Must be called within a tokio runtime that outlives it.
    ///
    /// # Errors
    /// [`Error::Unreachable`] after the time, and at once where the configuration, the
    /// credentials or the server's version can't be used.
    pub async fn connect(config: &Config) -> Result<Self, Error> {
        if let Some(problem) = config.check().into_iter().next() {
            return Err(Error::Config {
                key: problem.key,
                problem: problem.problem,
                fix: problem.fix,
            });
        }
        // async-nats takes the process's default provider, which is ambiguous once another crate
        // brings a second one. Where one is chosen already it stays.
        let _ = async_nats::rustls::crypto::ring::default_provider().install_default();
        let until = Instant::now() + config.connect_timeout;
        let mut pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(1))
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            let pause = pauses.next().unwrap_or(RECONNECT_CAP);
            match Self::connect_once(config).await {
                Err(error @ Error::Unreachable { .. }) if Instant::now() + pause < until => {
                    info!(%error, "waiting for nats-server");
                    tokio::time::sleep(pause).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn connect_once(config: &Config) -> Result<Self, Error> {
        let (addresses, credentials) = config.url.addresses().map_err(|problem| Error::Config {
            key: "url",
            problem,
            fix: "give nats://host:4222",
        })?;
        let shown = config.url.to_string();
        let (generation_tx, generation) = watch::channel(0);
        let inbox = format!("_INBOX.{}", Uuid::now_v7().simple());
        let replies = Replies::new(&inbox);
        let options = options(config, credentials).await?.event_callback({
            let replies = Arc::clone(&replies);
            let servers = shown.clone();
            move |event| {
                on_event(&event, &servers, &replies, &generation_tx);
                std::future::ready(())
            }
        });
        let nats = options
            .connect(addresses)
            .await
            .map_err(|error| match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    Error::Unauthorized {
                        servers: shown.clone(),
                    }
                }
                _ => Error::Unreachable {
                    servers: shown.clone(),
                    reason: error.to_string(),
                },
            })?;
        let (major, minor, patch) = OLDEST;
        if !nats.is_server_compatible(major, minor, patch) {
            let version = nats.server_info().version;
            return Err(Error::TooOld { version });
        }
        let answers = nats
            .subscribe(replies.subject())
            .await
            .map_err(|_closed| Error::Disconnected)?;
        let reader = tokio::spawn(Arc::clone(&replies).run(answers)).abort_handle();
        let info = nats.server_info();
        info!(servers = %shown, version = %info.version, server = %info.server_name, "connected to nats-server");
        Ok(Self {
            inner: Arc::new(Inner {
                nats,
                replies,
                reader,
                generation,
                runtime: tokio::runtime::Handle::current(),
                abandoned: AtomicU64::new(0),
                partitions: config.partitions,
                replicas: config.replicas,
                stream_size_percent: config.stream_size_percent,
                ledger: config.ledger,
            }),
        })
    }

    /// Asks a service and waits for its answer.
    ///
    /// # Errors
    /// [`Error::NoResponders`] where nobody serves `subject`, [`Error::TimedOut`] after `timeout`,
    /// [`Error::Disconnected`] where the connection broke meanwhile.
    pub async fn request(
        &self,
        subject: String,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Error> {
        let answer = self.ask(subject, None, payload, timeout).await?;
        Ok(answer.payload)
    }

    /// As [`Client::request`], with headers.
    ///
    /// # Errors
    /// As [`Client::request`]; [`Error::InvalidSubject`], [`Error::InvalidHeader`] where a header has a
    /// line break, and [`Error::TooLarge`] where it is more than the server takes.
    pub async fn request_with_headers(
        &self,
        message: Outgoing,
        timeout: Duration,
    ) -> Result<Bytes, Error> {
        let headers = crate::publisher::fit(self, &message)?;
        let Outgoing {
            subject, payload, ..
        } = message;
        let answer = self.ask(subject, headers, payload, timeout).await?;
        Ok(answer.payload)
    }

    /// Answers requests on a subject (wildcards allowed), until the returned stream is dropped.
    /// When this returns, requests from everywhere on this server arrive.
    ///
    /// # Errors
    /// [`Error::InvalidSubject`], or [`Error::Disconnected`] where there is no connection.
    pub async fn serve(&self, subject: String) -> Result<Requests, Error> {
        Requests::subscribe(self, subject).await
    }

    /// Publishes without acknowledgement: at most once, and only queued when this returns.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::InvalidSubject`], or [`Error::Disconnected`] where the client
    /// is closed.
    pub async fn publish_core(&self, subject: String, payload: Bytes) -> Result<(), Error> {
        let size = payload.len();
        let sent = self.inner.nats.publish(subject.clone(), payload).await;
        sent.map_err(|error| self.refused(&error, &subject, size))
    }

    /// Waits until the server has processed everything queued so far on this connection.
    ///
    /// # Errors
    /// [`Error::Disconnected`] where there is no connection, or no answer within 5 seconds.
    pub async fn flush(&self) -> Result<(), Error> {
        let until = Instant::now() + FLUSH;
        // A message to ourselves: the server handles a connection's commands in order.
        let (inbox, pending) = self.inner.replies.expect(None);
        let sending = self.inner.nats.publish(inbox, Bytes::new());
        let sent = tokio::time::timeout_at(until, sending).await;
        if !matches!(sent, Ok(Ok(()))) {
            return Err(Error::Disconnected);
        }
        let back = pending.answer(until).await;
        back.map(drop).map_err(|_none| Error::Disconnected)
    }

    /// Whether there is a connection now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inner.nats.connection_state() == State::Connected
    }

    /// How many partitions the streams have.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        self.inner.partitions
    }

    /// The largest message that the server takes, headers included, in bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.inner.nats.max_payload()
    }

    /// Ack tokens dropped without a decision since the connection was made. Each was nakked; more
    /// than none outside a drain is a defect in whoever held them.
    #[must_use]
    pub fn abandoned_tokens(&self) -> u64 {
        self.inner.abandoned.load(Ordering::Relaxed)
    }

    /// Sends one message with a reply subject of ours; the wait for the answer comes back.
    pub(crate) async fn send(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Bytes,
        permits: Permits,
    ) -> Result<Pending, Error> {
        let size = payload.len();
        let (reply, pending) = self.inner.replies.expect(permits);
        let nats = &self.inner.nats;
        let subject_text = subject.to_owned();
        let sent = match headers {
            Some(headers) => {
                nats.publish_with_reply_and_headers(subject_text, reply, headers, payload)
                    .await
            }
            None => nats.publish_with_reply(subject_text, reply, payload).await,
        };
        sent.map_err(|error| self.refused(&error, subject, size))?;
        Ok(pending)
    }

    /// Sends one message and waits for its answer, both within `timeout`.
    pub(crate) async fn ask(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<async_nats::Message, Error> {
        let until = Instant::now() + timeout;
        let sent = self.send(&subject, headers, payload, None);
        let pending = tokio::time::timeout_at(until, sent)
            .await
            .map_err(|_elapsed| Error::Disconnected)??;
        let answer = pending.answer(until).await;
        answer.map_err(|none| none.on(&subject, timeout))
    }

    /// Waits for a connection; `false` where there is none until then.
    pub(crate) async fn connected(&self, until: Instant) -> bool {
        let mut generation = self.inner.generation.clone();
        while !self.is_connected() {
            let tick = until.min(Instant::now() + TICK);
            // An event that got lost, or a closed channel, costs one tick.
            let changed = tokio::time::timeout_at(tick, generation.changed()).await;
            if Instant::now() >= until {
                return self.is_connected();
            }
            if let Ok(Err(_closed)) = changed {
                tokio::time::sleep_until(tick).await;
            }
        }
        true
    }

    /// How often the connection was made: a change means that what the server knew of it is gone.
    pub(crate) fn connects(&self) -> u64 {
        let statistics = self.inner.nats.statistics();
        statistics.connects.load(Ordering::Relaxed)
    }

    /// What the server calls itself, from its start to its end.
    pub(crate) fn server_id(&self) -> String {
        self.inner.nats.server_info().server_id
    }

    /// Wakes at each loss and return of the connection.
    pub(crate) fn generation(&self) -> watch::Receiver<u64> {
        self.inner.generation.clone()
    }

    pub(crate) fn refused(
        &self,
        error: &async_nats::client::PublishError,
        subject: &str,
        size: usize,
    ) -> Error {
        use async_nats::client::PublishErrorKind as Kind;
        match error.kind() {
            Kind::MaxPayloadExceeded => Error::TooLarge {
                size,
                limit: self.max_payload(),
            },
            Kind::InvalidSubject => Error::InvalidSubject(subject.chars().take(200).collect()),
            Kind::Send => Error::Disconnected,
        }
    }
}

async fn options(config: &Config, credentials: Credentials) -> Result<ConnectOptions, Error> {
    let mut options = ConnectOptions::new()
        .name("hooklane")
        .client_capacity(COMMANDS)
        .connection_timeout(Duration::from_secs(3))
        .ping_interval(Duration::from_secs(10))
        .max_reconnects(None)
        .reconnect_delay_callback(reconnect_delay);
    options = match credentials {
        Credentials::None => options,
        Credentials::Token(token) => options.token(token),
        Credentials::User(user, password) => options.user_and_password(user, password),
    };
    if let Some(roots) = &config.root_certificates {
        options = options.add_root_certificates(roots.clone());
    }
    if let Some(path) = &config.credentials_file {
        options =
            options
                .credentials_file(path)
                .await
                .map_err(|source| Error::CredentialsFile {
                    path: path.clone(),
                    source,
                })?;
    }
    Ok(options)
}

/// The pause before the n-th attempt in a row: doubling to a cap, and jittered, so that a
/// restarted server is not met by everybody at the same instant.
fn reconnect_delay(attempt: usize) -> Duration {
    if attempt <= 1 {
        return Duration::ZERO;
    }
    let doubling = attempt.saturating_sub(2).min(10);
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(RECONNECT_CAP)
        .with_jitter()
        .without_max_times()
        .build()
        .nth(doubling)
        .unwrap_or(RECONNECT_CAP)
}

fn on_event(event: &Event, servers: &str, replies: &Replies, generation: &watch::Sender<u64>) {
    match event {
        Event::Connected => {
            info!(servers, "nats connection is up");
            generation.send_modify(|n| *n += 1);
        }
        Event::Disconnected => {
            warn!(servers, "nats connection is lost, reconnecting");
            replies.disconnect();
            generation.send_modify(|n| *n += 1);
        }
        Event::LameDuckMode => warn!(servers, "nats-server is about to stop"),
        Event::SlowConsumer(subscription) => {
            warn!(
                servers,
                subscription, "messages from nats were dropped, reading too slowly"
            );
        }
        Event::ServerError(error) => warn!(servers, %error, "nats-server reports an error"),
        Event::ClientError(error) => warn!(servers, %error, "nats connection attempt failed"),
        Event::Draining | Event::Closed => info!(servers, "nats connection is closed"),
    }
}
