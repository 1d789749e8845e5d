//! The sections `[[disk]]` of the configuration: what each disk is, with the profiles and drive models
//! that they name.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drives::plant::PlantSpec;
use drives::plant::spec::BUILT_IN;
use engine::disk::Durability;
use sched::profile::{DriveProfile, ProfileError};
use sched::units::Bytes;
use serde::Deserialize;
use toml::Spanned;

use super::real;
use crate::failure::{Failure, Place, SourceFile};
use crate::quantity;

/// More requests at a time than any drive profile was measured with.
const OUTSTANDING_MAX: u32 = 256;

/// What sort of thing a disk of the configuration is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    /// A block device.
    Block,
    /// A file on a file system of the host.
    File,
    /// A simulated drive, with its data in a sparse file.
    Emulated,
}

/// The engine's word for how writes become durable, as a key of a file.
#[derive(Deserialize)]
#[serde(remote = "Durability", rename_all = "kebab-case")]
enum DurabilityKey {
    WriteThrough,
    Fua,
    Host,
}

fn durability<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Durability>, D::Error> {
    DurabilityKey::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    path: Spanned<PathBuf>,
    kind: DiskKind,
    profile: Option<Spanned<String>>,
    outstanding: Option<Spanned<u32>>,
    #[serde(default, deserialize_with = "durability")]
    durability: Option<Durability>,
    plant: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    size: Option<Bytes>,
}

/// A disk of the configuration.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The device, or the file with its data.
    pub path: PathBuf,
    /// What it is.
    pub kind: DiskKind,
    /// Its profile, if the configuration names one.
    pub profile: Option<Arc<DriveProfile>>,
    /// Whether that is one that is shipped, not one in a file of its own.
    pub profile_is_shipped: bool,
    /// Requests it is given at a time, if the configuration says so.
    pub outstanding: Option<u32>,
    /// How its writes must become durable, if the configuration says so; another way is an error.
    pub durability: Option<Durability>,
    /// For an emulated drive: the mechanical model.
    pub plant: Option<PlantSpec>,
    /// For a file that is to be made: its size.
    pub size: Option<Bytes>,
    /// Where the configuration names it.
    pub place: Place,
}

/// Checks the disks, one by one and against each other.
pub(super) fn disks(
    source: &SourceFile<'_>,
    folder: &Path,
    sections: Vec<Spanned<Section>>,
) -> Result<Vec<DiskConfig>, Failure> {
    if sections.is_empty() {
        return Err(source
            .wrong(0..0, "no disks are named")
            .help("add a [[disk]] with at least `path` and `kind`"));
    }
    let mut seen = HashMap::new();
    let mut disks = Vec::with_capacity(sections.len());
    for section in sections {
        let span = section.get_ref().path.span();
        let disk = disk(source, folder, section)?;
        // Two names of one device are found by what they lead to.
        if let Some(first) = seen.insert(real(&disk.path), span.start) {
            let line = source.text[..first].matches('\n').count() + 1;
            return Err(source
                .wrong(
                    span,
                    format!(
                        "{} is named twice; the first is in line {line}",
                        disk.path.display()
                    ),
                )
                .help("take one of them out"));
        }
        disks.push(disk);
    }
    Ok(disks)
}

fn disk(
    source: &SourceFile<'_>,
    folder: &Path,
    section: Spanned<Section>,
) -> Result<DiskConfig, Failure> {
    let whole = section.span();
    let section = section.into_inner();
    let emulated = section.kind == DiskKind::Emulated;
    if let (Some(plant), false) = (&section.plant, emulated) {
        return Err(source
            .wrong(plant.span(), "`plant` is for emulated drives")
            .help("write kind = \"emulated\", or take `plant` out"));
    }
    if section.plant.is_none() && emulated {
        return Err(source
            .wrong(
                whole,
                "an emulated drive needs a `plant`, the model it behaves as",
            )
            .help("such as plant = \"hdd-8tb-7200\""));
    }
    if section.size.is_some() && section.kind != DiskKind::File {
        return Err(source
            .wrong(
                whole,
                "`size` is for disks in files; a drive has the size it has",
            )
            .help("take `size` out"));
    }
    if let Some(outstanding) = &section.outstanding
        && !(1..=OUTSTANDING_MAX).contains(outstanding.get_ref())
    {
        return Err(source
            .wrong(
                outstanding.span(),
                format!(
                    "`outstanding` is {}; it must be 1 to {OUTSTANDING_MAX}",
                    outstanding.get_ref()
                ),
            )
            .help("take it out: the profile says how many there were when it was measured"));
    }
    let profile = section
        .profile
        .as_ref()
        .map(|name| profile(source, folder, name))
        .transpose()?;
    let name = section.profile.as_ref().map(Spanned::get_ref);
    let profile_is_shipped = name.is_some_and(|name| !is_file_name(name));
    let outstanding = depth(source, &section, profile.as_ref(), whole)?;
    let place = Place::new(source.path, &source.text, section.path.span());
    Ok(DiskConfig {
        place,
        path: folder.join(section.path.into_inner()),
        kind: section.kind,
        profile: profile.map(Arc::new),
        profile_is_shipped,
        outstanding,
        durability: section.durability,
        plant: section
            .plant
            .as_ref()
            .map(|name| plant(source, folder, name))
            .transpose()?,
        size: section.size,
    })
}

