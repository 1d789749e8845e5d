//! Volumes on simulated disks, placed by the code that places them on real ones.
//!
//! A band is a range of the sectors of every disk that is formatted as a pool of its own, in memory: bands with
//! extents of different sizes can share the disks, as the partitions of the thesis do, whose blocks are of the
//! size that their streams ask for.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::stream::needs::Stretch;
use sched::units::{Bytes, SECTOR_BYTES, Sector, SectorCount};
use volume::limits::BLOCK_BYTES;
use volume::{
    Candidate, CreateSpec, DiskNumber, FormatSpec, Geometry, Medium, OpenError, Owner, Placement,
    PoolState, Step, Transaction, VolumeError,
};

/// A volume to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeSpec {
    /// Its name, and that of what it is made for.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// The disks that it lies on, in turn; none: all.
    pub disks: Vec<usize>,
}

/// A range of the sectors of every disk, and the volumes in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Band {
    /// The sectors of each disk.
    pub sectors: Range<Sector>,
    /// The size of its extents.
    pub extent: Bytes,
    /// The volumes, in the order in which they are made.
    pub volumes: Vec<VolumeSpec>,
}

/// Why a band cannot be.
#[derive(Debug, thiserror::Error)]
pub enum BandError {
    /// The size of its extents, its own or that of a volume is at fault.
    #[error("{what}: {error}")]
    Volume {
        /// The object that was to be made.
        what: String,
        /// Why not.
        error: VolumeError,
    },
    /// The formatted disks are no pool.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Places of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedVolume {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// The sizes of its extents and of their chunks.
    pub geometry: Geometry,
    /// Its extents in order.
    pub extents: Vec<Stretch>,
}

impl PlacedVolume {
    /// The parts of `length` bytes at `offset`, in order: the extent and the sectors on its disk. Bytes that are
    /// no whole sectors are widened to such.
    pub fn parts(
        &self,
        offset: Bytes,
        length: Bytes,
    ) -> impl Iterator<Item = (usize, Sector, SectorCount)> + '_ {
        let in_extent = self.geometry.extent_sectors().get();
        let mut at = offset.get() / SECTOR_BYTES;
        let end = (offset + length).get().div_ceil(SECTOR_BYTES);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let extent = &self.extents[(at / in_extent) as usize];
            let within = at % in_extent;
            let count = (in_extent - within).min(end - at);
            at += count;
            let start = extent.sectors.start + SectorCount(within);
            Some((extent.disk, start, SectorCount(count)))
        })
    }
}

/// Owner of the pool: it has no other server.
const OWNER: Owner = [1; 8];

/// Disks that hold what was written to them, in memory; zeros elsewhere.
#[derive(Default)]
struct Blocks(BTreeMap<(usize, u64), Box<[u8]>>);

impl Blocks {
    fn carry_out(&mut self, steps: &[Step]) {
        for step in steps {
            let Step::Write { disk, start, data } = step else {
                continue;
            };
            let first = start.get() * SECTOR_BYTES / BLOCK_BYTES;
            for (index, block) in (first..).zip(data.chunks(BLOCK_BYTES as usize)) {
                let mut whole = vec![0; BLOCK_BYTES as usize].into_boxed_slice();
                whole[..block.len()].copy_from_slice(block);
                self.0.insert((usize::from(disk.0), index), whole);
            }
        }
    }

    fn commit(&mut self, pool: &mut PoolState, transaction: Transaction) {
        self.carry_out(transaction.steps());
        pool.commit(transaction);
    }
}

impl Medium for Blocks {
    fn read(&mut self, candidate: usize, start: Sector, buffer: &mut [u8]) -> std::io::Result<()> {
        let first = start.get() * SECTOR_BYTES / BLOCK_BYTES;
        for (index, block) in (first..).zip(buffer.chunks_mut(BLOCK_BYTES as usize)) {
            match self.0.get(&(candidate, index)) {
                Some(held) => block.copy_from_slice(&held[..block.len()]),
                None => block.fill(0),
            }
        }
        Ok(())
    }
}

