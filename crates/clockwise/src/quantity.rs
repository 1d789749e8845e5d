//! Sizes, rates and durations as people write and read them.
//!
//! Input is decimal text with a unit (`1.2MB/s`, `256KiB`, `500 ms`). It becomes an exact integer, or an
//! error that names the reason. `KB` is 1,000 bytes and `KiB` 1,024; a bare `K` is refused because tools
//! disagree about its value. Arithmetic is in integers: nothing is rounded through floating point, and `NaN`
//! or `1e400` are not numbers.

use std::fmt;
use std::num::IntErrorKind;

use sched::units::{Bytes, BytesPerSecond, Nanos};
use serde::de::{self, Deserialize, Deserializer};

/// Why a text is not a quantity. Each message follows the name of the text's key or option.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("it is empty; write a number with a unit, such as {example}")]
    Empty {
        /// A valid text.
        example: &'static str,
    },
    /// The number has a minus sign.
    #[error("it is negative; it must be more than zero")]
    Negative,
    /// The number is zero where it must be more.
    #[error("it is zero; it must be more than zero")]
    Zero,
    /// The number does not consist of digits with at most one point.
    #[error(
        "`{number}` is not a number; write digits with at most one decimal point, such as {example}"
    )]
    NotANumber {
        /// The text in question.
        number: String,
        /// A valid text.
        example: &'static str,
    },
    /// The unit is missing.
    #[error("`{number}` has no unit; write one of these after it: {known}")]
    NoUnit {
        /// The number.
        number: String,
        /// The valid units.
        known: String,
    },
    /// The text is not a whole number of seconds.
    #[error("`{text}` is not a whole number of seconds; write a number such as 5")]
    NotWhole {
        /// The text in question.
        text: String,
    },
    /// The unit does not exist for this kind of quantity.
    #[error("`{unit}` is not a valid unit; the units are {known}")]
    Unit {
        /// The text in question.
        unit: String,
        /// The valid units.
        known: String,
    },
    /// The units of a duration are not in descending order.
    #[error(
        "the units of `{text}` are not in descending order; write the longest first and each once, such as 1h10m"
    )]
    Order {
        /// The text in question.
        text: String,
    },
    /// The value exceeds 64 bits.
    #[error("it is too large; the maximum is {most}")]
    TooLarge {
        /// The largest value.
        most: String,
    },
}

type Units = &'static [(&'static str, u128)];

const SIZE_UNITS: Units = &[
    ("B", 1),
    ("KB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
    ("PB", 1_000_000_000_000_000),
    ("PiB", 1 << 50),
];

/// In bits per second.
const RATE_UNITS: Units = &[
    ("B/s", 8),
    ("KB/s", 8_000),
    ("KiB/s", 8 << 10),
    ("MB/s", 8_000_000),
    ("MiB/s", 8 << 20),
    ("GB/s", 8_000_000_000),
    ("GiB/s", 8 << 30),
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
];

const TIME_UNITS: Units = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// The units of durations that consist of several: there `m` is a minute as well, as in `1h10m`.
const UNITS_TOGETHER: Units = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Digits after the decimal point that count; further digits are ignored. The 38 digits of a `u128` hold them
/// together with the largest multiplier.
const FRACTION_DIGITS_MAX: usize = 12;

/// Parses `text` into the smallest unit, rounded down. `bare` is the multiplier of a number without unit;
/// without it a unit is required.
fn parse(
    text: &str,
    units: Units,
    bare: Option<u128>,
    example: &'static str,
) -> Result<u128, QuantityError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(QuantityError::Empty { example });
    }
    let positive = text.strip_prefix('+').unwrap_or(text);
    if positive.starts_with(['-', '\u{2212}']) {
        return Err(QuantityError::Negative);
    }
    let end = positive
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_')))
        .unwrap_or(positive.len());
    let (number, unit) = (&positive[..end], positive[end..].trim());
    let not_a_number = || QuantityError::NotANumber {
        number: text.to_owned(),
        example,
    };
    let digits: String = number.chars().filter(|c| *c != '_').collect();
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(not_a_number());
    }
    let multiplier = match (unit, bare) {
        // A fraction of the smallest unit makes no sense, so a unit was forgotten.
        ("", Some(bare)) if bare > 1 || fraction.is_empty() => bare,
        ("", _) => {
            return Err(QuantityError::NoUnit {
                number: number.to_owned(),
                known: known(units),
            });
        }
        _ => units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|(_, multiplier)| *multiplier)
            .ok_or_else(|| QuantityError::Unit {
                unit: unit.to_owned(),
                known: known(units),
            })?,
    };
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
    let too_large = || QuantityError::TooLarge {
        most: format!("{} in the smallest unit", u64::MAX),
    };
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| too_large())?
    };
    let part: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().map_err(|_| not_a_number())?
    };
    whole
        .checked_mul(multiplier)
        .and_then(|whole| whole.checked_add(part * multiplier / 10u128.pow(fraction.len() as u32)))
        .ok_or_else(too_large)
}

