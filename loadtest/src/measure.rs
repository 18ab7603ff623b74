//! What the processes cost: CPU time and memory, read from /proc.
//!
//! Linux only. Times are in the kernel's ticks of 10 ms, so differences over seconds are meant.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;

use crate::system::Pids;

/// Linux reports times to user space in hundredths of a second, whatever its own tick.
const TICKS_PER_SECOND: f64 = 100.0;
const EVERY: Duration = Duration::from_millis(100);

/// CPU seconds of each process since it began.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cpu {
    /// `hooklane up`.
    pub hooklane: f64,
    /// PostgreSQL with all its backends, those that have ended included.
    pub postgres: f64,
    /// nats-server.
    pub nats: f64,
    /// This process: generator, receiver and verifier.
    pub loadtest: f64,
}

impl Cpu {
    /// Reads it now.
    #[must_use]
    pub fn now(pids: Pids) -> Self {
        let own = |pid: Option<u32>| pid.and_then(Times::of).map_or(0.0, |times| times.own);
        Self {
            hooklane: own(pids.hooklane),
            postgres: pids.postgres.map_or(0.0, family),
            nats: own(pids.nats),
            loadtest: own(Some(std::process::id())),
        }
    }

    /// What was used since `earlier`, which was read of the same processes.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            hooklane: self.hooklane - earlier.hooklane,
            postgres: self.postgres - earlier.postgres,
            nats: self.nats - earlier.nats,
            loadtest: self.loadtest - earlier.loadtest,
        }
    }

    /// Everything but the load test itself.
    #[must_use]
    pub fn server_side(self) -> f64 {
        self.hooklane + self.postgres + self.nats
    }

    /// Each divided by so many thousands of deliveries.
    #[must_use]
    pub fn per_thousand(self, deliveries: u64) -> Self {
        let thousands = (deliveries as f64 / 1e3).max(f64::MIN_POSITIVE);
        Self {
            hooklane: self.hooklane / thousands,
            postgres: self.postgres / thousands,
            nats: self.nats / thousands,
            loadtest: self.loadtest / thousands,
        }
    }
}

/// A process's times, in seconds.
struct Times {
    own: f64,
    /// Of children that have ended.
    ended_children: f64,
}

impl Times {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name, in parentheses, may hold anything: fields are counted from behind it.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        Some(Self {
            own: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND,
            ended_children: (ticks(13)? + ticks(14)?) / TICKS_PER_SECOND,
        })
    }
}

/// A process with its children, those that have ended included.
fn family(pid: u32) -> f64 {
    // The children first: one that ends in between is then counted twice at the worst by its last
    // few ticks, and never missed.
    let living: f64 = children(pid)
        .into_iter()
        .filter_map(Times::of)
        .map(|times| times.own)
        .sum();
    Times::of(pid).map_or(0.0, |times| times.own + times.ended_children) + living
}

fn children(pid: u32) -> Vec<u32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Bytes of resident memory of each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Memory {
    /// `hooklane up`.
    pub hooklane: u64,
    /// PostgreSQL's processes: what each has for itself, and the shared memory once.
    pub postgres: u64,
    /// nats-server.
    pub nats: u64,
    /// This process.
    pub loadtest: u64,
}

impl Memory {
    /// Reads it now.
    #[must_use]
    pub fn now(pids: Pids) -> Self {
        let rss = |pid: Option<u32>| pid.and_then(Resident::of).map_or(0, |r| r.whole);
        let postgres = pids.postgres.map_or(0, |pid| {
            let mut shared = 0;
            let mut own = 0;
            for resident in std::iter::once(pid)
                .chain(children(pid))
                .filter_map(Resident::of)
            {
                own += resident.anonymous;
                shared = shared.max(resident.shared);
            }
            own + shared
        });
        Self {
            hooklane: rss(pids.hooklane),
            postgres,
            nats: rss(pids.nats),
            loadtest: rss(Some(std::process::id())),
        }
    }

    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            hooklane: self.hooklane.max(other.hooklane),
            postgres: self.postgres.max(other.postgres),
            nats: self.nats.max(other.nats),
            loadtest: self.loadtest.max(other.loadtest),
        }
    }
}

struct Resident {
    whole: u64,
    anonymous: u64,
    shared: u64,
}

impl Resident {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some(kilobytes * 1024)
        };
        Some(Self {
            whole: bytes("VmRSS:")?,
            anonymous: bytes("RssAnon:")?,
            shared: bytes("RssShmem:")?,
        })
    }
}

/// Watches memory from a thread of its own until dropped.
#[derive(Debug)]
pub struct Watch {
    peak: Arc<Mutex<Memory>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    /// Where the thread can't be started.
    pub fn start(pids: Pids) -> std::io::Result<Self> {
        let peak = Arc::new(Mutex::new(Memory::now(pids)));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("memory".to_owned()).spawn({
            let (peak, stop) = (Arc::clone(&peak), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let now = Memory::now(pids);
                    let mut peak = peak.lock().unwrap_or_else(PoisonError::into_inner);
                    *peak = peak.max(now);
                    drop(peak);
                    thread::sleep(EVERY);
                }
            }
        })?;
        Ok(Self {
            peak,
            stop,
            thread: Some(thread),
        })
    }

    /// The most of each process since the watch began.
    #[must_use]
    pub fn peak(&self) -> Memory {
        *self.peak.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_whatever_the_process_is_called() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 30 20 20 0 1 0 5 6 7";
        let times = Times::parse(stat).unwrap();
        assert!((times.own - 2.0).abs() < 1e-9);
        assert!((times.ended_children - 0.5).abs() < 1e-9);
    }

    #[test]
    fn our_own_memory_and_time_are_there() {
        let pids = Pids {
            hooklane: Some(std::process::id()),
            nats: None,
            postgres: None,
        };
        let memory = Memory::now(pids);
        assert!(memory.loadtest > 1024 * 1024 && memory.nats == 0);
        assert!(Watch::start(pids).unwrap().peak().hooklane > 1024 * 1024);
        let before = Cpu::now(pids);
        let mut sum = 0_u64;
        while Cpu::now(pids).since(before).loadtest == 0.0 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
