//! Directories of local servers: where they may lie, and runs that clean up after themselves.
//!
//! A [`RunDir`] is removed when dropped. One whose process was killed stays behind, without its
//! lock; the next run beside it removes it.

use std::fs::{self, File, Permissions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::account::Account;
use crate::error::{Doing, Error};
use crate::port;

const RUN_LOCK: &str = "run.lock";
const SERVER_LOCK: &str = "server.lock";
/// A directory younger than this without a lock is being made, not abandoned.
const BEING_MADE: Duration = Duration::from_secs(60);
const REMOVE_TRIES: u32 = 20;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);

/// Makes `dir` and lets PostgreSQL's account pass through it, whatever the umask.
pub(crate) fn make_passable(dir: &Path) -> Result<(), Error> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir).doing(|| format!("making {}", dir.display()))?;
    fs::set_permissions(dir, Permissions::from_mode(0o755))
        .doing(|| format!("setting the mode of {}", dir.display()))
}

/// Takes the lock of a server's directory, held as long as the returned file is open.
pub(crate) fn lock_server(dir: &Path) -> Result<File, Error> {
    lock(dir, SERVER_LOCK)
}

fn lock(dir: &Path, name: &str) -> Result<File, Error> {
    let path = dir.join(name);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .doing(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse {
            dir: dir.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(Error::Io {
            doing: format!("locking {}", path.display()),
            source,
        }),
    }
}

/// Where servers for `home` (a `.hooklane` directory, made if missing) can live.
///
/// That is `home` itself, unless we are root and PostgreSQL's account can't enter it, as in a
/// checkout below a private home directory: then a directory of root's in the system's temporary
/// directory, the same one every time.
///
/// # Errors
///
/// When neither can be made, or the one in the temporary directory belongs to somebody else.
pub fn servers_home(home: &Path) -> Result<PathBuf, Error> {
    make_passable(home)?;
    let home = home
        .canonicalize()
        .doing(|| format!("resolving {}", home.display()))?;
    let Some(account) = Account::for_servers()? else {
        return Ok(home);
    };
    if account.can_enter(&home) {
        return Ok(home);
    }
    let mut hasher = DefaultHasher::new();
    home.hash(&mut hasher);
    let fallback = std::env::temp_dir().join(format!("hooklane-{:016x}", hasher.finish()));
    make_passable(&fallback)?;
    let facts = fallback
        .symlink_metadata()
        .doing(|| format!("looking at {}", fallback.display()))?;
    // Others may write to the temporary directory: a squatter's directory is not ours to use.
    if !facts.is_dir() || facts.uid() != 0 || !account.can_enter(&fallback) {
        return Err(Error::Unreachable {
            dir: home,
            account: account.name,
        });
    }
    Ok(fallback)
}

/// A directory of one run, removed when dropped.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    _lock: File,
}

impl RunDir {
    /// Makes `<parent>/<kind>-<random>` and removes the directories of the same kind that killed
    /// processes left.
    ///
    /// # Errors
    ///
    /// When the directory can't be made.
    pub fn create(parent: &Path, kind: &str) -> Result<Self, Error> {
        make_passable(parent)?;
        sweep(parent, kind);
        loop {
            let path = parent.join(format!("{kind}-{:08x}", port::random() as u32));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                made => made.doing(|| format!("making {}", path.display()))?,
            }
            fs::set_permissions(&path, Permissions::from_mode(0o755))
                .doing(|| format!("setting the mode of {}", path.display()))?;
            match lock(&path, RUN_LOCK) {
                Ok(lock) => return Ok(Self { path, _lock: lock }),
                // A sweep beside us took it in the moment before it was locked.
                Err(Error::InUse { .. }) => continue,
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes abandoned run directories. What can't be removed is left for the next sweep.
fn sweep(parent: &Path, kind: &str) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name
            .to_str()
            .and_then(|name| name.strip_prefix(kind)?.strip_prefix('-'))
            .is_some_and(|tail| tail.len() == 8 && tail.bytes().all(|b| b.is_ascii_hexdigit()));
        let path = entry.path();
        if !ours {
            continue;
        }
        if path.join(RUN_LOCK).exists() {
            if let Ok(_lock) = lock(&path, RUN_LOCK) {
                remove(&path);
            }
        } else if older_than(&path, BEING_MADE) {
            // A removal that was cut short.
            remove(&path);
        }
    }
}

/// Whether `path` was last changed longer ago than `age`.
fn older_than(path: &Path, age: Duration) -> bool {
    fs::metadata(path)
        .and_then(|facts| facts.modified())
        .is_ok_and(|then| then.elapsed().is_ok_and(|passed| passed > age))
}

/// Removes a directory in which a server that was just killed may still be making files.
pub(crate) fn remove(path: &Path) {
    for _ in 0..REMOVE_TRIES {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => thread::sleep(REMOVE_PAUSE),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_directory_goes_when_dropped() {
        let parent = tempfile::tempdir().unwrap();
        let run = RunDir::create(parent.path(), "test").unwrap();
        let path = run.path().to_owned();
        assert!(path.is_dir());
        drop(run);
        assert!(!path.exists());
    }

    #[test]
    fn an_abandoned_run_directory_is_swept_and_a_live_one_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let live = RunDir::create(parent.path(), "test").unwrap();
        let abandoned = parent.path().join("test-0badcafe");
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join(RUN_LOCK), "").unwrap();
        let foreign = parent.path().join("test-notes");
        fs::create_dir(&foreign).unwrap();
        let _next = RunDir::create(parent.path(), "test").unwrap();
        assert!(!abandoned.exists());
        assert!(live.path().exists());
        assert!(foreign.exists());
    }
}
