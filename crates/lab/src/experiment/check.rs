//! Checks the values of a file: limits, and names that must exist.

use std::collections::HashSet;

use super::ExperimentError;
use super::file::{BestEffortOf, File, Loads, RandomOf, StreamOf, VolumeOf};

/// The longest run: a year.
const SECONDS_MAX: u64 = 366 * 24 * 3_600;
/// The most disks, as many as a pool has.
const DISKS_MAX: usize = 128;
/// The most groups of streams, and of runs.
const RUNS_MAX: usize = 100_000;
/// The largest size in KiB: an exbibyte.
const KIB_MAX: u64 = 1 << 50;
const SHIFT_MS_MAX: u64 = 3_600_000;

fn wrong<T>(at: impl Into<String>, problem: impl Into<String>) -> Result<T, ExperimentError> {
    Err(ExperimentError::Invalid {
        at: at.into(),
        problem: problem.into(),
    })
}

fn within(
    at: &str,
    key: &str,
    value: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<(), ExperimentError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (from, to) = range.into_inner();
    wrong(
        at,
        format!("`{key}` is {value}; it must be from {from} to {to}"),
    )
}

/// The name of the `copy`th of so many volumes alike.
pub(super) fn volume_name(volume: &VolumeOf, copy: usize) -> String {
    match volume.count {
        None => volume.name.clone(),
        Some(_) => format!("{}-{copy}", volume.name),
    }
}

impl File {
    pub(super) fn check(&self) -> Result<(), ExperimentError> {
        let top = "the experiment";
        if self.seeds.is_empty() || self.schedulers.is_empty() {
            return wrong(top, "it needs a seed and a scheduler");
        }
        if has_twice(&self.seeds) || has_twice(&self.schedulers) {
            return wrong(top, "a seed or a scheduler is given twice");
        }
        if let Some(seconds) = self.duration_s {
            within(top, "duration_s", seconds, 1..=SECONDS_MAX)?;
        }
        for (key, ms) in [
            ("latency_slot_ms", self.latency_slot_ms),
            ("slack_every_ms", self.slack_every_ms),
        ] {
            within(top, key, ms.unwrap_or(1), 1..=SECONDS_MAX * 1_000)?;
        }
        within(
            "disks",
            "count",
            self.disks.count as u64,
            1..=DISKS_MAX as u64,
        )?;
        if self
            .scheduler
            .early_share_percent
            .is_some_and(|percent| percent > 100)
        {
            return wrong("scheduler", "`early_share_percent` is from 0 to 100");
        }
        self.check_loads()?;
        self.check_volumes()?;
        for (index, stream) in self.stream.iter().enumerate() {
            self.check_stream(index, stream)?;
        }
        self.check_groups()?;
        for (index, of) in self.best_effort.iter().enumerate() {
            self.check_best_effort(&format!("best_effort {}", index + 1), of)?;
        }
        for (index, of) in self.reservation.iter().enumerate() {
            let at = format!("reservation {}", index + 1);
            within(&at, "period_ms", of.period_ms, 1..=SHIFT_MS_MAX)?;
            within(&at, "slice_ms", of.slice_ms, 1..=of.period_ms)?;
            let mut asked = self.best_effort.iter().flat_map(|of| &of.volumes);
            if !asked.any(|name| *name == of.volume) {
                return wrong(at, format!("no best effort uses volume `{}`", of.volume));
            }
        }
        if has_twice(
            &self
                .reservation
                .iter()
                .map(|of| &of.volume)
                .collect::<Vec<_>>(),
        ) {
            return wrong("reservation", "a volume has two reservations; add them up");
        }
        Ok(())
    }

    fn check_loads(&self) -> Result<(), ExperimentError> {
        let Loads::Listed(loads) = &self.loads else {
            return Ok(());
        };
        if loads.is_empty() || has_twice(loads) {
            return wrong("loads", "it has no number, or one twice");
        }
        if loads.iter().any(|load| *load > RUNS_MAX) {
            return wrong("loads", format!("more than {RUNS_MAX} groups"));
        }
        if self.group.is_empty() && loads.iter().any(|load| *load > 0) {
            return wrong("loads", "there is no `[[group]]` of streams to admit");
        }
        Ok(())
    }

    fn check_volumes(&self) -> Result<(), ExperimentError> {
        let mut names = HashSet::new();
        for (index, band) in self.band.iter().enumerate() {
            let at = format!("band {}", index + 1);
            if band.from_zone.is_some() && band.from_sector.is_some() {
                return wrong(at, "it begins either at a zone or at a sector");
            }
            within(&at, "extent_kib", band.extent_kib, 64..=1 << 20)?;
            if band.volume.is_empty() {
                return wrong(at, "it has no `[[band.volume]]`");
            }
            for volume in &band.volume {
                let at = format!("volume `{}`", volume.name);
                within(&at, "size_kib", volume.size_kib, 1..=KIB_MAX)?;
                within(&at, "count", volume.count.unwrap_or(1) as u64, 1..=1_000)?;
                if let Some(disk) = volume.disks.iter().find(|disk| **disk >= self.disks.count) {
                    return wrong(at, format!("there is no disk {disk}: they count from 0"));
                }
                if has_twice(&volume.disks) {
                    return wrong(at, "it is on a disk twice");
                }
                for copy in 0..volume.count.unwrap_or(1) {
                    if !names.insert(volume_name(volume, copy)) {
                        return wrong(at, "there are two of that name");
                    }
                }
            }
        }
        let of_streams = self.stream.iter().map(|stream| &stream.volume);
        let of_others = self.best_effort.iter().flat_map(|of| &of.volumes);
        for name in of_streams.chain(of_others) {
            if !names.contains(name.as_str()) {
                return wrong(
                    format!("volume `{name}`"),
                    "a load uses it, but there is no `[[band.volume]]` of that name",
                );
            }
        }
        Ok(())
    }

