//! What a person sees who got the configuration wrong.

use std::io::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;
use crate::config::{ConnectionUrl, Secret};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    database: Database,
    relay: Relay,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Database {
    url: Option<ConnectionUrl>,
    password: Option<Secret>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Relay {
    batch: u16,
    name: String,
    #[serde(with = "humantime_serde")]
    wait: Duration,
    allow: Vec<ipnet::IpNet>,
    sources: Vec<Source>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Source {
    name: String,
    table: String,
}

const WELL_KNOWN: &[(&str, &str)] = &[("DATABASE_URL", "database.url")];

fn sources(toml: &str, environment: &[(&str, &str)]) -> (Sources, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(toml.as_bytes()).unwrap();
    let sources = Sources {
        file: Some(file.path().to_owned()),
        environment: environment
            .iter()
            .map(|&(name, text)| (name.to_owned(), text.to_owned()))
            .collect(),
        well_known: WELL_KNOWN,
    };
    (sources, file)
}

fn read(toml: &str, environment: &[(&str, &str)]) -> (Config, Faults) {
    let (sources, _file) = sources(toml, environment);
    let mut faults = Faults::new();
    (load(&sources, &mut faults), faults)
}

fn keys(faults: &Faults) -> Vec<&str> {
    faults.found().iter().map(|f| f.key.as_str()).collect()
}

#[test]
fn the_environment_wins_over_the_file() {
    let (config, faults) = read(
        "[relay]\nbatch = 1\nname = 'file'\nwait = '5s'\n",
        &[
            ("HOOKLANE__RELAY__BATCH", "2"),
            ("DATABASE_URL", "postgres://known/"),
            ("UNRELATED", "x"),
        ],
    );
    assert!(faults.is_empty(), "{faults}");
    assert_eq!(
        (config.relay.batch, config.relay.name.as_str()),
        (2, "file")
    );
    assert_eq!(config.relay.wait, Duration::from_secs(5));
    assert_eq!(config.database.url.unwrap().expose(), "postgres://known/");
}

#[test]
fn the_own_name_wins_over_the_known_one() {
    let (config, _) = read(
        "",
        &[
            ("DATABASE_URL", "postgres://known/"),
            ("HOOKLANE__DATABASE__URL", "postgres://own/"),
        ],
    );
    assert_eq!(config.database.url.unwrap().expose(), "postgres://own/");
}

#[test]
fn every_fault_is_reported_at_once() {
    let (_, faults) = read(
        "nonsense = 1\n[relay]\nbatch = 'many'\nwait = 'soon'\nallow = ['10.0.0.0/8', 'x', '::/0', 'y']\n\
         [[relay.sources]]\ntabel = 'a'\n[[relay.sources]]\ntable = 7\n",
        &[
            ("HOOKLANE__RELAY__UNKNOWN", "1"),
            ("HOOKLANE__SURPRISE__KEY", "1"),
            ("HOOKLANE____KEY", "1"),
        ],
    );
    let mut keys = keys(&faults);
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "HOOKLANE____KEY",
            "nonsense",
            "relay.allow.1",
            "relay.allow.3",
            "relay.batch",
            "relay.sources.0.tabel",
            "relay.sources.1.table",
            "relay.unknown",
            "relay.wait",
            "surprise",
        ]
    );
    let text = faults.to_string();
    assert!(
        text.contains("known here: batch, name, wait, allow, sources"),
        "{text}"
    );
}

#[test]
fn a_variable_at_fault_is_named() {
    let (_, faults) = read("", &[("HOOKLANE__RELAY__BATCH", "lots")]);
    assert_eq!(faults.found()[0].problem, "is text");
    assert!(faults.found()[0].fix.ends_with("in HOOKLANE__RELAY__BATCH"));
}

#[test]
fn a_fault_is_told_in_the_words_of_the_file() {
    let (_, faults) = read(
        "[relay]\nbatch = 70000\nname = []\nwait = 'soon'\nallow = 7\nsources = [5, { table = true }]\n",
        &[("HOOKLANE__DATABASE", "x")],
    );
    let text = faults.to_string();
    for told in [
        "relay.batch is out of range: give a whole number from 0 to 65535",
        "relay.name is a list: give text",
        "relay.wait is no duration: give a duration with its unit",
        "relay.allow is a number: give a list",
        "relay.sources.0 is a number: give a section",
        "relay.sources.1.table is true or false: give text",
        "database is text: give a section",
    ] {
        assert!(text.contains(told), "{told}\n{text}");
    }
}

