//! SCSI strings of drives on adapters of a host bus.
//!
//! A drive that has a burst in its buffer, or room for one, asks for the string; of those that ask the highest id gets
//! it. It keeps it as long as it has the next sector, or room for it, and disconnects then. Bytes cross the string at its
//! rate into or out of the adapter's FIFO, and stop while the FIFO has no room, or no data. Each drive has one request at
//! a time, and gets the next at its completion.

use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, SECTOR_BYTES, Time};

use super::bus::{Account, Masters, run};
use super::drive::{Drive, Mechanics, Places};
use super::spec::{Adapter, HostBus};
use super::times::{Direction, Transaction};

/// A kind of string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scsi {
    /// The rate of data.
    pub rate: BytesPerSecond,
    /// Bus free, arbitration, reselection and messages, for each connection.
    pub connection: Nanos,
}

impl Scsi {
    /// Fast SCSI-2, 8 bits wide. The time of a connection is assumed.
    pub const FAST: Self = Self {
        rate: BytesPerSecond(10_000_000),
        connection: Nanos(20_000),
    };
    /// Ultra-Wide SCSI.
    pub const ULTRA_WIDE: Self = Self {
        rate: BytesPerSecond(40_000_000),
        connection: Nanos(20_000),
    };
}

/// The run ends when a drive has had so many times the requests that are measured.
pub const STARVED: u64 = 8;

/// Strings with drives, and what all drives do.
#[derive(Clone, Debug)]
pub struct Strings<'a> {
    /// The adapter of each string.
    pub adapter: &'a Adapter,
    /// The kind of string.
    pub scsi: Scsi,
    /// The drives.
    pub drive: Mechanics,
    /// Drives on each string.
    pub drives: Vec<u64>,
    /// Reading or writing.
    pub op: Op,
    /// The places of blocks on the drives.
    pub places: Places,
    /// The size of a request.
    pub block: Bytes,
    /// The place of blocks in the cache lines of memory.
    pub offset: u64,
    /// Requests that are measured of each drive. All go on until the last has had so many, or one has had
    /// [`STARVED`] times as many: ids may keep a drive from its string for ever.
    pub requests: u64,
    /// Decides places and angles.
    pub seed: u64,
}

/// Why strings cannot be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StringsError {
    /// Nothing to run.
    #[error("`drives` has no drive: put at least one on a string")]
    NoDrives,
    /// No time passes.
    #[error("`scsi.rate` is 0: give the bytes of a second")]
    NoRate,
    /// No whole sectors.
    #[error("`block` has {0} bytes: give a multiple of 512, not 0")]
    Block(u64),
    /// Bursts that are no divisor of a sector.
    #[error(
        "a burst of {0} bytes of `adapter` does not divide a sector of 512: give a divisor as `burst_bytes`"
    )]
    Burst(u64),
    /// A drive that never asks for the string.
    #[error("`drive.burst` is {burst} sectors of a segment of {segment}: give 1 to {segment}")]
    Segment {
        /// Sectors of the burst.
        burst: u64,
        /// Sectors of the segment.
        segment: u64,
    },
    /// Nothing is measured.
    #[error("`requests` is 0: give the number of requests that are measured")]
    NoRequests,
}

/// Results of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Service times, for each drive in order of its requests.
    pub times: Vec<Vec<Nanos>>,
    /// The bus.
    pub bus: Account,
}

impl Measured {
    /// The mean service time in milliseconds.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        let all = self.times.iter().flatten();
        let count = all.clone().count() as f64;
        all.map(|time| time.as_millis_f64()).sum::<f64>() / count
    }

    /// The mean service time of a drive in milliseconds; `None` if it was kept from its string.
    #[must_use]
    pub fn mean_ms_of(&self, drive: usize) -> Option<f64> {
        let times = &self.times[drive];
        let sum: f64 = times.iter().map(|time| time.as_millis_f64()).sum();
        (!times.is_empty()).then(|| sum / times.len() as f64)
    }

    /// All service times, from the shortest.
    #[must_use]
    pub fn sorted(&self) -> Vec<Nanos> {
        let mut all: Vec<Nanos> = self.times.iter().flatten().copied().collect();
        all.sort_unstable();
        all
    }
}

/// A string: its drives, and the burst that is next.
struct Line {
    drives: Vec<Drive>,
    times: Vec<Vec<Nanos>>,
    holder: usize,
    /// When the burst is in the FIFO, or has room in it.
    filled: Time,
    /// When the adapter asks for the bus.
    ready: Time,
    /// Bytes of the sector on its way that have crossed.
    bytes_of_sector: u64,
}

struct Machine<'a> {
    strings: &'a Strings<'a>,
    lines: Vec<Line>,
    direction: Direction,
    burst: Bytes,
    /// The time of a burst on the string.
    crossing: Nanos,
    /// The time on the string of what the FIFO holds beside a burst.
    spare: Nanos,
    /// Drives that have not had their requests.
    unfinished: usize,
}

