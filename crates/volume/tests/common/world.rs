//! A pool, the model of what it may hold, and operations that cut the power at every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use sched::units::{Bytes, Sector};
use volume::map::Source;
use volume::{
    Committed, CreateSpec, DiskNumber, Move, Placement, PoolState, Step, Transaction, VolumeError,
    VolumeId, VolumeMap,
};

use super::disks::*;
/// What a sector of a volume may hold after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    durable: u64,
    later: Vec<u64>,
}

impl Cell {
    pub const ZERO: Self = Self {
        durable: 0,
        later: Vec::new(),
    };

    pub fn now(&self) -> u64 {
        self.later.last().copied().unwrap_or(self.durable)
    }

    fn allows(&self, stamp: u64) -> bool {
        stamp == self.durable || self.later.contains(&stamp)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeModel {
    pub name: String,
    pub cells: Vec<Cell>,
}

impl VolumeModel {
    pub fn new(name: &str, bytes: u64) -> Self {
        let cells = vec![Cell::ZERO; bytes.div_ceil(SECTOR as u64) as usize];
        Self {
            name: name.to_owned(),
            cells,
        }
    }

    fn settle(&mut self) {
        for cell in &mut self.cells {
            cell.durable = cell.now();
            cell.later.clear();
        }
    }
}

pub type Model = BTreeMap<VolumeId, VolumeModel>;

pub fn stamped(stamp: u64) -> [u8; SECTOR] {
    let mut content = [0; SECTOR];
    content
        .chunks_mut(8)
        .for_each(|word| word.copy_from_slice(&stamp.to_le_bytes()));
    content
}

fn stamp_of(content: &[u8]) -> u64 {
    let stamp = u64::from_le_bytes(content[..8].try_into().unwrap());
    assert!(
        content == stamped(stamp),
        "a sector that no write has written so"
    );
    stamp
}

/// The stamps that a reader of the volume sees.
pub fn read(disks: &[Disk], map: &VolumeMap) -> Vec<u64> {
    let mut stamps = vec![u64::MAX; (map.size().0 as usize) / SECTOR];
    for piece in map.reads(0, map.size().0 as usize).unwrap() {
        let piece = piece.unwrap();
        let cells = piece.buffer.start / SECTOR..piece.buffer.end / SECTOR;
        match piece.source {
            Source::Zeros => stamps[cells].fill(0),
            Source::Disk {
                disk, start, count, ..
            } => {
                assert_eq!(count.0 as usize, cells.len());
                let disk = &disks[usize::from(disk.0)];
                for (index, cell) in cells.enumerate() {
                    let content = disk.now(start.0 as usize + index);
                    stamps[cell] = content.map_or(0, |content| stamp_of(&content[..]));
                }
            }
        }
    }
    stamps
}

/// Whether an opened pool is `model`, and if not why not.
pub fn agrees(disks: &[Disk], pool: &PoolState, model: &Model) -> Result<(), String> {
    let have: Vec<_> = pool
        .volumes()
        .map(|(name, map)| (map.volume(), name.to_owned(), map.size().0))
        .collect();
    let want: Vec<_> = model
        .iter()
        .map(|(id, volume)| {
            (
                *id,
                volume.name.clone(),
                (volume.cells.len() * SECTOR) as u64,
            )
        })
        .collect();
    if have != want {
        return Err(format!("the volumes are {have:?}, not {want:?}"));
    }
    for (_, map) in pool.volumes() {
        let cells = &model[&map.volume()].cells;
        for (index, (stamp, cell)) in read(disks, map).into_iter().zip(cells).enumerate() {
            if !cell.allows(stamp) {
                let volume = map.volume().0;
                return Err(format!(
                    "sector {index} of volume {volume} reads {stamp:#x}, may be {cell:?}"
                ));
            }
        }
    }
    Ok(())
}

/// How a disk takes writes of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Durable when answered.
    Forced,
    /// Durable after a flush.
    Host,
}

/// How thoroughly crashes are tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// All images if there are at most so many.
    pub all: u64,
    /// Otherwise so many at random.
    pub samples: u64,
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
        let sectors = ((1 << 20) + extents * EXTENT + 4096) / SECTOR as u64;
        let mut disks = vec![Disk::new(sectors); disks];
        // What other owners left.
        for (number, disk) in disks.iter_mut().enumerate() {
            for sector in (1 << 20) / SECTOR as u64..sectors {
                disk.write(
                    Sector(sector),
                    &stamped(0xf0f0_0000_0000 + ((number as u64) << 32) + sector),
                );
            }
            disk.flush();
        }
        for step in PoolState::format(&spec(&disks, 1, EXTENT)).unwrap() {
            execute(&mut disks, &step);
        }
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

