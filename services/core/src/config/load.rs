//! Finds, merges and reads the values: defaults, then the file, then variables everybody knows
//! (`DATABASE_URL`), then `HOOKLANE__SECTION__KEY`.
//!
//! Serde stops at the first fault. To report all of them, the value at fault is taken out and
//! the rest is read again, so that its default stands in for it until the report is made.

mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::error::{Actual, Kind};
use figment::value::{Dict, Value};
use serde::de::DeserializeOwned;

use super::Faults;
use words::{fix, problem};

/// Variables that override a key start with this; `__` stands between a section and its key.
pub const PREFIX: &str = "HOOKLANE__";

/// More faults than this are not worth reading.
const MAX_FAULTS: usize = 200;

/// Where values come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The TOML file; none is fine, one that can't be read is a fault.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// Variables that everybody knows, and the keys that they set.
    pub well_known: &'static [(&'static str, &'static str)],
}

impl Sources {
    /// The process's environment, and `file`.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the environment's one home")]
    pub fn of_process(
        file: Option<PathBuf>,
        well_known: &'static [(&'static str, &'static str)],
    ) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
            .collect();
        Self {
            file,
            environment,
            well_known,
        }
    }

    /// The same without these variables.
    #[must_use]
    pub fn without(mut self, variables: &[&str]) -> Self {
        self.environment
            .retain(|(name, _)| !variables.contains(&name.as_str()));
        self
    }
}

/// Reads a `T`. What can't be read is added to `faults` and has its default in the answer, so
/// that the caller can go on to look for further faults; the answer is for use only where
/// `faults` stayed empty.
pub fn load<T: DeserializeOwned + Default>(sources: &Sources, faults: &mut Faults) -> T {
    let mut tree = Tree::default();
    if let Some(file) = &sources.file {
        tree.read_file(file, faults);
    }
    tree.read_environment(sources, faults);
    tree.extract(sources.file.as_deref(), faults)
}

#[derive(Default)]
struct Tree {
    root: Dict,
    /// Which variable set which key, and its text.
    variables: BTreeMap<String, (String, String)>,
    /// Positions taken out of lists, by list, in the file's numbering.
    removed: BTreeMap<String, Vec<usize>>,
}

