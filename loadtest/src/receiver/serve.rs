//! Connections: read a request, log it, behave as told, answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::http::{self, Head, Parsed};
use super::lie;
use super::shared::{Arrival, Behaviour, Shared};

const BUFFER: usize = 4 * 1024;
/// After a failed accept, which means too few file descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// Takes connections for ever; ends with the runtime.
pub(super) async fn listen(listener: TcpListener, endpoint: u32, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                // A connection that breaks is the client's affair: the log says how its requests
                // ended.
                tokio::spawn(async move {
                    let _ = serve(stream, endpoint, &shared).await;
                });
            }
            Err(_) => tokio::time::sleep(BREATH).await,
        }
    }
}

async fn serve(mut stream: TcpStream, endpoint: u32, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    while let Some(head) = read(&mut stream, &mut buffer, shared).await? {
        let whole = head.length + head.body;
        let arrival = shared.arrive(
            endpoint,
            head.id,
            &buffer[..head.length],
            &buffer[head.length..whole],
        );
        buffer.drain(..whole);
        answer(&mut stream, endpoint, shared, arrival).await?;
    }
    Ok(())
}

/// Reads one request into `buffer`; `None` at the end of the connection.
async fn read(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    shared: &Shared,
) -> io::Result<Option<Head>> {
    let mut head = None;
    loop {
        if head.is_none() && !buffer.is_empty() {
            match http::parse(buffer) {
                Parsed::Partial => {}
                Parsed::Head(parsed) => head = Some(parsed),
                Parsed::Malformed => {
                    shared.count_malformed();
                    stream.write_all(&http::answer(400)).await?;
                    return Ok(None);
                }
            }
        }
        if let Some(head) = head
            && buffer.len() >= head.length + head.body
        {
            return Ok(Some(head));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

async fn answer(
    stream: &mut TcpStream,
    endpoint: u32,
    shared: &Shared,
    arrival: Arrival<'_>,
) -> io::Result<()> {
    let began = Instant::now();
    loop {
        let changed = shared.changed();
        match shared.behaviour(endpoint) {
            Behaviour::Answer(status) => return reply(stream, status, arrival).await,
            Behaviour::Busy(status, seconds) => {
                stream.write_all(&http::busy(status, seconds)).await?;
                arrival.answered(status);
                return Ok(());
            }
            // The arrival, dropped, logs that there was no answer.
            Behaviour::Reset => {
                stream.set_zero_linger()?;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Behaviour::Close => return Err(io::ErrorKind::ConnectionAborted.into()),
            Behaviour::Lie(lie) => return lie::tell(stream, lie, arrival).await,
            Behaviour::Hang(time) if began.elapsed() >= time => {
                return reply(stream, 200, arrival).await;
            }
            Behaviour::Hang(time) => {
                tokio::select! {
                    () = tokio::time::sleep_until(began + time) => {}
                    () = changed => {}
                    // The arrival, dropped, logs that there was no answer.
                    () = closed(stream) => return Err(io::ErrorKind::ConnectionAborted.into()),
                }
            }
        }
    }
}

async fn reply(stream: &mut TcpStream, status: u16, arrival: Arrival<'_>) -> io::Result<()> {
    stream.write_all(&http::answer(status)).await?;
    arrival.answered(status);
    Ok(())
}

/// Returns when the client has closed the connection.
async fn closed(stream: &TcpStream) {
    match stream.peek(&mut [0]).await {
        Ok(0) | Err(_) => {}
        // The next request is there already; it is read in its turn.
        Ok(_) => std::future::pending().await,
    }
}
