//! One run: everything started, set up and warm, and then the shape's phases.
//!
//! Owns the order of a run and the waiting. The shapes' own modules say what is written when, and
//! what they want to see.

mod backlog;
mod flood;
mod hanging;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hooklane_core::clock;
use hooklane_proto::id::EndpointId;
use hooklane_store::Store;
use hooklane_store::audit::{self, Open};
use hooklane_store::producer::Producer;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::epoch::Epoch;
use crate::generate::{Generated, Generator, Load};
use crate::host;
use crate::journal::Journal;
use crate::latency::Latency;
use crate::measure::Cpu;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::receiver::{Receiver, Sampling};
use crate::report::{Host, Phase, Report};
use crate::setup::{self, Endpoints};
use crate::shape::{Numbers, Shape};
use crate::system::{self, Profile, System, Tuning};
use crate::verify::{self, Verdict};

/// Connections that write to the outbox.
const PRODUCERS: u32 = 8;
/// How long nothing at all may happen before a run gives up.
const STUCK: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(25);
/// How often the ledger is asked, which costs it a little.
const ASK: Duration = Duration::from_millis(50);

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The shape.
    pub shape: Shape,
    /// Its numbers.
    pub numbers: Numbers,
    /// Bytes of one payload.
    pub payload: usize,
    /// How long hanging endpoints hang.
    pub hang: Duration,
    /// For how long a backlog is held before its endpoint recovers.
    pub hold: Duration,
    /// The `hooklane` binary.
    pub binary: PathBuf,
    /// Whether commits wait for the disk.
    pub profile: Profile,
    /// Every n-th request is verified byte by byte.
    pub verify_every: u64,
    /// Keep logs here.
    pub keep_logs: Option<PathBuf>,
}

/// Runs a shape to its end.
///
/// # Errors
/// Where something does not start, breaks, or nothing happens any more; or on `cancelled`.
pub async fn run(
    options: &Options,
    progress: &Progress,
    cancelled: &CancellationToken,
) -> Result<Report> {
    match options.shape {
        Shape::Flood | Shape::Fanout10 | Shape::Steady => {
            flood::run(options, progress, cancelled).await
        }
        Shape::Hanging => hanging::run(options, progress, cancelled).await,
        Shape::Backlog => backlog::run(options, progress, cancelled).await,
    }
}

/// The parts of a run.
struct Run<'a> {
    options: &'a Options,
    progress: &'a Progress,
    cancelled: &'a CancellationToken,
    plan: Arc<Plan>,
    journal: Arc<Journal>,
    epoch: Epoch,
    receiver: Receiver,
    generator: Generator,
    endpoints: Vec<EndpointId>,
    store: Store,
    host: Host,
    system: System,
}

/// Events of a phase: from the first ordinal to the one before the last.
#[derive(Debug, Clone, Copy)]
struct Events {
    from: u32,
    to: u32,
}

/// A phase that has begun.
struct Begun {
    at: u64,
    cpu: Cpu,
}

impl<'a> Run<'a> {
    /// Starts everything, for events of these consumers in this order.
    async fn start(
        options: &'a Options,
        progress: &'a Progress,
        cancelled: &'a CancellationToken,
        consumer_of: Vec<u32>,
        endpoints: Endpoints,
    ) -> Result<Self> {
        let Numbers {
            consumers,
            endpoints_each,
            ..
        } = options.numbers;
        let epoch = Epoch::begin();
        let millis = u64::try_from(clock::now().timestamp_millis()).unwrap_or(0);
        let plan = Arc::new(Plan::new(
            consumers,
            endpoints_each,
            options.payload,
            consumer_of,
            millis,
            rand::random(),
        ));
        let journal = Arc::new(Journal::new(plan.events()));
        progress.step("starting nats-server, PostgreSQL and hooklane");
        let system = System::start(system::Options {
            binary: options.binary.clone(),
            profile: options.profile,
            tuning: Tuning::default(),
            keep_logs: options.keep_logs.clone(),
        })
        .await?;
        let host = host::look(system.dir())?;
        let store = system.store(AT_HAND).await?;
        let sampling = Sampling {
            every: options.verify_every,
        };
        let receiver = Receiver::start(Arc::clone(&plan), epoch, sampling).await?;
        progress.step(&format!("adding {} endpoints", plan.endpoints()));
        let endpoints =
            setup::set_up(&store, &plan, &receiver, endpoints, system::master_key()?).await?;
        let producer = Producer::connect(system.database_url(), PRODUCERS).await?;
        let generator = Generator {
            plan: Arc::clone(&plan),
            journal: Arc::clone(&journal),
            epoch,
            producer,
        };
        Ok(Self {
            options,
            progress,
            cancelled,
            plan,
            journal,
            epoch,
            receiver,
            generator,
            endpoints,
            store,
            host,
            system,
        })
    }

