//! What the fuzz target calls: any bytes at all are an experiment or an error that says where.

use std::path::Path;

use super::{Experiment, ExperimentError};

/// The bytes are the file of an experiment. What it names is nowhere.
pub fn experiment(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let parsed = Experiment::parse(text, Path::new("/dev/null/nowhere"));
    if let Err(ExperimentError::Invalid { at, problem }) = parsed {
        assert!(!at.is_empty() && !problem.is_empty());
    }
}