/// Parses a duration in nanoseconds: `90s`, or several units together, `1h10m`.
fn parse_nanos(text: &str, example: &'static str) -> Result<u128, QuantityError> {
    let mut pieces = Vec::new();
    let (mut begin, mut is_behind_unit) = (0, false);
    for (at, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
        if is_behind_unit && c.is_ascii_digit() {
            pieces.push(&text[begin..at]);
            begin = at;
        }
        is_behind_unit = c.is_alphabetic();
    }
    if pieces.is_empty() {
        return parse(text, TIME_UNITS, None, example);
    }
    pieces.push(&text[begin..]);
    let (mut sum, mut unit_before) = (0_u128, u128::MAX);
    for piece in pieces {
        let nanos = parse(piece, UNITS_TOGETHER, None, example)?;
        let name = piece
            .trim()
            .trim_start_matches(|c: char| !c.is_alphabetic());
        let unit = UNITS_TOGETHER
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        let unit = unit.map_or(0, |(_, nanos)| *nanos);
        if unit >= unit_before {
            return Err(QuantityError::Order {
                text: text.trim().to_owned(),
            });
        }
        unit_before = unit;
        sum = sum.saturating_add(nanos);
    }
    Ok(sum)
}

fn known(units: Units) -> String {
    units
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn positive(value: u128, most: impl FnOnce() -> String) -> Result<u64, QuantityError> {
    match u64::try_from(value) {
        Ok(0) => Err(QuantityError::Zero),
        Ok(value) => Ok(value),
        Err(_) => Err(QuantityError::TooLarge { most: most() }),
    }
}

/// A size in bytes, more than zero: `64MiB`, `8TB`, `512`.
///
/// # Errors
/// When the text is not such a quantity.
pub fn parse_size(text: &str) -> Result<Bytes, QuantityError> {
    let bytes = parse(text, SIZE_UNITS, Some(1), "64MiB")?;
    positive(bytes, || "16 EiB".to_owned()).map(Bytes)
}

/// An offset in bytes, zero or more: `64MiB`, `8TB`, `0`.
///
/// # Errors
/// When the text is not such a quantity.
pub fn parse_position(text: &str) -> Result<Bytes, QuantityError> {
    let bytes = parse(text, SIZE_UNITS, Some(1), "64MiB")?;
    u64::try_from(bytes)
        .map(Bytes)
        .map_err(|_| QuantityError::TooLarge {
            most: "16 EiB".to_owned(),
        })
}

/// A data rate, more than zero: `1.2MB/s`, `3Mbit/s`. It is rounded down to whole bytes per second.
///
/// # Errors
/// When the text is not such a quantity.
pub fn parse_rate(text: &str) -> Result<BytesPerSecond, QuantityError> {
    let eighths = parse(text, RATE_UNITS, None, "1.2MB/s")?;
    positive(eighths / 8, || "16 EiB/s".to_owned()).map(BytesPerSecond)
}

/// A duration, more than zero: `500ms`, `1.5 s`, `2h`, `1h10m`.
///
/// # Errors
/// When the text is not such a quantity.
pub fn parse_time(text: &str) -> Result<Nanos, QuantityError> {
    let nanos = parse_nanos(text, "500ms")?;
    positive(nanos, || "584 years".to_owned()).map(Nanos)
}

/// A time from the beginning of a recording, zero or more: `90s`, `1h`, `1h10m`, `0s`.
///
/// # Errors
/// When the text is not such a quantity.
pub fn parse_moment(text: &str) -> Result<Nanos, QuantityError> {
    let nanos = parse_nanos(text, "90s")?;
    u64::try_from(nanos)
        .map(Nanos)
        .map_err(|_| QuantityError::TooLarge {
            most: "584 years".to_owned(),
        })
}

/// Whole seconds, more than zero: `5`.
///
/// # Errors
/// When the text is not a whole number above zero.
pub fn parse_seconds(text: &str) -> Result<u64, QuantityError> {
    let most = || format!("{} s", u64::MAX);
    match text.trim().parse::<i128>() {
        Ok(seconds) if seconds < 0 => Err(QuantityError::Negative),
        Ok(seconds) => positive(seconds.unsigned_abs(), most),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
            Err(QuantityError::TooLarge { most: most() })
        }
        Err(error) if *error.kind() == IntErrorKind::NegOverflow => Err(QuantityError::Negative),
        Err(_) => Err(QuantityError::NotWhole {
            text: text.to_owned(),
        }),
    }
}

