//! Serves connections: reads requests, records them, carries out the scripted replies.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::http::{Head, Reader};
use super::record::path_of;
use super::reply::{Act, Body, Reply};
use super::{Recorded, Shared};

const ENDLESS: Bytes = Bytes::from_static(&[b'x'; 8 << 10]);

/// Accepts connections for ever; dropping the future ends them all.
pub(super) async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // Out of file descriptors, say: the client sees its connection wait.
                let Ok((stream, _)) = accepted else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let number = shared.records().connected();
                let (tls, shared) = (tls.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    match tls {
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                Connection::new(stream, number, shared).run().await;
                            }
                        }
                        None => Connection::new(stream, number, shared).run().await,
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A stream whose connection can be reset.
trait Resettable: AsyncRead + AsyncWrite + Unpin {
    /// Makes the coming close a reset.
    fn arm_reset(&self);
}

impl Resettable for TcpStream {
    fn arm_reset(&self) {
        let _ = self.set_zero_linger();
    }
}

impl Resettable for TlsStream<TcpStream> {
    fn arm_reset(&self) {
        self.get_ref().0.arm_reset();
    }
}

struct Connection<S> {
    stream: S,
    number: u64,
    reader: Reader,
    shared: Arc<Shared>,
}

/// Counts one request as in flight; dropped before `answered`, it counts as broken off.
struct InFlight {
    shared: Arc<Shared>,
    path: String,
    answered: bool,
}

impl InFlight {
    fn begin(shared: &Arc<Shared>, target: &str) -> Self {
        let path = path_of(target).to_owned();
        shared.records().begin(&path);
        Self {
            shared: Arc::clone(shared),
            path,
            answered: false,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.records().end(&self.path, self.answered);
        self.shared.changed.notify_waiters();
    }
}

/// What follows a reply.
#[derive(PartialEq, Eq)]
enum Then {
    NextRequest,
    Close,
}

impl<S: Resettable> Connection<S> {
    fn new(stream: S, number: u64, shared: Arc<Shared>) -> Self {
        Self {
            stream,
            number,
            reader: Reader::new(),
            shared,
        }
    }

    /// Serves requests until either side ends the connection. What breaks it is part of the
    /// game and shows in the counts.
    async fn run(mut self) {
        while let Ok(Some(head)) = self.reader.head(&mut self.stream).await {
            match self.request(head).await {
                Ok(Then::NextRequest) => {}
                Ok(Then::Close) | Err(_) => break,
            }
        }
        // TLS says goodbye; on an armed reset it does no harm.
        let _ = self.stream.shutdown().await;
    }

    async fn request(&mut self, head: Head) -> io::Result<Then> {
        let (at, wall) = (Instant::now(), SystemTime::now());
        let mut in_flight = InFlight::begin(&self.shared, &head.target);
        let reply = self.shared.next(&in_flight.path);
        let keep = !self.shared.records().is_full();
        let mut body = BytesMut::new();
        let length = head.length;
        let mut read = Ok(());
        if !reply.early {
            read = self
                .reader
                .body(&mut self.stream, length, keep.then_some(&mut body))
                .await;
        }
        let complete = read.is_ok() && !reply.early;
        let client_closes = head.close;
        let connection = self.number;
        let record = |body: BytesMut, complete: bool| Recorded {
            method: head.method,
            target: head.target,
            headers: head.headers,
            body: body.freeze(),
            complete,
            at,
            wall,
            connection,
        };
        if !reply.early {
            self.shared.arrived(record(body, complete));
            read?;
            let then = self.reply(&reply, client_closes).await?;
            in_flight.answered = reply.answers();
            return Ok(then);
        }
        let then = self.reply(&reply, client_closes).await;
        let reads_on = matches!(reply.act, Act::Answer { .. });
        if reads_on && then.is_ok() {
            read = self
                .reader
                .body(&mut self.stream, length, keep.then_some(&mut body))
                .await;
        }
        let complete = reads_on && read.is_ok();
        self.shared.arrived(record(body, complete));
        in_flight.answered = then.is_ok() && reply.answers();
        read?;
        then
    }

    async fn reply(&mut self, reply: &Reply, client_closes: bool) -> io::Result<Then> {
        if !reply.delay.is_zero() {
            // A client that gives up meanwhile is no longer in flight.
            tokio::select! {
                () = sleep(reply.delay) => {}
                () = self.reader.gone(&mut self.stream) => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
        }
        match &reply.act {
            Act::Answer {
                status,
                headers,
                body,
            } => {
                let close = reply.close || client_closes;
                self.answer(*status, headers, body, close).await
            }
            Act::Raw(bytes) => {
                self.write(bytes).await?;
                Ok(Then::Close)
            }
            Act::HalfClose(bytes) => {
                self.write(bytes).await?;
                self.stream.shutdown().await?;
                self.reader.until_gone(&mut self.stream).await;
                Ok(Then::Close)
            }
            Act::Hang => {
                self.reader.until_gone(&mut self.stream).await;
                Ok(Then::Close)
            }
            Act::Reset => {
                self.stream.arm_reset();
                Ok(Then::Close)
            }
            Act::Close | Act::CloseUnread => Ok(Then::Close),
        }
    }

    async fn answer(
        &mut self,
        status: u16,
        headers: &[(String, String)],
        body: &Body,
        close: bool,
    ) -> io::Result<Then> {
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if close {
            head.push_str("Connection: close\r\n");
        }
        let length = match body {
            Body::Whole(bytes) => Some(bytes.len() as u64),
            Body::Drip { chunk, times, .. } => Some(chunk.len() as u64 * u64::from(*times)),
            Body::CutShort { announced, .. } => Some(*announced),
            Body::Endless => None,
        };
        match length {
            // These two have no body, and may not announce one.
            Some(_) if status == 204 || status < 200 => {}
            Some(length) => {
                let _ = write!(head, "Content-Length: {length}\r\n");
            }
            None => head.push_str("Transfer-Encoding: chunked\r\n"),
        }
        head.push_str("\r\n");
        match body {
            Body::Whole(bytes) => {
                // In one write, as a real server's small answer comes in one packet.
                let mut all = head.into_bytes();
                all.extend_from_slice(bytes);
                self.write(&all).await?;
            }
            Body::Drip {
                chunk,
                every,
                times,
            } => {
                self.write(head.as_bytes()).await?;
                for _ in 0..*times {
                    sleep(*every).await;
                    self.write(chunk).await?;
                }
            }
            Body::Endless => {
                self.write(head.as_bytes()).await?;
                loop {
                    self.write(format!("{:x}\r\n", ENDLESS.len()).as_bytes())
                        .await?;
                    self.write(&ENDLESS).await?;
                    self.write(b"\r\n").await?;
                }
            }
            Body::CutShort { sent, .. } => {
                self.write(head.as_bytes()).await?;
                self.write(sent).await?;
                self.stream.arm_reset();
                return Ok(Then::Close);
            }
        }
        Ok(if close {
            Then::Close
        } else {
            Then::NextRequest
        })
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }
}

impl Shared {
    fn arrived(&self, request: Recorded) {
        self.records().arrived(request);
        self.changed.notify_waiters();
    }
}

impl Reply {
    /// Whether carrying this out to the end gives the client an answer.
    fn answers(&self) -> bool {
        matches!(
            &self.act,
            Act::Answer {
                body: Body::Whole(_) | Body::Drip { .. },
                ..
            } | Act::Raw(_)
                | Act::HalfClose(_)
        )
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        400 => "Bad Request",
        404 => "Not Found",
        410 => "Gone",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Scripted",
    }
}
