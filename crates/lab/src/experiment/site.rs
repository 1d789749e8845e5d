//! The disks of an experiment with everything on them, and who is admitted to them.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use drives::plant::PlantSpec;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::disk::{DiskScheduler, SchedulerConfig};
use sched::profile::DriveProfile;
use sched::units::{Bytes, BytesPerSecond, Nanos, Sector, SectorCount, Time};

use super::ExperimentError;
use super::arrivals::Asks;
use super::check::volume_name;
use super::file::{AdmissionBy, BandOf, DisksOf, Extents, File, StreamOf};
use crate::dice::Dice;
use crate::farm::{
    Admitted, Band, Disks, NotAdmitted, PlacedVolume, Reserved, Stream, Track, VolumeSpec,
    align_to_tracks, by_measured_times, shuffle, where_they_lie,
};

/// The most tasks of one disk.
const TASKS_MAX: usize = 16_384;

fn invalid(at: impl Into<String>, problem: impl ToString) -> ExperimentError {
    ExperimentError::Invalid {
        at: at.into(),
        problem: problem.to_string(),
    }
}

fn text_of(path: &Path) -> Result<String, ExperimentError> {
    fs::read_to_string(path).map_err(|error| ExperimentError::Read {
        path: path.to_owned(),
        error,
    })
}

/// The drives that a file asks for; the names of files are from `folder` on.
pub(super) fn disks(of: &DisksOf, folder: &Path) -> Result<Disks, ExperimentError> {
    let none = |what: &str| format!("give a `drive` that is built in, or the file of a `{what}`");
    let plant = match (&of.plant, &of.drive) {
        (Some(path), _) => {
            let path = folder.join(path);
            let plant = PlantSpec::parse(&text_of(&path)?);
            plant.map_err(|error| invalid(path.display().to_string(), error))?
        }
        (None, Some(name)) => PlantSpec::built_in(name).ok_or_else(|| {
            let known = drives::plant::spec::BUILT_IN.join(", ");
            invalid("disks", format!("no drive `{name}`; there are {known}"))
        })?,
        (None, None) => return Err(invalid("disks", none("plant"))),
    };
    let profile = match (&of.profile, &of.drive) {
        (Some(path), _) => {
            let path = folder.join(path);
            let profile = DriveProfile::from_toml(&text_of(&path)?);
            profile.map_err(|error| invalid(path.display().to_string(), error))?
        }
        (None, Some(name)) => {
            DriveProfile::shipped(name).map_err(|error| invalid("disks", error))?
        }
        (None, None) => return Err(invalid("disks", none("profile"))),
    };
    if plant.sectors() != profile.capacity() {
        return Err(invalid(
            "disks",
            format!(
                "the plant has {} sectors, but the profile {}",
                plant.sectors().get(),
                profile.capacity().get()
            ),
        ));
    }
    if profile.outstanding() > 1 {
        return Err(invalid(
            "disks",
            "the profile is of a drive with several requests at a time, but a plant takes one",
        ));
    }
    let profile = if of.admission == AdmissionBy::Measured {
        if profile.spec().worst_case.is_empty() {
            return Err(invalid(
                "disks",
                "the profile has no table of measured times",
            ));
        }
        by_measured_times(&profile).map_err(|error| invalid("disks", error))?
    } else {
        profile
    };
    Ok(Disks {
        plant,
        profile: Arc::new(profile),
        count: of.count,
    })
}

/// The disks with everything on them, before any stream has joined.
pub(super) struct Site<'a> {
    file: &'a File,
    disks: &'a Disks,
    tracks: HashMap<String, Arc<Track>>,
    regions: Vec<Option<Range<Sector>>>,
    volumes: Vec<PlacedVolume>,
    /// The volumes that best effort asks something of, by source.
    pub(super) sources: Vec<PlacedVolume>,
    seed: u64,
}

impl<'a> Site<'a> {
    pub(super) fn new(
        file: &'a File,
        disks: &'a Disks,
        seed: u64,
    ) -> Result<Self, ExperimentError> {
        let predictor = disks.predictor();
        let mut volumes = Vec::new();
        for (index, sectors) in bands(&file.band, disks)?.into_iter().enumerate() {
            let band = band(&file.band[index], sectors);
            let placed = band.place(disks.count);
            volumes.extend(placed.map_err(|error| invalid(format!("band {}", index + 1), error))?);
        }
        let is_streamed =
            |volume: &PlacedVolume| file.stream.iter().any(|of| of.volume == volume.name);
        match file.disks.extents {
            Extents::InTurn => {}
            Extents::Random => shuffle(&mut volumes, disks.count, predictor.capacity(), seed),
            Extents::Tracks => {
                let (mut streamed, others): (Vec<_>, Vec<_>) =
                    volumes.into_iter().partition(is_streamed);
                align_to_tracks(&mut streamed, disks.count, &predictor);
                check_apart(&streamed, &others, disks)?;
                volumes = streamed;
                volumes.extend(others);
            }
        }
        let mut site = Self {
            file,
            disks,
            tracks: HashMap::new(),
            regions: vec![None; disks.count],
            volumes,
            sources: Vec::new(),
            seed,
        };
        site.make_tracks()?;
        site.sources = sources(file)
            .into_iter()
            .filter_map(|name| site.volume(name).cloned())
            .collect();
        Ok(site)
    }

