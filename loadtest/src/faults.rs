//! The fault suite: a whole Hooklane of several processes under load, everything that can go wrong
//! going wrong on a schedule that a seed gives, and then the audit of every invariant by id.
//!
//! Owns the run: load, faults, calm, audit, report. What is broken when is the [`schedule`]'s, how
//! it is broken `strike`'s and `trick`'s, what a crash excuses the [`judge`](crate::judge)'s.

mod audit;
mod notes;
pub mod pace;
mod report;
pub mod schedule;
mod strike;
mod trick;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hooklane_proto::subject;
use hooklane_store::audit::Open;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, Events, Setting};
use crate::broker;
use crate::generate::Load;
use crate::progress::Progress;
use crate::receiver::Behaviour;
use crate::setup::Endpoints;
use crate::system::{Member, Profile, Tuning, workspace};

use audit::Audit;
use notes::Notes;
pub use report::Report;
use schedule::{Field, Schedule};
use strike::Striker;

/// Consumers, so that most partitions have some, and their endpoints.
const CONSUMERS: u32 = 12;
const ENDPOINTS_EACH: u32 = 2;
/// Copies of every service.
const COPIES: u32 = 2;
const PAYLOAD: usize = 700;
/// Every n-th transaction is rolled back, and every n-th is written twice.
const ROLL_BACK_EVERY: u32 = 40;
const DOUBLE_EVERY: u32 = 25;
/// How long a producer tries again while its database is away.
const PATIENCE: Duration = Duration::from_secs(120);
/// Before the first fault everything has been delivered once.
const WARM_UP: u32 = 240;
const WARM_WITHIN: Duration = Duration::from_secs(60);
/// The retry schedule: so long that no trick exhausts a delivery, so short that it is over soon.
const DELAYS: [u64; 7] = [1, 2, 4, 8, 15, 15, 15];
/// Streams that refuse what is new when they are full. (Nothing here is published to `INTAKE`.)
const REFUSING: [&str; 2] = [subject::DELIVERIES, subject::RECORDS];
/// A load of this many events a second makes the paced endpoints fall behind.
const DEFAULT_RATE: f64 = 120.0;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the schedule is drawn from.
    pub seed: u64,
    /// How long load and faults go on.
    pub length: Duration,
    /// Events a second.
    pub rate: f64,
    /// How long everything may take to be settled afterwards.
    pub settle_within: Duration,
    /// The `hooklane` binary.
    pub binary: PathBuf,
    /// Logs are kept below this directory, in one of the seed's, where something is wrong.
    pub logs: PathBuf,
    /// Keep the logs in any case.
    pub keep_logs: bool,
    /// Whether streams are full now and then. Not by default: it changes what a seed gives.
    pub full_stream: bool,
}

impl Options {
    /// A minute of this seed with the release build of this checkout.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self {
            seed,
            length: Duration::from_secs(60),
            rate: DEFAULT_RATE,
            settle_within: Duration::from_secs(180),
            binary: workspace().join("target/release/hooklane"),
            logs: workspace().join(".hooklane/faults"),
            keep_logs: false,
            full_stream: false,
        }
    }

    fn again(&self) -> String {
        format!(
            "cargo xtask faults --seed {} --minutes {}{}",
            self.seed,
            self.length.as_secs_f64() / 60.0,
            if self.full_stream {
                " --full-stream"
            } else {
                ""
            }
        )
    }
}

/// Endpoints of three kinds: most take what comes, some are paced below their share of the load, so
/// that they always have a backlog, and some take two requests at a time, slowly.
fn settings() -> Vec<Endpoints> {
    let open = Endpoints {
        rate: None,
        concurrency: 16,
        timeout: Duration::from_secs(5),
    };
    let paced = Endpoints {
        rate: Some(8),
        concurrency: 4,
        ..open
    };
    let narrow = Endpoints {
        concurrency: 2,
        ..open
    };
    vec![paced, open, open, narrow, open, open]
}

/// What an endpoint does while nobody plays tricks.
fn usual(settings: &[Endpoints]) -> impl Fn(u32) -> Behaviour {
    |endpoint| match settings[endpoint as usize % settings.len()].concurrency {
        2 => Behaviour::Hang(Duration::from_millis(120)),
        _ => Behaviour::Answer(200),
    }
}

