//! The crates of the workspace as cargo reads their manifests: names are resolved, and targets found.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::modules::Crate;

/// A workspace, as `cargo metadata` describes it.
#[derive(Deserialize)]
pub(crate) struct Workspace {
    workspace_root: PathBuf,
    /// The workspace's members.
    pub(crate) packages: Vec<Package>,
}

/// A member.
#[derive(Deserialize)]
pub(crate) struct Package {
    name: String,
    manifest_path: PathBuf,
    /// The dependencies in its manifest, of every platform.
    pub(crate) dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

/// A line of a manifest's dependencies.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    /// The name of the package, whatever the sources call it.
    pub(crate) name: String,
    /// `dev` or `build`, or nothing.
    pub(crate) kind: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    src_path: PathBuf,
}

impl Workspace {
    /// Asks cargo.
    ///
    /// # Errors
    /// The message of cargo, if there is no such workspace.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let output = Command::new("cargo")
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .args(["--locked", "--offline"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
    }

    /// The folder of the member with this name, from the root of the repository.
    pub(crate) fn folder_of(&self, name: &str) -> Option<&Path> {
        let package = self.packages.iter().find(|package| package.name == name)?;
        Some(self.folder(package))
    }

    /// A member's folder, from the root of the repository.
    pub(crate) fn folder<'a>(&self, package: &'a Package) -> &'a Path {
        self.below_root(package.manifest_path.parent().unwrap_or(Path::new("")))
    }

    /// Sources that belong to no target, so that nobody compiles them.
    ///
    /// # Errors
    /// A file that is missing or is no Rust, named.
    pub(crate) fn never_compiled(&self) -> Result<Vec<String>, String> {
        let mut compiled = BTreeSet::new();
        for target in self.packages.iter().flat_map(|package| &package.targets) {
            for module in Crate::read_with_tests(&target.src_path)?.modules {
                compiled.insert(one_name(&module.file)?);
            }
        }
        let mut wrong = Vec::new();
        for package in &self.packages {
            for part in ["src", "tests", "benches"] {
                let folder = package.manifest_path.with_file_name(part);
                if !folder.exists() {
                    continue;
                }
                for file in rust_files(&folder)? {
                    if !compiled.contains(&one_name(&file)?) {
                        let name = file.file_stem().unwrap_or_default().display();
                        wrong.push(format!(
                            "{} is never compiled: declare it by `mod {name};` in the file above it, or remove it",
                            self.below_root(&file).display()
                        ));
                    }
                }
            }
        }
        Ok(wrong)
    }

    fn below_root<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.workspace_root).unwrap_or(path)
    }
}

/// The Rust files below a folder.
///
/// # Errors
/// A folder that cannot be read, named.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let said = |error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(said)? {
        let path = entry.map_err(said)?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// One name for a file, for every `#[path]` that leads to it.
fn one_name(file: &Path) -> Result<PathBuf, String> {
    file.canonicalize()
        .map_err(|error| format!("{}: {error}", file.display()))
}
