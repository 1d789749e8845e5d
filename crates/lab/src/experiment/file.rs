//! An experiment as a file has it.

use std::path::PathBuf;

use sched::best_effort::BestEffortOrder;
use sched::disk::OverPrediction;
use sched::policy::Policy;
use sched::request::Op;
use serde::Deserialize;

use super::arrivals::Frames;

/// The whole file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) description: String,
    #[serde(default = "one_seed")]
    pub(super) seeds: Vec<u64>,
    #[serde(default = "all_schedulers")]
    pub(super) schedulers: Vec<Policy>,
    #[serde(default)]
    pub(super) loads: Loads,
    pub(super) duration_s: Option<u64>,
    pub(super) latency_slot_ms: Option<u64>,
    pub(super) slack_every_ms: Option<u64>,
    pub(super) disks: DisksOf,
    #[serde(default)]
    pub(super) scheduler: SchedulerOf,
    #[serde(default)]
    pub(super) band: Vec<BandOf>,
    #[serde(default)]
    pub(super) stream: Vec<StreamOf>,
    #[serde(default)]
    pub(super) group: Vec<Group>,
    #[serde(default)]
    pub(super) best_effort: Vec<BestEffortOf>,
    #[serde(default)]
    pub(super) reservation: Vec<Reservation>,
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

fn all_schedulers() -> Vec<Policy> {
    Policy::ALL.to_vec()
}

/// Number of admitted groups of streams, run by run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(untagged, expecting = "a list of numbers of groups, or \"until-full\"")]
pub(super) enum Loads {
    Listed(Vec<usize>),
    Named(NamedLoads),
    /// The largest number that fits, in steps.
    #[default]
    #[serde(skip)]
    Default,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NamedLoads {
    /// Every third number, and each of the last five.
    UntilFull,
    /// Each number.
    EachUntilFull,
    /// The last number alone.
    Full,
}

/// The disks.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DisksOf {
    pub(super) count: usize,
    pub(super) drive: Option<String>,
    pub(super) plant: Option<PathBuf>,
    pub(super) profile: Option<PathBuf>,
    #[serde(default)]
    pub(super) admission: AdmissionBy,
    #[serde(default)]
    pub(super) extents: Extents,
}

/// Longest time of a block, for admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AdmissionBy {
    /// The bound for a drive of the profile, from any position of the arm.
    #[default]
    Bound,
    /// The profile's table of measured times, which may be percentiles.
    Measured,
    /// The bound at the position of the blocks; a request that leaves the arm elsewhere pays for the way
    /// back.
    Near,
    /// As `near`, and streams of one period are served in sweeps, with a bound on their seeks together.
    Sweeps,
}

/// Places of the extents of volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Extents {
    /// As in a pool: on the disks in turn, one behind the other.
    #[default]
    InTurn,
    /// As in a pool, and extents of volumes with streams begin with a track.
    Tracks,
    /// To the same disks, but anywhere there.
    Random,
}

/// Options of each disk's scheduler, beside the scheduler's name.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SchedulerOf {
    pub(super) order: Option<BestEffortOrder>,
    pub(super) over_prediction: Option<OverPrediction>,
    pub(super) burst_threshold_us: Option<u64>,
    pub(super) piece_limit_us: Option<u64>,
    pub(super) early_share_percent: Option<u8>,
    pub(super) sync_age_limit_ms: Option<u64>,
    pub(super) async_age_limit_ms: Option<u64>,
    pub(super) queue_max: Option<usize>,
}

/// A range of each disk's sectors with extents of one size.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BandOf {
    /// First zone; default: the end of the one before.
    pub(super) from_zone: Option<usize>,
    pub(super) from_sector: Option<u64>,
    /// Length; default: up to the next one, or to the end.
    pub(super) sectors: Option<u64>,
    pub(super) extent_kib: u64,
    pub(super) volume: Vec<VolumeOf>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeOf {
    pub(super) name: String,
    pub(super) size_kib: u64,
    /// The disks that it lies on, in turn; none: all.
    #[serde(default)]
    pub(super) disks: Vec<usize>,
    /// Number of equal ones, `name-0` and so on.
    pub(super) count: Option<usize>,
}

/// A stream.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamOf {
    pub(super) name: String,
    pub(super) volume: String,
    #[serde(default = "read")]
    pub(super) op: Op,
    /// Default: the extent.
    pub(super) block_kib: Option<u64>,
    pub(super) period_us: Option<u64>,
    pub(super) period_ms: Option<u64>,
    pub(super) kib_per_second: Option<u64>,
    /// Default: a random one.
    pub(super) first_block: Option<u64>,
    #[serde(default)]
    pub(super) first_ms: u64,
    #[serde(default = "two")]
    pub(super) buffers: u32,
    #[serde(default = "hundred")]
    pub(super) asks_percent: u64,
    #[serde(default)]
    pub(super) early_ms: u64,
    #[serde(default)]
    pub(super) late_ms: u64,
    pub(super) vbr: Option<Frames>,
}

const fn read() -> Op {
    Op::Read
}

const fn two() -> u32 {
    2
}

const fn hundred() -> u64 {
    100
}

/// Streams that are admitted together or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) streams: Vec<String>,
}

/// A source of best effort.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BestEffortOf {
    /// Volumes for the trace's devices.
    pub(super) volumes: Vec<String>,
    pub(super) cello: Option<Cello>,
    pub(super) trace: Option<TraceOf>,
    pub(super) random: Option<RandomOf>,
    /// Speed, in percent.
    #[serde(default = "hundred")]
    pub(super) speed_percent: u64,
}

/// Part of CELLO's day.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cello {
    Day,
    Busy,
}

/// A trace in a file.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceOf {
    pub(super) file: PathBuf,
    /// Default: as the file begins.
    pub(super) format: Option<String>,
    #[serde(default)]
    pub(super) lenient: bool,
    /// Only these devices of it, in this order; default: all, in the order in which they are met.
    pub(super) devices: Option<Vec<String>>,
    /// The part before this time is left out, and this becomes the beginning.
    #[serde(default)]
    pub(super) from_s: u64,
    /// Length; default: all.
    pub(super) for_s: Option<u64>,
    /// For a trace whose times are those between requests alone: how long each took.
    pub(super) took_us: Option<u64>,
}

/// Requests at random.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RandomOf {
    /// On each of its volumes, on average.
    pub(super) per_second: f64,
    /// The mean number of requests that come together.
    #[serde(default = "one")]
    pub(super) burst: u64,
    /// The time between two of those.
    #[serde(default = "burst_gap")]
    pub(super) burst_gap_us: u64,
    /// Each as likely as the others.
    pub(super) sizes_kib: Vec<u64>,
    #[serde(default = "hundred")]
    pub(super) read_percent: u64,
    /// True if writes are waited for.
    #[serde(default)]
    pub(super) sync_writes: bool,
}

const fn one() -> u64 {
    1
}

const fn burst_gap() -> u64 {
    100
}

/// Disk time on every disk for what is asked of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reservation {
    pub(super) volume: String,
    pub(super) slice_ms: u64,
    pub(super) period_ms: u64,
}
