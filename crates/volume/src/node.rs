//! A volume in memory, and the changes that make up its full node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::chunks::ChunkSet;
use crate::dirty::Shared;
use crate::extent::Extent;
use crate::image::{NodeAt, NodeImage};
use crate::map::VolumeMap;
use crate::ondisk::change::{Change, Written};
use crate::ondisk::payload::extents_per_record;
use crate::place::{Geometry, VolumeId};

/// A volume in memory.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) map: Arc<VolumeMap>,
    pub(crate) node: NodeAt,
    /// True if the log has changes of it after its full node.
    pub(crate) changed: bool,
}

impl Volume {
    pub(crate) fn load(
        id: VolumeId,
        node: NodeImage,
        geometry: Geometry,
        lost: &BTreeMap<(VolumeId, u32), ChunkSet>,
    ) -> Self {
        let shared = Arc::new(Shared::new(id, geometry));
        let extents = node
            .extents
            .iter()
            .enumerate()
            .map(|(index, (place, written))| {
                let (index, written) = (index as u32, written.set(geometry));
                let extent = Extent::new(index, *place, &written, Arc::clone(&shared));
                if let Some(lost) = lost.get(&(id, index)) {
                    extent.lose(&lost.without(&written));
                }
                Arc::new(extent)
            });
        let map = VolumeMap::new(node.size, extents.collect(), Arc::clone(&shared));
        Self {
            name: node.name,
            map: Arc::new(map),
            node: node.node,
            changed: node.changed,
        }
    }

    /// Its full node: as it is now.
    pub(crate) fn node(&self) -> Vec<Change> {
        node_of(&self.name, &self.map)
    }
}

/// The changes that make up the full node of a volume.
pub(crate) fn node_of(name: &str, map: &VolumeMap) -> Vec<Change> {
    let (volume, extents) = (map.volume(), map.extents());
    let mut node = vec![Change::Node {
        volume,
        size: map.size(),
        extents: extents.len() as u32,
        name: name.to_owned(),
    }];
    node.extend(extents_of(map, 0));
    node
}

/// The extents of a volume from `from` on, as changes.
pub(crate) fn extents_of(map: &VolumeMap, from: usize) -> Vec<Change> {
    let geometry = map.geometry();
    let per_record = extents_per_record(geometry);
    let of = |extent: &Arc<Extent>| (extent.place(), Written::of(&extent.written(), geometry));
    let chunk = |(index, part): (usize, &[Arc<Extent>])| Change::Extents {
        volume: map.volume(),
        first: (from + index * per_record) as u32,
        extents: part.iter().map(of).collect(),
    };
    map.extents()[from..]
        .chunks(per_record)
        .enumerate()
        .map(chunk)
        .collect()
}
