//! A scripted HTTP/1.1 receiver that plays a customer's endpoint, the broken ones included.
//!
//! It speaks the protocol by hand, because the interesting answers are those that a server
//! library refuses to give: bytes that aren't HTTP, a reset in mid-body, an answer before the
//! request was read. It records what arrived byte for byte, within a bound, and counts the rest.
//!
//! Each path has a queue of replies, and a reply for when the queue is empty: 200 unless set.

mod http;
mod record;
mod reply;
mod serve;
mod tls;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

pub use record::{Counts, Recorded};
pub use reply::{Body, Reply};

use record::Records;

/// How to run a receiver.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether to speak TLS, with a certificate of [`Receiver::ca_pem`] for `localhost` and
    /// 127.0.0.1.
    pub tls: bool,
    /// How many requests to record; the ones after them are counted only. 0 counts only.
    pub keep: usize,
    /// How many bytes of bodies to keep over all recorded requests.
    pub keep_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: false,
            keep: 20_000,
            keep_bytes: 64 << 20,
        }
    }
}

/// A running receiver; dropping it closes every connection.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    ca_pem: Option<String>,
    shared: Arc<Shared>,
    _accepting: AbortOnDropHandle<()>,
}

/// What the connections share.
#[derive(Debug)]
struct Shared {
    scripts: Mutex<Scripts>,
    records: Mutex<Records>,
    /// Told of every request that arrived or ended.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Scripts {
    queued: HashMap<String, std::collections::VecDeque<Reply>>,
    always: HashMap<String, Reply>,
    fallback: Reply,
}

impl Receiver {
    /// A receiver on a free loopback port, speaking plain HTTP.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start() -> Result<Self> {
        Self::start_with(Options::default()).await
    }

    /// A receiver that speaks TLS: see [`Options::tls`].
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start_tls() -> Result<Self> {
        Self::start_with(Options {
            tls: true,
            ..Options::default()
        })
        .await
    }

    /// A receiver with settings.
    ///
    /// # Errors
    ///
    /// When the address can't be had, or the certificates can't be made.
    pub async fn start_with(options: Options) -> Result<Self> {
        let listener = TcpListener::bind(options.listen)
            .await
            .with_context(|| format!("listening on {}", options.listen))?;
        let identity = options.tls.then(tls::Identity::new).transpose()?;
        let shared = Arc::new(Shared {
            scripts: Mutex::default(),
            records: Mutex::new(Records::new(options.keep, options.keep_bytes)),
            changed: Notify::new(),
        });
        let acceptor = identity.as_ref().map(|identity| identity.acceptor.clone());
        Ok(Self {
            address: listener.local_addr().context("asking for the port")?,
            ca_pem: identity.map(|identity| identity.ca_pem),
            _accepting: AbortOnDropHandle::new(tokio::spawn(serve::accept(
                listener,
                acceptor,
                Arc::clone(&shared),
            ))),
            shared,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of `path`, which begins with a slash. A TLS receiver is named `localhost`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        match &self.ca_pem {
            Some(_) => format!("https://localhost:{}{path}", self.address.port()),
            None => format!("http://{}{path}", self.address),
        }
    }

    /// The certificate authority that a client of a TLS receiver must trust, as PEM.
    #[must_use]
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// Appends replies for `path` (without its query), each given once and in this order.
    pub fn script(&self, path: &str, replies: impl IntoIterator<Item = Reply>) {
        self.scripts()
            .queued
            .entry(path.to_owned())
            .or_default()
            .extend(replies);
    }

    /// Sets what `path` answers when nothing is queued for it.
    pub fn always(&self, path: &str, reply: Reply) {
        self.scripts().always.insert(path.to_owned(), reply);
    }

    /// Sets what paths answer that have neither a queue nor a reply of their own.
    pub fn fallback(&self, reply: Reply) {
        self.scripts().fallback = reply;
    }

    /// Forgets what is queued for `path` and what it always answers. Replies under way go on.
    pub fn reset(&self, path: &str) {
        let mut scripts = self.scripts();
        scripts.queued.remove(path);
        scripts.always.remove(path);
    }

    /// The recorded requests in the order of their arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.records().kept().to_vec()
    }

    /// The recorded requests to `path` in the order of their arrival.
    #[must_use]
    pub fn requests_to(&self, path: &str) -> Vec<Recorded> {
        self.records()
            .kept()
            .iter()
            .filter(|request| request.path() == path)
            .cloned()
            .collect()
    }

    /// Counts over all paths.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.records().total()
    }

    /// Counts of one path.
    #[must_use]
    pub fn counts_of(&self, path: &str) -> Counts {
        self.records().of(path)
    }

    /// Forgets the recorded requests and zeroes every count but those of what is in flight.
    pub fn forget(&self) {
        self.records().forget();
    }

    /// Waits until `n` requests have arrived in all.
    ///
    /// # Errors
    ///
    /// After `budget`, with the counts.
    pub async fn wait_for(&self, n: u64, budget: Duration) -> Result<()> {
        self.wait(&format!("{n} requests"), budget, |records| {
            records.total().arrived >= n
        })
        .await
    }

    /// Waits until `n` requests to `path` have arrived, and returns those that were recorded.
    ///
    /// # Errors
    ///
    /// After `budget`, with the counts.
    pub async fn wait_for_path(
        &self,
        path: &str,
        n: u64,
        budget: Duration,
    ) -> Result<Vec<Recorded>> {
        self.wait(&format!("{n} requests to {path}"), budget, |records| {
            records.of(path).arrived >= n
        })
        .await?;
        Ok(self.requests_to(path))
    }

    /// Waits until nothing is in flight.
    ///
    /// # Errors
    ///
    /// After `budget`, with the counts.
    pub async fn wait_idle(&self, budget: Duration) -> Result<()> {
        self.wait("no request in flight", budget, |records| {
            records.total().in_flight == 0
        })
        .await
    }

    async fn wait(
        &self,
        what: &str,
        budget: Duration,
        done: impl Fn(&Records) -> bool,
    ) -> Result<()> {
        let until = Instant::now() + budget;
        loop {
            // Asked for before looking, so that no change in between is missed.
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if done(&self.records()) {
                return Ok(());
            }
            if timeout_at(until, changed).await.is_err() {
                bail!("waited {budget:.1?} for {what}; have {:?}", self.counts());
            }
        }
    }

    fn scripts(&self) -> MutexGuard<'_, Scripts> {
        self.shared.scripts()
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.shared.records()
    }
}

impl Shared {
    fn scripts(&self) -> MutexGuard<'_, Scripts> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next reply for `path`.
    fn next(&self, path: &str) -> Reply {
        let mut scripts = self.scripts();
        if let Some(reply) = scripts
            .queued
            .get_mut(path)
            .and_then(std::collections::VecDeque::pop_front)
        {
            return reply;
        }
        scripts
            .always
            .get(path)
            .unwrap_or(&scripts.fallback)
            .clone()
    }
}
