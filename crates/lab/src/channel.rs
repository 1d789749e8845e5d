//! One SCSI channel with its drives: arbitration by id, commands, data in bursts, status, and the buffers of the drives.
//!
//! # The model
//!
//! The host has id 7 and the highest priority; then come 6 to 0 and 15 to 8. A tenure of the bus is a command, a burst of
//! data or a status, each with its arbitration. Each disk has a queue at the host, ordered by an
//! [`ArmScheduler`], and at most `outstanding` commands, which the drive takes in order of arrival. While one
//! request is sent, the drive reads the next into another segment of its buffer.
//!
//! | discipline | what the host sends | who decides about the bus |
//! |---|---|---|
//! | [`Discipline::Plain`] | READ | the drives: each arbitrates as soon as a burst is in its buffer |
//! | [`Discipline::Fair`] | PRE-FETCH, later READ | the host: a drive sends only while it has one of few tokens (Chen and Thapar, figure 4) |
//!
//! The host takes no time. All times are integers, and a channel depends on nothing but its own arrivals.

mod disk;
pub mod drive;
mod fair;
mod run;
pub mod spec;
mod tally;

use sched::units::{Bytes, BytesPerSecond, Nanos, Time};
use serde::Deserialize;
use toml::Spanned;

use crate::arms::ArmScheduler;
use drive::{Drive, Place};
use spec::{SpecError, within};

pub use run::{Event, Watch, run};
pub use tally::{DiskTally, Tally};

/// Channels that come with the program, by name.
const BUILT_IN: [(&str, &str); 3] = [
    (
        "fast-wide-scsi",
        include_str!("../channels/fast-wide-scsi.toml"),
    ),
    ("fast-scsi-2", include_str!("../channels/fast-scsi-2.toml")),
    (
        "ultra-wide-scsi",
        include_str!("../channels/ultra-wide-scsi.toml"),
    ),
];

/// The id of the host.
pub const HOST_ID: u8 = 7;

/// The most requests that one disk may have outstanding.
pub const OUTSTANDING_MAX: u32 = 16;

/// A kind of channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bus {
    /// Its name.
    pub name: String,
    /// The rate of data.
    pub rate: BytesPerSecond,
    /// The number of ids, with the host's.
    pub ids: u8,
    /// Before every tenure.
    pub arbitration: Nanos,
    /// A command, from selection to disconnection.
    pub command: Nanos,
    /// Before data or status.
    pub reconnect: Nanos,
    /// Status and the end of the command.
    pub status: Nanos,
    /// The most data of one tenure.
    pub burst: Bytes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BusFile {
    name: String,
    mb_per_s: Spanned<u64>,
    ids: Spanned<u64>,
    arbitration_us: Spanned<u64>,
    command_us: Spanned<u64>,
    reconnect_us: Spanned<u64>,
    status_us: Spanned<u64>,
    burst_kib: Spanned<u64>,
}

impl Bus {
    /// Names of the channels that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    /// The channel of that name that comes with the program.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.into_iter().find(|(of, _)| *of == name)?;
        Some(Self::parse(text).expect("the program's channels are valid"))
    }

    /// Reads a channel's file.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let file: BusFile = spec::parsed(text)?;
        let us = |name, value| within(name, value, 0..=1_000_000).map(Nanos::from_micros);
        let ids = within("ids", &file.ids, 8..=16)?;
        if ids != 8 && ids != 16 {
            return Err(SpecError::at(&file.ids, "`ids` must be 8 or 16"));
        }
        Ok(Self {
            name: file.name,
            rate: BytesPerSecond(within("mb_per_s", &file.mb_per_s, 1..=100_000)? * 1_000_000),
            ids: ids as u8,
            arbitration: us("arbitration_us", &file.arbitration_us)?,
            command: us("command_us", &file.command_us)?,
            reconnect: us("reconnect_us", &file.reconnect_us)?,
            status: us("status_us", &file.status_us)?,
            burst: Bytes::from_kib(within("burst_kib", &file.burst_kib, 1..=1 << 20)?),
        })
    }

    fn data(&self, bytes: Bytes) -> Nanos {
        let nanos = u128::from(bytes.get()) * 1_000_000_000;
        Nanos(nanos.div_ceil(u128::from(self.rate.get())) as u64)
    }
}

/// The place of an id in the order of arbitration; 0 wins.
#[must_use]
pub fn priority(id: u8) -> u8 {
    if id < 8 { 7 - id } else { 23 - id }
}

/// The side that decides about the bus.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Discipline {
    /// The drives.
    Plain,
    /// The host, by tokens.
    Fair {
        /// The number of tokens.
        tokens: u32,
    },
}

/// A channel to run.
pub struct Setup<'a> {
    /// The channel.
    pub bus: &'a Bus,
    /// Its drives.
    pub drive: &'a Drive,
    /// The places of stripe units on each drive.
    pub places: &'a [Place],
    /// The size of a stripe unit.
    pub unit: Bytes,
    /// The ids of the disks, each at most once.
    pub ids: &'a [u8],
    /// For each disk, the angle at time 0, less than a rotation.
    pub spindles: &'a [Nanos],
    /// The most requests that a disk may have outstanding: 1 to [`OUTSTANDING_MAX`].
    pub outstanding: u32,
    /// The side that decides about the bus.
    pub discipline: Discipline,
    /// Makes the scheduler of a disk.
    pub scheduler: &'a (dyn Fn() -> Box<dyn ArmScheduler> + Sync),
    /// True to end with the first late request.
    pub stop_when_late: bool,
}

/// A request for a stripe unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When it is made.
    pub time: Time,
    /// When it must be done.
    pub deadline: Time,
    /// The disk, as a place in [`Setup::ids`].
    pub disk: u32,
    /// The place, in [`Setup::places`].
    pub unit: u32,
    /// Whose it is.
    pub stream: u32,
}

/// The requests of a channel, in order of time.
pub trait Arrivals {
    /// The time of the next one; [`Time::MAX`] if there is none.
    fn time(&self) -> Time;
    /// The next one, if there is one.
    fn take(&mut self) -> Arrival;
}
