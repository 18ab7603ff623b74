//! Replaying and discarding, page by page, however many there are.
//!
//! Each page is a transaction of its own: cut off, the command is simply run again, since what was
//! acted upon is no dead letter any more. What fails while it runs is left for the next run.

use std::collections::BTreeMap;

use hooklane_core::error::ErrorCode;
use hooklane_proto::id::EndpointId;
use hooklane_store::Store;
use hooklane_store::dead_letter::{Filed, Filter, Order, Refusal, Series, Terms};
use serde::Serialize;

use super::stream::Letters;
use super::{known, none_of};
use crate::config::Section;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress;

/// Dead letters of one transaction.
const PAGE: u32 = 500;
/// Refused deliveries that are named.
const NAMED: usize = 20;

/// What is done with dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Replay,
    Discard,
}

#[derive(Debug, Serialize)]
struct Answer {
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discarded: Option<u64>,
    /// How many were refused, by reason.
    refused: BTreeMap<&'static str, u64>,
    /// The first of them.
    refusals: Vec<Refused>,
    /// Messages that went from the stream DLQ.
    removed: u64,
}

#[derive(Debug, Serialize)]
struct Refused {
    message: String,
    endpoint: String,
    reason: &'static str,
}

/// Those that were refused for one reason.
#[derive(Debug, Clone, Copy, Default)]
struct Alike {
    count: u64,
    /// The endpoint of all of them, where they have one.
    endpoint: Option<EndpointId>,
}

impl Alike {
    fn add(&mut self, endpoint: EndpointId) {
        let same = self.count == 0 || self.endpoint == Some(endpoint);
        self.endpoint = same.then_some(endpoint);
        self.count += 1;
    }
}

pub(super) async fn run(
    context: &Context,
    mut filter: Filter,
    action: Action,
    dry_run: bool,
) -> Result<(), Failure> {
    let config = context.config(&[
        Section::Database,
        Section::Nats,
        Section::Retry,
        Section::Recorder,
    ])?;
    let store = context.connect(&config).await?;
    known(&store, &filter).await?;
    let terms = config.terms();
    // What fails from now on is the next run's, or a delivery that fails at once would never end.
    let now = store.time().await?;
    filter.until = Some(filter.until.map_or(now, |until| until.min(now)));
    let mut letters = Letters::new(context, &config);
    let doing = match action {
        Action::Replay => "replaying",
        Action::Discard => "discarding",
    };
    let bar = progress::bar(doing, None, context.output.json);
    let (mut done, mut removed, mut found) = (0_u64, 0_u64, 0_u64);
    let mut refused: BTreeMap<Refusal, Alike> = BTreeMap::new();
    let mut refusals = Vec::new();
    let mut after = None;
    loop {
        let page = store
            .dead_letters(&filter, Order::OldestFirst, after, PAGE)
            .await?;
        let series: Vec<Series> = page.items.iter().map(|letter| letter.series).collect();
        found += series.len() as u64;
        let step = step(&store, &series, action, dry_run, terms).await?;
        done += step.done;
        if !dry_run {
            removed += letters.remove(step.gone).await;
        }
        for (series, why) in step.refused {
            refused.entry(why).or_default().add(series.key.endpoint);
            if refusals.len() < NAMED {
                refusals.push(Refused {
                    message: series.key.message.to_string(),
                    endpoint: series.key.endpoint.to_string(),
                    reason: why.as_str(),
                });
            }
        }
        bar.set_position(found);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    if found == 0 && filter.message.is_some() {
        return Err(none_of(&filter));
    }
    let of = |this: Action| (action == this).then_some(done);
    let counts = refused.iter().map(|(why, of)| (why.as_str(), of.count));
    let answer = Answer {
        dry_run,
        replayed: of(Action::Replay),
        discarded: of(Action::Discard),
        refused: counts.collect(),
        refusals,
        removed,
    };
    context
        .output
        .print(&answer, || human(&answer, &refused, action, done))?;
    if dry_run || done > 0 || refused.is_empty() {
        return Ok(());
    }
    let told = refused.iter().map(|(why, of)| why.told(of.endpoint));
    let told: Vec<String> = told.collect();
    Err(Failure::new(
        ErrorCode::Conflict,
        format!("nothing is delivered again: {}", told.join("; or ")),
    ))
}

/// What one page came to.
#[derive(Default)]
struct Step {
    done: u64,
    refused: Vec<(Series, Refusal)>,
    /// What has nothing to look for in the stream any more.
    gone: Vec<(Series, Filed)>,
}

async fn step(
    store: &Store,
    series: &[Series],
    action: Action,
    dry_run: bool,
    terms: Terms,
) -> Result<Step, Failure> {
    let mut step = Step::default();
    match (action, dry_run) {
        (Action::Discard, true) => step.done = series.len() as u64,
        (Action::Discard, false) => {
            let discarded = store.discard(series).await?;
            step.done = discarded.len() as u64;
            let filed = discarded.into_iter();
            step.gone = filed.filter_map(|(s, filed)| Some((s, filed?))).collect();
        }
        (Action::Replay, dry_run) => {
            let outcomes = if dry_run {
                store.may_replay(series, terms).await?
            } else {
                store.replay(series, terms).await?
            };
            for (series, outcome) in series.iter().zip(outcomes) {
                match outcome {
                    Ok(filed) => {
                        step.done += 1;
                        step.gone.extend(filed.map(|filed| (*series, filed)));
                    }
                    Err(refusal) => step.refused.push((*series, refusal)),
                }
            }
        }
    }
    Ok(step)
}

fn human(answer: &Answer, refused: &BTreeMap<Refusal, Alike>, action: Action, done: u64) -> String {
    let mut text = match (action, answer.dry_run) {
        (Action::Replay, false) => format!("{done} replayed"),
        (Action::Replay, true) => format!("{done} would be replayed"),
        (Action::Discard, false) => format!("{done} discarded"),
        (Action::Discard, true) => format!("{done} would be discarded"),
    };
    for (why, alike) in refused {
        let (reason, told) = (why.as_str(), why.told(alike.endpoint));
        text.push_str(&format!("\n{} refused ({reason}): {told}", alike.count));
        let named = answer.refusals.iter().filter(|r| r.reason == reason);
        for refused in named {
            text.push_str(&format!("\n  {} to {}", refused.message, refused.endpoint));
        }
    }
    text
}
