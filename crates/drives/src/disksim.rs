//! Reads the parameter files of DiskSim, the disk simulator of Carnegie Mellon University, as plants.
//!
//! Source of the format: the DiskSim 4.0 reference manual (CMU-PDL-08-101), chapter 3, and the manual of its
//! disk model. A drive is described by several files: `.parv` (the system with its buses), which includes
//! `.diskspecs` (controller and cache), which includes `.model` (layout and mechanics), which names `.seek`
//! (times of seeks by distance) and for one kind of layout a map of all tracks.
//!
//! | module | what it does |
//! |---|---|
//! | `lexer` | words and signs, with the files that are included |
//! | `tree` | blocks of parameters, instances, topology |
//! | `fields` | typed parameters, with errors that name file and line |
//! | `drive` | controller, cache and bus |
//! | `mechanics` | seeks and rotation |
//! | `layout` | sectors to tracks: zones, trees of patterns, maps |

use std::io::Read;
use std::path::{Component, Path, PathBuf};

mod drive;
mod fields;
pub mod fuzzing;
mod layout;
mod lexer;
mod mechanics;
#[cfg(test)]
mod tests;
mod tree;

use crate::plant::PlantSpec;

/// Why files do not describe a drive.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ImportError {
    /// The file, and the line if there is one.
    pub place: String,
    /// The fault, and the remedy where that is not obvious.
    pub problem: String,
}

impl ImportError {
    fn new(place: impl std::fmt::Display, problem: impl Into<String>) -> Self {
        Self {
            place: place.to_string(),
            problem: problem.into(),
        }
    }
}

/// Files that may include each other.
pub trait Files {
    /// Names of all files.
    ///
    /// # Errors
    /// A sentence saying why there is no list.
    fn names(&self) -> Result<Vec<String>, String>;

    /// The bytes of a file, or the first `bytes_max` + 1 if it is longer.
    ///
    /// # Errors
    /// A sentence saying why it cannot be read.
    fn read(&self, name: &str, bytes_max: usize) -> Result<Vec<u8>, String>;
}

/// The files of a folder. Names that lead out of it are refused.
#[derive(Clone, Debug)]
pub struct Folder(pub PathBuf);

impl Files for Folder {
    fn names(&self) -> Result<Vec<String>, String> {
        let entries = std::fs::read_dir(&self.0).map_err(|error| error.to_string())?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            names.extend(entry.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
        let is_inside =
            |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(name).components().all(is_inside) {
            return Err("it is outside the folder; put it into the folder".into());
        }
        let path = self.0.join(name);
        let root = self.0.canonicalize().map_err(|error| error.to_string())?;
        let real = path.canonicalize().map_err(|error| error.to_string())?;
        if !real.starts_with(&root) {
            return Err("it is a link to a place outside the folder; copy it".into());
        }
        let file = std::fs::File::open(real).map_err(|error| error.to_string())?;
        let is_file = file
            .metadata()
            .map_err(|error| error.to_string())?
            .is_file();
        if !is_file {
            return Err("it is not a file".into());
        }
        let mut bytes = Vec::new();
        file.take(bytes_max as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| error.to_string())?;
        Ok(bytes)
    }
}

/// A drive that was read.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Its description.
    pub spec: PlantSpec,
    /// The description as a file.
    pub toml: String,
    /// Parameters that are not known or were adjusted, for people.
    pub notes: Vec<String>,
}

/// Reads the drive that `files` describe: all of it that the `.parv` file includes, or that the `.diskspecs`
/// file does where there is no `.parv`. `disk` chooses a drive by the name of its block.
///
/// # Errors
/// When something is missing, contradicts itself, or describes no drive.
pub fn import(files: &dyn Files, disk: Option<&str>) -> Result<Imported, ImportError> {
    let name = entrance(files)?;
    let tokens = lexer::tokens(files, &name)?;
    let tree = tree::parse(&tokens, &name)?;
    drive::read(files, &tree, &name, disk)
}

/// The file that includes the others.
fn entrance(files: &dyn Files) -> Result<String, ImportError> {
    const KINDS: [&str; 2] = [".parv", ".diskspecs"];
    let names = files
        .names()
        .map_err(|problem| ImportError::new("folder", problem))?;
    for kind in KINDS {
        let mut of_kind = names.iter().filter(|name| name.ends_with(kind));
        match (of_kind.next(), of_kind.next()) {
            (None, _) => {}
            (Some(name), None) => return Ok(name.clone()),
            (Some(first), Some(second)) => {
                let problem = format!(
                    "`{first}` and `{second}` both describe a system; leave one {kind} file in the folder"
                );
                return Err(ImportError::new("folder", problem));
            }
        }
    }
    let problem = format!(
        "there is neither a {} nor a {} file, which describe a drive's controller and name its model",
        KINDS[0], KINDS[1]
    );
    Err(ImportError::new("folder", problem))
}
