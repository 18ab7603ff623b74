//! `hooklane check-config` and `hooklane dump-config`: where values come from, and what is said
//! of those that are wrong.

use crate::bench::{Bench, KEY};
use crate::process::free_address;

fn sound() -> Bench {
    let mut bench = Bench::bare();
    bench.set("DATABASE_URL", "postgres://user:canary@host/db");
    bench.keys(&[("one", KEY)]);
    bench
}

fn fault_keys(bench: &Bench) -> Vec<String> {
    let answer = bench.run(&["--json", "check-config"]);
    assert_eq!(answer.code, 64, "{answer:?}");
    let error = answer.error();
    assert_eq!(error["code"], "config");
    let faults = error["faults"].as_array().unwrap();
    let mut keys: Vec<String> = faults
        .iter()
        .map(|fault| fault["key"].as_str().unwrap().to_owned())
        .collect();
    keys.sort();
    keys
}

#[test]
fn a_sound_configuration_is_said_to_be() {
    let mut bench = sound();
    let answer = bench.json(&["check-config"]);
    assert_eq!(answer["valid"], true);
    assert_eq!(answer["file"], serde_json::Value::Null);
    // The file beside is read without being named, and another one where it is.
    bench.file("hooklane.toml", "[telemetry]\nservice_name = 'here'\n");
    assert_eq!(bench.json(&["check-config"])["file"], "hooklane.toml");
    let other = bench.file("other.toml", "[telemetry]\nservice_name = 'other'\n");
    bench.set("HOOKLANE_CONFIG", other.to_str().unwrap());
    let dumped = bench.json(&["dump-config"]);
    assert_eq!(dumped["telemetry"]["service_name"], "other");
    let args = ["--config", "hooklane.toml", "dump-config"];
    assert_eq!(bench.json(&args)["telemetry"]["service_name"], "here");
}

#[test]
fn every_fault_is_reported_at_once() {
    let mut bench = Bench::bare();
    let file = "nonsense = 1\n\
                [telemetry]\nlog = 'a=b=c'\nsample_ratio = 2\n\
                [nats]\npartitions = 0\n\
                [retry]\ndelays = ['5s', '0s']\njitter = 'much'\n\
                [addresses]\nallow_cidrs = ['10.0.0.0/8', 'ten']\nallow_names = ['*']\n\
                [endpoints]\nrotation_grace = '1year'\n\
                [recorder]\nretention_days = 0\nretention_day = 1\n";
    bench.file("hooklane.toml", file);
    bench.set("HOOKLANE__DATABASE__MAX_CONNECTIONS", "many");
    bench.set("HOOKLANE__HEALTH__LISTEN", "everywhere");
    assert_eq!(
        fault_keys(&bench),
        [
            "addresses.allow_cidrs.1",
            "addresses.allow_names",
            "database.max_connections",
            "database.url",
            "endpoints.rotation_grace",
            "health.listen",
            "nats.partitions",
            "nonsense",
            "recorder.retention_day",
            "recorder.retention_days",
            "retry.delays.1",
            "retry.jitter",
            "secrets.master_keys",
            "telemetry.log",
            "telemetry.sample_ratio",
        ]
    );
    let text = bench.run(&["check-config"]).stderr;
    assert!(text.contains("the configuration has 15 faults"), "{text}");
    assert!(
        text.contains("HOOKLANE__DATABASE__MAX_CONNECTIONS"),
        "{text}"
    );
}

#[test]
fn addresses_and_tables_that_cant_be_are_faults() {
    let mut bench = sound();
    bench.set("DATABASE_URL", "postgres://user:canary@host:99999/db");
    let sources = r#"[{table="outbox",database_url="postgres://u:canary@h/d?sslmode=foo"}]"#;
    bench.set("HOOKLANE__RELAY__SOURCES", sources);
    assert_eq!(
        fault_keys(&bench),
        [
            "database.url",
            "relay.sources.0.database_url",
            "relay.sources.0.table"
        ]
    );
    let text = bench.run(&["check-config"]).stderr;
    for told in ["port", "verify-full", "`public.outbox`"] {
        assert!(text.contains(told), "{text}");
    }
    assert!(!text.contains("canary"), "{text}");
}

#[test]
fn a_file_that_is_missing_is_the_only_fault() {
    let bench = Bench::bare();
    let answer = bench.run(&["--config", "nope.toml", "--json", "check-config"]);
    let faults = answer.error()["faults"].clone();
    assert_eq!(faults.as_array().unwrap().len(), 1, "{faults}");
    assert_eq!(faults[0]["key"], "nope.toml");
}

#[test]
fn an_unknown_variable_of_ours_is_a_fault() {
    let mut bench = sound();
    bench.set("HOOKLANE__RECORDER__RETENTION_DAY", "3");
    assert_eq!(fault_keys(&bench), ["recorder.retention_day"]);
}

