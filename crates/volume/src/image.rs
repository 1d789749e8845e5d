//! The replayed log: every volume's node, the grades of extents, and lost chunks.

use std::collections::{BTreeMap, BTreeSet};

use sched::units::Bytes;

use crate::chunks::ChunkSet;
use crate::grade::Grade;
use crate::ondisk::change::{Change, Written};
use crate::ondisk::table::Located;
use crate::place::{Place, VolumeId};

/// A volume as its node and the changes since describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeImage {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// Places of its extents, and their written chunks.
    pub extents: Vec<(Place, Written)>,
    /// Place of its full node, and the meta-extents that this spans.
    pub(crate) node: NodeAt,
    /// True if the volume has changed since its full node.
    pub(crate) changed: bool,
    /// Number of extents when the transaction is complete.
    wanted: u32,
}

/// Place of a full node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeAt {
    pub(crate) located: Located,
    pub(crate) spans: Vec<Place>,
}

/// The pool's metadata, replayed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Image {
    /// The volumes.
    pub volumes: BTreeMap<VolumeId, NodeImage>,
    /// Extents with a grade.
    pub grades: BTreeMap<Place, Grade>,
    /// Chunks whose data was lost, by volume and extent; those with a bit are not.
    pub lost: BTreeMap<(VolumeId, u32), ChunkSet>,
    /// The next volume's number.
    pub next_volume: u64,
    /// Number of entries in the list of grades and losses, and its place; true if they have changed since.
    pub(crate) list_at: Option<(u32, NodeAt)>,
    pub(crate) list_changed: bool,
}

impl Image {
    /// Applies a change that was read at `at`.
    ///
    /// # Errors
    /// Says why it does not fit what came before it.
    pub(crate) fn apply(&mut self, change: &Change, at: Located) -> Result<(), String> {
        match change {
            Change::Node {
                volume,
                size,
                extents,
                name,
            } => {
                let node = NodeAt {
                    located: at,
                    spans: vec![at.position.place],
                };
                let image = NodeImage {
                    name: name.clone(),
                    size: *size,
                    extents: Vec::new(),
                    node,
                    changed: false,
                    wanted: *extents,
                };
                self.next_volume = self.next_volume.max(volume.0.saturating_add(1));
                self.volumes.insert(*volume, image);
            }
            Change::Extents {
                volume,
                first,
                extents,
            } => self.add_extents(*volume, *first, extents, at)?,
            Change::Resize {
                volume,
                size,
                extents,
            } => {
                let node = self.volume(*volume)?;
                node.size = *size;
                node.wanted = *extents;
                node.extents.truncate(*extents as usize);
                node.changed = true;
                self.forget_lost(*volume, *extents);
            }
            Change::Move { volume, index, to } => {
                let node = self.volume(*volume)?;
                let extent = node.extents.get_mut(*index as usize);
                extent
                    .ok_or_else(|| format!("volume {} has no extent {index} to move", volume.0))?
                    .0 = *to;
                node.changed = true;
            }
            Change::Delete { volume } => {
                self.volumes
                    .remove(volume)
                    .ok_or_else(|| missing(*volume))?;
                self.forget_lost(*volume, 0);
            }
            Change::Rename { volume, name } => {
                let node = self.volume(*volume)?;
                node.name.clone_from(name);
                node.changed = true;
            }
            Change::Bits { volume, runs } => {
                let node = self.volume(*volume)?;
                for run in runs {
                    let range = run.first as usize..(run.first + run.count) as usize;
                    let extents = node.extents.get_mut(range);
                    let none = || {
                        format!(
                            "volume {} has no extent {}",
                            volume.0,
                            run.first + run.count - 1
                        )
                    };
                    for extent in extents.ok_or_else(none)? {
                        extent.1.clone_from(&run.written);
                    }
                }
                node.changed = true;
            }
            Change::Bad { .. } | Change::Grades { .. } => {
                self.list(change);
                self.list_changed = true;
            }
            Change::Lost { volume, index, .. } => {
                let node = self.volume(*volume)?;
                if *index as usize >= node.extents.len() {
                    return Err(format!("volume {} has no extent {index} to lose", volume.0));
                }
                self.list(change);
                self.list_changed = true;
            }
            Change::Link { .. } => {}
        }
        Ok(())
    }