    fn volume(&self, name: &str) -> Option<&PlacedVolume> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    fn make_tracks(&mut self) -> Result<(), ExperimentError> {
        let predictor = self.disks.predictor();
        let physical = self.disks.profile.physical_sector();
        let mut tracks = Vec::new();
        for of in &self.file.stream {
            let at = || format!("stream `{}`", of.name);
            let volume = self.volume(&of.volume).expect("names were checked");
            let block = of
                .block_kib
                .map_or(volume.geometry.extent_bytes(), Bytes::from_kib);
            let track = Track::new(volume, block, of.op, &predictor, physical);
            tracks.push(track.ok_or_else(|| {
                invalid(
                    at(),
                    format!("its volume of {} has no block of {block}", volume.size),
                )
            })?);
        }
        if let AdmissionBy::Near | AdmissionBy::Sweeps = self.file.disks.admission {
            (tracks, self.regions) = where_they_lie(tracks, self.disks);
        }
        let names = self.file.stream.iter().map(|of| of.name.clone());
        self.tracks = names.zip(tracks.into_iter().map(Arc::new)).collect();
        Ok(())
    }

    /// The `number`th stream to join, which ends at `end`.
    fn stream(&self, of: &StreamOf, number: u64, end: Time) -> Result<Stream, ExperimentError> {
        let track = &self.tracks[&of.name];
        let dice = |salt: u64| {
            let seed = self.seed ^ salt ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
        };
        let period = period(of, track.block)?;
        let asks = Asks {
            first: Time::ZERO + Nanos::from_millis(of.first_ms),
            period,
            block: track.block,
            percent: of.asks_percent,
            early: Nanos::from_millis(of.early_ms),
            late: Nanos::from_millis(of.late_ms),
            frames: of.vbr,
        };
        Ok(Stream {
            first_block: of
                .first_block
                .unwrap_or_else(|| dice(0).below(track.blocks)),
            arrivals: asks.arrivals(end, &mut dice(0xA5C5)),
            track: Arc::clone(track),
            period,
            depth: of.buffers,
        })
    }

    /// Admits the first `count` groups, all of which have to fit, and names their streams.
    pub(super) fn admit(
        &self,
        load: usize,
        config: &SchedulerConfig,
        end: Time,
    ) -> Result<(Admitted, Vec<&'a str>), ExperimentError> {
        let (admitted, names, refused) = self.admit_most(load, config, end)?;
        match refused {
            None => Ok((admitted, names)),
            Some((load, error)) => Err(ExperimentError::Refused { load, error }),
        }
    }

    /// The most groups that there is room for.
    pub(super) fn most(&self, config: &SchedulerConfig) -> Result<usize, ExperimentError> {
        if self.file.group.is_empty() {
            return Ok(0);
        }
        // When streams ask is of no importance here.
        let (.., refused) = self.admit_most(usize::MAX, config, Time(1))?;
        Ok(refused.map_or(usize::MAX, |(load, _)| load - 1))
    }

    #[allow(clippy::type_complexity, reason = "it is taken apart at once, here")]
    fn admit_most(
        &self,
        most: usize,
        config: &SchedulerConfig,
        end: Time,
    ) -> Result<(Admitted, Vec<&'a str>, Option<(usize, NotAdmitted)>), ExperimentError> {
        let mut admitted = match self.file.disks.admission {
            AdmissionBy::Sweeps => Admitted::in_sweeps(self.disks, &self.regions),
            _ => Admitted::within(self.disks, &self.regions),
        };
        self.reserve(&mut admitted, config)?;
        let mut names: Vec<&'a str> = Vec::new();
        for (group, load) in self.file.group.iter().cycle().zip(1..=most) {
            let mut streams = Vec::new();
            for name in &group.streams {
                let of = self.file.stream.iter().find(|of| of.name == *name);
                let of = of.expect("names were checked");
                let number = (names.len() + streams.len()) as u64;
                streams.push(self.stream(of, number, end)?);
            }
            let lanes: usize = streams.iter().map(|stream| stream.track.lanes.len()).sum();
            if admitted.tasks() + lanes > TASKS_MAX {
                let problem = format!("with so many groups there are more than {TASKS_MAX} tasks");
                return Err(invalid(format!("load {load}"), problem));
            }
            if let Err(error) = admitted.add(&streams) {
                return Ok((admitted, names, Some((load, error))));
            }
            names.extend(group.streams.iter().map(String::as_str));
        }
        Ok((admitted, names, None))
    }

