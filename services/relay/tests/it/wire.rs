//! A subscriber that speaks NATS by hand, to see what others would see.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// One subscription.
pub(crate) struct Subscriber(BufReader<TcpStream>);

impl Subscriber {
    /// Subscribes; returns once the server has it.
    pub(crate) async fn to(url: &str, subject: &str) -> Self {
        let address = url.trim_start_matches("nats://");
        let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
        let hello = format!("CONNECT {{\"verbose\":false}}\r\nSUB {subject} 1\r\nPING\r\n");
        stream.write_all(hello.as_bytes()).await.unwrap();
        let mut subscriber = Self(stream);
        while subscriber.line().await != "PONG" {}
        subscriber
    }

    /// The next message's body.
    pub(crate) async fn next(&mut self) -> String {
        loop {
            let line = self.line().await;
            if line == "PING" {
                self.0.write_all(b"PONG\r\n").await.unwrap();
            } else if let Some(rest) = line.strip_prefix("MSG ") {
                let size: usize = rest.rsplit(' ').next().unwrap().parse().unwrap();
                let mut body = vec![0; size + 2];
                self.0.read_exact(&mut body).await.unwrap();
                body.truncate(size);
                return String::from_utf8(body).unwrap();
            }
        }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_secs(20), self.0.read_line(&mut line));
        assert_ne!(read.await.expect("a line in time").unwrap(), 0);
        line.trim_end().to_owned()
    }
}
