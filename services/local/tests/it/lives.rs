//! No server outlives the process or the handle that started it.
//!
//! The process that dies is this test binary, run again for the one test that waits to be killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::servers::{nats, postgres, run_dir};

const ROLE: &str = "HOOKLANE_LOCAL_IT_VICTIM";
const BUDGET: Duration = Duration::from_secs(20);

fn is_alive(pid: u32) -> bool {
    // A zombie is dead, though its pid still answers to signals.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        !state.is_some_and(|rest| rest.starts_with('Z') || rest.starts_with('X'))
    })
}

fn children_of(pid: u32) -> Vec<u32> {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) else {
        return Vec::new();
    };
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

fn wait_dead(pids: &[u32]) {
    let until = Instant::now() + BUDGET;
    while pids.iter().any(|pid| is_alive(*pid)) {
        assert!(Instant::now() < until, "of {pids:?} some are alive");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "not a test: the process that killing_the_parent_leaves_no_server_behind kills"]
fn victim() {
    let dir = std::env::var_os(ROLE).expect("started by the test that kills it");
    let dir = Path::new(&dir);
    // Started from threads that end at once, as those of a pool may.
    let at = dir.to_owned();
    let nats = thread::spawn(move || nats(&at.join("nats")))
        .join()
        .unwrap();
    let at = dir.to_owned();
    let postgres = thread::spawn(move || postgres(&at.join("postgres"), false))
        .join()
        .unwrap();
    println!("\nup {} {}", nats.pid().unwrap(), postgres.pid().unwrap());
    thread::sleep(Duration::from_secs(120));
}

#[test]
fn killing_the_parent_leaves_no_server_behind() {
    let dir = run_dir();
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lives::victim", "--ignored", "--nocapture"])
        .env(ROLE, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let up = BufReader::new(parent.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("up ").map(str::to_owned))
        .expect("the servers come up");
    let mut pids: Vec<u32> = up.split(' ').map(|pid| pid.parse().unwrap()).collect();
    let backends = children_of(pids[1]);
    assert!(!backends.is_empty(), "postgres has background workers");
    pids.extend(backends);
    // They are up although the threads that asked for them are long gone.
    assert!(pids[..2].iter().all(|pid| is_alive(*pid)));

    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_dead(&pids);
}

#[test]
fn dropping_the_handle_ends_the_server_and_its_workers() {
    let dir = run_dir();
    let nats = nats(&dir.path().join("nats"));
    let postgres = postgres(&dir.path().join("postgres"), false);
    let mut pids = vec![nats.pid().unwrap(), postgres.pid().unwrap()];
    pids.extend(children_of(pids[1]));
    drop((nats, postgres));
    wait_dead(&pids);
}
