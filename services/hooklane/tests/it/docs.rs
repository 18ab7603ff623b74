//! The guides and the binary say the same.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::bench::Bench;

fn guide(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of a table's rows whose first cell is code.
fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            line.trim_matches('|')
                .split(" | ")
                .map(|cell| cell.trim().trim_matches('`').to_owned())
                .collect()
        })
        .collect()
}

/// Every key with its default, a list's sections under `[]`.
fn flatten(prefix: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let dot = if prefix.is_empty() { "" } else { "." };
                flatten(&format!("{prefix}{dot}{key}"), value, into);
            }
        }
        Value::Array(list) if list.first().is_some_and(Value::is_object) => {
            flatten(&format!("{prefix}[]"), &list[0], into);
        }
        Value::Null => {
            into.insert(prefix.to_owned(), "none".to_owned());
        }
        Value::String(text) => {
            into.insert(prefix.to_owned(), format!("\"{text}\""));
        }
        other => {
            into.insert(prefix.to_owned(), other.to_string());
        }
    }
}

#[test]
fn the_configuration_guide_lists_every_key_with_its_default() {
    let bench = Bench::bare();
    let mut real = BTreeMap::new();
    flatten("", &bench.json(&["dump-config", "--defaults"]), &mut real);
    // The one list of sections that is empty by default.
    real.remove("secrets.master_keys");
    real.insert("secrets.master_keys[].id".to_owned(), "none".to_owned());
    real.insert("secrets.master_keys[].key".to_owned(), "none".to_owned());
    // The one section of which there are none by default.
    let source = serde_json::to_value(hooklane_inbox::source::Block::default()).unwrap();
    flatten("inbox.sources.<name>", &source, &mut real);

    let text = guide("configuration.md");
    let mut told = BTreeMap::new();
    for row in rows(&text) {
        let [key, default, meaning] = row.as_slice() else {
            panic!("not a row of key, default and meaning: {row:?}");
        };
        if !key.contains("__") && key.to_lowercase() == *key {
            assert!(meaning.len() > 5, "{key} has no meaning");
            assert!(
                told.insert(key.clone(), default.clone()).is_none(),
                "{key} stands twice"
            );
        }
    }
    let differing = |left: &BTreeMap<String, String>, right: &BTreeMap<String, String>| {
        let lines = left
            .iter()
            .filter(|(key, value)| right.get(*key) != Some(value));
        lines
            .map(|(key, value)| format!("{key} = {value}"))
            .collect::<Vec<_>>()
    };
    let (lacking, wrong) = (differing(&real, &told), differing(&told, &real));
    assert!(
        lacking.is_empty() && wrong.is_empty(),
        "docs/configuration.md lacks {lacking:#?} and has {wrong:#?} instead"
    );
}

/// Every command below the one with these words, as `--help` tells of it.
fn commands(bench: &Bench, words: &[String], into: &mut Vec<String>) {
    let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
    args.push("--help");
    let help = bench.ok(&args);
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        into.push(words.join(" "));
        return;
    };
    for line in list.lines().take_while(|line| line.starts_with("  ")) {
        // A line further in goes on with the description above.
        let name = line[2..].split(' ').next().unwrap_or_default();
        if !name.is_empty() && name != "help" {
            commands(bench, &[words, &[name.to_owned()]].concat(), into);
        }
    }
}

#[test]
fn the_command_guide_lists_every_command() {
    let bench = Bench::bare();
    let mut real = Vec::new();
    commands(&bench, &[], &mut real);
    assert!(real.len() > 30, "{real:?}");
    let text = guide("cli.md");
    let missing: Vec<_> = real
        .iter()
        .filter(|command| !text.contains(&format!("`hooklane {command}")))
        .collect();
    assert!(missing.is_empty(), "not in docs/cli.md: {missing:?}");
    for row in rows(&text) {
        if let Some(command) = row[0].strip_prefix("hooklane ") {
            let known = real.iter().any(|real| command.starts_with(real.as_str()));
            assert!(known, "docs/cli.md has `{command}`, which does not exist");
        }
    }
}

#[test]
fn the_inbox_guide_says_of_every_preset_what_its_signature_covers() {
    let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inbox/presets");
    let files = std::fs::read_dir(presets).unwrap();
    let mut real: Vec<Vec<String>> = files
        .map(|file| {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let preset: toml::Table = toml::from_str(&text).unwrap();
            let told = |key: &str| preset[key].as_str().unwrap().to_owned();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            vec![name, told("covers"), told("not_covered")]
        })
        .collect();
    real.sort();
    assert!(real.len() >= 18, "{real:?}");
    let text = guide("inbox.md");
    let (_, section) = text.split_once("\n## Presets\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let told = rows(section).into_iter().map(|row| {
        let [preset, _secrets, covers, not_covered] = row.try_into().unwrap();
        vec![preset, covers, not_covered]
    });
    assert_eq!(told.collect::<Vec<_>>(), real);
}

/// The blocks of a guide in one language.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("\n```{language}\n");
    let parts = text.split(fence.as_str()).skip(1);
    parts
        .filter_map(|part| Some(part.split_once("\n```")?.0))
        .collect()
}

#[test]
fn the_inbox_guides_sources_are_sound() {
    let bench = Bench::bare();
    let secret = bench.file("stripe", "whsec_test").display().to_string();
    let head = "[inbox.sources.shop]\npreset = \"stripe\"\nsecrets = [\"whsec_test\"]\n";
    let guide = guide("inbox.md");
    let mut sound = 0;
    for block in blocks(&guide, "toml") {
        let configurations: Vec<String> = match block {
            ways if ways.starts_with("hand_off") => {
                ways.lines().map(|way| format!("{head}{way}\n")).collect()
            }
            whole if whole.starts_with("[inbox") => {
                vec![whole.replace("/run/secrets/stripe", &secret)]
            }
            part => vec![format!("{head}{part}\n")],
        };
        for configuration in configurations {
            bench.file("hooklane.toml", &configuration);
            let sources = bench.json(&["inbox", "sources"]);
            sound += sources["sources"].as_array().unwrap().len();
        }
    }
    assert_eq!(sound, 5, "sources in the guide");
}

#[test]
fn every_exit_code_and_error_code_is_told() {
    let text = guide("cli.md");
    for code in hooklane_core::error::ErrorCode::ALL {
        let row = rows(&text).into_iter().find(|row| row[0] == code.as_str());
        let row = row.unwrap_or_else(|| panic!("{code} is not in docs/cli.md"));
        assert_eq!(row[1], code.exit_code().to_string(), "{code}");
    }
}
