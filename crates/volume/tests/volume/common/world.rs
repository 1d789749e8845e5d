//! A pool, the model of what it may hold, and operations on both that cut the power at every step.

use std::sync::Arc;

use sched::units::{Bytes, Sector};
use volume::limits::HEADER_BYTES;
use volume::{
    CreateSpec, DiskNumber, Move, Placement, PoolState, Transaction, VolumeError, VolumeId,
    VolumeMap,
};

use super::crashes::{Effort, random_owner};
use super::disks::*;
use super::model::*;
use testkit::Random;

/// Handling of data writes by a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Durable when answered.
    Forced,
    /// Durable after a flush.
    Host,
}

/// A pool on such disks with the model of what it holds.
pub struct World {
    pub disks: Vec<Disk>,
    pub pool: PoolState,
    pub model: Model,
    pub durability: Durability,
    pub random: Random,
    pub effort: Effort,
    pub crashes: u64,
    pub points: u64,
    stamp: u64,
    next: u64,
}

impl World {
    pub fn new(
        disks: usize,
        extents: u64,
        durability: Durability,
        seed: u64,
        effort: Effort,
    ) -> Self {
        let sectors = sectors(extents);
        let mut disks = vec![Disk::new(sectors); disks];
        // Data that other owners left.
        for (number, disk) in disks.iter_mut().enumerate() {
            for sector in HEADER_BYTES / SECTOR as u64..sectors {
                disk.write(
                    Sector(sector),
                    &stamped(0xf0f0_0000_0000 + ((number as u64) << 32) + sector),
                );
            }
            disk.flush();
        }
        format(&mut disks, 1);
        let pool = open(&disks).unwrap();
        let random = Random(seed);
        let model = Model::new();
        let mut world = Self {
            disks,
            pool,
            model,
            durability,
            random,
            effort,
            crashes: 0,
            points: 0,
            stamp: 1,
            next: 1,
        };
        world.start();
        world
    }

    pub fn start(&mut self) {
        let owner = random_owner(&mut self.random);
        let transaction = self.pool.start(owner).unwrap();
        self.run(transaction, self.model.clone(), "starting");
    }

    /// The server ends and another begins.
    pub fn restart(&mut self) {
        let volumes: Vec<_> = self.model.keys().copied().collect();
        volumes.into_iter().for_each(|volume| self.flush(volume));
        let transaction = self.pool.stop().unwrap();
        self.run(transaction, self.model.clone(), "stopping");
        self.pool = open(&self.disks).unwrap();
        self.start();
    }

    pub fn create(
        &mut self,
        name: &str,
        bytes: u64,
        placement: Placement,
    ) -> Result<VolumeId, VolumeError> {
        let spec = CreateSpec {
            name: name.to_owned(),
            size: Bytes(bytes),
            placement,
        };
        let transaction = self.pool.create(&spec)?;
        let id = VolumeId(self.next);
        let mut after = self.model.clone();
        after.insert(id, VolumeModel::new(name, bytes));
        let committed = self.run(transaction, after, &format!("creating {name}"));
        assert_eq!(committed.maps[0].0, id);
        self.next += 1;
        Ok(id)
    }

    pub fn resize(&mut self, volume: VolumeId, bytes: u64) -> Result<(), VolumeError> {
        let size = Bytes(bytes);
        let cells = bytes.div_ceil(SECTOR as u64) as usize;
        let larger = cells > self.model[&volume].cells.len();
        let transaction = if larger {
            self.pool.grow(volume, size, &Placement::default())?
        } else {
            self.pool.shrink(volume, size)?
        };
        let doing = if larger { "growing" } else { "shrinking" };
        self.run_resize(transaction, volume, cells, doing);
        Ok(())
    }

    pub fn run_resize(
        &mut self,
        transaction: Transaction,
        volume: VolumeId,
        cells: usize,
        doing: &str,
    ) {
        let mut after = self.model.clone();
        let resized = after.get_mut(&volume).unwrap();
        resized.cells.resize(cells, Cell::ZERO);
        self.run(transaction, after, doing);
    }