/// How many requests the disk is given at a time, unless that is left to its profile: one, unless that was
/// measured with more, because admission rests on the times that hold at that depth.
fn depth(
    source: &SourceFile<'_>,
    section: &Section,
    profile: Option<&DriveProfile>,
    whole: Range<usize>,
) -> Result<Option<u32>, Failure> {
    let asked = section.outstanding.as_ref();
    let span = asked.map(Spanned::span);
    let asked = asked.map(|asked| *asked.get_ref());
    let measured_with = match profile {
        Some(profile) if profile.measured() => profile.outstanding(),
        _ => 1,
    };
    let given = asked.unwrap_or_else(|| profile.map_or(1, DriveProfile::outstanding));
    if given <= measured_with {
        return Ok(asked);
    }
    let why = match profile {
        Some(profile) if profile.measured() => format!(
            "its profile {:?} was measured with {measured_with}",
            profile.name()
        ),
        Some(profile) => format!("its profile {:?} was not measured", profile.name()),
        None => "it has no profile that was measured".to_owned(),
    };
    Err(source
        .wrong(
            span.unwrap_or(whole),
            format!("{given} requests at a time are too many for this disk: {why}"),
        )
        .help("measure its service times with so many, and name a `profile` that says so; or write outstanding = 1"))
}

/// A built-in mechanical model by its name, or one in a file of its own.
fn plant(
    source: &SourceFile<'_>,
    folder: &Path,
    name: &Spanned<String>,
) -> Result<PlantSpec, Failure> {
    let text = name.get_ref();
    if !is_file_name(text) {
        return PlantSpec::built_in(text).ok_or_else(|| {
            source
                .wrong(name.span(), format!("no drive model is called `{text}`"))
                .help(format!(
                    "name a built-in one ({}), or a file that ends in .toml",
                    BUILT_IN.join(", ")
                ))
        });
    }
    let path = folder.join(text);
    let file = SourceFile::read(&path)
        .map_err(|failure| source.wrong(name.span(), failure.what).help(failure.help))?;
    PlantSpec::parse(&file.text).map_err(|error| {
        source
            .wrong(name.span(), format!("{}: {error}", path.display()))
            .help("correct that file, or name a built-in model")
    })
}

/// Whether a name means a file, not something that is built in.
fn is_file_name(text: &str) -> bool {
    text.ends_with(".toml") || text.contains('/')
}

/// A shipped profile by its name, or one in a file of its own.
fn profile(
    source: &SourceFile<'_>,
    folder: &Path,
    name: &Spanned<String>,
) -> Result<DriveProfile, Failure> {
    let text = name.get_ref();
    if !is_file_name(text) {
        return DriveProfile::shipped(text).map_err(|error| {
            source
                .wrong(name.span(), error.to_string())
                .help("name a shipped profile, or a file that ends in .toml")
        });
    }
    let path = folder.join(text);
    let file = SourceFile::read(&path)
        .map_err(|failure| source.wrong(name.span(), failure.what).help(failure.help))?;
    DriveProfile::from_toml(&file.text).map_err(|error| {
        match error {
            ProfileError::Toml(error) => {
                file.wrong(error.span().unwrap_or(0..0), error.message().trim_end())
            }
            other => file.wrong(0..0, other.to_string()),
        }
        .help("docs/reference/profile.md describes every key of a profile")
    })
}
