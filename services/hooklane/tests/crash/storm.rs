//! One storm: load, kills and wipes at random moments, then calm, then judgement.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hooklane_nats::Client;
use hooklane_store::audit;
use loadtest::bench::{Bench, Events, Setting};
use loadtest::broker;
use loadtest::generate::Load;
use loadtest::judge::{self, Crash, Judgement, Places};
use loadtest::progress::Progress;
use loadtest::receiver::Behaviour;
use loadtest::setup::Endpoints;
use loadtest::system::{Member, Profile, Tuning};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;

/// Events a second, from before the first crash until after the last.
const RATE: f64 = 500.0;
/// Consumers, so that every partition has some, and their endpoints.
const CONSUMERS: u32 = 48;
const ENDPOINTS_EACH: u32 = 1;
/// Every other endpoint takes its time, so that requests are in flight at any moment.
const SLOW: Duration = Duration::from_millis(30);
/// Every n-th transaction is rolled back: its events must never be seen.
const ROLL_BACK_EVERY: u32 = 50;
/// The time between two crashes. The short ones hit a process that is starting or taking over
/// partitions, the long ones one at work.
const SHORT: std::ops::Range<f64> = 0.1..1.5;
const LONG: std::ops::Range<f64> = 3.0..6.0;
/// No storm lasts longer than this.
const LONGEST: Duration = Duration::from_secs(240);
const WARM_UP: u32 = 240;
const SEED: &str = "HOOKLANE_CRASH_SEED";

/// How much to break.
pub(crate) struct Storm {
    pub(crate) kills: u32,
    pub(crate) wipes: u32,
}

#[derive(Debug, Clone, Copy)]
enum Blow {
    Kill,
    Wipe,
}

impl Storm {
    pub(crate) async fn run(&self) -> Result<()> {
        let seed = match std::env::var(SEED) {
            Ok(text) => text.parse().context("HOOKLANE_CRASH_SEED is a number")?,
            Err(_) => rand::random::<u64>(),
        };
        println!("{SEED}={seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let blows = self.blows(&mut random);

        let most = (RATE * LONGEST.as_secs_f64()) as u32;
        let bench = start(WARM_UP + most).await?;
        for endpoint in (0..bench.plan.endpoints()).filter(|n| n % 2 == 1) {
            bench.receiver.behave(endpoint, Behaviour::Hang(SLOW));
        }
        bench
            .warm_up(Events {
                from: 0,
                to: WARM_UP,
            })
            .await?;

        let load = Load {
            roll_back_every: ROLL_BACK_EVERY,
            ..bench.load(
                Events {
                    from: WARM_UP,
                    to: WARM_UP + most,
                },
                Some(RATE),
                1,
            )
        };
        let enough = CancellationToken::new();
        let writing = tokio::spawn({
            let (generator, enough) = (bench.generator.clone(), enough.clone());
            async move { generator.run(load, &enough).await }
        });
        let crashes = strike(&bench, &blows, &mut random).await;
        enough.cancel();
        writing.await.context("the generator panicked")??;
        let crashes = crashes?;

        let calm = bench.epoch.micros();
        bench.all_sent("after the storm").await?;
        let recovered = Duration::from_micros(bench.epoch.micros() - calm);
        let verdict = bench.verdict().await?;
        let places = Places {
            plan: &bench.plan,
            endpoints: &bench.endpoints,
        };
        let judgement = Judgement::of(&verdict, &bench.receiver.log(), &places, &crashes, &[]);
        println!(
            "{} kills and {} wipes in {:.0} s, calm after {:.1} s more: {judgement}",
            self.kills,
            self.wipes,
            calm as f64 / 1e6,
            recovered.as_secs_f64()
        );
        let (log, suspects) = (bench.receiver.log(), &judgement.suspects);
        for line in judge::explain(suspects, &log, &places, bench.epoch, &bench.store).await? {
            println!("{line}");
        }
        bench.system.stop_hooklane().await?;
        ensure!(
            judgement.faults.is_empty(),
            "seed {seed}: {}",
            judgement.faults.join("; ")
        );
        Ok(())
    }

    fn blows(&self, random: &mut StdRng) -> Vec<Blow> {
        let kills = (0..self.kills).map(|_| Blow::Kill);
        let wipes = (0..self.wipes).map(|_| Blow::Wipe);
        let mut blows: Vec<Blow> = kills.chain(wipes).collect();
        blows.shuffle(random);
        blows
    }
}

async fn start(events: u32) -> Result<Bench> {
    // Leases that pass to the next process in seconds, so that most kills hit one at work.
    let tuning = Tuning::default()
        .set("dispatcher.lease.max_age", "\"2s\"")
        .set("dispatcher.lease.renew_every", "\"500ms\"")
        .set("dispatcher.lease.balance_every", "\"200ms\"")
        .set(
            "retry.delays",
            "[\"1s\", \"1s\", \"1s\", \"2s\", \"2s\", \"2s\", \"2s\"]",
        );
    let setting = Setting {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_hooklane")),
        // Nobody cuts the power here.
        profile: Profile::Fast,
        tuning,
        keep_logs: std::env::var_os("HOOKLANE_CRASH_LOGS").map(PathBuf::from),
        consumers: CONSUMERS,
        endpoints_each: ENDPOINTS_EACH,
        endpoints: vec![Endpoints::default()],
        payload: 512,
        consumer_of: (0..events).map(|n| n % CONSUMERS).collect(),
        verify_every: 8,
        members: vec![Member::up()],
        linked: false,
    };
    Bench::start(setting, Progress::hidden(), CancellationToken::new()).await
}

/// Deals the blows at random moments, and notes what was under way.
async fn strike(bench: &Bench, blows: &[Blow], random: &mut StdRng) -> Result<Vec<Crash>> {
    let client = bench.system.broker().await?;
    let mut crashes = Vec::with_capacity(blows.len());
    for blow in blows {
        let wait = if random.random_bool(0.3) {
            random.random_range(SHORT)
        } else {
            random.random_range(LONG)
        };
        bench.pause(Duration::from_secs_f64(wait)).await?;
        bench.system.check()?;
        crashes.push(match blow {
            Blow::Kill => kill(bench, &client).await?,
            Blow::Wipe => wipe(bench).await?,
        });
    }
    Ok(crashes)
}

async fn kill(bench: &Bench, client: &Client) -> Result<Crash> {
    bench.system.kill_hooklane();
    let at = bench.epoch.micros();
    let open = broker::under_way(client, &bench.store).await?;
    bench.system.start_hooklane()?;
    Ok(Crash { at, open })
}

async fn wipe(bench: &Bench) -> Result<Crash> {
    bench.system.stop_nats().await?;
    let at = bench.epoch.micros();
    // With the broker down, the ledger takes no more than what the recorder has in hand.
    let open = audit::not_ended(&bench.store).await?.into_iter().collect();
    bench.system.wipe_jetstream().await?;
    Ok(Crash { at, open })
}