impl Tree {
    fn read_file(&mut self, file: &Path, faults: &mut Faults) {
        let name = file.display().to_string();
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                faults.add_unread(
                    &name,
                    format!("can't be read ({error})"),
                    "name a readable file with --config or HOOKLANE_CONFIG",
                );
                return;
            }
        };
        match toml::from_str::<Dict>(&text) {
            Ok(dict) => self.root = dict,
            Err(error) => {
                let line = error
                    .span()
                    .map_or(1, |span| text[..span.start].lines().count().max(1));
                // The error's own text quotes the line, which may hold a secret.
                faults.add_unread(
                    &name,
                    format!("is not TOML at line {line} ({})", error.message()),
                    "correct that line",
                );
            }
        }
    }

    fn read_environment(&mut self, sources: &Sources, faults: &mut Faults) {
        for &(variable, key) in sources.well_known {
            let found = sources
                .environment
                .iter()
                .find(|(name, _)| name == variable);
            if let Some((_, text)) = found {
                let path: Vec<String> = key.split('.').map(str::to_owned).collect();
                self.set(&path, variable, text);
            }
        }
        let mut overrides: Vec<_> = sources
            .environment
            .iter()
            .filter_map(|(name, text)| Some((name, name.strip_prefix(PREFIX)?, text)))
            .collect();
        overrides.sort();
        for (variable, key, text) in overrides {
            let path: Vec<String> = key.split("__").map(str::to_ascii_lowercase).collect();
            if path.iter().any(String::is_empty) {
                faults.add(
                    variable,
                    "names no key",
                    format!("unset it, or name a key as in {PREFIX}SECTION__KEY"),
                );
                continue;
            }
            self.set(&path, variable, text);
        }
    }

    fn set(&mut self, path: &[String], variable: &str, text: &str) {
        let Ok(value) = text.parse::<Value>();
        put(&mut self.root, path, value);
        self.variables
            .insert(path.join("."), (variable.to_owned(), text.to_owned()));
    }

    fn extract<T: DeserializeOwned + Default>(
        mut self,
        file: Option<&Path>,
        faults: &mut Faults,
    ) -> T {
        for _ in 0..MAX_FAULTS {
            let error = match Value::from(self.root.clone()).deserialize::<T>() {
                Ok(config) => return config,
                Err(error) => error,
            };
            let path = error.path;
            let key = self.key(&path);
            let variable = self.variables.get(&key).cloned();
            if let (Kind::InvalidType(actual, expected), Some((_, text))) = (&error.kind, &variable)
                && expected.contains("string")
                && !matches!(actual, Actual::Str(_))
            {
                // `true` and `17` are text where text is wanted.
                put(&mut self.root, &path, Value::from(text.as_str()));
                continue;
            }
            let fix = fix(&error.kind, self.origin(&key), file);
            faults.add(&key, problem(&error.kind), fix);
            if path.is_empty() || !self.prune(&path) {
                return T::default();
            }
        }
        T::default()
    }

    /// The variable that a key comes from: its own, that of a section or list around it, or one of
    /// a key below it.
    fn origin(&self, key: &str) -> Option<&str> {
        let within = |inner: &str, outer: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let around = self
            .variables
            .iter()
            .rev()
            .find(|(set, _)| within(key, set));
        let below = || self.variables.iter().find(|(set, _)| within(set, key));
        around.or_else(below).map(|(_, (name, _))| name.as_str())
    }

    /// The path in the file's numbering of lists.
    fn key(&self, path: &[String]) -> String {
        let mut key = String::new();
        let mut current = String::new();
        for part in path {
            let mut shown = part.clone();
            if let (Some(removed), Ok(mut at)) = (self.removed.get(&current), part.parse::<usize>())
            {
                for &gone in removed {
                    at += usize::from(gone <= at);
                }
                shown = at.to_string();
            }
            for (text, part) in [(&mut key, &shown), (&mut current, part)] {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(part);
            }
        }
        key
    }

    /// Takes out the value at `path`; false where there is none.
    fn prune(&mut self, path: &[String]) -> bool {
        let Some((last, parents)) = path.split_last() else {
            return false;
        };
        let shown = self.key(path);
        let at = parents
            .split_first()
            .and_then(|(first, rest)| rest.iter().try_fold(self.root.get_mut(first)?, step));
        match (at, parents.is_empty()) {
            (None, true) => self.root.remove(last).is_some(),
            (Some(Value::Dict(_, dict)), _) => dict.remove(last).is_some(),
            (Some(Value::Array(_, list)), _) => {
                let Some(index) = last
                    .parse()
                    .ok()
                    .filter(|&index: &usize| index < list.len())
                else {
                    return false;
                };
                list.remove(index);
                if let Some(original) = shown.rsplit('.').next().and_then(|at| at.parse().ok()) {
                    let removed = self.removed.entry(parents.join(".")).or_default();
                    removed.push(original);
                    removed.sort_unstable();
                }
                true
            }
            _ => false,
        }
    }
}

fn step<'v>(value: &'v mut Value, part: &String) -> Option<&'v mut Value> {
    match value {
        Value::Dict(_, dict) => dict.get_mut(part),
        Value::Array(_, list) => list.get_mut(part.parse::<usize>().ok()?),
        _ => None,
    }
}

fn put(dict: &mut Dict, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        dict.insert(first.clone(), value);
        return;
    }
    let inner = dict
        .entry(first.clone())
        .or_insert_with(|| Value::from(Dict::new()));
    if !matches!(inner, Value::Dict(..)) {
        *inner = Value::from(Dict::new());
    }
    if let Value::Dict(_, inner) = inner {
        put(inner, rest, value);
    }
}

#[cfg(test)]
mod tests;