    pub fn rename(&mut self, volume: VolumeId, name: &str) -> Result<(), VolumeError> {
        let transaction = self.pool.rename(volume, name)?;
        let mut after = self.model.clone();
        name.clone_into(&mut after.get_mut(&volume).unwrap().name);
        self.run(transaction, after, "renaming");
        Ok(())
    }

    pub fn delete(&mut self, volume: VolumeId) -> Result<(), VolumeError> {
        let transaction = self.pool.delete(volume)?;
        let mut after = self.model.clone();
        after.remove(&volume);
        self.run(transaction, after, "deleting");
        Ok(())
    }

    pub fn map(&self, volume: VolumeId) -> Arc<VolumeMap> {
        Arc::clone(self.pool.volume(volume).unwrap().1)
    }

    /// Writes sectors of a volume with a new stamp, through the same pieces as the engine.
    pub fn write(&mut self, volume: VolumeId, first: usize, count: usize) {
        self.stamp += 1;
        let stamp = (volume.0 << 32) + self.stamp;
        let map = self.map(volume);
        let length = count * SECTOR;
        let spans: Vec<_> = map
            .writes((first * SECTOR) as u64, length)
            .unwrap()
            .collect();
        for cell in &mut self.model.get_mut(&volume).unwrap().cells[first..first + count] {
            cell.write(stamp);
        }
        for span in spans {
            let piece = span.begin().unwrap();
            let mut data = vec![0; piece.lead.bytes().0 as usize];
            for _ in piece.buffer.clone().step_by(SECTOR) {
                data.extend_from_slice(&stamped(stamp));
            }
            data.resize(piece.count.bytes().0 as usize, 0);
            let disk = usize::from(piece.disk.0);
            let before = self.disks[disk].pending.clone();
            self.disks[disk].write(piece.start, &data);
            self.crash(&[&self.model.clone()], "writing");
            if self.durability == Durability::Forced {
                assert!(before.is_empty(), "a write overlaps a transaction");
                self.disks[disk].flush();
            }
            piece.in_use.written();
        }
        self.check_now(volume);
    }

    /// Makes sectors read as zeros: chunks by their bits, the rest by writing.
    pub fn zero(&mut self, volume: VolumeId, first: usize, count: usize) {
        let map = self.map(volume);
        let left = map
            .zero((first * SECTOR) as u64, (count * SECTOR) as u64)
            .unwrap();
        for cell in &mut self.model.get_mut(&volume).unwrap().cells[first..first + count] {
            cell.write(0);
        }
        for range in left {
            for span in map
                .writes(range.start, (range.end - range.start) as usize)
                .unwrap()
            {
                let piece = span.begin().unwrap();
                let data = vec![0; piece.count.bytes().0 as usize];
                let disk = usize::from(piece.disk.0);
                self.disks[disk].write(piece.start, &data);
                if self.durability == Durability::Forced {
                    self.disks[disk].flush();
                }
                piece.in_use.written();
            }
        }
        self.check_now(volume);
        self.crash(&[&self.model.clone()], "zeroing");
    }

    /// A flush of a volume: afterwards everything written is durable.
    pub fn flush(&mut self, volume: VolumeId) {
        let mark = self.map(volume).mark();
        if !self.map(volume).is_durable(mark) {
            if let Some(transaction) = self.pool.settle(&[volume]).unwrap() {
                self.run(transaction, self.model.clone(), "flushing");
            }
            assert!(self.map(volume).is_durable(mark));
        }
        // Last, so that the transaction itself must have flushed what its bits speak of.
        self.disks.iter_mut().for_each(Disk::flush);
        self.model.get_mut(&volume).unwrap().settle();
        self.crash(&[&self.model.clone()], "after a flush");
    }

