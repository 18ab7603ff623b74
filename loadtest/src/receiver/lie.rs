//! Answers that are not what they say, as broken servers and middleboxes give them.
//!
//! Each is either an answer with a valid head, which counts whatever its body does, or none at all;
//! so it is always clear what a sender should make of it. The connection ends with the lie.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::shared::Arrival;

/// What kind of lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// 200 with a body of rubbish.
    Rubbish,
    /// 200 with a body of 64 MiB.
    Oversized,
    /// 200 with a body that comes byte by byte.
    Drip,
    /// 200 with fewer bytes than announced.
    TooShort,
    /// 200 with more bytes than announced.
    TooLong,
    /// 302 to the same place.
    Redirect,
    /// Interim answers without end.
    Interim,
    /// Half a head.
    HalfHead,
    /// Another protocol's greeting.
    NotHttp,
}

impl Lie {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Rubbish,
        Self::Oversized,
        Self::Drip,
        Self::TooShort,
        Self::TooLong,
        Self::Redirect,
        Self::Interim,
        Self::HalfHead,
        Self::NotHttp,
    ];
}

const RUBBISH: &[u8; 512] = &[0xfe; 512];
const CHUNK: &[u8; 16 << 10] = &[b'x'; 16 << 10];
const CHUNKS: u32 = 4096;
const DROPS: u32 = 64;
const DROP_EVERY: Duration = Duration::from_millis(500);
/// Interim answers between two pauses, so that one liar does not take a whole core.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(5);

/// Answers a request that way.
///
/// # Errors
/// Always in the end: the connection is of no more use.
pub(super) async fn tell(stream: &mut TcpStream, lie: Lie, arrival: Arrival<'_>) -> io::Result<()> {
    let head = match lie {
        Lie::Rubbish | Lie::TooShort => Some((200, "content-length: 512\r\n")),
        Lie::Oversized => Some((200, "content-length: 67108864\r\n")),
        Lie::Drip => Some((200, "content-length: 64\r\n")),
        Lie::TooLong => Some((200, "content-length: 2\r\n")),
        Lie::Redirect => Some((302, "location: /hooks/elsewhere\r\ncontent-length: 0\r\n")),
        Lie::Interim | Lie::HalfHead | Lie::NotHttp => None,
    };
    if let Some((status, headers)) = head {
        let head = format!("HTTP/1.1 {status} Fine\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await?;
        arrival.answered(status);
        body(stream, lie).await?;
    } else {
        // The arrival, dropped, logs that there was no answer.
        nonsense(stream, lie).await?;
        drop(arrival);
    }
    // In order, so that what was sent arrives.
    stream.shutdown().await?;
    Err(io::ErrorKind::ConnectionAborted.into())
}

async fn body(stream: &mut TcpStream, lie: Lie) -> io::Result<()> {
    match lie {
        Lie::Rubbish | Lie::TooLong => stream.write_all(RUBBISH).await,
        Lie::TooShort => stream.write_all(b"{").await,
        Lie::Oversized => {
            for _ in 0..CHUNKS {
                stream.write_all(CHUNK).await?;
            }
            Ok(())
        }
        Lie::Drip => {
            for _ in 0..DROPS {
                sleep(DROP_EVERY).await;
                stream.write_all(b".").await?;
            }
            Ok(())
        }
        Lie::Redirect | Lie::Interim | Lie::HalfHead | Lie::NotHttp => Ok(()),
    }
}

async fn nonsense(stream: &mut TcpStream, lie: Lie) -> io::Result<()> {
    match lie {
        Lie::Interim => {
            let burst = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(BURST);
            // Until the client has enough of it.
            loop {
                stream.write_all(&burst).await?;
                sleep(PAUSE).await;
            }
        }
        Lie::HalfHead => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await,
        _ => stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").await,
    }
}