/// A share of a whole: `20%` or `0.2`, from 0 to 1 inclusive.
///
/// # Errors
/// When the text is not a share, or is above 1.
pub fn parse_share(text: &str) -> Result<f64, QuantityError> {
    const BILLIONTHS: u128 = 1_000_000_000;
    let share = parse(text, &[("%", BILLIONTHS / 100)], Some(BILLIONTHS), "20%")?;
    if share > BILLIONTHS {
        return Err(QuantityError::TooLarge {
            most: "100%".to_owned(),
        });
    }
    Ok(share as f64 / BILLIONTHS as f64)
}

/// A size for people, in binary units with three digits at least.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub Bytes);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A data rate for people, in decimal units, as for disks and networks.
#[derive(Clone, Copy, Debug)]
pub struct Rate(pub BytesPerSecond);

impl Rate {
    /// The largest rate, at most this one, that is displayed without rounding: one that a user can type.
    pub(crate) fn rounded_down(self) -> Self {
        let rate = self.0.get();
        let unit = match rate {
            0..1_000 => 1,
            1_000..1_000_000 => 100,
            1_000_000..1_000_000_000 => 10_000,
            _ => 10_000_000,
        };
        Self(BytesPerSecond(rate / unit * unit))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.0.get() as f64;
        let text = match self.0.get() {
            0..1_000 => format!("{rate:.0} B/s"),
            1_000..1_000_000 => format!("{:.1} KB/s", rate / 1e3),
            1_000_000..1_000_000_000 => format!("{:.2} MB/s", rate / 1e6),
            _ => format!("{:.2} GB/s", rate / 1e9),
        };
        f.pad(&text)
    }
}

/// A duration for people, with about three digits, in a suitable unit.
#[derive(Clone, Copy, Debug)]
pub struct Span(pub Nanos);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.get() as f64;
        let text = match self.0.get() {
            0 => "0".to_owned(),
            1..1_000 => format!("{nanos:.0} ns"),
            1_000..1_000_000 => format!("{:.1} us", nanos / 1e3),
            1_000_000..1_000_000_000 => format!("{:.1} ms", nanos / 1e6),
            1_000_000_000..100_000_000_000 => format!("{:.2} s", nanos / 1e9),
            _ => format!("{:.0} s", nanos / 1e9),
        };
        f.pad(&text)
    }
}

/// A long duration rounded down to whole days, hours, minutes or seconds, as [`parse_time`] takes it: `30d`, `8h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WholeUnits(pub Nanos);

impl fmt::Display for WholeUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.get() / 1_000_000_000;
        let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
        // Two of a unit, or a whole number of them: half a unit is too much to round away.
        let fits = |unit: u64| seconds >= 2 * unit || seconds > 0 && seconds.is_multiple_of(unit);
        let (unit, name) = units.into_iter().find(|of| fits(of.0)).unwrap_or((1, "s"));
        f.pad(&format!("{}{name}", seconds / unit))
    }
}

/// A quantity that is deserialised from text, for serde's `deserialize_with`.
struct Text<T>(T);

macro_rules! from_text {
    ($kind:ty, $parse:ident, $example:literal) => {
        impl<'de> Deserialize<'de> for Text<$kind> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = Text<$kind>;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("a string with a unit, such as \"", $example, "\""))
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                        $parse(text).map(Text).map_err(|error| {
                            E::custom(format_args!("\"{text}\" is not valid: {error}"))
                        })
                    }
                }
                deserializer.deserialize_str(Visitor)
            }
        }
    };
}

from_text!(Bytes, parse_size, "64MiB");
from_text!(BytesPerSecond, parse_rate, "1.2MB/s");
from_text!(Nanos, parse_time, "500ms");
from_text!(f64, parse_share, "20%");

/// For `#[serde(deserialize_with = "quantity::text")]`.
///
/// # Errors
/// When the value is not a string with a quantity of the field's type.
#[expect(private_bounds, reason = "the wrapper only carries the implementation")]
pub fn text<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<T, D::Error>
where
    Text<T>: Deserialize<'de>,
{
    Text::deserialize(deserializer).map(|text| text.0)
}

/// For `#[serde(default, deserialize_with = "quantity::optional_text")]`.
///
/// # Errors
/// As [`text`].
#[expect(private_bounds, reason = "the wrapper only carries the implementation")]
pub fn optional_text<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    Text<T>: Deserialize<'de>,
{
    text(deserializer).map(Some)
}

#[cfg(test)]
mod tests;
