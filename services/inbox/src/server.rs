//! Serves HTTP: connections, their number and the time that they may take.
//!
//! Owns sockets, the limits of a request's head, and that an answer which nobody reads ends. What a
//! request is answered is `receive`'s.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::receive::Receiver;

/// Most headers of a request.
const MAX_HEADERS: usize = 100;
/// Most bytes of a request's head; more is answered with 431.
const MAX_HEAD: usize = 32 * 1024;
/// How long an answer may wait to be read.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// How long open requests may take once the service stops: each has its deadline.
const DRAIN: Duration = Duration::from_secs(5);
/// How long to wait after a connection could not be taken, for want of descriptors.
const BREATHER: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets open requests end.
pub(crate) async fn serve(listener: TcpListener, receiver: Receiver, shutdown: CancellationToken) {
    let config = receiver.config();
    let connections = Arc::new(Semaphore::new(config.max_connections as usize));
    let mut http = http1::Builder::new();
    // Some senders say that they have sent all, and wait for the answer.
    http.timer(TokioTimer::new())
        .half_close(true)
        .header_read_timeout(config.head_within)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD);
    // Cut off with this future, as everything of a service is.
    let mut open = JoinSet::new();
    loop {
        let accepting = async {
            // Closed never: this process holds it.
            let permit = Arc::clone(&connections).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, (stream, remote)) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = open.join_next() => {
                panicked(ended);
                continue;
            }
            (permit, accepted) = accepting => match accepted {
                Ok((stream, remote)) => (permit, (stream, remote)),
                Err(error) => {
                    warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            },
        };
        let connection = converse(
            http.clone(),
            stream,
            remote,
            receiver.clone(),
            shutdown.clone(),
        );
        open.spawn(async move {
            connection.await;
            drop(permit);
        });
    }
    drop(listener);
    let ending = async {
        while let Some(ended) = open.join_next().await {
            panicked(ended);
        }
    };
    if tokio::time::timeout(DRAIN, ending).await.is_err() {
        warn!("requests are cut off");
    }
}

/// Whoever was served by it sees a broken connection, and nobody else anything.
fn panicked(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        error!(%error, "a connection ended early");
    }
}

async fn converse(
    http: http1::Builder,
    stream: TcpStream,
    remote: SocketAddr,
    receiver: Receiver,
    shutdown: CancellationToken,
) {
    // Small answers at once; where it can't be set they are only slower.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(READ_WITHIN));
    let stream = TokioIo::new(Box::pin(stream));
    let service =
        service_fn(|request| async { Ok::<_, Infallible>(receiver.answer(request, remote).await) });
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