    /// A move with `meanwhile` called between its passes.
    pub fn move_extent(
        &mut self,
        volume: VolumeId,
        extent: u32,
        placement: &Placement,
        meanwhile: &mut dyn FnMut(&mut Self),
    ) -> Result<(), VolumeError> {
        let mut moved = self.pool.begin_move(volume, extent, placement)?;
        self.copy(&mut moved);
        meanwhile(self);
        self.copy(&mut moved);
        moved.freeze();
        assert_eq!(moved.writers(), 0);
        let span = self
            .map(volume)
            .writes(u64::from(extent) * EXTENT, SECTOR)
            .unwrap()
            .next()
            .unwrap();
        assert!(span.begin().is_err(), "a write begins in a frozen extent");
        self.copy(&mut moved);
        let transaction = self.pool.finish_move(moved).map_err(|refused| refused.1)?;
        self.check_now(volume);
        self.run(transaction, self.model.clone(), "moving");
        Ok(())
    }

    /// A pass of a move.
    pub fn copy(&mut self, moved: &mut Move) {
        let (from, to) = (
            usize::from(moved.source().disk.0),
            usize::from(moved.target().disk.0),
        );
        for copy in moved.pass() {
            let data = self.disks[from].bytes(copy.from.0, copy.count.bytes().0 as usize);
            self.disks[to].write(copy.to, &data);
            self.crash(&[&self.model.clone()], "copying");
            if self.durability == Durability::Forced {
                self.disks[to].flush();
            }
        }
    }

    /// A move that cannot read these chunks, which had been flushed.
    pub fn move_leaving(&mut self, volume: VolumeId, extent: u32, lost: &[u64]) {
        let here = Placement::default();
        let mut moved = self.pool.begin_move_to_good(volume, extent, &here).unwrap();
        let (from, to) = (
            usize::from(moved.source().disk.0),
            usize::from(moved.target().disk.0),
        );
        let chunk = self.pool.geometry().chunk_sectors();
        let source = self.pool.geometry().sector_of(moved.source());
        for copy in moved.pass() {
            for one in moved.single(&copy) {
                if lost.contains(&((one.from.0 - source.0) / chunk.0)) {
                    moved.leave(&one);
                    continue;
                }
                let data = self.disks[from].bytes(one.from.0, one.count.bytes().0 as usize);
                self.disks[to].write(one.to, &data);
            }
        }
        if self.durability == Durability::Forced {
            self.disks[to].flush();
        }
        assert_eq!(moved.lost() as usize, lost.len());
        moved.freeze();
        assert_eq!(moved.pass(), []);
        let transaction = self
            .pool
            .finish_move(moved)
            .map_err(|(_, why)| why)
            .unwrap();
        let mut after = self.model.clone();
        let first = (u64::from(extent) * EXTENT) as usize / SECTOR;
        for chunk_index in lost {
            let from = first + (chunk_index * chunk.0) as usize;
            let cells = after.get_mut(&volume).unwrap().cells.iter_mut();
            // The volume may end within the chunk.
            cells.skip(from).take(chunk.0 as usize).for_each(Cell::lose);
        }
        self.run(transaction, after, "moving with a loss");
        self.check_now(volume);
    }

    pub fn checkpoint(&mut self) {
        let transaction = self.pool.checkpoint().unwrap();
        self.run(transaction, self.model.clone(), "checkpointing");
    }

    /// While the power is on, a reader sees the last write.
    pub fn check_now(&self, volume: VolumeId) {
        let seen = read(&self.disks, &self.map(volume));
        let cells = &self.model[&volume].cells;
        if let Some(at) = seen
            .iter()
            .zip(cells)
            .position(|(stamp, cell)| *stamp != cell.now())
        {
            panic!(
                "sector {at} of volume {} reads {:#x}, not {:?}",
                volume.0, seen[at], cells[at]
            );
        }
    }
}

pub fn on(disk: u16) -> Placement {
    Placement {
        disks: vec![DiskNumber(disk)],
        ..Placement::default()
    }
}
