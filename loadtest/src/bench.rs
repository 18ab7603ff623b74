//! Everything that a run needs, started, set up and connected: servers, hooklane, receiver,
//! generator, ledger.
//!
//! Owns starting the parts, warming up and waiting. Does not own what is written when, nor what
//! should come of it: that is the shapes' and the crash tests'.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use hooklane_core::clock;
use hooklane_proto::id::EndpointId;
use hooklane_store::Store;
use hooklane_store::audit::{self, Open};
use hooklane_store::producer::Producer;
use hooklane_testkit::proxy::Proxy;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::epoch::Epoch;
use crate::generate::{Generator, Load};
use crate::journal::Journal;
use crate::latency::Latency;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::receiver::{Receiver, Sampling};
use crate::setup::{self, Endpoints};
use crate::system::{self, Member, Profile, System, Tuning};
use crate::verify::{self, Verdict};

/// Connections that write to the outbox.
const PRODUCERS: u32 = 8;
/// Connections to the ledger for set-up and questions.
const AT_HAND: u32 = 8;
/// How long nothing at all may happen before a run gives up.
pub const STUCK: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(25);
/// How often the ledger is asked, which costs it a little.
const ASK: Duration = Duration::from_millis(50);

/// What to start.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The `hooklane` binary.
    pub binary: PathBuf,
    /// Whether commits wait for the disk.
    pub profile: Profile,
    /// Settings of hooklane's that differ from the defaults.
    pub tuning: Tuning,
    /// Keep logs here.
    pub keep_logs: Option<PathBuf>,
    /// Consumers.
    pub consumers: u32,
    /// Endpoints of each consumer.
    pub endpoints_each: u32,
    /// The endpoints' settings, in turn; at least one.
    pub endpoints: Vec<Endpoints>,
    /// Bytes of one payload.
    pub payload: usize,
    /// The consumer of each event, in order.
    pub consumer_of: Vec<u32>,
    /// Every n-th request is verified byte by byte.
    pub verify_every: u64,
    /// The processes, at least one.
    pub members: Vec<Member>,
    /// Whether everything is connected by links that may be cut and stalled: processes to servers,
    /// lanes to endpoints.
    pub linked: bool,
}

/// Events from the first ordinal to the one before the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Events {
    /// The first.
    pub from: u32,
    /// The one after the last.
    pub to: u32,
}

/// The first arrival of a delivery.
struct Arrival {
    ordinal: u32,
    endpoint: u32,
    /// When its commit began, in microseconds since the run began.
    began: u64,
    /// How long after that it arrived.
    micros: u64,
}

/// The running parts.
#[derive(Debug)]
pub struct Bench {
    /// Who gets what.
    pub plan: Arc<Plan>,
    /// What was written.
    pub journal: Arc<Journal>,
    /// The run's clock.
    pub epoch: Epoch,
    /// The endpoints.
    pub receiver: Receiver,
    /// Writes events.
    pub generator: Generator,
    /// The ledger's ids of the endpoints, in the plan's order.
    pub endpoints: Vec<EndpointId>,
    /// The endpoints' settings, in turn.
    pub settings: Vec<Endpoints>,
    /// The ledger.
    pub store: Store,
    /// The links from lanes to endpoints, in the plan's order; empty where there are none.
    pub links: Vec<Proxy>,
    /// Tells what is going on.
    pub progress: Progress,
    /// Ends every wait.
    pub cancelled: CancellationToken,
    /// Servers and hooklane. The last to end.
    pub system: System,
}

