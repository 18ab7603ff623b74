//! The endpoints of a run: an HTTP/1.1 server that costs little, so that what is measured is the
//! system and not its receiver.
//!
//! Owns the listeners (one address of 127.0.0.0/8 for each endpoint, so that a client sees as many
//! hosts as it would in the field), what each endpoint does with a request, and the log of all
//! requests. It keeps two things only of each: its place in the plan and its times. Whether that
//! is what should have come is the verifier's business.
//!
//! Everything runs on one thread of its own with a single-threaded runtime: no request ever moves
//! between cores.

mod http;
mod lie;
mod serve;
mod shared;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result, ensure};
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::epoch::Epoch;
use crate::plan::Plan;

pub use lie::Lie;
use shared::Shared;
pub use shared::{Behaviour, Counters, Seen};

/// Listeners per /16 of loopback addresses.
const HOSTS_A_BLOCK: u32 = 250;
const MOST_ENDPOINTS: u32 = 60_000;

/// The running endpoints. They stop when this is dropped.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// How much of what arrives is checked byte by byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Every n-th request's signature and payload are verified; 1 verifies all.
    pub every: u64,
}

impl Receiver {
    /// Listens for every endpoint of `plan`. All of them answer 200 at once until told otherwise.
    ///
    /// # Errors
    /// Where a listener can't be bound: most likely too few file descriptors.
    pub async fn start(plan: Arc<Plan>, epoch: Epoch, sampling: Sampling) -> Result<Self> {
        let count = plan.endpoints();
        ensure!(
            count <= MOST_ENDPOINTS,
            "at most {MOST_ENDPOINTS} endpoints, not {count}"
        );
        let shared = Arc::new(Shared::new(plan, epoch, sampling));
        let stop = CancellationToken::new();
        let (ready, bound) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("receiver".to_owned())
            .spawn({
                let (shared, stop) = (Arc::clone(&shared), stop.clone());
                move || run(&shared, count, &stop, ready)
            })
            .context("starting the receiver's thread")?;
        let addresses = bound.await.context("the receiver's thread ended early")??;
        Ok(Self {
            shared,
            addresses,
            stop,
            thread: Some(thread),
        })
    }

    /// Where an endpoint listens.
    #[must_use]
    pub fn address(&self, endpoint: u32) -> SocketAddr {
        self.addresses[endpoint as usize]
    }

    /// An endpoint's URL.
    #[must_use]
    pub fn url(&self, endpoint: u32) -> String {
        format!(
            "http://{}/hooks/{endpoint}",
            self.addresses[endpoint as usize]
        )
    }

    /// Gives an endpoint the secret that its signatures are checked with.
    ///
    /// # Errors
    /// Where the text is not a signing secret.
    pub fn set_secret(&self, endpoint: u32, secret: &str) -> Result<()> {
        let webhook = Webhook::new(secret).context("reading an endpoint's signing secret")?;
        self.shared.set_secret(endpoint, webhook);
        Ok(())
    }

    /// Changes what an endpoint does, also with the requests that are hanging there.
    pub fn behave(&self, endpoint: u32, behaviour: Behaviour) {
        self.shared.behave(endpoint, behaviour);
    }

    /// Counts over all endpoints.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// The most requests that an endpoint had in flight.
    #[must_use]
    pub fn most_in_flight(&self, endpoint: u32) -> u32 {
        self.shared.most_in_flight(endpoint)
    }

    /// Every request so far, in the order in which they ended.
    #[must_use]
    pub fn log(&self) -> Vec<Seen> {
        self.shared.log()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by itself.
            let _ = thread.join();
        }
    }
}

fn run(
    shared: &Arc<Shared>,
    count: u32,
    stop: &CancellationToken,
    ready: tokio::sync::oneshot::Sender<Result<Vec<SocketAddr>>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(error).context("making the receiver's runtime"));
            return;
        }
    };
    runtime.block_on(async {
        let mut addresses = Vec::with_capacity(count as usize);
        for endpoint in 0..count {
            let bound = async {
                let listener = TcpListener::bind((host(endpoint), 0)).await?;
                let address = listener.local_addr()?;
                Ok::<_, std::io::Error>((listener, address))
            };
            match bound.await {
                Ok((listener, address)) => {
                    addresses.push(address);
                    tokio::spawn(serve::listen(listener, endpoint, Arc::clone(shared)));
                }
                Err(error) => {
                    let _ = ready.send(
                        Err(error).with_context(|| format!("listening for endpoint {endpoint}")),
                    );
                    return;
                }
            }
        }
        if ready.send(Ok(addresses)).is_ok() {
            stop.cancelled().await;
        }
    });
}

