//! Seek times: fastest, mean and slowest against distance, as they are measured.
//!
//! The curve is a table of points with straight lines between them. Arms are not deterministic:
//! one distance takes a range of times (thesis 4.3.2: 1.5-2 ms between the fastest and the slowest
//! seek of one distance, "most likely" the motor), and the mean need not lie in the middle. A time
//! is drawn from the distribution that is uniform below the mean and uniform above it, with the
//! weights that make the mean come out.

use sched::units::Nanos;

use super::share;

/// One point of a seek curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeekPoint {
    /// The distance in cylinders.
    pub distance: u64,
    /// The fastest seek.
    pub min: Nanos,
    /// The mean seek.
    pub mean: Nanos,
    /// The slowest seek.
    pub max: Nanos,
}

/// A seek curve. Points have increasing distances, the first is for one cylinder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeekCurve {
    points: Vec<SeekPoint>,
}

impl SeekCurve {
    /// A curve through `points`.
    ///
    /// # Errors
    /// A sentence saying which point is wrong, when there is none, when the first is not for one
    /// cylinder, when distances do not increase, or when a point is not min <= mean <= max.
    pub fn new(points: Vec<SeekPoint>) -> Result<Self, String> {
        match points.first() {
            None => return Err("there is no point".into()),
            Some(first) if first.distance != 1 => {
                return Err(format!(
                    "the first point is for {} cylinders, not 1",
                    first.distance
                ));
            }
            Some(_) => {}
        }
        for point in &points {
            if point.min > point.mean || point.mean > point.max {
                return Err(format!(
                    "at {} cylinders, minimum, mean and maximum are not in this order",
                    point.distance
                ));
            }
        }
        for pair in points.windows(2) {
            if pair[0].distance >= pair[1].distance {
                return Err(format!(
                    "distance {} does not come before {}",
                    pair[0].distance, pair[1].distance
                ));
            }
        }
        Ok(Self { points })
    }

    /// Fastest, mean and slowest time of a seek over `distance` cylinders; the last point holds for
    /// all longer ones. All zero for no distance.
    #[must_use]
    pub fn at(&self, distance: u64) -> SeekPoint {
        if distance == 0 {
            return SeekPoint {
                distance,
                min: Nanos::ZERO,
                mean: Nanos::ZERO,
                max: Nanos::ZERO,
            };
        }
        let next = self
            .points
            .partition_point(|point| point.distance <= distance);
        let low = self.points[next - 1];
        let Some(&high) = self.points.get(next) else {
            return SeekPoint { distance, ..low };
        };
        let (step, span) = (distance - low.distance, high.distance - low.distance);
        let between = |a: Nanos, b: Nanos| {
            let rise = (i128::from(b.get()) - i128::from(a.get())) * i128::from(step);
            Nanos((i128::from(a.get()) + rise / i128::from(span)) as u64)
        };
        SeekPoint {
            distance,
            min: between(low.min, high.min),
            mean: between(low.mean, high.mean),
            max: between(low.max, high.max),
        }
    }

    /// The time of one seek over `distance` cylinders, `luck` / 2^32 of the way through the
    /// distribution.
    pub(crate) fn time(&self, distance: u64, luck: u32) -> Nanos {
        let SeekPoint { min, mean, max, .. } = self.at(distance);
        if min == max {
            return min;
        }
        // The share (max - mean) / (max - min) of all seeks lies below the mean: then
        // share * (min + mean) / 2 + (1 - share) * (mean + max) / 2 = mean.
        let (below, above) = ((mean - min).get(), (max - mean).get());
        let drawn = share(below + above, luck);
        if drawn < above {
            min + Nanos(drawn * below / above)
        } else {
            mean + Nanos((drawn - above) * above / below)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> SeekCurve {
        let point = |distance, min, mean, max| SeekPoint {
            distance,
            min: Nanos(min),
            mean: Nanos(mean),
            max: Nanos(max),
        };
        SeekCurve::new(vec![
            point(1, 1400, 1900, 3200),
            point(101, 3400, 3900, 5200),
        ])
        .unwrap()
    }

    #[test]
    fn straight_lines_between_points_and_the_last_one_beyond() {
        assert_eq!(curve().at(51).mean, Nanos(2900));
        assert_eq!(curve().at(0).max, Nanos(0));
        assert_eq!(curve().at(5000).max, Nanos(5200));
    }

    #[test]
    fn drawn_times_have_the_range_and_the_mean_of_the_curve() {
        let (min, mean, max) = (Nanos(1_400_000), Nanos(1_900_000), Nanos(3_200_000));
        let curve = SeekCurve::new(vec![SeekPoint {
            distance: 1,
            min,
            mean,
            max,
        }])
        .unwrap();
        let n = 100_000_u64;
        let times: Vec<u64> = (0..n)
            .map(|i| {
                curve
                    .time(1, (i * u64::from(u32::MAX) / (n - 1)) as u32)
                    .get()
            })
            .collect();
        assert_eq!(*times.iter().min().unwrap(), 1_400_000);
        assert!((3_199_990..=3_200_000).contains(times.iter().max().unwrap()));
        let drawn = times.iter().sum::<u64>() / n;
        assert!(drawn.abs_diff(1_900_000) <= 100, "{drawn}");
    }

    #[test]
    fn a_degenerate_spread_is_a_constant() {
        let point = |min, mean, max| SeekPoint {
            distance: 1,
            min: Nanos(min),
            mean: Nanos(mean),
            max: Nanos(max),
        };
        for p in [point(5, 5, 5), point(5, 5, 9), point(5, 9, 9)] {
            let curve = SeekCurve::new(vec![p]).unwrap();
            for luck in [0, 1, u32::MAX / 2, u32::MAX] {
                let t = curve.time(1, luck).get();
                assert!((p.min.get()..=p.max.get()).contains(&t));
            }
        }
    }

    #[test]
    fn wrong_curves_are_refused() {
        let point = |distance, min, mean, max| SeekPoint {
            distance,
            min: Nanos(min),
            mean: Nanos(mean),
            max: Nanos(max),
        };
        assert!(SeekCurve::new(vec![]).is_err());
        assert!(SeekCurve::new(vec![point(2, 1, 1, 1)]).is_err());
        assert!(SeekCurve::new(vec![point(1, 2, 1, 3)]).is_err());
        assert!(SeekCurve::new(vec![point(1, 1, 1, 1), point(1, 1, 1, 1)]).is_err());
    }
}