#[test]
fn a_list_that_is_read_in_part_has_no_second_fault() {
    let (_, mut faults) = read("[relay]\nallow = ['10.0.0.0/8', 'x']\n", &[]);
    faults.within("relay", |faults| {
        faults.add("allow", "is too short", "give more");
        faults.add("batch", "is 0", "give more");
    });
    assert_eq!(keys(&faults), ["relay.allow.1", "relay.batch"]);
}

#[test]
fn an_unknown_key_is_removed_where_it_came_from() {
    let source = "[{name='x', tabel='y'}]";
    let (_, faults) = read(
        "[relay]\nnope = 1\n",
        &[
            ("HOOKLANE__RELAY__SOURCES", source),
            ("HOOKLANE__RELAY__UNKNOWN", "1"),
            ("HOOKLANE__SURPRISE__KEY", "1"),
        ],
    );
    let fix = |key: &str| {
        let fault = faults.found().iter().find(|fault| fault.key == key);
        fault
            .unwrap_or_else(|| panic!("{key}: {faults}"))
            .fix
            .clone()
    };
    for (key, place) in [
        ("relay.unknown", "HOOKLANE__RELAY__UNKNOWN"),
        ("relay.sources.0.tabel", "HOOKLANE__RELAY__SOURCES"),
        ("surprise", "HOOKLANE__SURPRISE__KEY"),
    ] {
        let start = format!("remove it in {place};");
        assert!(fix(key).starts_with(&start), "{}", fix(key));
    }
    assert!(!fix("relay.nope").contains("HOOKLANE__"));
}

#[test]
fn a_number_is_text_where_text_is_wanted() {
    let (config, faults) = read("", &[("HOOKLANE__RELAY__NAME", "0017")]);
    assert!(faults.is_empty(), "{faults}");
    assert_eq!(config.relay.name, "0017");
}

#[test]
fn a_list_of_sections_can_come_from_a_variable() {
    let (config, faults) = read(
        "",
        &[("HOOKLANE__RELAY__SOURCES", "[{name=\"a\",table=\"b\"}]")],
    );
    assert!(faults.is_empty(), "{faults}");
    assert_eq!(config.relay.sources[0].table, "b");
}

#[test]
fn a_file_that_is_not_toml_is_one_fault_with_its_line() {
    let (_, faults) = read("[relay]\nbatch =\nname = 'canary'\n", &[]);
    assert_eq!(faults.found().len(), 1);
    assert!(faults.to_string().contains("line 2"), "{faults}");
}

#[test]
fn a_missing_file_is_a_fault() {
    let sources = Sources {
        file: Some("/nonexistent/hooklane.toml".into()),
        ..Sources::default()
    };
    let mut faults = Faults::new();
    let _: Config = load(&sources, &mut faults);
    assert_eq!(keys(&faults), ["/nonexistent/hooklane.toml"]);
    assert!(!faults.is_complete());
}

#[test]
fn no_fault_shows_a_value_that_may_be_secret() {
    let (config, faults) = read(
        "[database]\npassword = ['canary']\nurl = { canary = 'canary' }\n[relay]\nbatch = 'canary'",
        &[("HOOKLANE__RELAY__WAIT", "canary")],
    );
    assert_eq!(faults.found().len(), 4, "{faults}");
    assert!(
        !format!("{faults} {config:?}").contains("canary"),
        "{faults}"
    );
}

#[test]
fn a_variable_for_text_is_taken_as_it_is() {
    for text in [
        "nats://a:4222,nats://b:4222",
        "postgres://u:p%7B@[::1]:5432/db?options=a%3Db",
        "{not closed",
        "[\"a\"]b",
        "\"quoted",
        "true",
        "1e5",
        "",
    ] {
        let (config, faults) = read("", &[("HOOKLANE__RELAY__NAME", text)]);
        assert!(faults.is_empty(), "{text}: {faults}");
        assert_eq!(config.relay.name, text);
    }
}