impl Machine<'_> {
    /// The next connection, when the string is free from `free` on.
    fn connect(&mut self, line: usize, free: Time) {
        let (scsi, crossing) = (self.strings.scsi, self.crossing);
        let own = &mut self.lines[line];
        let asks: Vec<Time> = own.drives.iter_mut().map(Drive::asks).collect();
        let first = asks.iter().copied().min().unwrap_or(free);
        let at = free.max(first);
        // Ids fall from the first drive on.
        let holder = asks.iter().position(|asks| *asks <= at);
        own.holder = holder.unwrap_or_default();
        let connected = at + scsi.connection;
        own.filled = match self.direction {
            Direction::ToMemory => connected + crossing,
            Direction::FromMemory => connected,
        };
        own.ready = own.filled;
    }

    /// Keeps the time of a request, and issues the next.
    fn complete(&mut self, line: usize, at: Time) {
        let own = &mut self.lines[line];
        let (drive, times) = (&mut own.drives[own.holder], &mut own.times[own.holder]);
        times.push(at - drive.issued);
        drive.issue(at);
        let (done, requests) = (times.len() as u64, self.strings.requests);
        if done == requests {
            self.unfinished -= 1;
        } else if done == requests * STARVED {
            self.unfinished = 0;
        }
    }
}

impl Masters for Machine<'_> {
    fn count(&self) -> usize {
        self.lines.len()
    }

    fn ready(&self, master: usize) -> Option<Time> {
        (self.unfinished > 0).then_some(self.lines[master].ready)
    }

    fn adapter(&self, _master: usize) -> &Adapter {
        self.strings.adapter
    }

    fn transaction(&self, _master: usize) -> Transaction {
        Transaction {
            direction: self.direction,
            size: self.burst,
            offset: self.strings.offset,
        }
    }

    fn done(&mut self, master: usize, began: Time, ended: Time) {
        let own = &mut self.lines[master];
        // What follows crosses the string as soon as the FIFO has room for it, or has its first word.
        let spare_from = Time((began - Time::ZERO).saturating_sub(self.spare).get());
        let (sector_crossed, string_free) = match self.direction {
            Direction::ToMemory => (own.filled, own.filled.max(spare_from)),
            Direction::FromMemory => {
                let first_word = self.strings.adapter.time(self.direction, Bytes(0));
                let drained = own.filled.max(spare_from + first_word) + self.crossing;
                (drained, drained)
            }
        };
        own.bytes_of_sector += self.burst.get();
        if own.bytes_of_sector == SECTOR_BYTES {
            own.bytes_of_sector = 0;
            let drive = &mut own.drives[own.holder];
            drive.has_crossed(sector_crossed);
            if drive.is_transferred() {
                let completed = match drive.op() {
                    Op::Read => ended,
                    Op::Write => drive.completes(),
                };
                self.complete(master, completed);
                return self.connect(master, string_free);
            }
            if drive.crosses(drive.crossed()) > string_free {
                return self.connect(master, string_free);
            }
        }
        own.filled = match self.direction {
            Direction::ToMemory => string_free + self.crossing,
            Direction::FromMemory => string_free,
        };
        own.ready = own.filled.max(ended);
    }
}

impl Strings<'_> {
    fn direction(&self) -> Direction {
        match self.op {
            Op::Read => Direction::ToMemory,
            Op::Write => Direction::FromMemory,
        }
    }

    fn check(&self) -> Result<(), StringsError> {
        let Mechanics { burst, segment, .. } = self.drive;
        let transaction = self.adapter.burst(self.direction()).get();
        if self.drives.iter().sum::<u64>() == 0 {
            return Err(StringsError::NoDrives);
        }
        if self.scsi.rate.is_zero() {
            return Err(StringsError::NoRate);
        }
        if self.block.sectors().is_none_or(|count| count.is_zero()) {
            return Err(StringsError::Block(self.block.get()));
        }
        if !SECTOR_BYTES.is_multiple_of(transaction) {
            return Err(StringsError::Burst(transaction));
        }
        if burst == 0 || burst > segment {
            return Err(StringsError::Segment { burst, segment });
        }
        if self.requests == 0 {
            return Err(StringsError::NoRequests);
        }
        Ok(())
    }

    fn line(&self, number: usize, drives: u64) -> Line {
        let sectors = self.block.get() / SECTOR_BYTES;
        let of = |drive: u64| {
            let which = number as u64 * 16 + drive + 1;
            let seed = self.seed ^ which.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            Drive::new(self.drive, self.op, self.places, sectors, seed)
        };
        Line {
            drives: (0..drives).map(of).collect(),
            times: vec![Vec::new(); drives as usize],
            holder: 0,
            filled: Time::ZERO,
            ready: Time::ZERO,
            bytes_of_sector: 0,
        }
    }

    /// Runs the drives on the bus.
    ///
    /// # Errors
    /// When a parameter is impossible.
    pub fn run(&self, bus: &HostBus) -> Result<Measured, StringsError> {
        self.check()?;
        let burst = self.adapter.burst(self.direction());
        let on_string = |bytes| self.scsi.rate.period_of(bytes).unwrap_or_default();
        let used = self.drives.iter().filter(|drives| **drives > 0);
        let lines: Vec<Line> = (0..).zip(used).map(|(at, n)| self.line(at, *n)).collect();
        let mut machine = Machine {
            strings: self,
            direction: self.direction(),
            burst,
            crossing: on_string(burst),
            spare: on_string(self.adapter.fifo - burst),
            unfinished: lines.iter().map(|line| line.drives.len()).sum(),
            lines,
        };
        for line in 0..machine.lines.len() {
            machine.connect(line, Time::ZERO);
        }
        let account = run(bus, &mut machine);
        let times = machine.lines.into_iter().flat_map(|line| line.times);
        Ok(Measured {
            times: times.collect(),
            bus: account,
        })
    }
}