#[test]
fn the_environment_wins_over_the_file() {
    let mut bench = sound();
    bench.file(
        "hooklane.toml",
        "[recorder]\nretention_days = 10\ndays_ahead = 3\n",
    );
    bench.set("HOOKLANE__RECORDER__RETENTION_DAYS", "20");
    bench.set("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
    let dumped = bench.json(&["dump-config"]);
    assert_eq!(dumped["recorder"]["retention_days"], 20);
    assert_eq!(dumped["recorder"]["days_ahead"], 3);
    assert_eq!(
        dumped["telemetry"]["otlp_endpoint"],
        "http://collector:4318"
    );
}

#[test]
fn a_dump_shows_no_secret() {
    let mut bench = sound();
    bench.set("NATS_URL", "nats://canary@host:4222");
    bench.set("OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:canary@host");
    bench.unset("HOOKLANE__SECRETS__MASTER_KEY_FILE");
    let keys = format!("[{{id=\"one\",key=\"{KEY}\"}}]");
    bench.set("HOOKLANE__SECRETS__MASTER_KEYS", keys);
    bench.ok(&["check-config"]);
    for args in [&["dump-config"][..], &["--json", "dump-config"]] {
        let text = bench.ok(args);
        assert!(text.contains("<redacted>"), "{text}");
        assert!(!text.contains("canary") && !text.contains(KEY), "{text}");
    }
}

#[test]
fn the_dumped_defaults_are_a_file_that_can_be_read() {
    let mut bench = sound();
    let defaults = bench.ok(&["dump-config", "--defaults"]);
    let meaning = "# Most connections one process opens, 2 to 500.";
    assert!(defaults.contains(meaning), "{defaults}");
    bench.file("hooklane.toml", &defaults);
    bench.set("HOOKLANE__TELEMETRY__LOG", "warn");
    bench.ok(&["check-config"]);
}

#[test]
fn a_broken_master_key_is_a_fault_and_is_not_shown() {
    let mut bench = sound();
    bench.keys(&[("one", "canary")]);
    assert_eq!(fault_keys(&bench), ["secrets.master_key_file"]);
    let text = bench.run(&["check-config"]).stderr;
    assert!(!text.contains("canary"), "{text}");
    bench.set("HOOKLANE__SECRETS__MASTER_KEY_FILE", "/nonexistent");
    assert_eq!(fault_keys(&bench), ["secrets.master_key_file"]);
}

#[test]
fn a_key_in_the_place_of_its_id_is_not_shown() {
    const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let mut bench = sound();
    bench.keys(&[(KEY, "one")]);
    assert_eq!(fault_keys(&bench), ["secrets.master_key_file"]);
    let swapped = bench.run(&["check-config"]);
    bench.unset("HOOKLANE__SECRETS__MASTER_KEY_FILE");
    let listed = format!("[{{id='{KEY}',key='k1'}}]");
    bench.set("HOOKLANE__SECRETS__MASTER_KEYS", listed);
    assert_eq!(fault_keys(&bench), ["secrets.master_keys"]);
    let shown = [
        swapped,
        bench.run(&["check-config"]),
        bench.run(&["dump-config"]),
    ];
    for answer in shown {
        let text = format!("{}{}", answer.stdout, answer.stderr);
        assert!(!text.contains(KEY), "{text}");
    }
}

#[test]
fn a_command_needs_only_the_sections_that_it_uses() {
    let mut bench = Bench::bare();
    bench.file("hooklane.toml", "[telemetry]\nsample_ratio = 5\n");
    bench.ok(&["check-url", "https://example.com/", "--no-resolve"]);
    let text = bench.fails(64, "config", &["consumer", "list"]);
    assert!(text.contains("a fault"), "{text}");
    // What can't be read at all is never passed over.
    bench.set("HOOKLANE__TELEMETRY__SAMPLE_RATIO", "all");
    bench.fails(
        64,
        "config",
        &["check-url", "https://example.com/", "--no-resolve"],
    );
}

#[test]
fn an_absent_database_is_a_service_that_is_unavailable() {
    let mut bench = sound();
    bench.set("DATABASE_URL", "postgres://user:canary@127.0.0.1:1/db");
    bench.set("HOOKLANE__DATABASE__ACQUIRE_TIMEOUT", "1s");
    bench.set("HOOKLANE__HEALTH__LISTEN", free_address());
    let text = bench.fails(69, "postgres_unavailable", &["consumer", "list"]);
    assert!(!text.contains("canary"), "{text}");
    assert!(text.contains("refused") && !text.contains("pool"), "{text}");
    let text = bench.fails(69, "postgres_unavailable", &["up"]);
    assert!(!text.contains("canary"), "{text}");
}
