//! A server as a file has it.

use std::collections::HashSet;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use sched::units::{Bytes, BytesPerSecond, Nanos};
use serde::Deserialize;
use toml::Spanned;

use super::{Arm, Runs, Search, Server, Stripe};
use crate::channel::drive::Drive;
use crate::channel::spec::{self, SpecError, within};
use crate::channel::{Bus, Discipline, HOST_ID};
use crate::sweep::Sweep;

/// Why a file describes no server.
#[derive(Debug, thiserror::Error)]
pub enum VideoError {
    /// A fault in the file itself.
    #[error(transparent)]
    Server(#[from] SpecError),
    /// A fault in the file of its drives or of its channels.
    #[error("{}: {fault}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Its content.
        text: String,
        /// The fault.
        fault: SpecError,
    },
}

/// A server's file: a server, and what to run on it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub server: Server,
    /// The number of streams; none: search for the largest.
    pub streams: Option<u32>,
    /// The first seed.
    pub seed: u64,
    /// The number of runs, each with the next seed.
    pub runs: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    channels: Spanned<u64>,
    #[serde(default = "channel")]
    channel: Spanned<String>,
    ids: Spanned<Vec<Spanned<u64>>>,
    drive: Spanned<String>,
    #[serde(default = "segment")]
    segment_kib: Spanned<u64>,
    stream_kbit_per_s: Spanned<u64>,
    buffer_kib: Spanned<u64>,
    scheduler: ArmName,
    window: Option<Spanned<u64>>,
    threshold_ms: Option<Spanned<u64>>,
    groups: Option<Spanned<u64>>,
    #[serde(default)]
    arbitration: Arbitration,
    tokens: Option<Spanned<u64>>,
    #[serde(default = "two")]
    max_outstanding: Spanned<u64>,
    movie_minutes: Spanned<(u64, u64)>,
    different_movies: Option<Spanned<u64>>,
    #[serde(default = "minute")]
    think_s: Spanned<u64>,
    #[serde(default = "movies")]
    movies: Spanned<u64>,
    #[serde(default = "six")]
    runs: Spanned<u64>,
    #[serde(default = "one")]
    seed: u64,
    streams: Option<Spanned<u64>>,
}

/// The longest time that a run may take: 100 years.
const RUN_MAX: Nanos = Nanos::from_secs(100 * 365 * 86_400);

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ArmName {
    CScan,
    Edf,
    FdScan,
    Gss,
    RtWindow,
    ScanEdf,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Arbitration {
    #[default]
    Plain,
    Fair,
}

/// A default, which has no place in the file.
fn default<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

fn channel() -> Spanned<String> {
    default("fast-wide-scsi".to_owned())
}

fn segment() -> Spanned<u64> {
    default(128)
}

fn two() -> Spanned<u64> {
    default(2)
}

fn minute() -> Spanned<u64> {
    default(60)
}

fn movies() -> Spanned<u64> {
    default(500)
}

fn six() -> Spanned<u64> {
    default(6)
}

fn one() -> u64 {
    1
}

/// The value of a key that may be left out.
fn or(
    name: &str,
    value: Option<&Spanned<u64>>,
    usual: u64,
    range: RangeInclusive<u64>,
) -> Result<u64, SpecError> {
    value.map_or(Ok(usual), |value| within(name, value, range))
}

impl Plan {
    /// Reads a server's file. Paths in it are relative to `folder`.
    ///
    /// # Errors
    /// The first fault of it, or of a file that it names.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, VideoError> {
        let file: File = spec::parsed(text)?;
        let drive = named(&file.drive, folder, Drive::built_in, Drive::parse, || {
            Drive::names().collect()
        })?;
        let bus = named(&file.channel, folder, Bus::built_in, Bus::parse, || {
            Bus::names().collect()
        })?;
        Ok(file.plan(drive, bus)?)
    }

    /// Runs it, or searches for the largest number of streams.
    #[must_use]
    pub fn run(&self, sweep: &Sweep<'_>) -> Runs {
        let Some(streams) = self.streams else {
            return Search::all(&self.server, self.seed, self.runs, sweep);
        };
        let runs = sweep.each(self.runs as usize, |run| {
            let seed = self.seed.wrapping_add(run as u64);
            self.server.run(streams, seed, false)
        });
        Runs {
            simulated: runs.iter().map(|run| run.requests).sum(),
            runs,
        }
    }
}

