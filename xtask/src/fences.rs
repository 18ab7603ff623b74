//! `cargo xtask fences`: which crate may depend on what.
//!
//! A fence keeps a boundary of the design from eroding one convenient import at a time. The
//! rules look at what each manifest names, whatever the kind of dependency unless said otherwise.

use std::path::Path;

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

use crate::environment::blocking;
use crate::process::workspace;

/// Crates below `services/` that every service may use; whatever else is there is a service.
const SHARED: [&str; 4] = [
    "hooklane-core",
    "hooklane-local",
    "hooklane-store",
    "hooklane-testkit",
];
const BINARY: &str = "hooklane";
/// Each of these may be named by one crate only.
const OWNED: [(&str, &str); 3] = [
    ("async-nats", "hooklane-nats"),
    ("sqlx", "hooklane-store"),
    ("ractor", "hooklane-dispatcher"),
];
const WITH_MAIN: [&str; 3] = [BINARY, "loadtest", "xtask"];
/// Outside tests, only these may use the test fixtures; what is deployed may not.
const USES_FIXTURES: [&str; 2] = ["loadtest", "xtask"];
/// The wire types do no I/O, so they name nothing that does.
const NO_IO: (&str, [&str; 5]) = (
    "hooklane-proto",
    ["tokio", "reqwest", "axum", "hyper", "hickory-resolver"],
);

#[derive(Debug, Clone, Default)]
struct Crate {
    name: String,
    is_service: bool,
    has_main: bool,
    /// Name, and whether only tests use it.
    dependencies: Vec<(String, bool)>,
}

/// Fails, naming every fault, unless all fences hold.
pub(crate) async fn run() -> Result<()> {
    let crates = blocking(|| crates(workspace())).await?;
    let faults = faults(&crates);
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    println!("fences: {} crates, all hold", crates.len());
    Ok(())
}

fn crates(root: &Path) -> Result<Vec<Crate>> {
    let metadata: Metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("asking cargo for the workspace")?;
    let services = metadata.workspace_root.join("services");
    let crates = metadata.workspace_packages().into_iter().map(|package| {
        let name = package.name.to_string();
        Crate {
            is_service: package.manifest_path.starts_with(&services)
                && name != BINARY
                && !SHARED.contains(&name.as_str()),
            has_main: package.targets.iter().any(cargo_metadata::Target::is_bin),
            dependencies: package
                .dependencies
                .iter()
                .map(|dependency| {
                    let only_tests = dependency.kind == DependencyKind::Development;
                    (dependency.name.clone(), only_tests)
                })
                .collect(),
            name,
        }
    });
    Ok(crates.collect())
}

fn faults(crates: &[Crate]) -> Vec<String> {
    let is_service = |name: &str| {
        crates
            .iter()
            .any(|krate| krate.is_service && krate.name == name)
    };
    let mut faults = Vec::new();
    for krate in crates {
        let name = krate.name.as_str();
        if krate.has_main && !WITH_MAIN.contains(&name) {
            faults.push(format!("{name} has a main; only {WITH_MAIN:?} may"));
        }
        for (dependency, only_tests) in &krate.dependencies {
            let dependency = dependency.as_str();
            if krate.is_service && is_service(dependency) {
                faults.push(format!(
                    "{name} depends on {dependency}: services share through core, proto, nats and store"
                ));
            }
            if SHARED.contains(&name) && (is_service(dependency) || dependency == BINARY) {
                faults.push(format!(
                    "{name} depends on {dependency}, which is built on it"
                ));
            }
            if let Some((_, owner)) = OWNED
                .iter()
                .find(|(owned, owner)| *owned == dependency && *owner != name)
            {
                faults.push(format!("{name} depends on {dependency}; only {owner} may"));
            }
            if dependency == "hooklane-testkit" && !only_tests && !USES_FIXTURES.contains(&name) {
                faults.push(format!(
                    "{name} depends on {dependency} outside tests; make it a dev-dependency"
                ));
            }
            if name == NO_IO.0 && NO_IO.1.contains(&dependency) {
                faults.push(format!("{name} depends on {dependency}; it does no I/O"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn krate(name: &str, is_service: bool, dependencies: &[&str]) -> Crate {
        Crate {
            name: name.to_owned(),
            is_service,
            has_main: false,
            dependencies: dependencies
                .iter()
                .map(|dependency| ((*dependency).to_owned(), false))
                .collect(),
        }
    }

    #[test]
    fn this_workspace_keeps_its_fences() {
        let crates = crates(workspace()).unwrap();
        for service in [
            "hooklane-relay",
            "hooklane-dispatcher",
            "hooklane-recorder",
            "hooklane-dlq",
        ] {
            let found = crates.iter().find(|krate| krate.name == service);
            assert!(found.is_some_and(|krate| krate.is_service), "{service}");
        }
        assert_eq!(faults(&crates), Vec::<String>::new());
    }

    #[test]
    fn each_fence_fails_on_its_violation() {
        let relay = krate("hooklane-relay", true, &[]);
        let cases = [
            krate("hooklane-recorder", true, &["hooklane-relay"]),
            krate("hooklane-core", false, &["hooklane-relay"]),
            krate("hooklane-store", false, &["hooklane"]),
            krate("hooklane-recorder", true, &["async-nats"]),
            krate("hooklane-nats", false, &["sqlx"]),
            krate("hooklane-relay", true, &["ractor"]),
            krate("hooklane", false, &["hooklane-testkit"]),
            krate("hooklane-proto", false, &["tokio"]),
            Crate {
                has_main: true,
                ..krate("hooklane-core", false, &[])
            },
        ];
        for case in cases {
            let found = faults(&[relay.clone(), case.clone()]);
            assert_eq!(found.len(), 1, "{case:?}: {found:?}");
        }
    }

    #[test]
    fn what_the_fences_allow_is_no_fault() {
        let mut tested = krate("hooklane-relay", true, &["hooklane-core"]);
        tested
            .dependencies
            .push(("hooklane-testkit".to_owned(), true));
        let allowed = [
            tested,
            krate("hooklane-nats", false, &["async-nats"]),
            krate("hooklane-store", false, &["sqlx"]),
            krate("hooklane-dispatcher", true, &["ractor"]),
            krate("loadtest", false, &["hooklane-testkit"]),
            Crate {
                has_main: true,
                ..krate(
                    "hooklane",
                    false,
                    &["hooklane-relay", "hooklane-dispatcher"],
                )
            },
        ];
        assert_eq!(faults(&allowed), Vec::<String>::new());
    }

    #[test]
    fn a_violation_in_a_real_manifest_is_found() {
        let root = tempfile::tempdir().unwrap();
        let package = |dir: &str, name: &str, rest: &str| {
            let dir = root.path().join(dir);
            fs::create_dir_all(dir.join("src")).unwrap();
            fs::write(dir.join("src/lib.rs"), "").unwrap();
            let manifest = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n{rest}");
            fs::write(dir.join("Cargo.toml"), manifest).unwrap();
        };
        fs::write(
            root.path().join("Cargo.toml"),
            "[workspace]\nresolver = \"3\"\nmembers = [\"services/*\"]\n",
        )
        .unwrap();
        package("services/relay", "hooklane-relay", "");
        package(
            "services/recorder",
            "hooklane-recorder",
            "[dependencies]\nrenamed = { package = \"hooklane-relay\", path = \"../relay\" }\n",
        );
        let found = faults(&crates(root.path()).unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("hooklane-recorder depends on hooklane-relay"));
    }
}