/// Shorter times than the defaults where a run would mostly wait for them.
fn tuning() -> Tuning {
    let delays: Vec<String> = DELAYS.iter().map(|secs| format!("\"{secs}s\"")).collect();
    Tuning::default()
        .set("retry.delays", &format!("[{}]", delays.join(", ")))
        .set("retry.own_fault_delay", "\"1s\"")
        .set("database.max_connections", "8")
        .set("relay.publish_within", "\"10s\"")
        .set("dispatcher.not_after", "\"10s\"")
        .set("scheduler.not_after", "\"10s\"")
        .set("scheduler.sweep_every", "\"2s\"")
        .set("scheduler.sweep_grace", "\"6s\"")
        .set("scheduler.clock_tolerance", "\"3s\"")
        .set("dlq.search_every", "\"10s\"")
}

/// Runs one seed to its end.
///
/// # Errors
/// Where something of the suite's own does not start or breaks, or on `cancelled`. What is wrong
/// with Hooklane is in the report.
pub async fn run(
    options: &Options,
    progress: &Progress,
    cancelled: &CancellationToken,
) -> Result<Report> {
    let load = (options.rate * options.length.as_secs_f64()) as u32;
    ensure!(load > 0, "a run needs time and a rate");
    let events = WARM_UP + load;
    let logs = options.logs.join(format!("seed-{}", options.seed));
    let setting = Setting {
        binary: options.binary.clone(),
        // Nobody cuts the power here.
        profile: Profile::Fast,
        tuning: tuning(),
        keep_logs: options.keep_logs.then(|| logs.clone()),
        consumers: CONSUMERS,
        endpoints_each: ENDPOINTS_EACH,
        endpoints: settings(),
        payload: PAYLOAD,
        consumer_of: (0..events).map(|n| n % CONSUMERS).collect(),
        verify_every: 1,
        members: Member::services(COPIES),
        linked: true,
    };
    let mut bench = Bench::start(setting, progress.clone(), cancelled.clone()).await?;
    let done = Box::pin(drive(options, &bench, events)).await;
    let is_good = done.as_ref().is_ok_and(Report::is_good);
    if !is_good {
        bench.system.keep_logs(logs.clone());
    }
    let mut report = done?;
    if !is_good {
        std::fs::create_dir_all(&logs)
            .and_then(|()| std::fs::write(logs.join("report.txt"), report.text()))
            .with_context(|| format!("writing to {}", logs.display()))?;
        report.logs = Some(logs);
    }
    Ok(report)
}

/// Load and faults, calm, audit.
async fn drive(options: &Options, bench: &Bench, events: u32) -> Result<Report> {
    let settings = settings();
    let usual = usual(&settings);
    for endpoint in 0..bench.plan.endpoints() {
        bench.receiver.behave(endpoint, usual(endpoint));
    }
    let (warm, faulty) = (
        Events {
            from: 0,
            to: WARM_UP,
        },
        Events {
            from: WARM_UP,
            to: events,
        },
    );
    tokio::time::timeout(WARM_WITHIN, bench.warm_up(warm))
        .await
        .with_context(|| {
            format!(
                "not warm within {WARM_WITHIN:?}\n{}",
                bench.system.log_tail()
            )
        })??;

    let field = field(bench.system.members(), options);
    let schedule = Schedule::of(options.seed, options.length, &field);
    bench.progress.step(&format!(
        "seed {}: {} blows and {} tricks in {:.0} s",
        options.seed,
        schedule.blows.len(),
        schedule.tricks.len(),
        options.length.as_secs_f64()
    ));
    let begun = bench.epoch.micros();
    let load = Load {
        roll_back_every: ROLL_BACK_EVERY,
        double_every: DOUBLE_EVERY,
        patience: PATIENCE,
        ..bench.load(faulty, Some(options.rate), 1)
    };
    let (written, blows, tricks) = tokio::try_join!(
        bench.generator.run(load, &bench.cancelled),
        Striker::new(bench, begun).run(&schedule.blows),
        trick::play(bench, begun, &schedule.tricks, usual),
    )?;
    drop(written);
    let mut notes = blows;
    notes.add(tricks);
    notes
        .dealt
        .sort_by(|one, other| one.at.total_cmp(&other.at));

    let settled_after = settle(bench, options.settle_within, &mut notes).await?;
    let delays = DELAYS.map(Duration::from_secs);
    let (mut judgement, known) = Audit {
        bench,
        notes: &notes,
        field: &field,
        settings: &settings,
        delays: &delays,
    }
    .judgement()
    .await?;
    let mut breaches = notes.breaches;
    breaches.append(&mut judgement.faults);
    if let Err(error) = bench.system.stop_hooklane().await {
        breaches.push(format!("{error:#}"));
    }
    let counters = bench.receiver.counters();
    let totals = hooklane_store::audit::totals(&bench.store).await?;
    Ok(Report {
        seed: options.seed,
        seconds: options.length.as_secs_f64(),
        again: options.again(),
        faults: notes.dealt,
        ended: notes.ended,
        events: bench.journal.committed(),
        requests: counters.requests,
        verified: counters.verified,
        attempts: totals.attempts,
        settled_after,
        judgement: Some(judgement),
        breaches,
        known,
        begun: begun as f64 / 1e6,
        logs: None,
    })
}

