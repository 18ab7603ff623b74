//! Where fixtures keep their files: below `.hooklane` of this checkout, in the run's directory
//! when there is one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hooklane_local::{RunDir, servers_home};

/// The workspace's root, which holds this crate two levels down.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("."))
}

pub(crate) fn dot_hooklane() -> PathBuf {
    workspace().join(".hooklane")
}

/// A directory for one fixture.
pub(crate) fn run_dir(kind: &str) -> Result<RunDir> {
    let home = match variable(crate::HOME) {
        Some(home) => PathBuf::from(home),
        None => servers_home(&dot_hooklane())?,
    };
    RunDir::create(&home, kind).context("making a fixture's directory")
}

/// The value of a variable, when set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Runs what blocks off the runtime's workers.
///
/// # Errors
///
/// As `work`, or when it panics.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .context("a blocking step panicked")?
}
