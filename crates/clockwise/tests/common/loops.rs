//! Block devices over files.

use std::path::Path;
use std::process::Command;

use super::outcome;
use super::skip::{have, is_root, skipped};

/// A block device over a file that goes away with the test.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    /// `None`, and the test is skipped, where there can be none.
    pub(crate) fn attach(file: &Path, options: &[&str]) -> Option<Self> {
        if !is_root("attaching a block device") || !have("losetup") {
            return None;
        }
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show"]).args(options);
        let attached = outcome(attach.arg(file));
        if attached.code != 0 {
            skipped(&attached.err);
            return None;
        }
        Some(Self(attached.out.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        outcome(Command::new("losetup").args(["--detach", &self.0]));
    }
}
