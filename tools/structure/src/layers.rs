//! The layers that `tools/layers.toml` declares, held against what the crates and modules import.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::imports::Import;
use crate::workspace::Workspace;

/// Allowed imports, by the names that the sources use.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layers {
    /// The most files that may import each other in a circle.
    pub(crate) circle_files_max: usize,
    /// Crates that only tests and benches may import.
    #[serde(default)]
    pub(crate) for_tests: Vec<String>,
    /// For each crate the crates that it may import.
    pub(crate) crates: BTreeMap<String, CrateLayer>,
    /// For some crates, for each of their top modules the others that it may import.
    pub(crate) modules: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// Allowed imports of a crate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CrateLayer {
    /// Its folder, from the root of the repository.
    pub(crate) folder: String,
    /// The crates that it may import.
    pub(crate) may: Vec<String>,
}

impl Layers {
    /// Reads the declaration.
    ///
    /// # Errors
    /// The fault of the file, and its place.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Forbidden imports of crates, and crates that are not declared.
    pub(crate) fn wrong_crates(&self, workspace: &Workspace) -> Vec<String> {
        let mut wrong = Vec::new();
        for package in &workspace.packages {
            let folder = workspace.folder(package);
            let Some((name, layer)) = self.crate_in(folder) else {
                wrong.push(format!(
                    "{} is not in tools/layers.toml: say there what it may import",
                    folder.display()
                ));
                continue;
            };
            for dependency in &package.dependencies {
                let other = workspace.folder_of(&dependency.name);
                let Some((other, _)) = other.and_then(|folder| self.crate_in(folder)) else {
                    continue;
                };
                // Tests may name their own crate once more, with the features that are for tests.
                let of_tests = dependency.kind.as_deref() == Some("dev")
                    && (other == name || self.for_tests.contains(other));
                if !(layer.may.contains(other) || of_tests) {
                    let kind = dependency.kind.as_ref();
                    let kind = kind.map_or(String::new(), |kind| format!("{kind}-"));
                    wrong.push(format!(
                        "{name} must not import {other} ({}/Cargo.toml, {kind}dependencies)",
                        folder.display()
                    ));
                }
            }
        }
        wrong
    }

    fn crate_in(&self, folder: &Path) -> Option<(&String, &CrateLayer)> {
        self.crates
            .iter()
            .find(|(_, layer)| Path::new(&layer.folder) == folder)
    }

    /// Forbidden imports of a crate's modules, and modules that are not declared.
    pub(crate) fn wrong_modules(&self, name: &str, imports: &BTreeSet<Import>) -> Vec<String> {
        let Some(layers) = self.modules.get(name) else {
            return Vec::new();
        };
        let mut wrong = BTreeSet::new();
        for import in imports {
            let (from, to) = (top(&import.from), top(&import.to));
            if from.is_empty() || to.is_empty() || from == to {
                continue;
            }
            match layers.get(from) {
                None => {
                    wrong.insert(format!(
                        "{name}::{from} is not in tools/layers.toml: say there what it may import"
                    ));
                }
                Some(may) if !may.iter().any(|other| other == to) => {
                    wrong.insert(format!(
                        "{name}::{from} must not import {name}::{to} ({})",
                        import.file.display()
                    ));
                }
                Some(_) => {}
            }
        }
        wrong.into_iter().collect()
    }
}

/// For each top module of a crate the others that it imports.
pub(crate) fn between_tops(imports: &BTreeSet<Import>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in imports {
        let (from, to) = (top(&import.from), top(&import.to));
        let imported = found.entry(from).or_default();
        if !to.is_empty() && from != to {
            imported.insert(to);
        }
    }
    found
}

fn top(path: &str) -> &str {
    path.split("::").next().unwrap_or_default()
}