/// A thing that comes with the program, or that a file describes.
fn named<T>(
    name: &Spanned<String>,
    folder: &Path,
    built_in: fn(&str) -> Option<T>,
    parse: fn(&str) -> Result<T, SpecError>,
    names: impl Fn() -> Vec<&'static str>,
) -> Result<T, VideoError> {
    let text = name.get_ref();
    if let Some(found) = built_in(text) {
        return Ok(found);
    }
    if !text.ends_with(".toml") {
        let names = names().join(", ");
        let problem = format!("`{text}` is neither one of {names} nor a file that ends with .toml");
        return Err(SpecError::at(name, problem).into());
    }
    let path = folder.join(text);
    match std::fs::read_to_string(&path) {
        Err(error) => {
            let problem = format!("cannot read {}: {error}", path.display());
            Err(SpecError::at(name, problem).into())
        }
        Ok(text) => parse(&text).map_err(|fault| VideoError::Other { path, text, fault }),
    }
}

impl File {
    fn plan(&self, drive: Drive, bus: Bus) -> Result<Plan, SpecError> {
        let segment_kib = within("segment_kib", &self.segment_kib, 16..=1 << 16)?;
        let segment = Bytes::from_kib(segment_kib);
        let kbit = within("stream_kbit_per_s", &self.stream_kbit_per_s, 1..=10_000_000)?;
        let &(least, most) = self.movie_minutes.get_ref();
        if least == 0 || least > most || most > 10_000 {
            return Err(SpecError::at(
                &self.movie_minutes,
                format!(
                    "`movie_minutes` is [{least}, {most}]; it must be [least, most], from 1 to 10000"
                ),
            ));
        }
        let server = Server {
            channels: within("channels", &self.channels, 1..=64)? as u32,
            ids: self.ids(&bus)?,
            outstanding: self.outstanding(&drive, segment)?,
            bus,
            stripe: Stripe::new(drive, segment),
            rate: BytesPerSecond(kbit * 125),
            buffer: self.buffer(segment_kib)?,
            movie: (Nanos::from_secs(least * 60), Nanos::from_secs(most * 60)),
            library: or(
                "different_movies",
                self.different_movies.as_ref(),
                u64::from(u32::MAX),
                1..=1_000_000,
            )? as u32,
            think: Nanos::from_secs(within("think_s", &self.think_s, 0..=100_000)?),
            arm: self.arm()?,
            discipline: self.discipline()?,
            movies: within("movies", &self.movies, 1..=1_000_000)? as u32,
        };
        self.check_room(&server, most)?;
        let streams = self.streams.as_ref();
        let most_streams = u64::from(server.movies);
        Ok(Plan {
            streams: streams
                .map(|streams| within("streams", streams, 1..=most_streams))
                .transpose()?
                .map(|streams| streams as u32),
            seed: self.seed,
            runs: within("runs", &self.runs, 1..=1_000)?,
            server,
        })
    }

    fn ids(&self, bus: &Bus) -> Result<Vec<u8>, SpecError> {
        let ids = self.ids.get_ref();
        if ids.is_empty() {
            return Err(SpecError::at(
                &self.ids,
                "`ids` is empty: a channel needs disks",
            ));
        }
        let mut known = HashSet::new();
        for id in ids {
            let number = within("ids", id, 0..=u64::from(bus.ids) - 1)?;
            if number == u64::from(HOST_ID) {
                return Err(SpecError::at(id, "id 7 is the host's"));
            }
            if !known.insert(number) {
                return Err(SpecError::at(id, format!("two disks have the id {number}")));
            }
        }
        Ok(ids.iter().map(|id| *id.get_ref() as u8).collect())
    }

