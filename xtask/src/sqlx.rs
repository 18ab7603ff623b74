//! `cargo xtask sqlx-prepare`: the data in `.sqlx` with which queries are checked without a
//! database.
//!
//! The migrations are applied to a fresh database, and the store is compiled against it: its
//! query macros ask the database about each query and write down the answers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::environment::{Ledger, blocking};
use crate::process::{self, workspace};

const STORE: &str = "hooklane-store";
/// What a migration that can't run in a transaction begins with.
const NO_TRANSACTION: &str = "-- no-transaction";

type Data = BTreeMap<String, Value>;

/// Makes `.sqlx` say what the queries and migrations say.
pub(crate) async fn prepare() -> Result<()> {
    let fresh = generate().await?;
    let dir = workspace().join(".sqlx");
    let old = read(&dir)?;
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let (mut written, mut removed) = (0, 0);
    for (name, value) in &fresh {
        if old.get(name) != Some(value) {
            let path = dir.join(name);
            let text = serde_json::to_string_pretty(value)? + "\n";
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            written += 1;
        }
    }
    for name in old.keys().filter(|name| !fresh.contains_key(*name)) {
        let path = dir.join(name);
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        removed += 1;
    }
    println!(
        "sqlx: {} queries, {written} written, {removed} removed",
        fresh.len()
    );
    Ok(())
}

/// Fails unless `.sqlx` says what the queries and migrations say.
pub(crate) async fn check() -> Result<()> {
    let fresh = generate().await?;
    let faults = differences(&read(&workspace().join(".sqlx"))?, &fresh);
    if faults.is_empty() {
        println!("sqlx: {} queries, all up to date", fresh.len());
        return Ok(());
    }
    bail!(
        ".sqlx is not up to date; fix: cargo xtask sqlx-prepare\n{}",
        faults.join("\n")
    );
}

async fn generate() -> Result<Data> {
    let ledger = Ledger::start("sqlx").await?;
    let database = Scratch::create(&ledger).await?;
    let migrations = migrations()?;
    let psql = ledger.psql(&database.url);
    blocking(move || {
        for path in migrations {
            let text =
                fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let apply = if text.starts_with(NO_TRANSACTION) {
                psql.run_file_bare(&path)
            } else {
                psql.run_file(&path)
            };
            apply.with_context(|| format!("applying {}", path.display()))?;
        }
        Ok(())
    })
    .await?;

    let out = tempfile::tempdir().context("making a directory for the query data")?;
    // The macros run only when the store is compiled.
    let stale = Touched::sources(&workspace().join("services/store"))?;
    let mut cargo = process::cargo();
    cargo
        .args(["check", "--package", STORE, "--all-targets"])
        .env("SQLX_OFFLINE", "false")
        .env("SQLX_OFFLINE_DIR", out.path())
        .env("DATABASE_URL", &database.url);
    process::run(cargo).await?;
    drop(stale);
    let fresh = read(out.path())?;
    ensure!(
        !fresh.is_empty(),
        "no query was compiled: another build of the store was under way and came first; run this again"
    );
    Ok(fresh)
}

fn migrations() -> Result<Vec<PathBuf>> {
    let dir = workspace().join("migrations");
    let mut files = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            files.push(path);
        }
    }
    files.sort();
    ensure!(
        !files.is_empty(),
        "there are no migrations in {}",
        dir.display()
    );
    Ok(files)
}

/// The query data in `dir`; none if it doesn't exist.
fn read(dir: &Path) -> Result<Data> {
    let mut data = Data::new();
    if !dir.exists() {
        return Ok(data);
    }
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("query-") && name.ends_with(".json") {
            let text = fs::read_to_string(entry.path())?;
            let value = serde_json::from_str(&text).with_context(|| format!("reading {name}"))?;
            data.insert(name, value);
        }
    }
    Ok(data)
}

fn differences(old: &Data, fresh: &Data) -> Vec<String> {
    let query = |value: &Value| {
        let text = value["query"].as_str().unwrap_or_default();
        text.split_whitespace()
            .take(12)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut faults = Vec::new();
    for (name, value) in fresh {
        match old.get(name) {
            None => faults.push(format!("  missing {name}: {}", query(value))),
            Some(before) if before != value => {
                faults.push(format!("  changed {name}: {}", query(value)));
            }
            Some(_) => {}
        }
    }
    for (name, value) in old.iter().filter(|(name, _)| !fresh.contains_key(*name)) {
        faults.push(format!("  unused {name}: {}", query(value)));
    }
    faults
}

/// A database that is dropped afterwards; the server may be somebody's.
struct Scratch {
    url: String,
    name: String,
    admin: hooklane_local::Psql,
}

impl Scratch {
    async fn create(ledger: &Ledger) -> Result<Self> {
        let name = format!("hooklane_prepare_{}", std::process::id());
        let admin = ledger.psql(ledger.url());
        let create = format!("CREATE DATABASE {name} TEMPLATE template0");
        let making = admin.clone();
        blocking(move || Ok(making.run(&create)?)).await?;
        Ok(Self {
            url: hooklane_local::with_database(ledger.url(), &name),
            name,
            admin,
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        if let Err(error) = self.admin.run(&drop) {
            eprintln!("xtask: {error}");
        }
    }
}

/// The roots of a crate's targets, made to look changed; their times are put back when dropped,
/// so that builds of another profile stay fresh.
struct Touched(Vec<(PathBuf, SystemTime)>);

impl Touched {
    fn sources(krate: &Path) -> Result<Self> {
        let mut touched = Self(Vec::new());
        for root in ["src/lib.rs", "tests/it/main.rs"] {
            let path = krate.join(root);
            if path.exists() {
                let before = fs::metadata(&path)?.modified()?;
                set_modified(&path, SystemTime::now())?;
                touched.0.push((path, before));
            }
        }
        Ok(touched)
    }
}

impl Drop for Touched {
    fn drop(&mut self) {
        for (path, before) in &self.0 {
            let _ = set_modified(path, *before);
        }
    }
}

fn set_modified(path: &Path, to: SystemTime) -> Result<()> {
    File::options()
        .append(true)
        .open(path)
        .and_then(|file| file.set_modified(to))
        .with_context(|| format!("touching {}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_difference_is_named() {
        let data = |entries: &[(&str, &str)]| -> Data {
            entries
                .iter()
                .map(|(name, query)| ((*name).to_owned(), json!({ "query": query })))
                .collect()
        };
        let old = data(&[("query-a.json", "SELECT 1"), ("query-b.json", "SELECT 2")]);
        let fresh = data(&[("query-b.json", "SELECT 22"), ("query-c.json", "SELECT 3")]);
        assert_eq!(
            differences(&old, &fresh),
            [
                "  changed query-b.json: SELECT 22",
                "  missing query-c.json: SELECT 3",
                "  unused query-a.json: SELECT 1",
            ]
        );
        assert!(differences(&fresh, &fresh).is_empty());
    }
}
