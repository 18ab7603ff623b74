//! TCP servers that do exactly what a test says.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// A server that gives every connection to a function.
pub(crate) struct Raw {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicU64>,
    _serving: AbortOnDropHandle<()>,
}

impl Raw {
    pub(crate) async fn start<F, Fut>(serve: F) -> Self
    where
        F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&connections);
        let serving = tokio::spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                open.spawn(serve(stream));
            }
        });
        Self {
            address,
            connections,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Reads up to the end of the head.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    head
}

/// Reads a whole request with a `Content-Length`; `false` where none came.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let head = read_head(stream).await;
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|length| length.trim().parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    !head.is_empty() && stream.read_exact(&mut body).await.is_ok()
}

/// Waits until the other side is gone.
pub(crate) async fn until_gone(stream: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}

/// Connections that are open, and the most there were at a time.
#[derive(Default)]
pub(crate) struct Gauge {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    /// Counts a connection until the returned guard is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> Open {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(now, Ordering::Relaxed);
        Open(Arc::clone(self))
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// A connection that is open.
pub(crate) struct Open(Arc<Gauge>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}
