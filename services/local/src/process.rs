//! One child process that never outlives its handle, nor us.
//!
//! Three things see to that. Dropping the handle kills and reaps the child. The child is in a
//! process group of its own, so a terminal's Ctrl-C reaches only us, who then stop it in order.
//! And where `setpriv` (util-linux) exists, the kernel signals the child when we die in whatever
//! way, `kill -9` included.
//!
//! That last signal is sent when the *thread* that started the child ends. Callers start servers
//! from pool threads that come and go, so every child is spawned by a thread that does nothing
//! else and lives exactly as long as the handle.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::account::Account;
use crate::tools;

const POLL: Duration = Duration::from_millis(4);
const LOG_TAIL: u64 = 4_096;

/// What to run and as whom.
pub(crate) struct Spec<'a> {
    pub(crate) program: &'a Path,
    pub(crate) args: Vec<String>,
    pub(crate) dir: &'a Path,
    pub(crate) account: Option<&'a Account>,
    pub(crate) log: &'a Path,
    /// What the child gets when we die.
    pub(crate) on_our_death: &'static str,
}

/// A running child.
#[derive(Debug)]
pub(crate) struct Process {
    child: Mutex<Child>,
    pid: u32,
    /// Dropping it ends the thread that owns the child.
    _keeper: SyncSender<()>,
}

impl Process {
    pub(crate) fn spawn(spec: &Spec<'_>) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(spec.log)?;
        let mut command = match tools::setpriv() {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", spec.on_our_death]);
                // setpriv changes the user itself: the kernel forgets the death signal when
                // the user changes afterwards.
                if let Some(account) = spec.account {
                    command.arg(format!("--reuid={}", account.uid));
                    command.arg(format!("--regid={}", account.gid));
                    command.arg("--clear-groups");
                }
                command.arg("--").arg(spec.program);
                command
            }
            None => {
                let mut command = Command::new(spec.program);
                if let Some(account) = spec.account {
                    account.apply(&mut command);
                }
                command
            }
        };
        command
            .args(&spec.args)
            .current_dir(spec.dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);

        let (started, result) = sync_channel(1);
        let (keeper, alive) = sync_channel::<()>(0);
        thread::Builder::new()
            .name("local-server".to_owned())
            .spawn(move || {
                let ended = started.send(command.spawn()).is_err();
                if !ended {
                    // Returns when the handle is dropped, since nobody ever sends.
                    let _ = alive.recv();
                }
            })?;
        let child = result
            .recv()
            .map_err(|_| io::Error::other("the thread that starts a server ended early"))??;
        Ok(Self {
            pid: child.id(),
            child: Mutex::new(child),
            _keeper: keeper,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The exit status, when it has ended.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Sends `signal` unless the child has ended. The lock keeps its pid from being reaped and
    /// given to somebody else in between.
    pub(crate) fn signal(&self, signal: Signal) {
        let mut child = self.child();
        if let Ok(None) = child.try_wait()
            && let Ok(pid) = i32::try_from(self.pid)
        {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Kills the child and everything in its process group, and reaps it.
    pub(crate) fn kill9(&self) {
        let mut child = self.child();
        if let Ok(None) = child.try_wait() {
            if let Ok(pid) = i32::try_from(self.pid) {
                let _ = kill(Pid::from_raw(-pid), Signal::SIGKILL);
            }
            let _ = child.kill();
        }
        let _ = child.wait();
    }

    /// Sends `signal` and waits up to `budget` for the end.
    pub(crate) fn stop(&self, signal: Signal, budget: Duration) -> Option<ExitStatus> {
        self.signal(signal);
        let until = Instant::now() + budget;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            thread::sleep(POLL);
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        // A panic elsewhere must not keep us from killing the child.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// What became of waiting for a server.
pub(crate) enum Waited {
    Ready,
    Ended(ExitStatus),
    TooLong,
}

/// Asks `ready` again and again until it says yes, the process ends or the budget is spent.
pub(crate) fn wait_ready(
    process: &Process,
    budget: Duration,
    mut ready: impl FnMut() -> bool,
) -> Waited {
    let until = Instant::now() + budget;
    loop {
        if let Some(status) = process.ended() {
            return Waited::Ended(status);
        }
        if ready() {
            return Waited::Ready;
        }
        if Instant::now() >= until {
            return Waited::TooLong;
        }
        thread::sleep(POLL);
    }
}

/// The last lines of a log file, for an error.
pub(crate) fn log_tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("({}: {error})", path.display()))
}
