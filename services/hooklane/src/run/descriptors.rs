//! The process's limit of open file descriptors.
//!
//! Every connection to an endpoint takes one, an idle one too. Systems start programs with a low
//! soft limit, often 1,024, for the sake of old ones that can't count further, and leave it to the
//! program to take what the hard limit allows.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::{info, warn};

/// As many as any process needs: some systems name a limit of a thousand million.
const ENOUGH: u64 = 1 << 20;
/// What a process has open beside its attempts and connections to the ledger: the broker, name
/// servers, logs, health, the runtime.
const BESIDE: u64 = 64;

/// Raises the soft limit as far as it may be, and warns where it stays below what a process may
/// need that makes so many attempts at a time, with so many connections to the ledger.
pub(crate) fn raise(attempts: u32, ledger: u32) {
    match raised() {
        Ok((before, now)) => {
            if now > before {
                info!(before, now, "raised the limit of open file descriptors");
            }
            let needed = u64::from(attempts) + u64::from(ledger) + BESIDE;
            if now < needed {
                warn!(
                    limit = now,
                    needed,
                    "attempts may find no file descriptor and be put off; raise the hard limit \
                     (ulimit -n, or LimitNOFILE of systemd), or lower dispatcher.max_in_flight"
                );
            }
        }
        Err(error) => warn!(%error, "the limit of open file descriptors can't be raised"),
    }
}

/// The soft limit before and now.
fn raised() -> Result<(u64, u64), Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = hard.min(ENOUGH);
    if soft >= wanted {
        return Ok((soft, soft));
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    Ok((soft, wanted))
}
