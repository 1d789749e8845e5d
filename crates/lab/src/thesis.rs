//! The experiments of the thesis's chapter 6: three Quantum Atlas-II, audio and video pairs that join one after
//! another, and beside them a day of eight disks of CELLO.
//!
//! # As the thesis has it
//!
//! Blocks, periods as printed in table 6.3, layouts (section 6.5), service times of table 6.4 for admission,
//! everybody's first block released together.
//!
//! # What it does not say, and what is assumed
//!
//! * Movies are twenty minutes long and begin again at their end, so that all of them fit into the fastest zone
//!   whichever way they lie; a client begins somewhere in its movie.
//! * *Wallace and Grommit* comes first: so 25 pairs are the 12 and 13 that the thesis names, and Delta-L of one pair
//!   is what it says.
//! * The disks of CELLO have 768 MiB each and lie next to each other from the fourth zone on.
//! * A block of a volume is an extent. Blocks of different sizes are in bands of their own ([`crate::farm::Band`]).

pub mod figures;
mod layout;
mod point;
mod sweep;

use std::sync::Arc;

use drives::plant::PlantSpec;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use crate::cello::Period;
use crate::dice::Dice;
use crate::farm::{
    Admitted, Arrivals, BandError, Disks, Load, NotAdmitted, Stream, Track, by_measured_times,
};

pub use layout::Layout;
use layout::{Kind, Site};
pub use point::{Latency, Measured, Point, Source, Split};
pub use sweep::SweepError;

/// The size of each of CELLO's disks.
pub const CELLO_BYTES: Bytes = Bytes::from_mib(768);

/// Buffers of a stream for each disk (thesis, section 6.5.3).
const BUFFERS: u32 = 2;

/// The drive of the thesis.
const DRIVE: &str = "quantum-atlas-ii";
const DISKS: usize = 3;

/// A stream of table 6.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Title {
    kib_per_second: u64,
    /// The printed periods in ms at 256 KB, 512 KB, 1 MB and 2 MB; larger blocks have the last one's rate.
    periods_ms: [u64; 4],
}

impl Title {
    fn period(self, block: Bytes) -> Nanos {
        let doublings = (block.get() / Bytes::from_kib(256).get()).trailing_zeros();
        let printed = doublings.min(3);
        Nanos::from_millis(self.periods_ms[printed as usize] << (doublings - printed))
    }
}

/// *Wallace and Grommit: A Close Shave*.
const WG: Title = Title {
    kib_per_second: 245,
    periods_ms: [886, 1_772, 3_543, 7_087],
};
/// *The Hunt for Red October*.
const RO: Title = Title {
    kib_per_second: 817,
    periods_ms: [313, 627, 1_253, 2_507],
};
/// Audio.
const CD: Title = Title {
    kib_per_second: 172,
    periods_ms: [1_488, 2_977, 5_953, 11_907],
};

/// Longest time of a block, for admission.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Times {
    /// The thesis's measurements (table 6.4): the 95th percentile or higher. Blocks of 2 MB, which are not in
    /// the table, take longer than those of 1 MB by the difference for a megabyte in the last two columns.
    Printed,
    /// The bound of the profile's model.
    Bound,
    /// The bound for each block at its position, from any position of the arm among the movies; a request
    /// that leaves the arm elsewhere is charged for the way back.
    Near,
    /// As `Near`, and each block begins with a track.
    Tracks,
    /// As `Tracks`, and streams of one period are served in sweeps, with a bound on their seeks together.
    Sweeps,
}

impl Times {
    /// All of them, from the thesis's to those that leave room for most.
    pub const ALL: [Self; 5] = [
        Self::Printed,
        Self::Bound,
        Self::Near,
        Self::Tracks,
        Self::Sweeps,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Printed => "printed",
            Self::Bound => "bound",
            Self::Near => "near",
            Self::Tracks => "tracks",
            Self::Sweeps => "sweeps",
        }
    }

    /// True if blocks reserve the times that they need at their positions.
    fn is_local(self) -> bool {
        matches!(self, Self::Near | Self::Tracks | Self::Sweeps)
    }

    fn are_on_tracks(self) -> bool {
        matches!(self, Self::Tracks | Self::Sweeps)
    }

    /// Buffers of a stream for each disk: a block that waits for a sweep takes two periods, not one.
    fn buffers(self) -> u32 {
        match self {
            Self::Sweeps => BUFFERS + 1,
            _ => BUFFERS,
        }
    }

    fn profile(self) -> DriveProfile {
        let profile = DriveProfile::shipped(DRIVE).expect("the profile is part of the library");
        if self != Self::Printed {
            return profile;
        }
        by_measured_times(&profile).expect("a row that goes on as it does is one")
    }
}