fn field<'a>(members: impl Iterator<Item = &'a Member>, options: &Options) -> Field {
    let (mut dispatchers, mut others) = (Vec::new(), Vec::new());
    for (index, member) in members.enumerate() {
        if member.attempts() {
            dispatchers.push(index);
        } else {
            others.push(index);
        }
    }
    Field {
        dispatchers,
        others,
        endpoints: CONSUMERS * ENDPOINTS_EACH,
        streams: match options.full_stream {
            true => REFUSING.to_vec(),
            false => Vec::new(),
        },
    }
}

/// The schedule of a seed as a person reads it, with nothing run.
#[must_use]
pub fn plan(options: &Options) -> String {
    let members = Member::services(COPIES);
    let schedule = Schedule::of(
        options.seed,
        options.length,
        &field(members.iter(), options),
    );
    let blows = schedule.blows.iter().map(|planned| {
        let text = planned.fault.text(|member| members[member].name.clone());
        (planned.at, text)
    });
    let tricks = schedule.tricks.iter();
    let tricks = tricks.map(|planned| (planned.at, planned.fault.text()));
    let mut all: Vec<(Duration, String)> = blows.chain(tricks).collect();
    all.sort();
    let mut text = format!("seed {}\n", options.seed);
    for (at, what) in all {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {:7.1} s  {what}", at.as_secs_f64());
    }
    text
}

/// Waits until everything accepted has come to its end and the broker holds nothing unsettled.
/// Returns how long that took, in seconds; `None` where it took too long.
async fn settle(bench: &Bench, within: Duration, notes: &mut Notes) -> Result<Option<f64>> {
    const ASK: Duration = Duration::from_millis(250);
    bench
        .progress
        .step("no more faults: waiting until everything is settled");
    let began = Instant::now();
    loop {
        let open = hooklane_store::audit::open(&bench.store).await?;
        if open.is_none() {
            let client = bench.system.broker().await?;
            let left = broker::unsettled(&client).await?;
            if left.deliveries.is_empty() {
                return Ok(Some(began.elapsed().as_secs_f64()));
            }
        }
        let Open {
            outbox,
            received,
            stalled,
        } = open;
        bench.progress.show(format!(
            "settling: {outbox} in the outbox, {received} received, {stalled} stalled"
        ));
        for (index, member) in bench.system.members().enumerate() {
            if let Some(status) = bench.system.ended(index) {
                let name = &member.name;
                let text = format!("{name} ended by itself with {status} after the last fault");
                notes.breaches.push(text);
                bench.system.start_member(index)?;
            }
        }
        if began.elapsed() > within {
            notes.breaches.push(format!(
                "not settled within {within:?}: {outbox} in the outbox, {received} received, \
                 {stalled} stalled (I1)"
            ));
            return Ok(None);
        }
        bench.pause(ASK).await?;
    }
}