impl Band {
    /// Makes its volumes on `disks` disks.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn place(&self, disks: usize) -> Result<Vec<PlacedVolume>, BandError> {
        let sectors = self.sectors.end - self.sectors.start;
        let candidates: Vec<Candidate> = (0..disks)
            .map(|disk| Candidate {
                name: format!("disk {disk}"),
                sectors,
            })
            .collect();
        let spec = FormatSpec {
            pool: [1; 16],
            disks: (2..)
                .map(|id| [id; 16])
                .zip(candidates.iter().cloned())
                .collect(),
            extent_bytes: self.extent,
        };
        let of_band = |error| BandError::Volume {
            what: "a band of the disks".to_owned(),
            error,
        };
        let mut blocks = Blocks::default();
        blocks.carry_out(&PoolState::format(&spec).map_err(of_band)?);
        let mut pool = PoolState::open(&mut blocks, &candidates)?;
        let start = pool.start(OWNER).map_err(of_band)?;
        blocks.commit(&mut pool, start);
        let volumes = self.volumes.iter();
        volumes
            .map(|volume| self.create(&mut blocks, &mut pool, volume))
            .collect()
    }

    fn create(
        &self,
        blocks: &mut Blocks,
        pool: &mut PoolState,
        volume: &VolumeSpec,
    ) -> Result<PlacedVolume, BandError> {
        let spec = CreateSpec {
            name: volume.name.clone(),
            size: volume.size,
            placement: Placement {
                disks: volume
                    .disks
                    .iter()
                    .map(|disk| DiskNumber(*disk as u16))
                    .collect(),
                strict: true,
                ..Placement::default()
            },
        };
        let transaction = pool.create(&spec).map_err(|error| BandError::Volume {
            what: format!("volume `{}`", volume.name),
            error,
        })?;
        blocks.carry_out(transaction.steps());
        let committed = pool.commit(transaction);
        let map = committed.maps.into_iter().find_map(|(_, map)| map);
        let map = map.expect("a volume that is made has a map");
        let geometry = map.geometry();
        let extents = map.places().map(|place| {
            let Stretch { disk, sectors } = Stretch::of(geometry, place);
            let from = SectorCount(self.sectors.start.get());
            Stretch {
                disk,
                sectors: sectors.start + from..sectors.end + from,
            }
        });
        Ok(PlacedVolume {
            name: volume.name.clone(),
            size: map.size(),
            geometry,
            extents: extents.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(extent: Bytes, volumes: Vec<VolumeSpec>) -> Band {
        Band {
            sectors: Sector(4_096)..Sector(4_096 + (64 << 20) / SECTOR_BYTES),
            extent,
            volumes,
        }
    }

    fn volume(name: &str, mib: u64, disks: &[usize]) -> VolumeSpec {
        VolumeSpec {
            name: name.to_owned(),
            size: Bytes::from_mib(mib),
            disks: disks.to_vec(),
        }
    }

    #[test]
    fn extents_go_to_the_disks_in_turn_within_the_band() {
        let volumes = vec![volume("all", 9, &[]), volume("two", 4, &[2, 0])];
        let placed = band(Bytes::from_mib(1), volumes).place(3).unwrap();
        let disks = |of: &PlacedVolume| of.extents.iter().map(|at| at.disk).collect::<Vec<_>>();
        let first = disks(&placed[0])[0];
        let turns: Vec<usize> = (first..first + 9).map(|turn| turn % 3).collect();
        assert_eq!(disks(&placed[0]), turns);
        assert_eq!(disks(&placed[1]), [2, 0, 2, 0]);
        let all: Vec<&Stretch> = placed.iter().flat_map(|of| &of.extents).collect();
        for (index, at) in all.iter().enumerate() {
            assert!(at.sectors.start >= Sector(4_096));
            assert!(at.sectors.end <= Sector(4_096 + (64 << 20) / SECTOR_BYTES));
            let apart = |other: &&&Stretch| {
                other.disk != at.disk
                    || other.sectors.end <= at.sectors.start
                    || at.sectors.end <= other.sectors.start
            };
            assert!(all[..index].iter().all(|other| apart(&other)));
        }
    }

    #[test]
    fn a_request_is_cut_at_extents_and_nowhere_else() {
        let placed = band(Bytes::from_kib(256), vec![volume("all", 3, &[])]);
        let placed = &placed.place(3).unwrap()[0];
        let parts: Vec<_> = placed
            .parts(Bytes(256 * 1_024 - 700), Bytes(256 * 1_024 + 800))
            .collect();
        let counts: Vec<u64> = parts.iter().map(|part| part.2.get()).collect();
        assert_eq!(counts, [2, 512, 1]);
        assert_eq!(parts[1].1, placed.extents[1].sectors.start);
        assert_eq!(parts[0].1 + parts[0].2, placed.extents[0].sectors.end);
    }

    #[test]
    fn load_that_does_not_fit_is_refused_by_name() {
        let error = band(Bytes::from_mib(1), vec![volume("large", 500, &[])]).place(3);
        let said = error.unwrap_err().to_string();
        assert!(said.starts_with("volume `large`: "), "{said}");
    }
}