/// A loopback address of the endpoint's own.
fn host(endpoint: u32) -> Ipv4Addr {
    let part = |n: u32| u8::try_from(n % 256).unwrap_or(0);
    Ipv4Addr::new(
        127,
        1,
        part(endpoint / HOSTS_A_BLOCK),
        part(endpoint % HOSTS_A_BLOCK + 1),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn plan() -> Arc<Plan> {
        Arc::new(Plan::new(1, 2, 200, vec![0; 4], 1_700_000_000_000, 1))
    }

    async fn receiver(plan: &Arc<Plan>) -> Receiver {
        let receiver = Receiver::start(Arc::clone(plan), Epoch::begin(), Sampling { every: 1 })
            .await
            .unwrap();
        for endpoint in 0..plan.endpoints() {
            receiver.set_secret(endpoint, SECRET).unwrap();
        }
        receiver
    }

    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn request(plan: &Plan, url: &str, ordinal: u32, secret: &str) -> reqwest::RequestBuilder {
        let id = format!("msg_{}", plan.id(ordinal));
        let now = hooklane_core::clock::now().timestamp();
        let payload = plan.payload(ordinal);
        let signature = Webhook::new(secret)
            .unwrap()
            .sign(&id, now, payload.as_bytes())
            .unwrap();
        reqwest::Client::new()
            .post(url)
            .header("webhook-id", id)
            .header("webhook-timestamp", now.to_string())
            .header("webhook-signature", signature)
            .body(payload)
    }

    fn install_provider() {
        hooklane_core::tls::install_provider();
    }

    /// Waits until `requests` are in the log: an answer is logged when it is on
    /// its way, so the client may hold it earlier.
    async fn wait_logged(receiver: &Receiver, requests: usize) {
        let logged = async {
            while receiver.log().len() < requests {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let budget = Duration::from_secs(10);
        tokio::time::timeout(budget, logged).await.unwrap();
    }

    #[tokio::test]
    async fn requests_are_logged_with_their_place_and_verified() {
        install_provider();
        let plan = plan();
        let receiver = receiver(&plan).await;
        for endpoint in 0..2 {
            let url = receiver.url(endpoint);
            let answer = request(&plan, &url, 3, SECRET).send().await.unwrap();
            assert_eq!(answer.status(), 200);
        }
        wait_logged(&receiver, 2).await;
        let slots: Vec<u32> = receiver.log().iter().map(|seen| seen.slot).collect();
        assert_eq!(slots, [6, 7]);
        let counters = receiver.counters();
        assert_eq!((counters.requests, counters.verified), (2, 2));
        assert_eq!((counters.bad_signatures, counters.strangers), (0, 0));
        assert_eq!(receiver.most_in_flight(0), 1);
    }

    #[tokio::test]
    async fn what_should_not_have_come_is_counted() {
        install_provider();
        let plan = plan();
        let receiver = receiver(&plan).await;
        let other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let url = receiver.url(0);
        request(&plan, &url, 0, other).send().await.unwrap();
        let stranger = Plan::new(1, 2, 200, vec![0; 4], 1_700_000_000_000, 2);
        request(&stranger, &url, 0, SECRET).send().await.unwrap();
        request(&plan, &url, 0, SECRET)
            .body(plan.payload(1))
            .send()
            .await
            .unwrap();
        let counters = receiver.counters();
        assert_eq!(counters.bad_signatures, 2);
        assert_eq!(counters.strangers, 1);
        assert_eq!(counters.bad_payloads, 1);
    }

    #[tokio::test]
    async fn a_hanging_endpoint_notices_that_its_client_left_and_that_it_is_healthy_again() {
        install_provider();
        let plan = plan();
        let receiver = receiver(&plan).await;
        receiver.behave(0, Behaviour::Hang(Duration::from_secs(600)));
        let url = receiver.url(0);
        let cut = request(&plan, &url, 0, SECRET).timeout(Duration::from_millis(50));
        assert!(cut.send().await.unwrap_err().is_timeout());
        let waits = tokio::spawn(request(&plan, &url, 1, SECRET).send());
        while receiver.counters().requests < 2 {
            tokio::task::yield_now().await;
        }
        receiver.behave(0, Behaviour::Answer(204));
        assert_eq!(waits.await.unwrap().unwrap().status(), 204);
        wait_logged(&receiver, 2).await;
        let mut ends: Vec<(u32, u16)> = receiver
            .log()
            .iter()
            .map(|seen| (seen.slot, seen.status))
            .collect();
        ends.sort_unstable();
        assert_eq!(ends, [(0, 0), (2, 204)]);
    }
}
