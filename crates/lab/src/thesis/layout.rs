//! Places of the movies and of CELLO's disks (thesis, section 6.5).

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use sched::units::{Bytes, Nanos, Sector};

use super::{CD, CELLO_BYTES, RO, Times, Title, WG, track};
use crate::farm::{
    Band, BandError, Disks, PlacedVolume, Track, VolumeSpec, align_to_tracks, shuffle,
    where_they_lie,
};

/// Layout of the movies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Striped by block over the three disks, in the fastest zone.
    Rotation,
    /// All blocks, CELLO's too, at random places of their disks.
    Random,
    /// Each movie on one disk: *Red October* twice, on disks 0 and 1, *Wallace and Grommit* on disk 2; audio
    /// with its movie.
    MemoryOptimized,
    /// As memory-optimized, with blocks twice as large.
    MemoryOptimizedLarge,
    /// Striped, with blocks twice as large; not in the thesis.
    RotationLarge,
    /// Striped, with blocks four times as large; not in the thesis.
    RotationLarger,
}

impl Layout {
    /// Those of the thesis, in its order.
    pub const THESIS: [Self; 4] = [
        Self::Rotation,
        Self::Random,
        Self::MemoryOptimized,
        Self::MemoryOptimizedLarge,
    ];

    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Rotation,
        Self::Random,
        Self::MemoryOptimized,
        Self::MemoryOptimizedLarge,
        Self::RotationLarge,
        Self::RotationLarger,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rotation => "rotation",
            Self::Random => "random",
            Self::MemoryOptimized => "memory-optimized",
            Self::MemoryOptimizedLarge => "memory-optimized-large",
            Self::RotationLarge => "rotation-large",
            Self::RotationLarger => "rotation-larger",
        }
    }

    /// The block of the larger video, and that of everything else.
    fn blocks(self) -> (Bytes, Bytes) {
        match self {
            Self::MemoryOptimizedLarge | Self::RotationLarge => {
                (Bytes::from_mib(2), Bytes::from_kib(512))
            }
            Self::RotationLarger => (Bytes::from_mib(4), Bytes::from_mib(1)),
            _ => (Bytes::from_mib(1), Bytes::from_kib(256)),
        }
    }

    fn is_striped(self) -> bool {
        !matches!(self, Self::MemoryOptimized | Self::MemoryOptimizedLarge)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no layout has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown layout; the layouts are {}", Layout::ALL.map(Layout::name).join(", "))]
pub struct UnknownLayout;

impl FromStr for Layout {
    type Err = UnknownLayout;

    fn from_str(name: &str) -> Result<Self, UnknownLayout> {
        let mut all = Self::ALL.into_iter();
        all.find(|layout| layout.name() == name)
            .ok_or(UnknownLayout)
    }
}

/// Kind of movie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Wg,
    CdOfWg,
    Ro,
    CdOfRo,
}

/// Length of movies.
const MOVIE: Nanos = Nanos::from_secs(20 * 60);

/// The zone in which CELLO's disks begin, an index.
const CELLO_ZONE: usize = 3;

/// Room in a band for a pool's own structures, on each disk.
const OVERHEAD_BYTES: u64 = 16 << 20;

/// The volumes of a layout.
#[derive(Clone, Debug)]
pub(super) struct Site {
    wg: Vec<Arc<Track>>,
    cd_of_wg: Vec<Arc<Track>>,
    ro: Vec<Arc<Track>>,
    cd_of_ro: Vec<Arc<Track>>,
    pub(super) cello: Vec<PlacedVolume>,
    /// Sectors of the movies on each disk, where blocks reserve the times of their positions.
    pub(super) regions: Vec<Option<Range<Sector>>>,
}