/// The disks with everything on them, before any stream has joined.
#[derive(Clone, Debug)]
pub struct Thesis {
    /// The three disks.
    pub disks: Disks,
    layout: Layout,
    times: Times,
    site: Site,
    seed: u64,
}

impl Thesis {
    /// The disks in a layout. The seed decides where blocks lie that lie at random, and where clients begin.
    ///
    /// # Errors
    /// When the volumes do not fit; they do on the thesis's drive.
    pub fn new(layout: Layout, times: Times, seed: u64) -> Result<Self, BandError> {
        let disks = Disks {
            plant: PlantSpec::built_in(DRIVE).expect("the plant is part of the library"),
            profile: Arc::new(times.profile()),
            count: DISKS,
        };
        let site = Site::new(&disks, layout, times, seed)?;
        Ok(Self {
            disks,
            layout,
            times,
            site,
            seed,
        })
    }

    /// A period of CELLO on its volumes.
    #[must_use]
    pub fn cello(&self, period: &Period, seed: u64) -> Load {
        let requests = period.requests(CELLO_BYTES, seed);
        Load::new(requests, &self.site.cello, self.disks.count)
    }

    /// Bandwidth of the pairs together, in bytes of media per second.
    #[must_use]
    pub fn bandwidth(pairs: usize) -> BytesPerSecond {
        let of = |index| {
            let kib = Self::video(index).kib_per_second + CD.kib_per_second;
            kib * 1_024
        };
        BytesPerSecond((0..pairs).map(of).sum())
    }

    fn video(pair: usize) -> Title {
        if pair.is_multiple_of(2) { WG } else { RO }
    }

    /// The largest number of pairs that fit, up to `most`, and the refusal of the next pair.
    #[must_use]
    pub fn admit(&self, most: usize) -> (Admitted, usize, Option<NotAdmitted>) {
        let mut admitted = self.nothing_admitted();
        for pair in 0..most {
            if let Err(why) = admitted.add(&self.pair(pair)) {
                return (admitted, pair, Some(why));
            }
        }
        (admitted, most, None)
    }

    fn nothing_admitted(&self) -> Admitted {
        match self.times {
            Times::Sweeps => Admitted::in_sweeps(&self.disks, &self.site.regions),
            _ => Admitted::within(&self.disks, &self.site.regions),
        }
    }

    /// The video and the audio of a pair.
    fn pair(&self, index: usize) -> [Stream; 2] {
        let turn = index / 2;
        let (video, audio) = if index.is_multiple_of(2) {
            (Kind::Wg, Kind::CdOfWg)
        } else {
            (Kind::Ro, Kind::CdOfRo)
        };
        let of = |kind: Kind, title: Title, salt: u64| {
            let track = self.site.track(kind, turn);
            let dice = Xoshiro256PlusPlus::seed_from_u64(
                self.seed ^ (2 * index as u64 + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            );
            let period = title.period(track.block);
            Stream {
                first_block: Dice(dice).below(track.blocks),
                track: Arc::clone(track),
                period,
                arrivals: Arrivals::Even {
                    first: Time::ZERO,
                    every: period,
                },
                depth: self.times.buffers(),
            }
        };
        [of(video, Self::video(index), 0), of(audio, CD, 1)]
    }

    /// A stream of *Red October*'s blocks that has reserved 1 MB/s and asks for so many times as much.
    fn greedy(&self, times_as_much: u64) -> Stream {
        let track = self.site.track(Kind::Ro, 0);
        let period = Nanos::from_secs(1);
        Stream {
            first_block: 0,
            track: Arc::clone(track),
            period,
            arrivals: Arrivals::Even {
                first: Time::ZERO,
                every: Nanos(period.get() / times_as_much.max(1)),
            },
            depth: self.times.buffers(),
        }
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }
}

/// A volume read in blocks of the size of its extents.
fn track(volume: &crate::farm::PlacedVolume, disks: &Disks) -> Track {
    let block = volume.geometry.extent_bytes();
    let physical = disks.profile.physical_sector();
    let track = Track::new(volume, block, Op::Read, &disks.predictor(), physical);
    track.expect("a movie has blocks")
}
