//! The `[[link]]` sections: disks that share a link, and how that is allowed for.

use std::path::{Path, PathBuf};

use engine::dispatcher::LINK_DISKS_MAX;
use sched::units::{Bytes, BytesPerSecond};
use serde::Deserialize;
use toml::Spanned;

use super::{DiskConfig, canonical};
use crate::failure::{Failure, Place, SourceFile};
use crate::quantity;

/// Bytes of a burst, if the section does not say: the largest that a string of the thesis showed (section 8.1: 4 ms at
/// 38.1 MB/s), in a power of two.
const BURST_DEFAULT: Bytes = Bytes::from_kib(256);

/// The largest burst, in bytes.
const BURST_MAX: Bytes = Bytes::from_mib(16);

/// Allowance for a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkAdmission {
    /// Service times are longer by what the other disks may transfer meanwhile.
    #[default]
    Inflate,
    /// The link carries some disks at their full rate, and these promise. The others serve best effort in a lent place.
    Lend,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    name: Spanned<String>,
    disks: Vec<Spanned<PathBuf>>,
    #[serde(deserialize_with = "quantity::text")]
    rate: BytesPerSecond,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    burst: Option<Bytes>,
    #[serde(default)]
    admission: LinkAdmission,
}

/// A link of the configuration.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Its name.
    pub name: String,
    /// Places of its disks in the list of disks, in the order of the section.
    pub disks: Vec<usize>,
    /// Its rate.
    pub rate: BytesPerSecond,
    /// Bytes that a disk moves before another one does.
    pub burst: Bytes,
    /// Allowance for it.
    pub admission: LinkAdmission,
    /// The place of its name in the configuration.
    pub place: Place,
}

/// Checks each link: at least two disks, all known, none on two links.
pub(super) fn links(
    source: &SourceFile<'_>,
    folder: &Path,
    sections: Vec<Section>,
    disks: &[DiskConfig],
) -> Result<Vec<LinkConfig>, Failure> {
    let mut links: Vec<LinkConfig> = Vec::with_capacity(sections.len());
    for section in sections {
        let name = section.name.get_ref();
        let at_name = |what: String| source.bad_input(section.name.span(), what);
        if links.iter().any(|other| other.name == *name) {
            return Err(at_name(format!("two links are called `{name}`"))
                .help("give each link a name of its own"));
        }
        if section.disks.len() < 2 {
            return Err(at_name(format!("link `{name}` has fewer than two disks"))
                .help("name the disks that share it, or remove the section"));
        }
        if section.disks.len() > LINK_DISKS_MAX {
            return Err(at_name(format!(
                "link `{name}` has more than {LINK_DISKS_MAX} disks"
            ))
            .help("name only the disks of one bottleneck"));
        }
        let mut of_link = Vec::with_capacity(section.disks.len());
        for disk in &section.disks {
            let path = folder.join(disk.get_ref());
            let known = disks
                .iter()
                .position(|known| canonical(&known.path) == canonical(&path));
            let Some(index) = known else {
                return Err(source
                    .bad_input(
                        disk.span(),
                        format!("link `{name}` names {}, which is no disk", path.display()),
                    )
                    .help("write a `path` of a [[disk]] section"));
            };
            let is_on_other = links.iter().any(|other| other.disks.contains(&index));
            if is_on_other || of_link.contains(&index) {
                let what = if is_on_other {
                    "is on another link already"
                } else {
                    "is named twice"
                };
                return Err(source
                    .bad_input(disk.span(), format!("{} {what}", path.display()))
                    .help("name each disk once, on the link that is its bottleneck"));
            }
            of_link.push(index);
        }
        let burst = section.burst.unwrap_or(BURST_DEFAULT);
        if burst > BURST_MAX {
            return Err(at_name(format!(
                "the bursts of link `{name}` are longer than {BURST_MAX}"
            ))
            .help("correct `burst`; without it, a burst has 256 KiB"));
        }
        links.push(LinkConfig {
            name: name.clone(),
            disks: of_link,
            rate: section.rate,
            burst,
            admission: section.admission,
            place: Place::new(source.path, &source.text, section.name.span()),
        });
    }
    Ok(links)
}