impl Bench {
    /// Starts everything and adds the endpoints.
    ///
    /// # Errors
    /// Where something is missing or does not start.
    pub async fn start(
        setting: Setting,
        progress: Progress,
        cancelled: CancellationToken,
    ) -> Result<Self> {
        let epoch = Epoch::begin();
        let millis = u64::try_from(clock::now().timestamp_millis()).unwrap_or(0);
        let plan = Arc::new(Plan::new(
            setting.consumers,
            setting.endpoints_each,
            setting.payload,
            setting.consumer_of,
            millis,
            rand::random(),
        ));
        let journal = Arc::new(Journal::new(plan.events()));
        system::found(&setting.binary)?;
        progress.step("starting nats-server, PostgreSQL and hooklane");
        let system = System::start(system::Options {
            binary: setting.binary,
            profile: setting.profile,
            tuning: setting.tuning,
            keep_logs: setting.keep_logs,
            members: setting.members,
            linked: setting.linked,
        })
        .await?;
        let store = system.store(AT_HAND).await?;
        let sampling = Sampling {
            every: setting.verify_every,
        };
        let receiver = Receiver::start(Arc::clone(&plan), epoch, sampling).await?;
        progress.step(&format!("adding {} endpoints", plan.endpoints()));
        let keys = system::master_key()?;
        let (links, urls) = urls(&plan, &receiver, setting.linked).await?;
        let settings = setting.endpoints;
        let endpoints =
            setup::set_up(&store, &plan, &receiver, urls, settings.clone(), keys).await?;
        let producer = Producer::connect(system.database_url(), PRODUCERS).await?;
        let generator = Generator {
            plan: Arc::clone(&plan),
            journal: Arc::clone(&journal),
            epoch,
            producer,
        };
        Ok(Self {
            plan,
            journal,
            epoch,
            receiver,
            generator,
            endpoints,
            settings,
            store,
            links,
            progress,
            cancelled,
            system,
        })
    }

    /// A load of these events over all connections, with nothing rolled back.
    #[must_use]
    pub fn load(&self, events: Events, rate: Option<f64>, rows: u32) -> Load {
        Load {
            from: events.from,
            to: events.to,
            rate,
            rows,
            connections: PRODUCERS,
            roll_back_every: 0,
            double_every: 0,
            patience: Duration::ZERO,
        }
    }

    /// Writes events and waits until they are all recorded as sent: connections are open, leases
    /// held and caches filled before anything is measured.
    ///
    /// # Errors
    /// Where that does not happen.
    pub async fn warm_up(&self, events: Events) -> Result<()> {
        const RATE: f64 = 250.0;
        self.progress.step("warming up");
        let load = self.load(events, Some(RATE), 1);
        self.generator.run(load, &self.cancelled).await?;
        self.all_sent("warming up").await
    }

    /// Waits until everything committed so far has arrived and is recorded as sent.
    ///
    /// # Errors
    /// As [`Bench::until`].
    pub async fn all_sent(&self, doing: &str) -> Result<()> {
        let expected = self.journal.committed() * u64::from(self.plan.endpoints_each());
        self.arrived(doing, expected).await?;
        self.until(doing, Open::is_none).await
    }

    /// Waits until the receiver has read that many requests in all.
    ///
    /// # Errors
    /// As [`Bench::until`].
    pub async fn arrived(&self, doing: &str, requests: u64) -> Result<()> {
        let mut patience = Patience::begin();
        loop {
            let seen = self.receiver.counters().requests;
            if seen >= requests {
                return Ok(());
            }
            self.progress.show(format!(
                "{doing}: {} events committed, {seen} of {requests} requests",
                self.journal.committed()
            ));
            self.keep_waiting(doing, &mut patience, seen).await?;
            sleep(POLL).await;
        }
    }

    /// Waits until `done` says so of what the ledger has open.
    ///
    /// # Errors
    /// When hooklane ends by itself, on Ctrl-C, and when nothing changes any more.
    pub async fn until(&self, doing: &str, done: impl Fn(Open) -> bool) -> Result<()> {
        let mut patience = Patience::begin();
        loop {
            let open = audit::open(&self.store).await?;
            if done(open) {
                return Ok(());
            }
            let Open {
                outbox,
                received,
                stalled,
            } = open;
            self.progress.show(format!(
                "{doing}: {outbox} in the outbox, {received} received, {stalled} stalled"
            ));
            let sum = outbox + received + stalled + self.receiver.counters().requests;
            self.keep_waiting(doing, &mut patience, sum).await?;
            sleep(ASK).await;
        }
    }

    async fn keep_waiting(&self, doing: &str, patience: &mut Patience, seen: u64) -> Result<()> {
        self.system.check()?;
        ensure!(!self.cancelled.is_cancelled(), "interrupted");
        if patience.is_spent(seen) {
            let open = audit::open(&self.store).await?;
            bail!(
                "{doing}: nothing happened for {STUCK:?}, with {} requests and {open:?}\n{}",
                self.receiver.counters().requests,
                self.system.log_tail()
            );
        }
        Ok(())
    }

    /// Waits, unless the run is interrupted.
    ///
    /// # Errors
    /// On Ctrl-C.
    pub async fn pause(&self, time: Duration) -> Result<()> {
        tokio::select! {
            () = sleep(time) => Ok(()),
            () = self.cancelled.cancelled() => bail!("interrupted"),
        }
    }

