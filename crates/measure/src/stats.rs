//! A little statistics.

/// The median; 0 of nothing.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// `value` moved by multiples of `period` into [-period/2, period/2).
pub(crate) fn wrapped(value: f64, period: f64) -> f64 {
    let turns = (value / period + 0.5).floor();
    value - turns * period
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_or_the_mean_of_the_two_middle_values() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn wrapped_is_nearest_to_zero() {
        assert_eq!(wrapped(9.0, 8.0), 1.0);
        assert_eq!(wrapped(7.0, 8.0), -1.0);
        assert_eq!(wrapped(-4.0, 8.0), -4.0);
        assert_eq!(wrapped(4.0, 8.0), -4.0);
    }
}
