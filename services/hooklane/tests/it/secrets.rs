//! The master key: held against the ledger, and rotated.

use hooklane_testkit::wait::until;

use crate::bench::{Bench, KEY, OTHER_KEY};
use crate::process::Process;
use crate::system::{BUDGET, ready, system};

#[tokio::test]
async fn a_wrong_master_key_is_refused_at_the_start() {
    let mut bench = Bench::ledger().await;
    let id = bench.endpoint();
    for (name, key) in [("one", OTHER_KEY), ("two", KEY)] {
        bench.keys(&[(name, key)]);
        for args in [&["up"][..], &["record"], &["endpoint", "reveal", &id]] {
            let text = bench.fails(64, "wrong_master_key", args);
            assert!(text.contains("master key") && !text.contains(key), "{text}");
        }
    }
    // What needs no key goes on.
    bench.ok(&["endpoint", "show", &id]);
}

#[tokio::test]
async fn rotation_seals_everything_anew_and_can_be_repeated() {
    let mut bench = Bench::ledger().await;
    let id = bench.endpoint();
    bench.ok(&["endpoint", "update", &id, "--header", "X-A: b"]);
    bench.ok(&["endpoint", "rotate", &id]);
    let secrets = bench.json(&["endpoint", "reveal", &id]);

    let new = bench.json(&["master-key", "generate"]);
    let new = new["key"].as_str().unwrap();
    bench.keys(&[("two", new), ("one", KEY)]);
    let rotated = bench.json(&["master-key", "rotate"]);
    assert_eq!(rotated["current"], "two");
    assert_eq!(rotated["endpoints"], 1);
    assert_eq!(rotated["resealed"], 3, "two secrets and one set of headers");
    assert_eq!(bench.json(&["master-key", "rotate"])["resealed"], 0);

    bench.keys(&[("two", new)]);
    assert_eq!(bench.json(&["endpoint", "reveal", &id]), secrets);
    bench.keys(&[("one", KEY)]);
    bench.fails(64, "wrong_master_key", &["endpoint", "reveal", &id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_that_lacks_the_new_key_is_noticed() {
    let (mut bench, _nats, health) = system().await;
    bench.endpoint();
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    bench.keys(&[("two", OTHER_KEY), ("one", KEY)]);
    let what = "a dispatcher to have partitions, and a rotation to notice it";
    until(what, BUDGET, async || {
        let refused = bench.run(&["--json", "master-key", "rotate"]);
        refused.code == 65
            && refused.error()["message"]
                .as_str()
                .unwrap()
                .contains("`two`")
    })
    .await
    .unwrap();
    up.signal("TERM");
    assert_eq!(up.wait(BUDGET).await.code, 0);
    let up = Process::start(&bench, &["up"]);
    ready(&health).await;
    let rotated = bench.json(&["master-key", "rotate"]);
    assert_eq!(rotated["current"], "two");
    up.signal("TERM");
    assert_eq!(up.wait(BUDGET).await.code, 0);
}

#[tokio::test]
async fn rotation_without_the_old_key_changes_nothing() {
    let mut bench = Bench::ledger().await;
    let id = bench.endpoint();
    bench.keys(&[("two", OTHER_KEY)]);
    bench.fails(64, "wrong_master_key", &["master-key", "rotate"]);
    bench.keys(&[("one", KEY)]);
    bench.ok(&["endpoint", "reveal", &id]);
}
