//! Numbers in text, exactly: no time goes through a floating-point number.

/// A whole number, or what is wrong with `what`.
pub(super) fn whole(text: &str, what: &str) -> Result<u64, String> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|_| is_number)
        .ok_or_else(|| format!("{what} `{}` is not a whole number below 2^64", shown(text)))
}

/// A number with at most so many digits after the point that count, in units of the last of them: with three
/// of them `1.5` is 1500. Further digits are cut off.
pub(super) fn decimal(text: &str, digits: u32, what: &str) -> Result<u64, String> {
    let text = text.trim();
    let wrong = || format!("{what} `{}` is not a decimal number", shown(text));
    let (before, after) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if before.len() + after.len() == 0 || !is_digits(before) || !is_digits(after) {
        return Err(wrong());
    }
    let fraction = after.bytes().chain(std::iter::repeat(b'0'));
    let counted = before.bytes().chain(fraction.take(digits as usize));
    counted
        .map(|digit| u64::from(digit - b'0'))
        .try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(digit))
        .ok_or_else(|| format!("{what} `{}` is too large", shown(text)))
}

/// The product, or that `what` is too large.
pub(super) fn times(value: u64, factor: u64, what: &str) -> Result<u64, String> {
    value
        .checked_mul(factor)
        .ok_or_else(|| format!("{what} {value} is too large"))
}

/// Text from outside, as it may stand in a message.
pub(super) fn shown(text: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    let short: String = text.chars().take(CHARACTERS_MAX).collect();
    let rest = if short.len() < text.len() { "..." } else { "" };
    format!("{}{rest}", short.escape_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (text, digits, value) in [
            ("0", 6, 0),
            ("1.5", 3, 1_500),
            (".25", 2, 25),
            ("7.", 1, 70),
            ("0.0000019", 6, 1),
            ("9007199254740993.000001", 6 - 6, 9_007_199_254_740_993),
            ("18446744073709551615", 0, u64::MAX),
        ] {
            assert_eq!(decimal(text, digits, "time"), Ok(value), "{text}");
        }
        for text in [
            "",
            ".",
            "-1",
            "+1",
            "1e3",
            "1,5",
            "0x1",
            "1.2.3",
            "18446744073709551616",
        ] {
            decimal(text, 0, "time").unwrap_err();
        }
        decimal("18446744073709551615", 1, "time").unwrap_err();
    }

    #[test]
    fn whole_numbers_are_digits() {
        assert_eq!(whole(" 12 ", "size"), Ok(12));
        for text in ["", "-1", "+1", "1.0", "18446744073709551616", "one"] {
            whole(text, "size").unwrap_err();
        }
    }
}
