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
use crate::error::{Doing, Error};
use crate::tools;

const POLL: Duration = Duration::from_millis(4);
const LOG_TAIL: u64 = 4_096;

/// What to run and as whom.
pub(crate) struct Spec<'a> {
    /// What an error calls it.
    pub(crate) what: &'static str,
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
    /// Starts a child and asks `ready` again and again until it says yes.
    ///
    /// # Errors
    ///
    /// When it can't be started, ends, or isn't ready within `budget`.
    pub(crate) fn start(
        spec: &Spec<'_>,
        budget: Duration,
        mut ready: impl FnMut(&Self) -> bool,
    ) -> Result<Self, Error> {
        let process = Self::spawn(spec).doing(|| format!("starting {}", spec.program.display()))?;
        let until = Instant::now() + budget;
        loop {
            if let Some(status) = process.ended() {
                return Err(Error::Exited {
                    what: spec.what,
                    status: status.to_string(),
                    log: log_tail(spec.log),
                });
            }
            if ready(&process) {
                return Ok(process);
            }
            if Instant::now() >= until {
                return Err(Error::NotReady {
                    what: spec.what,
                    budget,
                    log: log_tail(spec.log),
                });
            }
            thread::sleep(POLL);
        }
    }

    fn spawn(spec: &Spec<'_>) -> io::Result<Self> {
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
    fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Sends `signal` unless the child has ended. The lock keeps its pid from being reaped and
    /// given to somebody else in between.
    fn signal(&self, signal: Signal) {
        let mut child = self.child();
        if let Ok(None) = child.try_wait()
            && let Ok(pid) = i32::try_from(self.pid)
        {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Kills the child and everything in its process group, and reaps it.
    fn kill9(&self) {
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
    fn stop(&self, signal: Signal, budget: Duration) -> Option<ExitStatus> {
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

/// The place of a server's child, which may be down: killed, stopped, or not started yet.
///
/// Whoever starts or stops the child holds the lock meanwhile, so that two callers never start
/// two.
#[derive(Debug)]
pub(crate) struct Handle {
    process: Mutex<Option<Process>>,
    stop: &'static [Stop],
}

/// A signal, and how long the child may take to end after it.
pub(crate) type Stop = (Signal, Duration);

impl Handle {
    /// One that is down. `stop` is how its child is stopped in order: each signal in turn until
    /// it has ended, and a kill in the end.
    pub(crate) const fn down(stop: &'static [Stop]) -> Self {
        Self {
            process: Mutex::new(None),
            stop,
        }
    }

    /// The child's process id, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process()
            .as_ref()
            .filter(|process| process.ended().is_none())
            .map(Process::pid)
    }

    /// Stops the child, if it runs, and puts the one in its place that `start` starts. When that
    /// fails, the place is empty.
    pub(crate) fn restart(
        &self,
        start: impl FnOnce() -> Result<Process, Error>,
    ) -> Result<(), Error> {
        let mut held = self.process();
        end(held.take(), self.stop);
        *held = Some(start()?);
        Ok(())
    }

    /// Stops the child in order, if it runs.
    pub(crate) fn stop(&self) {
        self.stop_by(self.stop);
    }

    /// Stops the child, if it runs, by other signals than its usual ones.
    pub(crate) fn stop_by(&self, stop: &[Stop]) {
        end(self.process().take(), stop);
    }

    /// Kills the child and everything in its process group, if it runs.
    pub(crate) fn kill9(&self) {
        end(self.process().take(), &[]);
    }

    /// Suspends the child, if it runs.
    pub(crate) fn suspend(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a suspended child go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = self.process().as_ref() {
            process.signal(signal);
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a child by the first signal that does; what is left of it is killed.
fn end(process: Option<Process>, stop: &[Stop]) {
    if let Some(process) = process {
        let _ = stop
            .iter()
            .find_map(|(signal, budget)| process.stop(*signal, *budget));
    }
}

/// The last lines of a log file, for an error.
fn log_tail(path: &Path) -> String {
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
