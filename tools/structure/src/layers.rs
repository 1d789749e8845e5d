//! The layers that `tools/layers.toml` declares, held against what the crates and modules import.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::imports::Import;

/// What may import what, by the names that the sources use.
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

/// What a crate may import.
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
    /// What is wrong with the file, and where.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// What crates import and may not, and crates that are not declared.
    ///
    /// # Errors
    /// A manifest that cannot be read.
    pub(crate) fn wrong_crates(&self, root: &Path) -> Result<Vec<String>, String> {
        let mut wrong = Vec::new();
        for folder in members(root)? {
            let Some((name, layer)) = self.crates.iter().find(|(_, layer)| layer.folder == folder)
            else {
                wrong.push(format!(
                    "{folder} is not in tools/layers.toml: say there what it may import"
                ));
                continue;
            };
            let manifest = manifest(&root.join(&folder))?;
            for (kind, is_for_tests) in [
                ("dependencies", false),
                ("build-dependencies", false),
                ("dev-dependencies", true),
            ] {
                let Some(table) = manifest.get(kind).and_then(toml::Value::as_table) else {
                    continue;
                };
                for other in table.keys().filter(|key| self.crates.contains_key(*key)) {
                    // Tests may name their own crate once more, with the features that are for tests.
                    let of_tests =
                        is_for_tests && (other == name || self.for_tests.contains(other));
                    if !(layer.may.contains(other) || of_tests) {
                        wrong.push(format!(
                            "{name} must not import {other} ({folder}/Cargo.toml, [{kind}])"
                        ));
                    }
                }
            }
        }
        Ok(wrong)
    }

    /// What modules of a crate import and may not, and modules that are not declared.
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

/// The folders of the workspace's members.
fn members(root: &Path) -> Result<Vec<String>, String> {
    let manifest = manifest(root)?;
    let listed = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("members"))
        .and_then(toml::Value::as_array);
    let listed = listed.ok_or("Cargo.toml: there is no workspace with members")?;
    Ok(listed
        .iter()
        .filter_map(toml::Value::as_str)
        .map(str::to_owned)
        .collect())
}

fn manifest(folder: &Path) -> Result<toml::Value, String> {
    let file = folder.join("Cargo.toml");
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
}