    fn check_stream(&self, index: usize, stream: &StreamOf) -> Result<(), ExperimentError> {
        let at = format!("stream `{}`", stream.name);
        if self.stream[..index]
            .iter()
            .any(|before| before.name == stream.name)
        {
            return wrong(at, "there are two of that name");
        }
        let periods = [stream.period_us, stream.period_ms, stream.kib_per_second];
        if periods.iter().flatten().count() != 1 {
            return wrong(
                at,
                "it has one of `period_ms`, `period_us` and `kib_per_second`",
            );
        }
        within(
            &at,
            "period_us",
            stream.period_us.unwrap_or(1),
            1..=1_000 * SHIFT_MS_MAX,
        )?;
        within(
            &at,
            "period_ms",
            stream.period_ms.unwrap_or(1),
            1..=SHIFT_MS_MAX,
        )?;
        within(
            &at,
            "kib_per_second",
            stream.kib_per_second.unwrap_or(1),
            1..=1 << 30,
        )?;
        within(&at, "block_kib", stream.block_kib.unwrap_or(1), 1..=1 << 20)?;
        within(&at, "buffers", u64::from(stream.buffers), 1..=1_000)?;
        within(&at, "asks_percent", stream.asks_percent, 1..=10_000)?;
        for (key, ms) in [
            ("first_ms", stream.first_ms),
            ("early_ms", stream.early_ms),
            ("late_ms", stream.late_ms),
        ] {
            within(&at, key, ms, 0..=SHIFT_MS_MAX)?;
        }
        if let Some(frames) = &stream.vbr {
            for (key, value, most) in [
                ("frames_per_second", frames.frames_per_second, 1_000),
                ("mean_percent", frames.mean_percent, 1_000),
                ("scene_s", frames.scene_s, 3_600),
            ] {
                within(&at, key, value, 1..=most)?;
            }
            within(
                &at,
                "frame_deviation_percent",
                frames.frame_deviation_percent,
                0..=1_000,
            )?;
            within(
                &at,
                "scene_deviation_percent",
                frames.scene_deviation_percent,
                0..=1_000,
            )?;
        }
        Ok(())
    }

    fn check_groups(&self) -> Result<(), ExperimentError> {
        for (index, group) in self.group.iter().enumerate() {
            let at = format!("group {}", index + 1);
            if group.streams.is_empty() {
                return wrong(at, "it has no streams");
            }
            for name in &group.streams {
                if self.stream.iter().all(|stream| stream.name != *name) {
                    return wrong(at, format!("there is no stream `{name}`"));
                }
            }
        }
        for stream in &self.stream {
            let mut named = self.group.iter().flat_map(|group| &group.streams);
            if !named.any(|name| *name == stream.name) {
                return wrong(format!("stream `{}`", stream.name), "no `[[group]]` has it");
            }
        }
        Ok(())
    }

    fn check_best_effort(&self, at: &str, of: &BestEffortOf) -> Result<(), ExperimentError> {
        let kinds = [of.cello.is_some(), of.trace.is_some(), of.random.is_some()];
        if kinds.into_iter().filter(|is_there| *is_there).count() != 1 {
            return wrong(at, "it has one of `cello`, `trace` and `random`");
        }
        if of.volumes.is_empty() || has_twice(&of.volumes) {
            return wrong(at, "it has no volumes, or one twice");
        }
        if of.cello.is_some() && of.volumes.len() != 8 {
            return wrong(at, "CELLO has eight disks: name as many volumes");
        }
        within(at, "speed_percent", of.speed_percent, 1..=1_000_000)?;
        if let Some(trace) = &of.trace {
            within(at, "from_s", trace.from_s, 0..=SECONDS_MAX)?;
            within(at, "for_s", trace.for_s.unwrap_or(1), 1..=SECONDS_MAX)?;
            within(
                at,
                "took_us",
                trace.took_us.unwrap_or(0),
                0..=1_000 * SHIFT_MS_MAX,
            )?;
        }
        match &of.random {
            None => Ok(()),
            Some(random) => self.check_random(at, random),
        }
    }

    fn check_random(&self, at: &str, random: &RandomOf) -> Result<(), ExperimentError> {
        if !(random.per_second > 0.0 && random.per_second <= 1e6) {
            return wrong(at, "`per_second` is more than 0 and at most a million");
        }
        if self.duration_s.is_none() {
            return wrong(
                at,
                "random requests never end: set `duration_s` of the experiment",
            );
        }
        within(at, "burst", random.burst, 1..=1_000_000)?;
        within(at, "burst_gap_us", random.burst_gap_us, 1..=1_000_000)?;
        within(at, "read_percent", random.read_percent, 0..=100)?;
        if random.sizes_kib.is_empty() {
            return wrong(at, "`sizes_kib` has no size");
        }
        random
            .sizes_kib
            .iter()
            .try_for_each(|size| within(at, "sizes_kib", *size, 1..=1 << 20))
    }
}

fn has_twice<T: PartialEq>(items: &[T]) -> bool {
    let mut rest = items;
    while let Some((first, others)) = rest.split_first() {
        if others.contains(first) {
            return true;
        }
        rest = others;
    }
    false
}
