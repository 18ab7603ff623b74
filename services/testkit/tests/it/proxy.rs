//! The proxy: what passes, what a cut and a stall look like from both sides.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hooklane_testkit::proxy::{Cut, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Long enough for anything that is going to happen.
const BUDGET: Duration = Duration::from_secs(10);
/// Long enough to see that something does not happen.
const NOTHING: Duration = Duration::from_millis(150);

fn any() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

struct Link {
    proxy: Proxy,
    target: TcpListener,
}

impl Link {
    async fn new() -> Self {
        let target = TcpListener::bind(any()).await.unwrap();
        let proxy = Proxy::start(any(), target.local_addr().unwrap())
            .await
            .unwrap();
        Self { proxy, target }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address()).await.unwrap()
    }

    async fn accept(&self) -> TcpStream {
        timeout(BUDGET, self.target.accept())
            .await
            .unwrap()
            .unwrap()
            .0
    }

    /// Both ends of one connection, after a byte went each way.
    async fn pair(&self) -> (TcpStream, TcpStream) {
        let (mut client, mut server) = (self.connect().await, self.accept().await);
        client.write_all(b"a").await.unwrap();
        assert_eq!(read(&mut server, 1).await, b"a");
        server.write_all(b"b").await.unwrap();
        assert_eq!(read(&mut client, 1).await, b"b");
        (client, server)
    }
}

async fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    timeout(BUDGET, stream.read_exact(&mut bytes))
        .await
        .unwrap()
        .unwrap();
    bytes
}

async fn end(stream: &mut TcpStream) -> Result<usize, ErrorKind> {
    timeout(BUDGET, stream.read(&mut [0; 16]))
        .await
        .unwrap()
        .map_err(|error| error.kind())
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_direction_ends_by_itself() {
    let link = Link::new().await;
    let (mut client, mut server) = link.pair().await;
    client.shutdown().await.unwrap();
    assert_eq!(end(&mut server).await, Ok(0));
    server.write_all(b"still here").await.unwrap();
    assert_eq!(read(&mut client, 10).await, b"still here");
    drop(server);
    assert_eq!(end(&mut client).await, Ok(0));
}

#[tokio::test]
async fn a_cut_by_reset_is_a_reset_on_both_sides() {
    let link = Link::new().await;
    let (mut client, mut server) = link.pair().await;
    link.proxy.cut(Cut::Reset);
    assert_eq!(end(&mut client).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(end(&mut server).await, Err(ErrorKind::ConnectionReset));
    link.pair().await;
    assert_eq!(link.proxy.accepted(), 2);
}

#[tokio::test]
async fn a_cut_in_order_is_an_end_on_both_sides() {
    let link = Link::new().await;
    let (mut client, mut server) = link.pair().await;
    link.proxy.cut(Cut::Finish);
    assert_eq!(end(&mut client).await, Ok(0));
    assert_eq!(end(&mut server).await, Ok(0));
    link.pair().await;
}

#[tokio::test]
async fn a_stalled_connection_goes_on_where_it_was() {
    let link = Link::new().await;
    let (mut client, mut server) = link.pair().await;
    link.proxy.stall();
    client.write_all(b"question").await.unwrap();
    server.write_all(b"answer").await.unwrap();
    assert!(timeout(NOTHING, server.read_u8()).await.is_err());
    assert!(timeout(NOTHING, client.read_u8()).await.is_err());
    link.proxy.resume();
    assert_eq!(read(&mut server, 8).await, b"question");
    assert_eq!(read(&mut client, 6).await, b"answer");
}

#[tokio::test]
async fn a_stall_accepts_and_hides_that_a_side_is_gone() {
    let link = Link::new().await;
    let (client, mut server) = link.pair().await;
    link.proxy.stall();
    drop(client);
    let mut late = link.connect().await;
    late.write_all(b"hello").await.unwrap();
    assert!(timeout(NOTHING, server.read_u8()).await.is_err());
    assert!(timeout(NOTHING, link.target.accept()).await.is_err());
    link.proxy.resume();
    assert_eq!(end(&mut server).await, Ok(0));
    assert_eq!(read(&mut link.accept().await, 5).await, b"hello");
}

#[tokio::test]
async fn a_stalled_connection_can_be_cut() {
    let link = Link::new().await;
    let (mut client, mut server) = link.pair().await;
    link.proxy.stall();
    let mut late = link.connect().await;
    link.proxy.cut(Cut::Reset);
    assert_eq!(end(&mut client).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(end(&mut server).await, Err(ErrorKind::ConnectionReset));
    // Whether it had been taken over from the kernel when it was cut is chance; either way it
    // never reaches the target.
    let taken = timeout(NOTHING, late.read_u8()).await;
    assert!(taken.is_err() || taken.is_ok_and(|read| read.is_err()));
}

#[tokio::test]
async fn what_a_stalled_connection_takes_is_bounded() {
    let link = Link::new().await;
    let (mut client, _server) = link.pair().await;
    link.proxy.stall();
    let chunk = vec![0; 64 << 10];
    let mut taken = 0;
    while let Ok(written) = timeout(NOTHING, client.write(&chunk)).await {
        taken += written.unwrap();
        assert!(taken < 64 << 20, "took {taken} bytes");
    }
}

#[tokio::test]
async fn a_target_that_refuses_is_a_reset() {
    let link = Link::new().await;
    let Link { proxy, target } = link;
    drop(target);
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    let ended = end(&mut client).await;
    assert_eq!(ended, Err(ErrorKind::ConnectionReset));
}
