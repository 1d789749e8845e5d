//! Reports each flush that waits for a stalled disk, once.

use std::collections::BTreeSet;

use engine::status::WaitStatus;

/// The reported waits that last, by volume and disk.
#[derive(Default)]
pub(super) struct ReportedWaits(BTreeSet<(String, String)>);

impl ReportedWaits {
    /// Returns the waits that have not been reported.
    pub(super) fn update<'a>(
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
    fn wait_is_reported_once_until_it_ends() {
        let wait = |disk: &str, stalled_ns| WaitStatus {
            volume: "films".to_owned(),
            disk: disk.to_owned(),
            waits_ns: stalled_ns,
            stalled_ns,
        };
        let mut reported = ReportedWaits::default();
        let mut update = |waits: &[WaitStatus]| -> Vec<String> {
            reported.update(waits).map(ToString::to_string).collect()
        };
        let line = |disk: &str| {
            format!("flush of volume \"films\" waits for disk {disk:?} (stalled for 3.200 s)")
        };
        assert_eq!(update(&[wait("a", 3_200_000_000)]), [line("a")]);
        let both = [wait("a", 4_200_000_000), wait("b", 3_200_000_000)];
        assert_eq!(update(&both), [line("b")]);
        assert_eq!(update(&both), [""; 0]);
        assert_eq!(update(&[]), [""; 0]);
        assert_eq!(update(&[wait("a", 3_200_000_000)]), [line("a")]);
    }
}
