//! Entry point of the fuzz target: arbitrary bytes are an experiment, or an error with its place.

use std::path::Path;

use super::{Experiment, ExperimentError};

/// The bytes are the file of an experiment. The files that it names do not exist.
pub fn experiment(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let parsed = Experiment::parse(text, Path::new("/dev/null/nowhere"));
    if let Err(ExperimentError::Invalid { at, problem }) = parsed {
        assert!(!at.is_empty() && !problem.is_empty());
    }
}
