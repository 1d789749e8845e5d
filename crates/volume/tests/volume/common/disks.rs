//! Disks that lose power.

use std::collections::BTreeMap;
use std::sync::Arc;

use sched::units::{Bytes, Sector, SectorCount};
use volume::limits::HEADER_BYTES;
use volume::{Candidate, FormatSpec, Medium, OpenError, Owner, PoolState, Step, Transaction};

use testkit::Random;

/// The owner that starts pools here.
pub const OWNER: Owner = [0x0e; 8];

pub const SECTOR: usize = 512;
pub const EXTENT: u64 = 64 << 10;

/// The size of a disk with so many extents and the second copy of its superblock behind them.
pub const fn sectors(extents: u64) -> u64 {
    (HEADER_BYTES + extents * EXTENT + 4096) / SECTOR as u64
}

pub type Content = Arc<[u8; SECTOR]>;

#[derive(Clone, Default)]
pub struct Disk {
    pub durable: Vec<Option<Content>>,
    pub pending: BTreeMap<usize, Vec<Content>>,
}

fn same(a: Option<&Content>, b: &[u8]) -> bool {
    a.map_or(b.iter().all(|byte| *byte == 0), |a| a[..] == *b)
}

impl Disk {
    pub fn new(sectors: u64) -> Self {
        Self {
            durable: vec![None; sectors as usize],
            pending: BTreeMap::new(),
        }
    }

    pub fn sectors(&self) -> u64 {
        self.durable.len() as u64
    }

    /// The sector as a reader sees it while the power is on.
    pub fn now(&self, sector: usize) -> Option<&Content> {
        self.pending
            .get(&sector)
            .and_then(|versions| versions.last())
            .or(self.durable[sector].as_ref())
    }

    pub fn write(&mut self, start: Sector, data: &[u8]) {
        assert!(data.len().is_multiple_of(SECTOR) && !data.is_empty());
        for (index, content) in data.chunks(SECTOR).enumerate() {
            let sector = start.0 as usize + index;
            assert!(
                sector < self.durable.len(),
                "write past the end of the disk"
            );
            if self.pending.contains_key(&sector) || !same(self.durable[sector].as_ref(), content) {
                let content: [u8; SECTOR] = content.try_into().unwrap();
                self.pending
                    .entry(sector)
                    .or_default()
                    .push(Arc::new(content));
            }
        }
    }

    pub fn flush(&mut self) {
        for (sector, mut versions) in std::mem::take(&mut self.pending) {
            self.durable[sector] = versions.pop();
        }
    }

    pub fn corrupt(&mut self, sector: u64, byte: usize, bit: u8) {
        let mut content = self.durable[sector as usize]
            .as_deref()
            .copied()
            .unwrap_or([0; SECTOR]);
        content[byte] ^= 1 << (bit % 8);
        self.durable[sector as usize] = Some(Arc::new(content));
    }

    pub fn overwrite(&mut self, sector: u64, data: &[u8]) {
        self.write(Sector(sector), data);
        self.flush();
    }

    pub fn bytes(&self, sector: u64, length: usize) -> Vec<u8> {
        let sectors = sector as usize..sector as usize + length / SECTOR;
        sectors
            .flat_map(|sector| self.now(sector).map_or([0; SECTOR], |content| **content))
            .collect()
    }
}

/// Disks as they are.
pub struct Live<'a>(pub &'a [Disk]);

impl Medium for Live<'_> {
    fn read(&mut self, candidate: usize, start: Sector, buffer: &mut [u8]) -> std::io::Result<()> {
        let disk = &self.0[candidate];
        if start.0 as usize + buffer.len() / SECTOR > disk.durable.len() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        assert!(
            start.0.is_multiple_of(8) && buffer.len().is_multiple_of(4096),
            "whole blocks only"
        );
        for (index, out) in buffer.chunks_mut(SECTOR).enumerate() {
            match disk.now(start.0 as usize + index) {
                Some(content) => out.copy_from_slice(&content[..]),
                None => out.fill(0),
            }
        }
        Ok(())
    }
}

pub fn candidates(disks: &[Disk]) -> Vec<Candidate> {
    let candidate = |(number, disk): (usize, &Disk)| Candidate {
        name: format!("/dev/disk{number}"),
        sectors: SectorCount(disk.sectors()),
    };
    disks.iter().enumerate().map(candidate).collect()
}