    fn load(&self, events: Events, rate: Option<f64>, rows: u32) -> Load {
        Load {
            from: events.from,
            to: events.to,
            rate,
            rows,
            connections: PRODUCERS,
            roll_back_every: 0,
        }
    }

    /// Writes events and waits until they are all recorded as sent: connections are open, leases
    /// held and caches filled before anything is measured.
    async fn warm_up(&self, events: Events) -> Result<()> {
        const RATE: f64 = 250.0;
        self.progress.step("warming up");
        let load = self.load(events, Some(RATE), 1);
        self.generator.run(load, self.cancelled).await?;
        self.all_sent("warming up").await
    }

    fn begin(&self) -> Begun {
        Begun {
            at: self.epoch.micros(),
            cpu: Cpu::now(self.system.pids()),
        }
    }

    /// What happened since `begun`. `hanging` says which endpoints are.
    fn end(
        &self,
        name: &'static str,
        begun: &Begun,
        events: Events,
        generated: &Generated,
        hanging: impl Fn(u32) -> bool,
    ) -> Phase {
        let seconds = (self.epoch.micros() - begun.at) as f64 / 1e6;
        let cpu = Cpu::now(self.system.pids()).since(begun.cpu);
        let count = u64::from(events.to - events.from);
        let deliveries = count * u64::from(self.plan.endpoints_each());
        let (healthy, hung) = self.latencies(events, hanging);
        let cpu_per_thousand = cpu.per_thousand(deliveries);
        Phase {
            name,
            events: count,
            deliveries,
            seconds,
            deliveries_per_second: deliveries as f64 / seconds,
            generated_in_seconds: generated.took.as_secs_f64(),
            healthy: healthy.summary(),
            hanging: hung.summary(),
            generator_late: generated.late.summary(),
            cpu_per_thousand,
            server_cpu_per_thousand: cpu_per_thousand.server_side(),
        }
    }

    /// From the beginning of the commit to the first arrival, healthy and hanging endpoints.
    fn latencies(&self, events: Events, hanging: impl Fn(u32) -> bool) -> (Latency, Latency) {
        let mut first = vec![u64::MAX; self.plan.slots()];
        for seen in self.receiver.log() {
            let slot = &mut first[seen.slot as usize];
            *slot = (*slot).min(seen.arrived);
        }
        let (mut healthy, mut hung) = (Latency::default(), Latency::default());
        for ordinal in events.from..events.to {
            let began = self.journal.began(ordinal);
            for endpoint in self.plan.endpoints_of(self.plan.consumer_of(ordinal)) {
                let arrived = self
                    .plan
                    .slot(ordinal, endpoint)
                    .map_or(u64::MAX, |slot| first[slot as usize]);
                if arrived == u64::MAX {
                    continue;
                }
                let latency = arrived.saturating_sub(began);
                if hanging(endpoint) {
                    hung.record(latency);
                } else {
                    healthy.record(latency);
                }
            }
        }
        (healthy, hung)
    }