    fn reserve(
        &self,
        admitted: &mut Admitted,
        config: &SchedulerConfig,
    ) -> Result<(), ExperimentError> {
        let names = sources(self.file);
        let scheduler = DiskScheduler::new(Arc::clone(&self.disks.profile), config.clone());
        for of in &self.file.reservation {
            let at = format!("reservation of `{}`", of.volume);
            let slice = Nanos::from_millis(of.slice_ms);
            if slice < scheduler.piece_max() {
                let most = scheduler.piece_max();
                let problem = format!("a slice of {slice} has no room for a request of {most}");
                return Err(invalid(at, problem));
            }
            let source = names.iter().position(|name| *name == of.volume);
            let reserved = Reserved {
                source: source.expect("names were checked"),
                slice,
                period: Nanos::from_millis(of.period_ms),
                piece_max: scheduler.piece_max(),
            };
            admitted
                .reserve(reserved)
                .map_err(|error| invalid(at, error))?;
        }
        Ok(())
    }
}

fn period(of: &StreamOf, block: Bytes) -> Result<Nanos, ExperimentError> {
    let by_rate = of
        .kib_per_second
        .and_then(|kib| BytesPerSecond(kib << 10).period_of(block));
    let by_us = of.period_us.map(|us| Nanos(us * 1_000));
    let period = of.period_ms.map(Nanos::from_millis).or(by_us).or(by_rate);
    let period = period.filter(|period| !period.is_zero());
    period.ok_or_else(|| {
        invalid(
            format!("stream `{}`", of.name),
            "its period is not even a nanosecond",
        )
    })
}

/// The volumes that best effort asks something of, each once, in the order in which they are named.
pub(super) fn sources(file: &File) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in file.best_effort.iter().flat_map(|of| &of.volumes) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

/// The sectors of each band.
fn bands(bands: &[BandOf], disks: &Disks) -> Result<Vec<Range<Sector>>, ExperimentError> {
    let predictor = disks.predictor();
    let capacity = Sector(predictor.capacity().get());
    let at = |index: usize| format!("band {}", index + 1);
    let mut starts = Vec::new();
    for (index, band) in bands.iter().enumerate() {
        starts.push(match (band.from_zone, band.from_sector) {
            (Some(zone), _) => {
                let zones = predictor.zone_count();
                let range = predictor.zone_range(zone);
                let range = range.ok_or_else(|| {
                    invalid(at(index), format!("there are zones 0 to {}", zones - 1))
                })?;
                Some(range.start)
            }
            (None, from) => from.map(Sector),
        });
    }
    let mut ranges: Vec<Range<Sector>> = Vec::new();
    for (index, band) in bands.iter().enumerate() {
        let before = ranges.last().map_or(Sector(0), |range| range.end);
        let start = starts[index].unwrap_or(before);
        let next = starts.get(index + 1).copied().flatten().unwrap_or(capacity);
        let end = match band.sectors {
            None => next,
            Some(sectors) => start
                .checked_add(SectorCount(sectors))
                .ok_or_else(|| invalid(at(index), "`sectors` is too large"))?,
        };
        if start < before || end > capacity || start >= end {
            return Err(invalid(
                at(index),
                format!(
                    "sectors {} to {} are not behind the band before it, or not on a disk of {} sectors",
                    start.get(),
                    end.get(),
                    capacity.get()
                ),
            ));
        }
        ranges.push(start..end);
    }
    Ok(ranges)
}

fn band(of: &BandOf, sectors: Range<Sector>) -> Band {
    let volumes = of.volume.iter().flat_map(|volume| {
        (0..volume.count.unwrap_or(1)).map(|copy| VolumeSpec {
            name: volume_name(volume, copy),
            size: Bytes::from_kib(volume.size_kib),
            disks: volume.disks.clone(),
        })
    });
    Band {
        sectors,
        extent: Bytes::from_kib(of.extent_kib),
        volumes: volumes.collect(),
    }
}

/// Extents that were moved to where tracks begin have come no further than to where others are.
fn check_apart(
    moved: &[PlacedVolume],
    others: &[PlacedVolume],
    disks: &Disks,
) -> Result<(), ExperimentError> {
    for disk in 0..disks.count {
        let on_disk = |volumes: &[PlacedVolume]| {
            let extents = volumes.iter().flat_map(|volume| volume.extents.clone());
            let on_it = extents.filter(|extent| extent.disk == disk);
            on_it.map(|extent| extent.sectors).collect::<Vec<_>>()
        };
        let moved = on_disk(moved);
        let end = moved.iter().map(|extent| extent.end).max();
        let is_over = end.is_some_and(|end| end.get() > disks.predictor().capacity().get());
        let mut all = moved;
        all.extend(on_disk(others));
        all.sort_unstable_by_key(|extent| extent.start);
        if is_over || all.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return Err(invalid(
                "disks",
                "extents that begin with tracks need more room: end their bands later",
            ));
        }
    }
    Ok(())
}
