//! The `[secrets]` section: master keys, in the configuration itself or in a file of their own.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use hooklane_core::config::{Faults, REDACTED, Secret};
use hooklane_core::error::ErrorCode;
use hooklane_core::secrets::{MasterKeyConfig, MasterKeys, is_key, shown_id};
use serde::{Deserialize, Serialize, Serializer};

use crate::failure::Failure;

/// The keys that endpoint secrets are sealed with. There is no default.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Secrets {
    /// The keys, the current one first: it seals, all of them open.
    pub(crate) master_keys: Vec<MasterKey>,
    /// A file with one key a line, `<id> <key>`, instead.
    #[serde(serialize_with = "serialize_file")]
    pub(crate) master_key_file: Option<PathBuf>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets")
            .field("master_keys", &self.master_keys)
            .field(
                "master_key_file",
                &self.master_key_file.as_deref().map(shown_file),
            )
            .finish()
    }
}

/// The name of the key file, unless it is the key itself.
fn shown_file(path: &Path) -> &Path {
    if path.to_str().is_some_and(is_key) {
        Path::new(REDACTED)
    } else {
        path
    }
}

fn serialize_file<S: Serializer>(path: &Option<PathBuf>, s: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(shown_file).serialize(s)
}

/// The largest master key file, in bytes: hundreds of keys.
const MAX_FILE: u64 = 64 * 1024;

/// One master key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MasterKey {
    /// Its name, kept with everything that it seals.
    #[serde(serialize_with = "serialize_id")]
    pub(crate) id: String,
    /// 32 random bytes in base64, as `openssl rand -base64 32` makes them.
    pub(crate) key: Secret,
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MasterKey")
            .field("id", &shown_id(&self.id))
            .field("key", &self.key)
            .finish()
    }
}

fn serialize_id<S: Serializer>(id: &str, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(shown_id(id))
}

impl Secrets {
    /// Adds what is wrong to `faults`.
    pub(crate) fn validate(&self, faults: &mut Faults) {
        if let Err((key, problem, fix)) = self.try_keys() {
            faults.add(key, problem, fix);
        }
    }

    /// The keys.
    ///
    /// # Errors
    /// Where they can't be used, or their file can't be read.
    pub(crate) fn keys(&self) -> Result<MasterKeys, Failure> {
        self.try_keys().map_err(|(key, problem, fix)| {
            Failure::new(ErrorCode::Config, format!("secrets.{key} {problem}: {fix}"))
        })
    }

    fn try_keys(&self) -> Result<MasterKeys, (&'static str, String, String)> {
        let (key, configs) = match &self.master_key_file {
            Some(_) if !self.master_keys.is_empty() => {
                return Err((
                    "master_key_file",
                    "is set beside master_keys".to_owned(),
                    "set one of the two".to_owned(),
                ));
            }
            Some(path) => {
                let text = read(path).map_err(|error| {
                    (
                        "master_key_file",
                        format!(
                            "names {}, which can't be read ({error})",
                            shown_file(path).display()
                        ),
                        "name a readable file with one key a line: <id> <key>".to_owned(),
                    )
                })?;
                ("master_key_file", lines(&text))
            }
            None => {
                let configs = self
                    .master_keys
                    .iter()
                    .map(|MasterKey { id, key }| MasterKeyConfig {
                        id: id.clone(),
                        key: key.expose().to_owned().into(),
                    })
                    .collect();
                ("master_keys", configs)
            }
        };
        MasterKeys::new(&configs).map_err(|error| {
            // Its text has the form `problem; fix`.
            let text = error.to_string();
            let (problem, fix) = text.split_once("; ").unwrap_or((&text, "correct it"));
            (key, format!("can't be used: {problem}"), fix.to_owned())
        })
    }
}

/// The whole file, which may also be a pipe or a device: never more than [`MAX_FILE`].
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(std::io::Error::other(format!(
            "it has more than {} KiB",
            MAX_FILE / 1024
        )));
    }
    Ok(text)
}

/// One key a line; empty lines and those after `#` don't count.
fn lines(text: &str) -> Vec<MasterKeyConfig> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (id, key) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            // A line with the key alone must not show it as an id.
            let id = if key.is_empty() { "" } else { id };
            MasterKeyConfig {
                id: id.to_owned(),
                key: key.trim().to_owned().into(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

    fn file(text: &str) -> (Secrets, tempfile::NamedTempFile) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let secrets = Secrets {
            master_key_file: Some(file.path().to_owned()),
            ..Secrets::default()
        };
        (secrets, file)
    }

    #[test]
    fn a_file_has_one_key_a_line() {
        let (secrets, _file) = file(&format!("# mine\n2026 {KEY}\n\n2025\t{KEY}\n"));
        let keys = secrets.keys().unwrap();
        assert_eq!(keys.ids().collect::<Vec<_>>(), ["2026", "2025"]);
    }

    #[test]
    fn a_fault_shows_no_key() {
        let (secrets, _file) = file(&format!("{KEY}\n"));
        let mut faults = Faults::new();
        secrets.validate(&mut faults);
        assert_eq!(faults.found()[0].key, "master_key_file");
        assert!(!faults.to_string().contains(KEY), "{faults}");
    }

    #[test]
    fn a_key_in_the_place_of_an_id_is_shown_nowhere() {
        let (swapped, _file) = file(&format!("{KEY} one\n"));
        let (halves, _file) = file("MDEyMzQ1Njc4OWFiY2Rl ZjAxMjM0NTY3ODlhYmNkZWY=\n");
        let listed = Secrets {
            master_keys: vec![MasterKey {
                id: KEY.to_owned(),
                key: Secret::new("one".to_owned()),
            }],
            ..Secrets::default()
        };
        let named = Secrets {
            master_key_file: Some(KEY.into()),
            ..Secrets::default()
        };
        for (secrets, told) in [
            (swapped, "number 1"),
            (halves, "number 1"),
            (listed, "number 1"),
            (named, "<redacted>"),
        ] {
            let mut faults = Faults::new();
            secrets.validate(&mut faults);
            let failure = secrets.keys().unwrap_err();
            let dumped = serde_json::to_string(&secrets).unwrap();
            let shown = format!("{faults} {faults:?} {failure} {dumped} {secrets:?}");
            assert!(shown.contains(told), "{shown}");
            assert!(!shown.contains("MDEyMzQ1"), "{shown}");
        }
    }

    #[test]
    fn a_file_without_end_is_a_fault() {
        let secrets = Secrets {
            master_key_file: Some("/dev/zero".into()),
            ..Secrets::default()
        };
        let failure = secrets.keys().unwrap_err().to_string();
        assert!(failure.contains("more than 64 KiB"), "{failure}");
    }

    #[test]
    fn a_missing_file_and_both_at_once_are_faults() {
        let mut secrets = Secrets {
            master_key_file: Some("/nonexistent/keys".into()),
            ..Secrets::default()
        };
        let mut faults = Faults::new();
        secrets.validate(&mut faults);
        assert!(faults.to_string().contains("can't be read"), "{faults}");
        secrets.master_keys.push(MasterKey {
            id: "one".to_owned(),
            key: Secret::new(KEY.to_owned()),
        });
        let mut faults = Faults::new();
        secrets.validate(&mut faults);
        assert!(faults.to_string().contains("beside"), "{faults}");
    }
}