    /// Waits until everything committed so far has arrived and is recorded as sent.
    async fn all_sent(&self, doing: &str) -> Result<()> {
        let expected = self.journal.committed() * u64::from(self.plan.endpoints_each());
        self.until(doing, |requests, _| requests >= expected, false)
            .await?;
        self.until(doing, |_, open| open.is_none(), true).await
    }

    /// Waits until `done` says so of the number of requests and, where `ask` is set, of what the
    /// ledger has open. Gives up when neither changes for long.
    async fn until(&self, doing: &str, done: impl Fn(u64, Open) -> bool, ask: bool) -> Result<()> {
        let mut last = (u64::MAX, Open::default());
        let mut changed = Instant::now();
        loop {
            let open = if ask {
                audit::open(&self.store).await?
            } else {
                Open::default()
            };
            let requests = self.receiver.counters().requests;
            if done(requests, open) {
                return Ok(());
            }
            if (requests, open) != last {
                last = (requests, open);
                changed = Instant::now();
            }
            self.progress.show(format!(
                "{doing}: {} events committed, {requests} requests{}",
                self.journal.committed(),
                if ask {
                    format!(
                        ", {} in the outbox, {} received, {} stalled",
                        open.outbox, open.received, open.stalled
                    )
                } else {
                    String::new()
                }
            ));
            self.system.check()?;
            ensure!(!self.cancelled.is_cancelled(), "interrupted");
            if changed.elapsed() > STUCK {
                let open = audit::open(&self.store).await?;
                bail!(
                    "{doing}: nothing happened for {STUCK:?}, with {requests} requests and {open:?}\n{}",
                    self.system.log_tail()
                );
            }
            sleep(if ask { ASK } else { POLL }).await;
        }
    }

    async fn verdict(&self) -> Result<Verdict> {
        self.progress.step("verifying");
        self.progress.show("verifying".to_owned());
        verify::verify(
            &self.plan,
            &self.journal,
            &self.receiver.log(),
            self.receiver.counters(),
            &self.endpoints,
            &self.store,
        )
        .await
    }

    /// Stops everything in order; what the shape found becomes the report.
    async fn finish(mut self, found: Found) -> Result<Report> {
        self.progress.step("stopping");
        self.generator.producer.close().await;
        self.store.close().await;
        let Found {
            phases,
            memory,
            drives_in_vain,
            verdict,
            goals,
            mut faults,
        } = found;
        if let Err(error) = self.system.stop_hooklane().await {
            faults.push(format!("{error:#}"));
        }
        Ok(Report {
            shape: self.options.shape.name(),
            profile: self.options.profile,
            payload_bytes: self.plan.payload_bytes(),
            endpoints: self.plan.endpoints(),
            host: self.host.clone(),
            phases,
            memory,
            drives_in_vain,
            verdict,
            goals,
            faults,
        })
    }
}

/// Connections to the ledger for set-up and questions.
const AT_HAND: u32 = 8;

/// What a shape found.
struct Found {
    phases: Vec<Phase>,
    memory: Option<crate::report::MemoryReport>,
    drives_in_vain: Option<crate::report::Drives>,
    verdict: Verdict,
    goals: Vec<crate::report::Goal>,
    faults: Vec<String>,
}

/// Waits, unless the run is interrupted.
async fn pause(time: Duration, cancelled: &CancellationToken) -> Result<()> {
    tokio::select! {
        () = sleep(time) => Ok(()),
        () = cancelled.cancelled() => bail!("interrupted"),
    }
}

/// Events of all consumers in turn.
fn in_turn(events: u32, consumers: u32) -> Vec<u32> {
    (0..events).map(|n| n % consumers).collect()
}

fn total(parts: &[u32]) -> Result<u32> {
    parts
        .iter()
        .try_fold(0_u32, |sum, part| sum.checked_add(*part))
        .filter(|sum| *sum <= MOST_EVENTS)
        .with_context(|| format!("a run has at most {MOST_EVENTS} events"))
}

/// Bounds the memory of plan, journal and log.
const MOST_EVENTS: u32 = 5_000_000;
