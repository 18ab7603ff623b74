//! SIGTERM and SIGINT: the first one asks for an orderly end, the second one ends at once.

use hooklane_core::error::ErrorCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::failure::Failure;

/// What a shell answers for a process that a signal ended: 128 and the signal's number.
const INTERRUPTED: i32 = 128 + 2;
const TERMINATED: i32 = 128 + 15;

/// Cancels `shutdown` at the first signal, and ends the process at the second.
///
/// # Errors
/// Where the signals can't be listened to.
pub(crate) fn watch(shutdown: CancellationToken) -> Result<(), Failure> {
    let listen = |kind: SignalKind| {
        signal(kind).map_err(|error| {
            Failure::new(
                ErrorCode::Internal,
                format!("signals can't be listened to: {error}"),
            )
        })
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    tokio::spawn(async move {
        let name = next(&mut interrupt, &mut terminate).await.0;
        info!(signal = name, "stopping; a second signal stops at once");
        shutdown.cancel();
        let (name, code) = next(&mut interrupt, &mut terminate).await;
        warn!(signal = name, "stopping at once");
        std::process::exit(code);
    });
    Ok(())
}

async fn next(interrupt: &mut Signal, terminate: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        _ = interrupt.recv() => ("SIGINT", INTERRUPTED),
        _ = terminate.recv() => ("SIGTERM", TERMINATED),
    }
}
