//! Tells once of each flush that waits for a disk that does not answer.

use std::collections::BTreeSet;

use engine::status::WaitStatus;

/// What has been told and is still so.
#[derive(Default)]
pub(super) struct Told(BTreeSet<(String, String)>);

impl Told {
    /// Of what is so now, what has not been told.
    pub(super) fn news<'a>(
        &mut self,
        waits: &'a [WaitStatus],
    ) -> impl Iterator<Item = &'a WaitStatus> {
        let name = |wait: &WaitStatus| (wait.volume.clone(), wait.disk.clone());
        let before = std::mem::replace(&mut self.0, waits.iter().map(name).collect());
        waits
            .iter()
            .filter(move |wait| !before.contains(&name(wait)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_once_until_it_is_over() {
        let wait = |disk: &str, stalled_ns| WaitStatus {
            volume: "films".to_owned(),
            disk: disk.to_owned(),
            waits_ns: stalled_ns,
            stalled_ns,
        };
        let mut told = Told::default();
        let mut news = |waits: &[WaitStatus]| -> Vec<String> {
            told.news(waits).map(ToString::to_string).collect()
        };
        let line = |disk: &str| {
            format!("flush of volume \"films\" waits for disk {disk:?} (stalled for 3.200 s)")
        };
        assert_eq!(news(&[wait("a", 3_200_000_000)]), [line("a")]);
        let both = [wait("a", 4_200_000_000), wait("b", 3_200_000_000)];
        assert_eq!(news(&both), [line("b")]);
        assert_eq!(news(&both), [""; 0]);
        assert_eq!(news(&[]), [""; 0]);
        assert_eq!(news(&[wait("a", 3_200_000_000)]), [line("a")]);
    }
}
