//! What is not as it should be, in words for people: each thing once, with whom it concerns.

use crate::rt::Denied;

/// Things to tell, in the order in which they were first noted.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices(Vec<(String, Vec<String>)>);

impl Notices {
    /// `what` is so for `whom`.
    pub(super) fn add(&mut self, what: String, whom: &str) {
        let known = self.0.iter_mut().find(|(known, _)| *known == what);
        let concerned = match known {
            Some((_, concerned)) => concerned,
            None => {
                self.0.push((what, Vec::new()));
                let last = self.0.len() - 1;
                &mut self.0[last].1
            }
        };
        if !concerned.iter().any(|other| other == whom) {
            concerned.push(whom.to_owned());
        }
    }

    /// The host refused something.
    pub(super) fn add_refused(&mut self, what: &str, whom: &str) {
        self.add(format!("refused by the host: {what}"), whom);
    }

    /// The host refused all this.
    pub(super) fn add_denied(&mut self, denied: &Denied, whom: &str) {
        for what in &denied.0 {
            self.add_refused(what, whom);
        }
    }

    /// A line for each thing.
    pub(super) fn into_lines(self) -> Vec<String> {
        let line = |(what, whom): (String, Vec<String>)| format!("{what} ({})", whom.join(", "));
        self.0.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_told_once_with_everybody_whom_it_concerns() {
        let mut notices = Notices::default();
        let denied = Denied(vec!["to hurry: not permitted".to_owned()]);
        for disk in ["a", "b", "a"] {
            notices.add_denied(&denied, disk);
        }
        notices.add("too small".to_owned(), "b");
        assert_eq!(
            notices.into_lines(),
            [
                "refused by the host: to hurry: not permitted (a, b)",
                "too small (b)"
            ]
        );
    }
}
