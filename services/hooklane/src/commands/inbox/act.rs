//! Replaying and discarding what is in quarantine: events by their ids, or all that options leave.
//!
//! Each step is a transaction of its own: cut off, the command is simply run again, since what was
//! acted upon is in quarantine no more. Many are begun with the oldest, and no faster than `--rate`,
//! so that the handlers behind them are not flooded.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use hooklane_core::clock;
use hooklane_core::error::ErrorCode;
use hooklane_proto::id::InboxId;
use hooklane_store::Store;
use hooklane_store::inbox::{Done, Filter, Status};
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{Act, unless_configured};
use crate::context::Context;
use crate::failure::Failure;
use crate::progress;

/// Events of a page of the listing.
const PAGE: u32 = 1_000;
/// Events of one run: 16 bytes of memory each.
const MOST: usize = 1_000_000;
/// Events of one transaction.
const STEP: usize = 500;
/// Steps a second at the most.
const STEPS: u32 = 10;
/// Refused events that are named.
const NAMED: usize = 20;

/// What is done with events in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Replay,
    Discard,
}

impl Action {
    const fn doing(self) -> &'static str {
        match self {
            Self::Replay => "replaying",
            Self::Discard => "discarding",
        }
    }

    const fn done(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Discard => "discarded",
        }
    }
}

#[derive(Debug, Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discarded: Option<u64>,
    /// Those that were left alone, by what they are instead of in quarantine.
    left: BTreeMap<&'static str, u64>,
    /// The first of them.
    left_events: Vec<Left>,
}

#[derive(Debug, Serialize)]
struct Left {
    id: String,
    /// Its status, or `not_found`.
    status: &'static str,
}

pub(super) async fn run(context: &Context, args: Act, action: Action) -> Result<(), Failure> {
    let Act {
        mut ids,
        which,
        all,
        yes,
        rate,
    } = args;
    let filter = which.filter(Some(Status::Quarantined))?;
    let everything = Filter {
        status: Some(Status::Quarantined),
        ..Filter::default()
    };
    let narrowed = filter != everything;
    match (ids.is_empty(), narrowed, all) {
        (false, true, _) => {
            return Err(Failure::usage(
                "name events or narrow what is meant, not both (see --help)",
            ));
        }
        (true, false, false) => {
            return Err(Failure::usage(
                "name events, narrow what is meant (see --help), or give --all",
            ));
        }
        _ => {}
    }
    let by_name = !ids.is_empty();
    let store = context.store().await?;
    if by_name {
        ids.sort_unstable();
        ids.dedup();
    } else {
        ids = quarantined(context, &store, &filter).await?;
        if ids.is_empty() {
            unless_configured(context, filter.partner.as_ref())?;
        } else if !yes && !confirmed(context, ids.len(), action) {
            return Err(Failure::usage(format!(
                "{} events would be {}, and nothing was done; to do it: --yes",
                ids.len(),
                action.done()
            )));
        }
    }
    let outcomes = work(context, &store, &ids, action, rate).await?;
    answer(context, &outcomes, action, by_name)
}

/// What is in quarantine now, the oldest first.
async fn quarantined(
    context: &Context,
    store: &Store,
    filter: &Filter,
) -> Result<Vec<InboxId>, Failure> {
    let bar = progress::bar("looking", None, context.output.json);
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = store.inbox_events(filter, after, PAGE).await?;
        ids.extend(page.items.iter().map(|row| row.id));
        bar.set_position(ids.len() as u64);
        if ids.len() > MOST {
            return Err(Failure::new(
                ErrorCode::LimitExceeded,
                format!("more than {MOST} events are meant; narrow them with --since and --until"),
            ));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    ids.reverse();
    Ok(ids)
}

async fn work(
    context: &Context,
    store: &Store,
    ids: &[InboxId],
    action: Action,
    rate: u32,
) -> Result<Vec<(InboxId, Done)>, Failure> {
    let (step, pause) = paced(rate);
    let mut ticks = interval_at(Instant::now(), pause);
    // A step that took long is no reason for a burst behind it.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let bar = progress::bar(action.doing(), Some(ids.len() as u64), context.output.json);
    let mut outcomes = Vec::with_capacity(ids.len());
    for part in ids.chunks(step) {
        ticks.tick().await;
        let now = clock::now();
        let done = match action {
            Action::Replay => store.inbox_replay(now, part).await?,
            Action::Discard => store.inbox_discard(now, part).await?,
        };
        outcomes.extend(done);
        bar.set_position(outcomes.len() as u64);
    }
    bar.finish_and_clear();
    Ok(outcomes)
}

/// How many at a time, and how often, for so many a second.
fn paced(rate: u32) -> (usize, Duration) {
    let step = usize::try_from(rate.div_ceil(STEPS))
        .unwrap_or(STEP)
        .clamp(1, STEP);
    let pause = step as f64 / f64::from(rate.max(1));
    (step, Duration::from_secs_f64(pause))
}

fn answer(
    context: &Context,
    outcomes: &[(InboxId, Done)],
    action: Action,
    by_name: bool,
) -> Result<(), Failure> {
    let mut count = 0;
    let mut left: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut left_events = Vec::new();
    for (id, done) in outcomes {
        let status = match done {
            Done::Done => {
                count += 1;
                continue;
            }
            Done::NotThere => "not_found",
            Done::Not(status) => status.as_str(),
        };
        *left.entry(status).or_default() += 1;
        if left_events.len() < NAMED {
            let id = id.to_string();
            left_events.push(Left { id, status });
        }
    }
    let answer = Answer {
        replayed: (action == Action::Replay).then_some(count),
        discarded: (action == Action::Discard).then_some(count),
        left,
        left_events,
    };
    context
        .output
        .print(&answer, || human(&answer, action, count))?;
    // What left quarantine while a filter was worked off is nobody's mistake.
    if !by_name || count > 0 {
        return Ok(());
    }
    let code = match answer.left.keys().all(|status| *status == "not_found") {
        true => ErrorCode::NotFound,
        false => ErrorCode::Conflict,
    };
    Err(Failure::new(
        code,
        format!(
            "nothing was {}: only events in quarantine are; list them with: hooklane inbox list \
             --status QUARANTINED",
            action.done()
        ),
    ))
}

fn human(answer: &Answer, action: Action, count: u64) -> String {
    let mut text = format!("{count} {}", action.done());
    for (status, count) in &answer.left {
        text.push_str(&format!("\n{count} left alone ({status})"));
        for left in answer.left_events.iter().filter(|l| l.status == *status) {
            text.push_str(&format!("\n  {}", left.id));
        }
    }
    text
}

/// Asks a person; where there is none, the answer is no.
fn confirmed(context: &Context, count: usize, action: Action) -> bool {
    if context.output.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    let mut stderr = std::io::stderr().lock();
    let verb = match action {
        Action::Replay => "replay",
        Action::Discard => "discard",
    };
    let asked = write!(stderr, "{verb} {count} events? [y/N] ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    asked.is_ok()
        && std::io::stdin().read_line(&mut answer).is_ok()
        && matches!(answer.trim(), "y" | "Y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_becomes_steps_that_keep_to_it() {
        for rate in [1, 7, 100, 3_333, 10_000] {
            let (step, pause) = paced(rate);
            let a_second = step as f64 / pause.as_secs_f64();
            assert!(
                (a_second - f64::from(rate)).abs() < 0.01,
                "{rate}: {a_second}"
            );
            assert!((1..=STEP).contains(&step), "{rate}: {step}");
        }
        assert_eq!(paced(1), (1, Duration::from_secs(1)));
    }
}
