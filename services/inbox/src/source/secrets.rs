//! A source's secrets, from its block and from files.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use hooklane_core::config::{Faults, Secret};

use super::Block;
use crate::verify::key::{Algorithm, Key, KeyForm};

/// Most secrets of a source: each is tried with each signature.
const MAX_SECRETS: usize = 8;
/// Largest file with a secret, in bytes.
const MAX_FILE: u64 = 16 * 1024;

/// The secrets, with where each stands in the configuration.
pub(super) struct Secrets {
    found: Vec<(String, Secret)>,
    /// Whether each became a key.
    used: Vec<bool>,
    /// Why it did not.
    refused: Vec<Option<String>>,
}

impl Secrets {
    /// Gathers them, with what is to be said about them.
    pub(super) fn gather(block: &Block, faults: &mut Faults, warnings: &mut Vec<String>) -> Self {
        let mut found = Vec::new();
        for (index, secret) in block.secrets.iter().enumerate() {
            let label = format!("secrets.{index}");
            if is_plain(secret.expose(), &label, faults) {
                found.push((label, secret.clone()));
            }
        }
        for (index, file) in block.secret_files.iter().enumerate() {
            let label = format!("secret_files.{index}");
            match read(file) {
                Ok(text) => {
                    let trimmed = text.trim_end_matches(['\r', '\n']);
                    if trimmed.len() < text.len() && !is_pem(trimmed) {
                        warnings.push(format!(
                            "the line end after the secret in {} is not taken for a part of it",
                            file.display()
                        ));
                    }
                    if is_plain(trimmed, &label, faults) {
                        found.push((label, Secret::new(trimmed.to_owned())));
                    }
                }
                Err(problem) => faults.add(
                    &label,
                    format!("{} {problem}", file.display()),
                    "name a readable file with one secret in it",
                ),
            }
        }
        let count = block.secrets.len() + block.secret_files.len();
        if count > MAX_SECRETS {
            faults.add(
                "secrets",
                format!("and `secret_files` are {count}"),
                format!("give at most {MAX_SECRETS} together"),
            );
        }
        let used = vec![false; found.len()];
        let refused = vec![None; found.len()];
        Self {
            found,
            used,
            refused,
        }
    }

    /// Keys of those that are one for this algorithm.
    pub(super) fn keys(&mut self, algorithm: Algorithm, form: KeyForm) -> Vec<Key> {
        let mut keys = Vec::new();
        for (index, (label, secret)) in self.found.iter().enumerate() {
            match Key::new(label, secret.expose(), algorithm, form) {
                Ok(key) => {
                    self.used[index] = true;
                    keys.push(key);
                }
                Err(error) => {
                    self.refused[index].get_or_insert_with(|| error.to_string());
                }
            }
        }
        keys
    }

    /// Whether there is not one, apart from those that were at fault.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds those that no scheme has a use for.
    pub(super) fn report(&self, faults: &mut Faults) {
        for (index, (label, _)) in self.found.iter().enumerate() {
            if !self.used[index] {
                let problem = self.refused[index]
                    .as_deref()
                    .unwrap_or("is of no use here");
                faults.add(label, problem, "give the secret as the partner shows it");
            }
        }
    }
}

fn is_pem(text: &str) -> bool {
    text.starts_with("-----BEGIN")
}

/// Whether nothing stands around a secret; nothing but a file's last line end is taken off.
fn is_plain(text: &str, label: &str, faults: &mut Faults) -> bool {
    if text.trim().is_empty() {
        faults.add(label, "is empty", "give the secret as the partner shows it");
        return false;
    }
    if text.trim() != text && !is_pem(text) {
        faults.add(label, "has white space around it", "remove the white space");
        return false;
    }
    if text.contains(['\r', '\n']) && !is_pem(text) {
        faults.add(
            label,
            "has more than one line",
            "give each secret on its own",
        );
        return false;
    }
    true
}

fn read(file: &Path) -> Result<String, String> {
    let problem = |error: std::io::Error| format!("can't be read ({error})");
    let mut text = String::new();
    let read = File::open(file)
        .map_err(problem)?
        .take(MAX_FILE + 1)
        .read_to_string(&mut text);
    match read {
        Ok(bytes) if bytes as u64 > MAX_FILE => Err(format!("has more than {MAX_FILE} bytes")),
        Ok(_) => Ok(text),
        Err(error) => Err(problem(error)),
    }
}
