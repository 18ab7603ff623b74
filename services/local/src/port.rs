//! Free loopback ports.
//!
//! Ports are taken from below the range the kernel gives to outgoing connections: a server that
//! is killed and restarted on its port must not find that port taken by some client's socket in
//! the meantime.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use crate::error::{Doing, Error};

const LOWEST: u16 = 12_000;
const TRIES: usize = 200;
const FILE: &str = "port";

/// A random number without a dependency: every `RandomState` has fresh keys.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The first port of the kernel's range for outgoing connections.
fn ephemeral_start() -> u16 {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .filter(|start| *start > LOWEST + 1_000)
        .unwrap_or(32_768)
}

/// Whether nothing listens on `port`.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A port that is free at this moment. Somebody else may take it before the caller does: who
/// starts a server on it tries again with another port when that server ends at once.
///
/// # Errors
/// Where no port can be had at all.
pub fn free() -> Result<u16, Error> {
    let span = u64::from(ephemeral_start() - LOWEST);
    for _ in 0..TRIES {
        let port = LOWEST + u16::try_from(random() % span).unwrap_or(0);
        if is_free(port) {
            return Ok(port);
        }
    }
    let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .doing(|| "looking for a free port".to_owned())?;
    Ok(any.port())
}

/// The port a server in `dir` had last time, so that URLs people noted keep working.
pub(crate) fn remembered(dir: &Path) -> Option<u16> {
    std::fs::read_to_string(dir.join(FILE))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Notes the port of the server in `dir`; only a convenience, so failing is no error.
pub(crate) fn remember(dir: &Path, port: u16) {
    let _ = std::fs::write(dir.join(FILE), format!("{port}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_port_can_be_bound_and_is_below_the_kernels_own_range() {
        let port = free().unwrap();
        assert!((LOWEST..ephemeral_start()).contains(&port));
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn a_port_in_use_is_not_free() {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(held.local_addr().unwrap().port()));
    }
}
