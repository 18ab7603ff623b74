//! Carries out the tricks of endpoints and their links, and notes when answers may have been lost.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::notes::{Dealt, Notes};
use super::schedule::{Planned, Trick};
use super::strike::let_go;
use crate::bench::Bench;
use crate::judge::Hidden;
use crate::receiver::Behaviour;

/// An answer that was on its way when a link was cut may have been given a little before, and what
/// a stalled link held back comes a little after, in microseconds.
const AROUND: u64 = 1_000_000;

/// Plays them all, each not before its time; afterwards every endpoint behaves as `usual` says.
pub(super) async fn play(
    bench: &Bench,
    begun: u64,
    tricks: &[Planned<Trick>],
    usual: impl Fn(u32) -> Behaviour,
) -> Result<Notes> {
    let mut notes = Notes::default();
    for planned in tricks {
        let due = bench.epoch.instant(begun) + planned.at;
        bench
            .pause(due.saturating_duration_since(Instant::now()))
            .await?;
        let from = bench.epoch.micros();
        let hidden = match planned.fault {
            Trick::Behave(endpoint, behaviour, time) => {
                bench.receiver.behave(endpoint, behaviour);
                bench.pause(time).await?;
                bench.receiver.behave(endpoint, usual(endpoint));
                None
            }
            Trick::Cut(endpoint, cut) => {
                bench.links[endpoint as usize].cut(cut);
                Some(endpoint)
            }
            Trick::Stall(endpoint, time, end) => {
                let link = &bench.links[endpoint as usize];
                link.stall();
                let paused = bench.pause(time).await;
                let_go(link, end);
                paused?;
                Some(endpoint)
            }
        };
        let to = bench.epoch.micros();
        if let Some(endpoint) = hidden {
            notes.hidden.push(Hidden {
                endpoint,
                from: from.saturating_sub(AROUND),
                to: to + AROUND,
            });
        }
        notes.dealt.push(Dealt {
            at: from.saturating_sub(begun) as f64 / 1e6,
            took: Duration::from_micros(to - from).as_secs_f64(),
            what: planned.fault.text(),
        });
    }
    Ok(notes)
}
