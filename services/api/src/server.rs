//! Serves HTTP: connections, their number and the time that they may take.
//!
//! `axum::serve` has no setting for how long a request's head may take or how many headers it may
//! have; a client that sends one byte a minute would hold its connection for ever. Nor has hyper one
//! for how long an answer may wait to be read.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::Config;

/// Most headers of a request.
const MAX_HEADERS: usize = 64;
/// Most bytes of a request's head.
const MAX_HEAD: usize = 32 * 1024;
/// How long open requests may take once the service stops.
const DRAIN: Duration = Duration::from_secs(10);
/// How long to wait after a connection could not be taken, for want of descriptors.
const BREATHER: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets open requests end.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    config: &Config,
    shutdown: CancellationToken,
) {
    let connections = Arc::new(Semaphore::new(config.max_connections as usize));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(config.head_within)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD);
    let open = TaskTracker::new();
    loop {
        let accepting = async {
            // Closed never: this process holds it.
            let permit = Arc::clone(&connections).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, stream) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            (permit, accepted) = accepting => match accepted {
                Ok((stream, _)) => (permit, stream),
                Err(error) => {
                    warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            },
        };
        let patience = config.body_within;
        let router = router.clone();
        let connection = converse(http.clone(), stream, patience, router, shutdown.clone());
        open.spawn(async move {
            connection.await;
            drop(permit);
        });
    }
    drop(listener);
    open.close();
    if tokio::time::timeout(DRAIN, open.wait()).await.is_err() {
        warn!(open = open.len(), "requests are cut off");
    }
}

async fn converse(
    http: http1::Builder,
    stream: TcpStream,
    patience: Duration,
    router: Router,
    shutdown: CancellationToken,
) {
    // Small answers at once; where it can't be set they are only slower.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(patience));
    let stream = TokioIo::new(Box::pin(stream));
    let service = TowerToHyperService::new(router);
    let mut connection = std::pin::pin!(http.serve_connection(stream, service));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection ended early");
    }
}
