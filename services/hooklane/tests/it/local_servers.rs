//! `hooklane up --local` when one of its own servers ends under it.

use std::process::Command;

use crate::bench::Bench;
use crate::process::{Process, free_address};
use crate::system::{BUDGET, ready};

#[tokio::test(flavor = "multi_thread")]
async fn up_local_ends_with_the_name_of_the_server_that_ended() {
    for (program, code, name) in [
        ("nats-server", "nats_unavailable", "nats-server"),
        ("postgres", "postgres_unavailable", "PostgreSQL"),
    ] {
        let mut bench = Bench::bare();
        bench.with_tools();
        let health = free_address();
        bench.set("HOOKLANE__HEALTH__LISTEN", health.as_str());
        bench.set("HOOKLANE__API__LISTEN", "127.0.0.1:0");
        let up = Process::start(&bench, &["up", "--local", "--json"]);
        ready(&health).await;
        let server = child(up.id(), program);
        let killed = Command::new("kill").args(["-KILL", &server]).status();
        assert!(killed.unwrap().success());
        let ended = up.wait(BUDGET).await;
        assert_eq!(ended.code, 69, "{}", ended.log);
        assert!(ended.log.contains(code), "{}", ended.log);
        let told = format!("{name} ended by itself");
        assert!(ended.log.contains(&told), "{}", ended.log);
    }
}

/// The child of a process that runs this program.
fn child(parent: u32, program: &str) -> String {
    let found = Command::new("pgrep")
        .args(["-x", "-P", &parent.to_string(), program])
        .output()
        .unwrap();
    let text = String::from_utf8(found.stdout).unwrap();
    let id = text.lines().next();
    id.unwrap_or_else(|| panic!("{parent} has no child {program}"))
        .to_owned()
}