    /// Cuts the power here, in every way, and looks at what is found: one of `models`.
    pub fn crash(&mut self, models: &[&Model], doing: &str) {
        let Effort { all, samples } = self.effort;
        let deep = self.random.below(8) == 0;
        let mut inner = self.random.clone();
        let visited = for_each_crash(&self.disks, all, samples, &mut self.random, &mut |image| {
            let pool =
                open(image).unwrap_or_else(|error| panic!("while {doing}: does not open: {error}"));
            let why: Vec<_> = models
                .iter()
                .map(|model| agrees(image, &pool, model))
                .collect();
            if why.iter().all(Result::is_err) {
                panic!("while {doing}: {why:#?}");
            }
            if deep && inner.below(16) == 0 {
                recover(image, pool, models, &mut inner, doing);
            }
        });
        self.crashes += visited;
        self.points += 1;
    }

    /// Carries out a transaction, cutting the power before it, after each of its steps and after it.
    pub fn run(&mut self, transaction: Transaction, after: Model, doing: &str) -> Committed {
        let before = self.model.clone();
        self.crash(&[&before], doing);
        for step in transaction.steps() {
            execute(&mut self.disks, step);
            self.crash(
                &[&before, &after],
                &format!("{doing}, after {}", brief(step)),
            );
        }
        let committed = self.pool.commit(transaction);
        self.model = after.clone();
        self.crash(&[&after], &format!("after {doing}"));
        committed
    }

    pub fn start(&mut self) {
        let transaction = self.pool.start().unwrap();
        self.run(transaction, self.model.clone(), "starting");
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
            cell.later.push(stamp);
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
            cell.later.push(0);
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

    /// The power fails, in a way chosen at random, and comes back.
    pub fn power_cut(&mut self) {
        let mut images = Vec::new();
        for_each_crash(&self.disks, 4, 1, &mut self.random, &mut |image| {
            images.push(image.to_vec())
        });
        let chosen = self.random.below(images.len() as u64) as usize;
        self.disks = images.swap_remove(chosen);
        self.pool = open(&self.disks).unwrap();
        agrees(&self.disks, &self.pool, &self.model).unwrap();
        for (_, map) in self.pool.volumes() {
            let seen = read(&self.disks, map);
            let cells = &mut self.model.get_mut(&map.volume()).unwrap().cells;
            *cells = seen
                .into_iter()
                .map(|durable| Cell {
                    durable,
                    later: Vec::new(),
                })
                .collect();
        }
        self.start();
    }
}

fn brief(step: &Step) -> String {
    match step {
        Step::Write { disk, start, data } => format!(
            "a write of {} B at {start:?} of disk {}",
            data.len(),
            disk.0
        ),
        Step::Flush { disk } => format!("a flush of disk {}", disk.0),
    }
}

/// Starts a pool found after a crash, with the power failing again at any step of that.
fn recover(
    image: &[Disk],
    mut pool: PoolState,
    models: &[&Model],
    random: &mut Random,
    doing: &str,
) {
    let mut disks = image.to_vec();
    let transaction = pool.start().unwrap();
    for step in transaction.steps() {
        execute(&mut disks, step);
        for_each_crash(&disks, 1, 2, random, &mut |again| {
            let pool =
                open(again).unwrap_or_else(|error| panic!("recovering from {doing}: {error}"));
            assert!(
                models
                    .iter()
                    .any(|model| agrees(again, &pool, model).is_ok()),
                "recovering from {doing}"
            );
        });
    }
    pool.commit(transaction);
    let again = open(&disks).unwrap();
    assert!(
        models
            .iter()
            .any(|model| agrees(&disks, &again, model).is_ok()),
        "recovered from {doing}"
    );
}

pub fn on(disk: u16) -> Placement {
    Placement {
        disks: vec![DiskNumber(disk)],
        ..Placement::default()
    }
}
