//! Collecting warnings: each text once, with all disks and parts that it concerns.

use crate::rt::DeniedResources;
use crate::status::Warning;

/// Warnings in the order in which they were first added.
#[derive(Clone, Debug, Default)]
pub(super) struct WarningList(Vec<Warning>);

impl WarningList {
    /// Adds `what` for `subject`.
    pub(super) fn add(&mut self, what: String, subject: &str) {
        match self.0.iter_mut().find(|known| known.what == what) {
            Some(known) if known.concerns.iter().any(|other| other == subject) => {}
            Some(known) => known.concerns.push(subject.to_owned()),
            None => self.0.push(Warning {
                what,
                concerns: vec![subject.to_owned()],
            }),
        }
    }

    /// Adds a warning about the whole pool.
    pub(super) fn add_of_pool(&mut self, what: impl Into<String>) {
        self.0.push(Warning {
            what: what.into(),
            concerns: Vec::new(),
        });
    }

    /// Adds a resource that the host denied.
    pub(super) fn add_refused(&mut self, what: &str, subject: &str) {
        self.add(format!("the host refused: {what}"), subject);
    }

    /// Adds all resources that the host denied.
    pub(super) fn add_denied(&mut self, denied: &DeniedResources, subject: &str) {
        for what in &denied.0 {
            self.add_refused(what, subject);
        }
    }

    /// The collected warnings.
    pub(super) fn into_warnings(self) -> Vec<Warning> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_appears_once_with_all_that_it_concerns() {
        let mut warnings = WarningList::default();
        let denied = DeniedResources(vec!["real-time priority: not permitted".to_owned()]);
        for disk in ["a", "b", "a"] {
            warnings.add_denied(&denied, disk);
        }
        warnings.add("too small".to_owned(), "b");
        warnings.add_of_pool("no floor");
        let lines: Vec<_> = warnings
            .into_warnings()
            .iter()
            .map(Warning::to_string)
            .collect();
        assert_eq!(
            lines,
            [
                "the host refused: real-time priority: not permitted (a, b)",
                "too small (b)",
                "no floor"
            ]
        );
    }
}
