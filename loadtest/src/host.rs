//! What a run runs on, as far as it bears on the figures.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::epoch::Epoch;
use crate::report::Host;

const BLOCK: usize = 4096;
const WRITES: usize = 51;

/// Looks at the host. `dir` is on the disk that PostgreSQL uses.
///
/// # Errors
/// Where a file there can't be written.
pub fn look(dir: &Path) -> Result<Host> {
    Ok(Host {
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        sync_ms: sync_time(dir).context("measuring the disk")?,
    })
}

fn sync_time(dir: &Path) -> std::io::Result<f64> {
    let path = dir.join("sync-test");
    let mut file = File::create(&path)?;
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        file.write_all(&[0x5a; BLOCK])?;
        let begun = Epoch::begin();
        file.sync_data()?;
        times.push(begun.micros());
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok(times[WRITES / 2] as f64 / 1e3)
}
