//! A drive as its file has it.

use sched::units::{Bytes, Nanos};
use serde::Deserialize;
use toml::Spanned;

use super::Drive;
use crate::channel::spec::{SpecError, within};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    name: String,
    rpm: Spanned<u64>,
    heads: Spanned<u64>,
    track_skew_us: Spanned<u64>,
    cylinder_skew_us: Spanned<u64>,
    command_us: Spanned<u64>,
    buffered_read_us: Spanned<(u64, u64)>,
    segments: Spanned<u64>,
    segment_kib: Spanned<u64>,
    seek_us: Spanned<Vec<(u32, u64)>>,
    zone: Vec<Zone>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Zone {
    cylinders: Spanned<u64>,
    sectors_per_track: Spanned<u64>,
}

/// Longer times are no times of a drive.
const LONGEST_US: u64 = 1_000_000;

impl File {
    pub(super) fn drive(&self) -> Result<Drive, SpecError> {
        let us = |name, value| within(name, value, 0..=LONGEST_US).map(Nanos::from_micros);
        let &(least, most) = self.buffered_read_us.get_ref();
        if least > most || most > LONGEST_US {
            return Err(SpecError::at(
                &self.buffered_read_us,
                format!(
                    "`buffered_read_us` is [{least}, {most}]; it must be [least, most] up to {LONGEST_US}"
                ),
            ));
        }
        let zones = self.zones()?;
        let cylinders = zones.iter().map(|(cylinders, _)| cylinders).sum();
        Ok(Drive {
            name: self.name.clone(),
            rotation: Nanos(60_000_000_000 / within("rpm", &self.rpm, 60..=1_000_000)?),
            heads: within("heads", &self.heads, 1..=1_000)? as u32,
            track_skew: us("track_skew_us", &self.track_skew_us)?,
            cylinder_skew: us("cylinder_skew_us", &self.cylinder_skew_us)?,
            command: us("command_us", &self.command_us)?,
            buffered_read: (Nanos::from_micros(least), Nanos::from_micros(most)),
            segments: within("segments", &self.segments, 1..=16)? as u32,
            segment: Bytes::from_kib(within("segment_kib", &self.segment_kib, 1..=1 << 20)?),
            seeks: self.seeks(cylinders)?,
            zones,
        })
    }

    fn zones(&self) -> Result<Vec<(u32, u32)>, SpecError> {
        if self.zone.is_empty() {
            return Err(SpecError::new(0..0, "the drive has no `[[zone]]`"));
        }
        let of = |zone: &Zone| {
            let cylinders = within("cylinders", &zone.cylinders, 1..=1_000_000)?;
            let sectors = within("sectors_per_track", &zone.sectors_per_track, 1..=100_000)?;
            Ok((cylinders as u32, sectors as u32))
        };
        self.zone.iter().map(of).collect()
    }

    /// The seek times by distance, between the points on straight lines.
    fn seeks(&self, cylinders: u32) -> Result<Vec<Nanos>, SpecError> {
        let points = self.seek_us.get_ref();
        let fault = |problem: String| Err(SpecError::at(&self.seek_us, problem));
        let rises = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if points.first().is_none_or(|point| point.0 != 1) || !rises {
            return fault(
                "`seek_us` must begin with distance 1, and the distances must rise".into(),
            );
        }
        if points.iter().any(|point| point.1 > LONGEST_US) {
            return fault(format!("a time of `seek_us` is above {LONGEST_US}"));
        }
        let longest = points.last().map_or(0, |point| point.0);
        if longest + 1 < cylinders {
            return fault(format!(
                "`seek_us` ends at distance {longest}; the zones have {cylinders} cylinders"
            ));
        }
        let mut seeks = vec![Nanos::ZERO, Nanos::from_micros(points[0].1)];
        for pair in points.windows(2) {
            let [(from, low), (to, high)] = [pair[0], pair[1]];
            let (low, high) = (i128::from(low) * 1_000, i128::from(high) * 1_000);
            seeks.extend((from + 1..=to).map(|distance| {
                let part = i128::from(distance - from) * (high - low) / i128::from(to - from);
                Nanos((low + part) as u64)
            }));
        }
        seeks.truncate(cylinders as usize);
        Ok(seeks)
    }
}
