//! Conditions on a description, so that the model's arithmetic holds.

use super::description::{Access, Description, Layout};
use super::map;

/// Bounds within which the arithmetic of the model cannot overflow, far beyond any drive.
const ROTATION_NS_MAX: u64 = 60_000_000_000;
const TIME_NS_MAX: u64 = 100_000_000_000;
const HEADS_MAX: u64 = 1_000;
const SECTORS_MAX: u64 = 1 << 48;
const SECTORS_PER_TRACK_MAX: u64 = 1_000_000;
const CYLINDERS_MAX: u64 = 100_000_000;
const SEGMENTS_MAX: u64 = 10_000;
const SEGMENT_SECTORS_MAX: u64 = 1 << 24;
const MILLION: u64 = 1_000_000;

impl Description {
    /// The number of sectors that the layout has.
    pub(crate) fn capacity(&self) -> u64 {
        match &self.layout {
            Layout::Zones {
                sparing,
                range_cylinders,
                zone,
                ..
            } => {
                let heads = self.mechanics.heads;
                let sectors = |line| map::sectors_of_zone(*sparing, *range_cylinders, line, heads);
                // A description that was not checked may say anything.
                let usable = zone
                    .iter()
                    .filter(|line| line.first_cylinder <= line.last_cylinder);
                usable.map(sectors).fold(0, u64::saturating_add)
            }
            Layout::Extents { extent } => extent.last().map_or(0, |last| last.first + last.count),
            Layout::Tree { node, slip, .. } => {
                let root = node.last().and_then(|entries| entries.last());
                let all = root.map_or(0, |last| last.first.saturating_add(last.run_sectors));
                slip.iter()
                    .fold(all, |left, (_, count)| left.saturating_sub(*count))
            }
        }
    }

    /// The last cylinder that the layout names.
    pub(crate) fn last_cylinder(&self) -> Option<u64> {
        match &self.layout {
            Layout::Zones { zone, .. } => zone.iter().map(|line| line.last_cylinder).max(),
            Layout::Extents { extent } => extent.iter().map(|run| run.cylinder).max(),
            Layout::Tree { .. } => None,
        }
    }

