//! A dispatcher is killed, and another one takes its partitions: soon, with what it held, and
//! without a flood.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use loadtest::bench::{Bench, Events, Setting};
use loadtest::broker;
use loadtest::faults::pace::{self, Limits, Span};
use loadtest::judge::Places;
use loadtest::progress::Progress;
use loadtest::receiver::Behaviour;
use loadtest::setup::Endpoints;
use loadtest::system::{Member, Profile, Tuning};
use tokio_util::sync::CancellationToken;

/// A lease runs out after ten seconds, and what the dead dispatcher held comes again as soon.
const SOON: Duration = Duration::from_secs(20);
const CONSUMERS: u32 = 16;
const RATE: u16 = 10;
const CONCURRENCY: u16 = 4;
/// So that attempts are in flight at any moment.
const SLOW: Duration = Duration::from_millis(300);
/// Events a second: less than half of what the endpoints take.
const LOAD: f64 = CONSUMERS as f64 * 4.0;
const WARM_UP: u32 = CONSUMERS * 4;
/// Events at once, so that the lanes hold some when it happens.
const SPIKE: u32 = CONSUMERS * 20;
const STEADY: u32 = (LOAD * 22.0) as u32;
/// Both dispatchers are among these.
const KILLED: usize = 1;

pub(crate) async fn run() -> Result<()> {
    let bench = start().await?;
    for endpoint in 0..bench.plan.endpoints() {
        bench.receiver.behave(endpoint, Behaviour::Hang(SLOW));
    }
    let warm = Events {
        from: 0,
        to: WARM_UP,
    };
    bench.warm_up(warm).await?;
    let spike = Events {
        from: WARM_UP,
        to: WARM_UP + SPIKE,
    };
    let load = bench.load(spike, None, CONSUMERS);
    bench.generator.run(load, &bench.cancelled).await?;
    bench
        .arrived("filling the lanes", u64::from(WARM_UP + SPIKE / 2))
        .await?;

    bench.system.kill(KILLED);
    let killed = bench.epoch.micros();
    let client = bench.system.broker().await?;
    let held = broker::under_way(&client, &bench.store).await?;
    assert!(
        held.len() as u32 > SPIKE / 8,
        "only {} were held",
        held.len()
    );
    let steady = Events {
        from: spike.to,
        to: spike.to + STEADY,
    };
    let load = bench.load(steady, Some(LOAD), 1);
    bench.generator.run(load, &bench.cancelled).await?;
    bench.all_sent("after the takeover").await?;

    let log = bench.receiver.log();
    let places = Places {
        plan: &bench.plan,
        endpoints: &bench.endpoints,
    };
    // When each delivery had its first success.
    let mut first = BTreeMap::new();
    for seen in &log {
        if seen.status == 200 {
            let first = first.entry(places.pair(*seen)).or_insert(seen.arrived);
            *first = (*first).min(seen.arrived);
        }
    }
    let soon = killed + SOON.as_micros() as u64;
    let late = held.iter().filter(|pair| first[pair] > soon);
    assert_eq!(late.count(), 0, "of {} that were held", held.len());
    let moved = [Span {
        from: killed,
        to: killed,
    }];
    let limits = Limits {
        rate: Some(f64::from(RATE)),
        concurrency: u32::from(CONCURRENCY),
        owners: 1,
        hands: 1,
    };
    for (endpoint, requests) in pace::by_endpoint(&bench.plan, &log) {
        let again = requests.iter().find(|request| request.arrived > killed);
        let again = again.context("an endpoint had nothing after the kill")?;
        assert!(again.arrived <= soon, "endpoint {endpoint}: {again:?}");
        assert_eq!(
            pace::excess(&requests, limits, &moved),
            None,
            "endpoint {endpoint}"
        );
    }
    Ok(())
}

async fn start() -> Result<Bench> {
    let members = vec![
        Member::new("relay", &["relay"]),
        Member::new("dispatch-1", &["dispatch"]),
        Member::new("dispatch-2", &["dispatch"]),
        Member::new("record", &["record"]),
        Member::new("schedule", &["schedule"]),
    ];
    let setting = Setting {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_hooklane")),
        profile: Profile::Fast,
        tuning: Tuning::default(),
        keep_logs: std::env::var_os("HOOKLANE_CRASH_LOGS").map(PathBuf::from),
        consumers: CONSUMERS,
        endpoints_each: 1,
        endpoints: vec![Endpoints {
            rate: Some(RATE),
            concurrency: CONCURRENCY,
            timeout: Duration::from_secs(15),
        }],
        payload: 512,
        consumer_of: (0..WARM_UP + SPIKE + STEADY)
            .map(|n| n % CONSUMERS)
            .collect(),
        verify_every: 8,
        members,
        linked: false,
    };
    Bench::start(setting, Progress::hidden(), CancellationToken::new()).await
}
