//! Databases and nats-servers of one's own.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hooklane_local::{Install, Psql, postgres_bin, quiet};
use hooklane_testkit::{nats, postgres, wait};
use tokio::net::TcpStream;

static MIGRATIONS: AtomicU32 = AtomicU32::new(0);

fn dot_hooklane() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.hooklane")
}

async fn database() -> postgres::Database {
    let migrate = |url: String| async move {
        MIGRATIONS.fetch_add(1, Ordering::Relaxed);
        let bin = postgres_bin(&dot_hooklane(), Install::Never, &quiet).unwrap();
        Psql::new(&bin, &url).run("CREATE TABLE t (n int)").unwrap();
        Ok::<_, Infallible>(())
    };
    let template = format!("testkit_{}", std::process::id());
    postgres::database(&template, migrate).await.unwrap()
}

#[tokio::test]
async fn each_test_gets_a_migrated_database_that_no_other_sees() {
    let (one, two) = tokio::join!(database(), database());
    assert_ne!(one.url(), two.url());
    one.psql("INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(one.psql("SELECT count(*) FROM t").await.unwrap(), "1");
    assert_eq!(two.psql("SELECT count(*) FROM t").await.unwrap(), "0");
    assert_eq!(MIGRATIONS.load(Ordering::Relaxed), 1);

    let (gone, server) = (one.url().to_owned(), one.server().clone());
    drop(one);
    let name = gone.rsplit('/').next().unwrap();
    let admin = server.empty().await.unwrap();
    let left = admin
        .psql(&format!(
            "SELECT count(*) FROM pg_database WHERE datname = '{name}'"
        ))
        .await
        .unwrap();
    assert_eq!(left, "0");
}

#[tokio::test]
async fn a_private_postgres_may_be_killed_and_keeps_what_was_committed() {
    let private = postgres::Server::start().await.unwrap();
    let database = private.empty().await.unwrap();
    database.psql("CREATE TABLE kept ()").await.unwrap();
    private.kill9().await.unwrap();
    assert!(database.psql("SELECT 1").await.is_err());
    private.restart().await.unwrap();
    database.psql("SELECT * FROM kept").await.unwrap();
}

#[tokio::test]
async fn a_nats_server_comes_back_on_its_port() {
    let server = nats::Server::start().await.unwrap();
    let address = server.url().strip_prefix("nats://").unwrap().to_owned();
    let listens = || async { TcpStream::connect(&address).await.is_ok() };
    assert!(listens().await);
    server.kill9().await.unwrap();
    wait::until("the port to close", Duration::from_secs(5), || async {
        !listens().await
    })
    .await
    .unwrap();
    server.restart().await.unwrap();
    assert!(listens().await);
    server.wipe_store().await.unwrap();
    assert!(listens().await);
}

#[tokio::test]
async fn two_nats_servers_are_two() {
    let (one, two) = tokio::join!(nats::Server::start(), nats::Server::start());
    assert_ne!(one.unwrap().url(), two.unwrap().url());
}

async fn nats_cli(server: &nats::Server, args: &[&str]) -> String {
    let cli = hooklane_local::nats_cli(&dot_hooklane(), Install::Never, &quiet).unwrap();
    let output = tokio::process::Command::new(cli)
        .args(["--server", server.url()])
        .args(args)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_turn_on_somebody_s_server_removes_our_streams_and_no_others() {
    let theirs = nats::Server::start().await.unwrap();
    for name in ["EVENTS", "THEIRS"] {
        let subjects = format!("--subjects={name}.>");
        nats_cli(&theirs, &["stream", "add", name, &subjects, "--defaults"]).await;
    }
    let turn = nats::Server::turn(theirs.url().to_owned()).await.unwrap();
    let left = nats_cli(&theirs, &["stream", "ls", "--names"]).await;
    assert_eq!(left.trim(), "THEIRS");
    assert!(turn.kill9().await.is_err(), "it isn't ours to kill");
    drop(turn);
    assert!(theirs.process().unwrap().pid().is_some());
}