    /// The key that is wrong, and the fault.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        self.check_mechanics()?;
        self.check_times()?;
        let cache = &self.cache;
        within(&[
            ("cache.segments", cache.segments, 1, SEGMENTS_MAX),
            (
                "cache.segment_sectors",
                cache.segment_sectors,
                1,
                SEGMENT_SECTORS_MAX,
            ),
            (
                "cache.write_segments",
                cache.write_segments,
                1,
                cache.segments,
            ),
            ("cache.read_mark_ppm", cache.read_mark_ppm, 0, MILLION),
            ("cache.write_mark_ppm", cache.write_mark_ppm, 0, MILLION),
            (
                "cache.read_ahead_min_sectors",
                cache.read_ahead_min_sectors,
                0,
                cache.segment_sectors,
            ),
            (
                "cache.read_ahead_max_sectors",
                cache.read_ahead_max_sectors,
                0,
                cache.segment_sectors,
            ),
        ])?;
        if cache.separate_write_segment && cache.segments < 2 {
            let problem = "reads need a segment too; give it two segments or no separate one";
            return Err(("cache.separate_write_segment", problem.into()));
        }
        self.check_layout()?;
        within(&[("sectors", self.sectors, 1, self.capacity().min(SECTORS_MAX))])
    }

    fn check_mechanics(&self) -> Result<(), (&'static str, String)> {
        let mechanics = &self.mechanics;
        within(&[
            (
                "mechanics.rotation_ns",
                mechanics.rotation_ns,
                1_000,
                ROTATION_NS_MAX,
            ),
            ("mechanics.heads", mechanics.heads, 1, HEADS_MAX),
            (
                "mechanics.head_switch_ns",
                mechanics.head_switch_ns,
                0,
                TIME_NS_MAX,
            ),
            (
                "mechanics.write_settle_ns",
                mechanics.write_settle_ns.unsigned_abs(),
                0,
                TIME_NS_MAX,
            ),
            ("seek", self.seek.len() as u64, 1, MILLION),
        ])?;
        let ascends = self.seek.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let is_wrong = |(distance, time): &(u64, u64)| {
            !(1..=CYLINDERS_MAX).contains(distance) || *time > TIME_NS_MAX
        };
        if !ascends || self.seek.iter().any(is_wrong) {
            let problem = "distances do not ascend from 1, or a time is absurd";
            return Err(("seek", problem.into()));
        }
        if mechanics.access == Access::Constant && mechanics.write_settle_ns < 0 {
            return Err((
                "mechanics.write_settle_ns",
                "a constant access has none".into(),
            ));
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), (&'static str, String)> {
        let of = &self.overhead;
        let extra = of.extra_write_disconnect.as_ref();
        let extra = extra.map_or(0, |extra| {
            let times = [
                extra.command_ns,
                extra.disconnect_ns,
                extra.between_ns,
                extra.second_disconnect_ns,
                extra.seek_delay_ns,
            ];
            times.into_iter().max().unwrap_or(0)
        });
        let times = [
            of.request_ns,
            of.read_hit_after_read_ns,
            of.read_hit_after_write_ns,
            of.read_miss_after_read_ns,
            of.read_miss_after_write_ns,
            of.write_hit_after_read_ns,
            of.write_hit_after_write_ns,
            of.write_miss_after_read_ns,
            of.write_miss_after_write_ns,
            of.read_completion_ns,
            of.write_completion_ns,
            of.data_preparation_ns,
            of.first_reselect_ns,
            of.other_reselect_ns,
            of.read_disconnect_after_read_ns,
            of.read_disconnect_after_write_ns,
            of.write_disconnect_ns,
            of.write_seek_min_ns,
            extra,
        ];
        let longest = times.into_iter().max().unwrap_or(0);
        within(&[
            ("overhead", longest, 0, TIME_NS_MAX),
            (
                "bus.read_sector_ns",
                self.bus.read_sector_ns,
                0,
                TIME_NS_MAX,
            ),
            (
                "bus.write_sector_ns",
                self.bus.write_sector_ns,
                0,
                TIME_NS_MAX,
            ),
            (
                "bus.arbitration_ns",
                self.bus.arbitration_ns,
                0,
                TIME_NS_MAX,
            ),
        ])
    }

    fn check_layout(&self) -> Result<(), (&'static str, String)> {
        match &self.layout {
            Layout::Zones {
                sparing,
                range_cylinders,
                zone,
                ..
            } => {
                within(&[("layout.zone", zone.len() as u64, 1, 10_000)])?;
                map::check_zones(*sparing, *range_cylinders, zone, self.mechanics.heads)
                    .map_err(|problem| ("layout.zone", problem))
            }
            Layout::Tree {
                track,
                node,
                slip,
                remap,
            } => {
                map::check_tree(track, node).map_err(|problem| ("layout.node", problem))?;
                if !slip.is_sorted()
                    || slip
                        .iter()
                        .any(|(at, count)| (*at).max(*count) > SECTORS_MAX)
                {
                    return Err(("layout.slip", "slips do not ascend".into()));
                }
                let count: u64 = remap.iter().map(|remap| remap.count.min(SECTORS_MAX)).sum();
                within(&[("layout.remap", count, 0, MILLION)])
            }
            Layout::Extents { extent } => {
                let mut next = 0;
                for run in extent {
                    within(&[
                        (
                            "layout.extent.sectors_per_track",
                            run.sectors_per_track,
                            1,
                            SECTORS_PER_TRACK_MAX,
                        ),
                        ("layout.extent.count", run.count, 1, run.sectors_per_track),
                        ("layout.extent.cylinder", run.cylinder, 0, CYLINDERS_MAX),
                    ])?;
                    if run.first != next {
                        let problem = format!("sector {next} is in none, or in two");
                        return Err(("layout.extent", problem));
                    }
                    next = run.first + run.count;
                }
                within(&[("layout.extent", next, 1, SECTORS_MAX)])
            }
        }
    }
}

/// Values by their keys, each with the least and the greatest that it may be; the first one out of its bounds
/// is the error.
fn within(bounds: &[(&'static str, u64, u64, u64)]) -> Result<(), (&'static str, String)> {
    let out = bounds
        .iter()
        .find(|(_, value, min, max)| !(min..=max).contains(&value));
    match out {
        None => Ok(()),
        Some((key, value, min, max)) => {
            Err((key, format!("{value} is not between {min} and {max}")))
        }
    }
}
