//! A TCP proxy that plays a bad network between two parties that behave.
//!
//! It carries bytes from whoever connects to one target, until it is told to cut or to stall. A cut
//! ends the connections that are there, by a reset or in order; new ones are carried as before. A
//! stall is the half-open network: connections are accepted and stay open, and nothing passes, not
//! even the news that a side has gone; [`Proxy::resume`] lets everything go on where it was.
//!
//! What a connection holds is bounded by two buffers and by the kernel's: a stalled or slow side
//! makes the other one wait.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// Bytes of one direction of one connection.
const BUFFER: usize = 16 << 10;
/// How long the sides of a connection that was finished may take to close theirs.
const LINGER: Duration = Duration::from_secs(2);
/// After a failed accept, which means too few file descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// How connections end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Both sides see a reset; what was on its way is lost.
    Reset,
    /// Both sides see the other close in order; what they still send is thrown away.
    Finish,
}

/// A running proxy. Dropping it closes its connections and its port.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: watch::Sender<State>,
    accepted: Arc<AtomicU64>,
    _accepting: AbortOnDropHandle<()>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    stalled: bool,
    /// How many cuts there were, and how the last one was made.
    cuts: u64,
    how: Cut,
}

impl Proxy {
    /// Carries connections to `target` from `listen`; port 0 takes a free one.
    ///
    /// # Errors
    /// When `listen` can't be had.
    pub async fn start(listen: SocketAddr, target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("listening on {listen}"))?;
        let address = listener.local_addr().context("asking for the port")?;
        let (state, _) = watch::channel(State {
            stalled: false,
            cuts: 0,
            how: Cut::Reset,
        });
        let accepted = Arc::new(AtomicU64::new(0));
        let accepting = accept(listener, target, state.clone(), Arc::clone(&accepted));
        Ok(Self {
            address,
            state,
            accepted,
            _accepting: AbortOnDropHandle::new(tokio::spawn(accepting)),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every connection that is open, a stalled one too. New ones are carried, or stalled,
    /// as before.
    pub fn cut(&self, how: Cut) {
        self.state.send_modify(|state| {
            state.cuts += 1;
            state.how = how;
        });
    }

    /// From now on nothing passes, in either direction.
    pub fn stall(&self) {
        self.state.send_modify(|state| state.stalled = true);
    }

    /// Lets everything pass again, from where it was.
    pub fn resume(&self) {
        self.state.send_modify(|state| state.stalled = false);
    }

    /// How many connections it has accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    state: watch::Sender<State>,
    accepted: Arc<AtomicU64>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((client, _)) => {
                    accepted.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(carry(client, target, state.subscribe()));
                }
                Err(_) => sleep(BREATH).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection to its end.
async fn carry(mut client: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) {
    let cuts = state.borrow_and_update().cuts;
    let (mut up, mut down) = (state.clone(), state.clone());
    let connecting = async {
        flowing(&mut up).await;
        TcpStream::connect(target).await
    };
    let connected = tokio::select! {
        biased;
        how = cut(&mut state, cuts) => return end(how, client, None).await,
        connected = connecting => connected,
    };
    let Ok(mut server) = connected else {
        return end(Cut::Reset, client, None).await;
    };
    // Small messages go at once, as they would without us between.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ended = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both = async {
            tokio::try_join!(
                pass(from_client, to_server, &mut up),
                pass(from_server, to_client, &mut down)
            )
        };
        tokio::select! {
            biased;
            how = cut(&mut state, cuts) => Some(how),
            passed = both => passed.err().map(|_broken| Cut::Reset),
        }
    };
    if let Some(how) = ended {
        end(how, client, Some(server)).await;
    }
}

/// Passes bytes on, and at last the end.
async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    state: &mut watch::Receiver<State>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        flowing(state).await;
        let count = tokio::select! {
            biased;
            () = stalled(state) => continue,
            count = from.read(&mut buffer) => count?,
        };
        // Read while it flowed; if it no longer does, this waits here.
        flowing(state).await;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}

async fn flowing(state: &mut watch::Receiver<State>) {
    wait(state, |state| !state.stalled).await;
}

async fn stalled(state: &mut watch::Receiver<State>) {
    wait(state, |state| state.stalled).await;
}

async fn cut(state: &mut watch::Receiver<State>, since: u64) -> Cut {
    wait(state, |state| state.cuts > since).await.how
}

/// Waits for a state; for ever where the proxy is gone, which ends its connections anyway.
async fn wait(state: &mut watch::Receiver<State>, is: impl FnMut(&State) -> bool) -> State {
    match state.wait_for(is).await.map(|state| *state) {
        Ok(state) => state,
        Err(_closed) => std::future::pending().await,
    }
}

async fn end(how: Cut, mut client: TcpStream, server: Option<TcpStream>) {
    match how {
        Cut::Reset => {
            // The drop that follows is the reset.
            let _ = client.set_zero_linger();
            let _ = server.as_ref().map(TcpStream::set_zero_linger);
        }
        Cut::Finish => {
            let finishing = async {
                match server {
                    Some(mut server) => {
                        tokio::join!(finish(&mut client), finish(&mut server));
                    }
                    None => finish(&mut client).await,
                }
            };
            let _ = timeout(LINGER, finishing).await;
        }
    }
}

/// Closes our direction and reads what still comes: closing with unread bytes would be a reset.
async fn finish(stream: &mut TcpStream) {
    let _ = stream.shutdown().await;
    let mut buffer = vec![0; BUFFER];
    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}