impl Site {
    pub(super) fn new(
        disks: &Disks,
        layout: Layout,
        times: Times,
        seed: u64,
    ) -> Result<Self, BandError> {
        let predictor = disks.predictor();
        let [large, small, cello] = bands(disks, layout);
        let mut placed = large.place(disks.count)?;
        let copies = placed.len();
        placed.extend(small.place(disks.count)?);
        placed.extend(cello.place(disks.count)?);
        let cello = placed.split_off(2 * copies + 2);
        if times.are_on_tracks() {
            align_to_tracks(&mut placed, disks.count, &predictor);
        }
        placed.extend(cello);
        if layout == Layout::Random {
            shuffle(&mut placed, disks.count, predictor.capacity(), seed);
        }
        let cello = placed.split_off(2 * copies + 2);
        let mut tracks: Vec<Track> = placed.iter().map(|volume| track(volume, disks)).collect();
        let mut regions = vec![None; disks.count];
        if times.is_local() {
            (tracks, regions) = where_they_lie(tracks, disks);
        }
        let mut tracks = tracks.into_iter().map(Arc::new);
        let mut next = |count: usize| tracks.by_ref().take(count).collect();
        Ok(Self {
            ro: next(copies),
            wg: next(1),
            cd_of_wg: next(1),
            cd_of_ro: next(copies),
            cello,
            regions,
        })
    }

    /// The movie of the `turn`th client of a kind.
    pub(super) fn track(&self, kind: Kind, turn: usize) -> &Arc<Track> {
        let tracks = match kind {
            Kind::Wg => &self.wg,
            Kind::CdOfWg => &self.cd_of_wg,
            Kind::Ro => &self.ro,
            Kind::CdOfRo => &self.cd_of_ro,
        };
        &tracks[turn % tracks.len()]
    }
}

/// Movies in the larger blocks, everything else of theirs, and CELLO's disks.
fn bands(disks: &Disks, layout: Layout) -> [Band; 3] {
    let (large, small) = layout.blocks();
    let all: &[usize] = &[];
    let (of_ro, of_wg): (&[&[usize]], &[usize]) = if layout.is_striped() {
        (&[&[]], all)
    } else {
        (&[&[0], &[1]], &[2])
    };
    let movie = |name: &str, title: Title, block: Bytes, on: &[usize]| {
        let blocks = title.kib_per_second * 1_024 * MOVIE.get() / 1_000_000_000 / block.get();
        VolumeSpec {
            name: name.to_owned(),
            // In whole turns of the disks: the way back to the beginning is like any other.
            size: Bytes(blocks / disks.count as u64 * disks.count as u64 * block.get()),
            disks: on.to_vec(),
        }
    };
    let large_volumes: Vec<VolumeSpec> = of_ro
        .iter()
        .zip(0..)
        .map(|(on, copy)| movie(&format!("ro-{copy}"), RO, large, on))
        .collect();
    let mut small_volumes = vec![
        movie("wg", WG, small, of_wg),
        movie("cd-of-wg", CD, small, of_wg),
    ];
    for (on, copy) in of_ro.iter().zip(0..) {
        small_volumes.push(movie(&format!("cd-of-ro-{copy}"), CD, small, on));
    }
    let cello = (0..8).map(|disk| VolumeSpec {
        name: format!("cello-{disk}"),
        size: CELLO_BYTES,
        disks: Vec::new(),
    });
    let predictor = disks.predictor();
    let cello_from = predictor
        .zone_range(CELLO_ZONE)
        .map_or(Sector(0), |zone| zone.start);
    let first = Band {
        sectors: Sector(0)..room(&large_volumes, disks.count, layout),
        extent: large,
        volumes: large_volumes,
    };
    let second = Band {
        sectors: first.sectors.end..cello_from,
        extent: small,
        volumes: small_volumes,
    };
    let third = Band {
        sectors: cello_from..Sector(predictor.capacity().get()),
        extent: Bytes::from_mib(1),
        volumes: cello.collect(),
    };
    [first, second, third]
}

/// End of the band of the larger blocks.
fn room(volumes: &[VolumeSpec], disks: usize, layout: Layout) -> Sector {
    let on_each = |volume: &VolumeSpec| {
        if layout.is_striped() {
            volume.size.get() / disks as u64
        } else {
            volume.size.get()
        }
    };
    let most = volumes.iter().map(on_each).max().unwrap_or_default();
    Sector((most + OVERHEAD_BYTES) / sched::units::SECTOR_BYTES)
}
