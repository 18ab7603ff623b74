//! A binary that runs until it is told to stop, with its log.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hooklane_testkit::wait::{until, until_some};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bench::Bench;

/// A running binary; killed where a test fails.
#[derive(Debug)]
pub(crate) struct Process {
    child: std::sync::Mutex<Child>,
    log: std::path::PathBuf,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) log: String,
}

impl Process {
    pub(crate) fn start(bench: &Bench, args: &[&str]) -> Self {
        Self::of(bench, bench.command(args))
    }

    /// Starts a command of the bench's.
    pub(crate) fn of(bench: &Bench, mut command: Command) -> Self {
        let log = bench.dir().join(format!("{}.log", rand::random::<u64>()));
        let file = std::fs::File::create(&log).unwrap();
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Self {
            child: child.into(),
            log,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The CPU time that it has used, to a hundredth of a second.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        // Fields 14 and 15 are user and system time; the name, field 2, may have blanks in it.
        let fields = stat.rsplit(')').next().unwrap().split_whitespace();
        let ticks: u64 = fields
            .skip(11)
            .take(2)
            .map(|n| n.parse::<u64>().unwrap())
            .sum();
        Duration::from_millis(10 * ticks)
    }

    /// Sends a signal, by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.id();
        let sent = Command::new("kill")
            .args([format!("-{name}"), id.to_string()])
            .status()
            .unwrap();
        assert!(sent.success(), "{}", self.log());
    }

    /// Waits until the log has a text in it.
    pub(crate) async fn wait_for_log(&self, text: &str, budget: Duration) {
        until(text, budget, || async { self.log().contains(text) })
            .await
            .unwrap_or_else(|error| panic!("{error}: {}", self.log()));
    }

    /// Waits for the end.
    pub(crate) async fn wait(self, budget: Duration) -> Ended {
        let status = until_some("the process to end", budget, || async {
            self.child.lock().unwrap().try_wait().unwrap()
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", self.log()));
        Ended {
            code: status.code().unwrap_or(-1),
            log: self.log(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        // Ended already where all went well.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A loopback address that nobody listens at.
pub(crate) fn free_address() -> String {
    format!("127.0.0.1:{}", hooklane_local::free_port().unwrap())
}

/// Asks for a page; its status and body, `None` where nobody answers.
pub(crate) async fn http(address: &str, path: &str) -> Option<(u16, String)> {
    ask(address, "GET", path, "", "").await
}

/// Asks with any method, further header lines and a body.
pub(crate) async fn ask(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let body = answer.split_once("\r\n\r\n")?.1.to_owned();
    Some((status, body))
}