    fn outstanding(&self, drive: &Drive, segment: Bytes) -> Result<u32, SpecError> {
        if segment > drive.segment() {
            return Err(SpecError::at(
                &self.segment_kib,
                format!(
                    "a segment of a stream has {segment}, a segment of the drive's buffer {}",
                    drive.segment()
                ),
            ));
        }
        let outstanding = *self.max_outstanding.get_ref();
        let segments = u64::from(drive.segments());
        if outstanding == 0 || outstanding > segments {
            return Err(SpecError::at(
                &self.max_outstanding,
                format!(
                    "`max_outstanding` is {outstanding}; it must be from 1 to {segments}, the segments of the drive's buffer"
                ),
            ));
        }
        Ok(outstanding as u32)
    }

    fn buffer(&self, segment_kib: u64) -> Result<u32, SpecError> {
        let kib = within("buffer_kib", &self.buffer_kib, 1..=1 << 24)?;
        if !kib.is_multiple_of(segment_kib) || kib / segment_kib < 2 {
            return Err(SpecError::at(
                &self.buffer_kib,
                format!(
                    "`buffer_kib` is {kib}; it must be at least two segments of {segment_kib} KiB, and a multiple"
                ),
            ));
        }
        Ok((kib / segment_kib) as u32)
    }

    fn arm(&self) -> Result<Arm, SpecError> {
        let window = or("window", self.window.as_ref(), 5, 1..=1_000_000)? as usize;
        let threshold = or(
            "threshold_ms",
            self.threshold_ms.as_ref(),
            350,
            0..=1_000_000,
        )?;
        let groups = or("groups", self.groups.as_ref(), 4, 1..=10_000)? as u32;
        Ok(match self.scheduler {
            ArmName::CScan => Arm::CScan,
            ArmName::Edf => Arm::Edf,
            ArmName::FdScan => Arm::FdScan,
            ArmName::ScanEdf => Arm::ScanEdf,
            ArmName::Gss => Arm::Gss {
                groups: NonZeroU32::new(groups).unwrap_or(NonZeroU32::MIN),
            },
            ArmName::RtWindow => Arm::RtWindow {
                window: NonZeroUsize::new(window).unwrap_or(NonZeroUsize::MIN),
                threshold: Nanos::from_millis(threshold),
            },
        })
    }

    fn discipline(&self) -> Result<Discipline, SpecError> {
        let tokens = or("tokens", self.tokens.as_ref(), 2, 1..=4)? as u32;
        Ok(match self.arbitration {
            Arbitration::Plain => Discipline::Plain,
            Arbitration::Fair => Discipline::Fair { tokens },
        })
    }

    /// Movies must fit on the disks.
    fn check_room(&self, server: &Server, minutes: u64) -> Result<(), SpecError> {
        let units = server.stripe.places.len() as u64
            * server.ids.len() as u64
            * u64::from(server.channels);
        if units > u64::from(u32::MAX) {
            return Err(SpecError::at(
                &self.segment_kib,
                format!(
                    "the disks have {units} segments; at most {} are possible",
                    u32::MAX
                ),
            ));
        }
        let segments = server.movie.1.get().div_ceil(server.period().get());
        if segments > units {
            return Err(SpecError::at(
                &self.movie_minutes,
                format!(
                    "a movie of {minutes} minutes has {segments} segments; all disks together have room for {units}"
                ),
            ));
        }
        let buffer = server.period() * u64::from(server.buffer);
        let each = [server.movie.1, server.think, buffer].map(|time| u128::from(time.get()));
        let longest = each.iter().sum::<u128>() * u128::from(server.movies);
        if longest > u128::from(RUN_MAX.get()) {
            return Err(SpecError::at(
                &self.movies,
                format!(
                    "a viewer of all {} movies would take more than 100 years",
                    server.movies
                ),
            ));
        }
        Ok(())
    }
}
