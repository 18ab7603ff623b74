//! The defaults as a file to begin with: each key under what it means, in the words of the guide.

use std::collections::BTreeMap;

/// The guide, whose tables have a row for every key; a test holds it against the defaults.
const GUIDE: &str = include_str!("../../../../../docs/configuration.md");

/// Columns that a line of a comment takes at the most, where its words allow.
const WIDTH: usize = 96;

/// A key in the guide.
struct Row {
    default: &'static str,
    meaning: &'static str,
}

/// TOML with a comment over each key; one without a default is there as a comment alone.
pub(super) fn commented(toml: &str) -> String {
    let guide = rows();
    let mut text = String::new();
    let mut section = String::new();
    for line in toml.lines() {
        if let Some(name) = heading(line) {
            text.push_str(line);
            text.push('\n');
            let unset = guide.iter().filter(|(key, row)| {
                row.default == "none" && key.rsplit_once('.').is_some_and(|(of, _)| of == name)
            });
            for (key, row) in unset {
                let key = key.rsplit('.').next().unwrap_or(key);
                wrap(&mut text, row.meaning);
                text.push_str(&format!("# {key} =\n"));
            }
            section = name;
            continue;
        }
        let key = line.split_once(" = ").map_or("", |(key, _)| key);
        if let Some(row) = guide.get(format!("{section}.{key}").as_str()) {
            wrap(&mut text, row.meaning);
        }
        // A list that is empty by default: what its entries have.
        let entry = format!("{section}.{key}[].");
        if line.ends_with("[]") {
            for (key, row) in &guide {
                if let Some(key) = key.strip_prefix(&entry) {
                    wrap(&mut text, &format!("`{key}`: {}", row.meaning));
                }
            }
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// The section that a line begins, a list's with `[]` behind its name.
fn heading(line: &str) -> Option<String> {
    let list = line
        .strip_prefix("[[")
        .and_then(|rest| rest.strip_suffix("]]"));
    if let Some(name) = list {
        return Some(format!("{name}[]"));
    }
    let name = line.strip_prefix('[')?.strip_suffix(']')?;
    // The one list whose entries have sections of their own.
    Some(name.replace("relay.sources.", "relay.sources[]."))
}

fn rows() -> BTreeMap<&'static str, Row> {
    let row = |line: &'static str| {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let mut cells = cells.splitn(3, " | ");
        let key = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        let default = cells.next()?.trim_matches('`');
        let meaning = cells.next()?;
        Some((key, Row { default, meaning }))
    };
    GUIDE.lines().filter_map(row).collect()
}

fn wrap(text: &mut String, meaning: &str) {
    let mut line = "#".to_owned();
    for word in meaning.split(' ') {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_default_has_its_meaning_above_and_what_has_none_is_named() {
        let text = commented(&toml::to_string_pretty(&Config::default()).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        let bare: Vec<&str> = lines
            .windows(2)
            .filter(|pair| pair[1].contains(" = ") && !pair[1].starts_with([' ', '#', '{']))
            .filter(|pair| !pair[0].starts_with("# "))
            .map(|pair| pair[1])
            .collect();
        assert!(bare.is_empty(), "{bare:?}");
        assert!(
            text.contains("# `key`: 32 random bytes in base64"),
            "{text}"
        );
        for unset in ["# url =", "# master_key_file =", "# database_url ="] {
            assert!(lines.contains(&unset), "{unset}: {text}");
        }
        assert!(text.contains("# Most connections one process opens, 2 to 500."));
        assert_eq!(
            toml::from_str::<toml::Table>(&text).unwrap(),
            toml::Table::try_from(Config::default()).unwrap()
        );
    }
}