    /// From the beginning of the commit to the first arrival, for healthy and hanging endpoints.
    #[must_use]
    pub fn latencies(&self, events: Events, hanging: impl Fn(u32) -> bool) -> (Latency, Latency) {
        let (mut healthy, mut hung) = (Latency::default(), Latency::default());
        for arrival in self.arrivals(events) {
            if hanging(arrival.endpoint) {
                hung.record(arrival.micros);
            } else {
                healthy.record(arrival.micros);
            }
        }
        (healthy, hung)
    }

    /// Writes the time of each delivery of a phase beside the logs, where these are kept.
    ///
    /// # Errors
    /// Where the file can't be written.
    pub fn keep_arrivals(&self, phase: &str, events: Events) -> Result<()> {
        let Some(dir) = self.system.kept() else {
            return Ok(());
        };
        let path = dir.join(format!("{}.csv", phase.replace(' ', "-")));
        let mut text = String::from("began_us,latency_us,endpoint,consumer\n");
        for arrival in self.arrivals(events) {
            let Arrival {
                ordinal,
                endpoint,
                began,
                micros,
            } = arrival;
            let consumer = self.plan.consumer_of(ordinal);
            // Writing to a string does not fail.
            let _ = writeln!(text, "{began},{micros},{endpoint},{consumer}");
        }
        std::fs::create_dir_all(dir)
            .and_then(|()| std::fs::write(&path, text))
            .with_context(|| format!("writing {}", path.display()))
    }

    /// The first arrival of each delivery that has arrived.
    fn arrivals(&self, events: Events) -> impl Iterator<Item = Arrival> {
        let mut first = vec![u64::MAX; self.plan.slots()];
        for seen in self.receiver.log() {
            let slot = &mut first[seen.slot as usize];
            *slot = (*slot).min(seen.arrived);
        }
        let of = move |ordinal, endpoint| {
            let slot = self.plan.slot(ordinal, endpoint)?;
            let arrived = first[slot as usize];
            let began = self.journal.began(ordinal);
            (arrived != u64::MAX).then(|| Arrival {
                ordinal,
                endpoint,
                began,
                micros: arrived.saturating_sub(began),
            })
        };
        (events.from..events.to)
            .flat_map(|ordinal| {
                let endpoints = self.plan.endpoints_of(self.plan.consumer_of(ordinal));
                endpoints.map(move |endpoint| (ordinal, endpoint))
            })
            .filter_map(move |(ordinal, endpoint)| of(ordinal, endpoint))
    }

    /// Compares what was written, what arrived and what is recorded.
    ///
    /// # Errors
    /// Where the ledger can't be read.
    pub async fn verdict(&self) -> Result<Verdict> {
        self.progress.step("verifying");
        self.progress.show("verifying".to_owned());
        let run = verify::Run {
            plan: &self.plan,
            journal: &self.journal,
            log: &self.receiver.log(),
            counters: self.receiver.counters(),
            endpoints: &self.endpoints,
            settings: &self.settings,
            epoch: self.epoch,
        };
        verify::verify(run, &self.store).await
    }
}

/// Where the endpoints are for a lane, and the links that they are behind.
async fn urls(plan: &Plan, receiver: &Receiver, linked: bool) -> Result<(Vec<Proxy>, Vec<String>)> {
    let mut links = Vec::new();
    let mut urls = Vec::with_capacity(plan.endpoints() as usize);
    for endpoint in 0..plan.endpoints() {
        let mut url = receiver.url(endpoint);
        if linked {
            let address = receiver.address(endpoint);
            let any_port = SocketAddr::new(address.ip(), 0);
            let link = Proxy::start(any_port, address).await?;
            url = url.replace(&address.to_string(), &link.address().to_string());
            links.push(link);
        }
        urls.push(url);
    }
    Ok((links, urls))
}

/// Ends when what is waited for does not change any more.
struct Patience {
    last: Option<u64>,
    changed: Instant,
}

impl Patience {
    fn begin() -> Self {
        Self {
            last: None,
            changed: Instant::now(),
        }
    }

    fn is_spent(&mut self, seen: u64) -> bool {
        if self.last != Some(seen) {
            self.last = Some(seen);
            self.changed = Instant::now();
        }
        self.changed.elapsed() > STUCK
    }
}