pub fn uuid(number: u8) -> [u8; 16] {
    [number; 16]
}

pub fn spec(disks: &[Disk], pool: u8, extent: u64) -> FormatSpec {
    let id = |(number, candidate)| {
        (
            uuid(pool.wrapping_mul(16).wrapping_add(1 + number as u8)),
            candidate,
        )
    };
    FormatSpec {
        pool: uuid(pool),
        disks: candidates(disks).into_iter().enumerate().map(id).collect(),
        extent_bytes: Bytes(extent),
    }
}

pub fn execute(disks: &mut [Disk], step: &Step) {
    match step {
        Step::Write { disk, start, data } => disks[usize::from(disk.0)].write(*start, data),
        Step::Flush { disk } => disks[usize::from(disk.0)].flush(),
        Step::Expect { disk, start, data } => {
            let found = disks[usize::from(disk.0)].bytes(start.0, data.len());
            assert!(found == *data, "{step:?}: the pool is its server's alone");
        }
    }
}

/// Makes a pool of the disks.
pub fn format(disks: &mut [Disk], pool: u8) {
    for step in PoolState::format(&spec(disks, pool, EXTENT)).unwrap() {
        execute(disks, &step);
    }
}

/// Carries out a transaction, with nothing in its way.
pub fn carry_out(disks: &mut [Disk], pool: &mut PoolState, transaction: Transaction) {
    for step in transaction.steps() {
        execute(disks, step);
    }
    pool.commit(transaction);
}

pub fn open(disks: &[Disk]) -> Result<PoolState, OpenError> {
    PoolState::open(&mut Live(disks), &candidates(disks))
}

/// The pool on these disks, ready for use.
pub fn started(disks: &mut [Disk]) -> PoolState {
    let mut pool = open(disks).unwrap();
    let start = pool.start(OWNER).unwrap();
    carry_out(disks, &mut pool, start);
    pool
}

/// Ends it as a server does.
pub fn stop(disks: &mut [Disk], pool: &mut PoolState) {
    let stop = pool.stop().unwrap();
    carry_out(disks, pool, stop);
}

/// Every crash image of `disks`, if there are at most `all`; else the extremes, each sector alone
/// dropped and kept, and `samples` at random. Returns how many were visited.
pub fn for_each_crash(
    disks: &[Disk],
    all: u64,
    samples: u64,
    random: &mut Random,
    visit: &mut dyn FnMut(&[Disk]),
) -> u64 {
    let pending: Vec<(usize, usize, usize)> = disks
        .iter()
        .enumerate()
        .flat_map(|(number, disk)| {
            disk.pending
                .iter()
                .map(move |(at, versions)| (number, *at, versions.len()))
        })
        .collect();
    let mut image: Vec<Disk> = disks.to_vec();
    image.iter_mut().for_each(|disk| disk.pending.clear());
    // 0 keeps what is durable, n the nth version.
    let mut show = |choice: &dyn Fn(usize) -> usize| {
        for (index, (number, at, _)) in pending.iter().enumerate() {
            let disk = &disks[*number];
            image[*number].durable[*at] = match choice(index) {
                0 => disk.durable[*at].clone(),
                version => Some(Arc::clone(&disk.pending[at][version - 1])),
            };
        }
        visit(&image);
    };
    let product = pending.iter().try_fold(1_u64, |product, (_, _, n)| {
        product.checked_mul(*n as u64 + 1)
    });
    if let Some(product) = product.filter(|product| *product <= all) {
        for mut code in 0..product {
            let mut digits = Vec::with_capacity(pending.len());
            for (_, _, versions) in &pending {
                digits.push((code % (*versions as u64 + 1)) as usize);
                code /= *versions as u64 + 1;
            }
            show(&|index| digits[index]);
        }
        return product;
    }
    show(&|_| 0);
    show(&|index| pending[index].2);
    let alone = (pending.len() as u64).min(samples);
    for _ in 0..alone {
        let one = random.below(pending.len() as u64) as usize;
        show(&|index| if index == one { pending[index].2 } else { 0 });
        show(&|index| if index == one { 0 } else { pending[index].2 });
    }
    for _ in 0..samples {
        let digits: Vec<usize> = pending
            .iter()
            .map(|(_, _, n)| random.below(*n as u64 + 1) as usize)
            .collect();
        show(&|index| digits[index]);
    }
    2 + 2 * alone + samples
}
