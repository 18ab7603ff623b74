//! One `hooklane` process, which never outlives its handle, nor us.
//!
//! It is in a process group of its own, so that a terminal's Ctrl-C reaches only us, who then stop
//! it. Where `setpriv` (util-linux) exists, the kernel kills it when we die in whatever way. That
//! happens when the *thread* that started the child ends, so each child is started by a thread that
//! lives as long as the handle.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

const SETPRIV: &str = "/usr/bin/setpriv";
const POLL: Duration = Duration::from_millis(5);
/// What would override the run's own configuration file.
const FOREIGN: [&str; 2] = ["DATABASE_URL", "NATS_URL"];

/// A running process.
#[derive(Debug)]
pub struct Child {
    process: Mutex<std::process::Child>,
    pid: u32,
    /// Dropping it ends the thread that started the process.
    _keeper: SyncSender<()>,
}

impl Child {
    pub(super) fn start(program: &Path, args: &[&str], dir: &Path, log: &Path) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = if Path::new(SETPRIV).exists() {
            let mut command = Command::new(SETPRIV);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        for name in FOREIGN {
            command.env_remove(name);
        }
        let (started, result) = sync_channel(1);
        let (keeper, alive) = sync_channel::<()>(0);
        thread::Builder::new()
            .name("hooklane-keeper".to_owned())
            .spawn(move || {
                if started.send(command.spawn()).is_ok() {
                    // Returns when the handle is dropped, since nobody ever sends.
                    let _ = alive.recv();
                }
            })?;
        let process = result
            .recv()
            .map_err(|_| io::Error::other("the thread that starts hooklane ended early"))??;
        Ok(Self {
            pid: process.id(),
            process: Mutex::new(process),
            _keeper: keeper,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its exit status, when it has ended.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        self.process().try_wait().ok().flatten()
    }

    pub(super) fn kill9(&self) {
        let mut process = self.process();
        // Both fail only where it has ended already.
        let _ = process.kill();
        let _ = process.wait();
    }

    /// Asks it to stop and waits up to `budget` for that; then it is killed, and the answer `None`.
    pub(super) fn stop(&self, budget: Duration) -> Option<ExitStatus> {
        self.signal(Signal::SIGTERM);
        let until = Instant::now() + budget;
        while Instant::now() < until {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            thread::sleep(POLL);
        }
        self.kill9();
        None
    }

    /// Suspends it.
    pub(super) fn suspend(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub(super) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// The lock keeps its pid from being reaped and given to somebody else in between.
    fn signal(&self, signal: Signal) {
        let mut process = self.process();
        if let Ok(None) = process.try_wait()
            && let Ok(pid) = i32::try_from(self.pid)
        {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    fn process(&self) -> MutexGuard<'_, std::process::Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill9();
    }
}
