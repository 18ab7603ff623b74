//! What each server does when asked.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hooklane_local::{
    Error, Install, Nats, NatsOptions, Postgres, PostgresOptions, Psql, RunDir, nats_server,
    postgres_bin, quiet, servers_home,
};

pub(crate) fn run_dir() -> RunDir {
    let home = match std::env::var_os("HOOKLANE_TEST_HOME") {
        Some(run) => PathBuf::from(run),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).join(".hooklane"),
    };
    RunDir::create(&servers_home(&home).unwrap(), "local-it").unwrap()
}

pub(crate) fn nats(dir: &Path) -> Nats {
    let program = nats_server(dir, Install::Never, &quiet).unwrap();
    Nats::start(&program, dir, &NatsOptions::default()).unwrap()
}

pub(crate) fn postgres(dir: &Path, durable: bool) -> Postgres {
    let bin = postgres_bin(dir, Install::Never, &quiet).unwrap();
    let options = PostgresOptions {
        durable,
        ..PostgresOptions::default()
    };
    Postgres::start(&bin, dir, &options).unwrap()
}

fn greeting(nats: &Nats) -> Option<String> {
    let stream = TcpStream::connect(("127.0.0.1", nats.port())).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    Some(line)
}

#[test]
fn nats_serves_jetstream_and_keeps_its_port_over_kill_stop_and_restart() {
    let dir = run_dir();
    let nats = nats(dir.path());
    let url = nats.url();
    assert!(greeting(&nats).unwrap().contains("\"jetstream\":true"));

    nats.kill9();
    assert_eq!(nats.pid(), None);
    assert_eq!(greeting(&nats), None);
    nats.restart().unwrap();
    assert!(greeting(&nats).is_some());

    let before = nats.pid();
    nats.restart().unwrap();
    assert_ne!(nats.pid(), before);
    nats.stop();
    assert_eq!(greeting(&nats), None);
    assert_eq!(nats.url(), url);
}

#[test]
fn wiping_the_store_removes_what_jetstream_kept() {
    let dir = run_dir();
    let nats = nats(dir.path());
    let kept = dir.path().join("jetstream/kept");
    std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
    std::fs::write(&kept, "x").unwrap();
    nats.wipe_store().unwrap();
    assert!(!kept.exists());
    assert!(greeting(&nats).is_some());
}

#[test]
fn two_servers_never_share_a_directory() {
    let dir = run_dir();
    let first = dir.path().join("nats");
    let _nats = nats(&first);
    let program = nats_server(dir.path(), Install::Never, &quiet).unwrap();
    let second = Nats::start(&program, &first, &NatsOptions::default());
    assert!(matches!(second, Err(Error::InUse { .. })), "{second:?}");
}

#[test]
fn a_server_that_can_not_start_says_why() {
    let dir = run_dir();
    let program = nats_server(dir.path(), Install::Never, &quiet).unwrap();
    let options = NatsOptions {
        extra_config: "no_such_setting: 1".to_owned(),
        ..NatsOptions::default()
    };
    let error = Nats::start(&program, &dir.path().join("nats"), &options).unwrap_err();
    assert!(matches!(error, Error::Exited { .. }), "{error}");
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[test]
fn postgres_answers_and_keeps_data_and_url_over_kill_and_stop() {
    let dir = run_dir();
    let at = dir.path().join("postgres");
    let postgres = postgres(&at, true);
    let url = postgres.url();
    let sql = Psql::new(postgres.bin(), &url);
    sql.run("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
        .unwrap();

    postgres.kill9();
    assert!(sql.run("SELECT 1").is_err());
    postgres.restart().unwrap();
    assert_eq!(sql.run("SELECT n FROM kept").unwrap(), "7");

    postgres.stop();
    postgres.restart().unwrap();
    assert_eq!(sql.run("SELECT n FROM kept").unwrap(), "7");

    drop(postgres);
    let again = self::postgres(&at, true);
    assert_eq!(again.url(), url);
    assert_eq!(sql.run("SELECT n FROM kept").unwrap(), "7");
}

#[test]
fn postgres_refuses_a_wrong_password() {
    let dir = run_dir();
    let postgres = postgres(&dir.path().join("postgres"), false);
    let wrong = format!(
        "postgres://hooklane:wrong@127.0.0.1:{}/hooklane",
        postgres.port()
    );
    let error = Psql::new(postgres.bin(), &wrong)
        .run("SELECT 1")
        .unwrap_err();
    assert!(error.to_string().contains("password"), "{error}");
    assert!(!format!("{postgres:?}").contains("hooklane:"));
}

#[test]
fn a_home_that_the_servers_account_can_not_enter_is_replaced_by_one_it_can() {
    let private = tempfile::tempdir().unwrap();
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(private.path(), mode).unwrap();
    let home = private.path().join("checkout/.hooklane");
    let place = servers_home(&home).unwrap();
    assert_eq!(servers_home(&home).unwrap(), place);
    let is_root = nix::unistd::Uid::effective().is_root();
    assert_eq!(place == home.canonicalize().unwrap(), !is_root);
    let dir = RunDir::create(&place, "local-it").unwrap();
    let postgres = postgres(dir.path(), false);
    Psql::new(postgres.bin(), &postgres.url())
        .run("SELECT 1")
        .unwrap();
    drop((postgres, dir));
    if is_root {
        std::fs::remove_dir(&place).unwrap();
    }
}

#[test]
fn a_data_directory_of_another_version_is_refused_and_kept() {
    let dir = run_dir();
    drop(postgres(dir.path(), false));
    let version = dir.path().join("data/PG_VERSION");
    std::fs::write(&version, "9\n").unwrap();
    let bin = postgres_bin(dir.path(), Install::Never, &quiet).unwrap();
    let error = Postgres::start(&bin, dir.path(), &PostgresOptions::default()).unwrap_err();
    assert!(matches!(error, Error::DataVersion { .. }), "{error}");
    assert!(version.exists());
}
