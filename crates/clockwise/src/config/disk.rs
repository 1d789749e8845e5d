//! The `[[disk]]` sections: the disks of the pool, with the drive profiles and drive models that they name.

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

use super::canonical;
use crate::failure::{Failure, Place, SourceFile};
use crate::quantity;

/// Upper limit of outstanding requests, more than any drive profile was measured with.
const OUTSTANDING_MAX: u32 = 256;

/// The kind of a disk.
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

/// The engine's [`Durability`] as a key of the file.
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
    /// Its kind.
    pub kind: DiskKind,
    /// Its drive profile, if the configuration sets one.
    pub profile: Option<Arc<DriveProfile>>,
    /// True for a profile that is shipped with the program, false for one in a file.
    pub profile_is_shipped: bool,
    /// The most outstanding requests, if the configuration sets it.
    pub outstanding: Option<u32>,
    /// The method by which its writes become durable, if the configuration sets it. A disk that does not
    /// support it is an error.
    pub durability: Option<Durability>,
    /// The mechanical model of an emulated drive.
    pub plant: Option<PlantSpec>,
    /// The size of a file that is to be created.
    pub size: Option<Bytes>,
    /// The place of its path in the configuration.
    pub place: Place,
}

/// Checks each disk, and that none is named twice.
pub(super) fn disks(
    source: &SourceFile<'_>,
    folder: &Path,
    sections: Vec<Spanned<Section>>,
) -> Result<Vec<DiskConfig>, Failure> {
    if sections.is_empty() {
        return Err(source
            .bad_input(0..0, "the configuration has no disks")
            .help("add a [[disk]] with at least `path` and `kind`"));
    }
    let mut seen = HashMap::new();
    let mut disks = Vec::with_capacity(sections.len());
    for section in sections {
        let span = section.get_ref().path.span();
        let disk = disk(source, folder, section)?;
        // Two paths of one device have the same canonical path.
        if let Some(first) = seen.insert(canonical(&disk.path), span.start) {
            let line = source.text[..first].matches('\n').count() + 1;
            return Err(source
                .bad_input(
                    span,
                    format!(
                        "{} is named twice, first in line {line}",
                        disk.path.display()
                    ),
                )
                .help("remove one of the two sections"));
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
            .bad_input(plant.span(), "`plant` is only for emulated drives")
            .help("write kind = \"emulated\", or remove `plant`"));
    }
    if section.plant.is_none() && emulated {
        return Err(source
            .bad_input(
                whole,
                "an emulated drive needs a `plant`, the drive model to emulate",
            )
            .help("add one, such as plant = \"hdd-8tb-7200\""));
    }
    if section.size.is_some() && section.kind != DiskKind::File {
        return Err(source
            .bad_input(
                whole,
                "`size` is only for disks in files; other disks have a fixed size",
            )
            .help("remove `size` from this section"));
    }
    if let Some(outstanding) = &section.outstanding
        && !(1..=OUTSTANDING_MAX).contains(outstanding.get_ref())
    {
        return Err(source
            .bad_input(
                outstanding.span(),
                format!(
                    "`outstanding` is {}; it must be from 1 to {OUTSTANDING_MAX}",
                    outstanding.get_ref()
                ),
            )
            .help("remove it: then the profile's own value is used"));
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

/// The configured number of outstanding requests, which must not exceed the number at which the profile was
/// measured (one for a disk without a measured profile): admission relies on the service times at that depth.
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
        .bad_input(
            span.unwrap_or(whole),
            format!("{given} outstanding requests are too many for this disk: {why}"),
        )
        .help("measure its service times at that depth and set the resulting `profile`, or write outstanding = 1"))
}

/// Finds a built-in drive model by its name, or reads one from a file.
fn plant(
    source: &SourceFile<'_>,
    folder: &Path,
    name: &Spanned<String>,
) -> Result<PlantSpec, Failure> {
    let text = name.get_ref();
    if !is_file_name(text) {
        return PlantSpec::built_in(text).ok_or_else(|| {
            source
                .bad_input(name.span(), format!("no drive model is called `{text}`"))
                .help(format!(
                    "give a built-in model ({}), or a file whose name ends in .toml",
                    BUILT_IN.join(", ")
                ))
        });
    }
    let path = folder.join(text);
    let file = read_named(source, name, &path)?;
    PlantSpec::parse(&file.text).map_err(|error| {
        source
            .bad_input(name.span(), format!("{}: {error}", path.display()))
            .help("correct that file, or give a built-in model")
    })
}

/// Reads a file that the configuration names. A failure has the place of the name.
fn read_named<'a>(
    source: &SourceFile<'_>,
    name: &Spanned<String>,
    path: &'a Path,
) -> Result<SourceFile<'a>, Failure> {
    SourceFile::read(path).map_err(|failure| {
        source
            .bad_input(name.span(), failure.what)
            .help(failure.help)
    })
}

/// True if a name means a file, not something built in.
fn is_file_name(text: &str) -> bool {
    text.ends_with(".toml") || text.contains('/')
}

/// Finds a shipped profile by its name, or reads one from a file.
fn profile(
    source: &SourceFile<'_>,
    folder: &Path,
    name: &Spanned<String>,
) -> Result<DriveProfile, Failure> {
    let text = name.get_ref();
    if !is_file_name(text) {
        return DriveProfile::shipped(text).map_err(|error| {
            source
                .bad_input(name.span(), error.to_string())
                .help("give a shipped profile, or a file whose name ends in .toml")
        });
    }
    let path = folder.join(text);
    let file = read_named(source, name, &path)?;
    DriveProfile::from_toml(&file.text).map_err(|error| {
        match error {
            ProfileError::Toml(error) => {
                file.bad_input(error.span().unwrap_or(0..0), error.message().trim_end())
            }
            other => file.bad_input(0..0, other.to_string()),
        }
        .help("docs/reference/profile.md describes every key of a profile")
    })
}
