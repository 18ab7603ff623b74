//! Deciding: what was received becomes part of its entity's history, or waits, or is set aside.
//!
//! Owns when a step is made and who is told of what came out of it. Does not own the step (one
//! transaction of `hooklane-store`), the rule (`hooklane-core`) or how a body is read (`source`).
//! Several workers, in one process and in several, take different rows.

use hooklane_proto::token::Partner;
use hooklane_store::inbox::{Reason, Stepped};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::Parts;
use crate::pace::Pace;
use crate::stats::Count;

/// Steps until told to stop. A step that is cut off is undone.
pub(crate) async fn run(parts: Parts, term: CancellationToken) {
    let limits = parts.config.worker.limits();
    let mut pace = Pace::new();
    let mut unknown = 0;
    loop {
        let now = parts.clock.now();
        let stepping = parts.store.inbox_step(now, &limits, &parts.sources);
        let stepped = tokio::select! {
            biased;
            () = term.cancelled() => return,
            stepped = stepping => stepped,
        };
        let pause = match stepped {
            Ok(stepped) => {
                pace.good();
                note(&parts, &stepped);
                // Not at every step: they may stay as they are for long.
                if stepped.unknown > unknown {
                    warn!(
                        sources = stepped.unknown,
                        "events wait of sources that are not configured here"
                    );
                }
                unknown = stepped.unknown;
                if stepped.more() {
                    // Another worker may share the work.
                    parts.bells.arrived.notify_one();
                    continue;
                }
                parts.config.worker.poll
            }
            Err(fault) => pace.bad("deciding about received events", &fault),
        };
        tokio::select! {
            biased;
            () = term.cancelled() => return,
            () = parts.bells.arrived.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn note(parts: &Parts, stepped: &Stepped) {
    let Stepped {
        claimed: _,
        cut: _,
        applied,
        deferred,
        superseded,
        quarantined,
        split,
        items: _,
        panicked,
        unknown: _,
        woken: _,
        handed,
    } = stepped;
    let handle = &parts.handle;
    handle.add(Count::Applied, u64::from(*applied));
    handle.add(Count::Deferred, u64::from(*deferred));
    handle.add(Count::Superseded, u64::from(*superseded));
    handle.add(Count::Split, u64::from(*split));
    if *handed > 0 {
        parts.bells.publish.notify_one();
    }
    if *applied > 0 {
        parts.bells.ring_handlers();
    }
    if *panicked > 0 {
        error!(
            events = panicked,
            "reading events panicked; they are tried again"
        );
    }
    alarm(parts, quarantined);
}

/// Says that somebody has to look.
pub(crate) fn alarm(parts: &Parts, quarantined: &[(Partner, Reason)]) {
    parts
        .handle
        .add(Count::Quarantined, quarantined.len() as u64);
    for (partner, reason) in quarantined {
        error!(%partner, reason = reason.as_str(), "an event is in quarantine");
    }
}