    /// Takes an entry of the list of grades and losses. Returns the number of its entries; `None`: it is
    /// another kind of record.
    pub(crate) fn list(&mut self, change: &Change) -> Option<usize> {
        match change {
            Change::Bad { places } => {
                let bad = places.iter().map(|place| (*place, Grade::Bad));
                self.grades.extend(bad);
                Some(places.len())
            }
            Change::Grades { places } => {
                self.grades.extend(places.iter().copied());
                Some(places.len())
            }
            Change::Lost {
                volume,
                index,
                chunks,
            } => {
                let key = (*volume, *index);
                if chunks.is_empty() {
                    self.lost.remove(&key);
                } else {
                    self.lost.insert(key, **chunks);
                }
                Some(1)
            }
            _ => None,
        }
    }

    /// Forgets the losses of a volume's extents from this one on.
    fn forget_lost(&mut self, volume: VolumeId, from: u32) {
        let before = self.lost.len();
        self.lost
            .retain(|(other, index), _| *other != volume || *index < from);
        self.list_changed |= self.lost.len() < before;
    }

    fn volume(&mut self, volume: VolumeId) -> Result<&mut NodeImage, String> {
        self.volumes.get_mut(&volume).ok_or_else(|| missing(volume))
    }

    fn add_extents(
        &mut self,
        volume: VolumeId,
        first: u32,
        extents: &[(Place, Written)],
        at: Located,
    ) -> Result<(), String> {
        let node = self.volume(volume)?;
        let have = node.extents.len();
        if have != first as usize || have + extents.len() > node.wanted as usize {
            return Err(format!(
                "volume {} has {have} extents of {}, so {} from {first} on do not fit",
                volume.0,
                node.wanted,
                extents.len()
            ));
        }
        node.extents.extend_from_slice(extents);
        if !node.changed && node.node.spans.last() != Some(&at.position.place) {
            node.node.spans.push(at.position.place);
        }
        Ok(())
    }

    /// At the end of a transaction: every volume has the extents that it says.
    pub(crate) fn is_whole(&self, volume: VolumeId) -> bool {
        self.volumes
            .get(&volume)
            .is_none_or(|node| node.extents.len() == node.wanted as usize)
    }

    /// The extents that the nodes and the list of grades and losses are in.
    pub(crate) fn node_extents(&self) -> BTreeSet<Place> {
        let nodes = self.volumes.values().flat_map(|volume| &volume.node.spans);
        nodes
            .chain(self.list_at.iter().flat_map(|(_, at)| &at.spans))
            .copied()
            .collect()
    }

    /// No two volumes have the same name.
    pub(crate) fn check_names(&self) -> Result<(), String> {
        let mut names = BTreeMap::new();
        for (volume, node) in &self.volumes {
            if let Some(other) = names.insert(node.name.as_str(), *volume) {
                return Err(format!(
                    "volumes {} and {} are both named {:?}",
                    other.0, volume.0, node.name
                ));
            }
        }
        Ok(())
    }
}

fn missing(volume: VolumeId) -> String {
    format!("there is no volume {}", volume.0)
}

impl Change {
    /// The volume that it is about.
    pub(crate) fn volume(&self) -> Option<VolumeId> {
        match self {
            Self::Node { volume, .. }
            | Self::Extents { volume, .. }
            | Self::Resize { volume, .. }
            | Self::Move { volume, .. }
            | Self::Delete { volume }
            | Self::Rename { volume, .. }
            | Self::Bits { volume, .. }
            | Self::Lost { volume, .. } => Some(*volume),
            Self::Bad { .. } | Self::Grades { .. } | Self::Link { .. } => None,
        }
    }
}
