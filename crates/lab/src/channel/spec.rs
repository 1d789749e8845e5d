//! Common parts of the files of drives and channels.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;

/// A fault in a file, and its place there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{problem}")]
pub struct SpecError {
    /// The bytes of the file.
    pub span: Range<usize>,
    /// The fault.
    pub problem: String,
}

impl SpecError {
    /// A fault at these bytes.
    #[must_use]
    pub fn new(span: Range<usize>, problem: impl Into<String>) -> Self {
        Self {
            span,
            problem: problem.into(),
        }
    }

    /// A fault of a value.
    #[must_use]
    pub fn at<T>(value: &Spanned<T>, problem: impl Into<String>) -> Self {
        Self::new(value.span(), problem)
    }
}

/// The content of a TOML file.
pub(crate) fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, SpecError> {
    toml::from_str(text)
        .map_err(|error| SpecError::new(error.span().unwrap_or(0..0), error.message()))
}

/// The value, if it is in the range.
///
/// # Errors
/// If it is not.
pub(crate) fn within(
    name: &str,
    value: &Spanned<u64>,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, SpecError> {
    let number = *value.get_ref();
    if range.contains(&number) {
        return Ok(number);
    }
    let (low, high) = range.into_inner();
    Err(SpecError::at(
        value,
        format!("`{name}` is {number}; it must be from {low} to {high}"),
    ))
}
