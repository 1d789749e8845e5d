//! Entry point of the fuzz target: arbitrary bytes are the files of a drive, or an error.

use sched::request::Op;
use sched::units::{Sector, SectorCount, Time};

use super::{Files, import};
use crate::plant::{Plant, PlantSpec};

/// Files in memory, divided by lines `=== NAME`.
struct Parts<'a>(Vec<(&'a str, &'a [u8])>);

impl Files for Parts<'_> {
    fn names(&self) -> Result<Vec<String>, String> {
        Ok(self.0.iter().map(|(name, _)| (*name).to_owned()).collect())
    }

    fn read(&self, name: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
        let found = self.0.iter().find(|(of, _)| *of == name);
        let (_, bytes) = found.ok_or_else(|| "there is no such file".to_owned())?;
        Ok(bytes[..bytes.len().min(bytes_max.saturating_add(1))].to_vec())
    }
}

/// The parts of `data`; what comes before the first line `=== NAME` is `drive.parv`.
fn parts(data: &[u8]) -> Parts<'_> {
    let mut parts = vec![("drive.parv", 0, 0)];
    let mut at = 0;
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        let name = line.strip_prefix(b"=== ").map(|name| name.trim_ascii());
        if let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) {
            parts.push((name, at + line.len(), at + line.len()));
        } else if let Some(part) = parts.last_mut() {
            part.2 = at + line.len();
        }
        at += line.len();
    }
    let parts = parts.into_iter().filter(|(_, from, to)| from < to);
    Parts(
        parts
            .map(|(name, from, to)| (name, &data[from..to]))
            .collect(),
    )
}

/// Imports `data`. A drive that is accepted can be written, read again, and serves requests.
pub fn drive(data: &[u8]) {
    let Ok(imported) = import(&parts(data), None) else {
        return;
    };
    let again = PlantSpec::parse(&imported.toml);
    assert!(
        again.as_ref().is_ok_and(|again| *again == imported.spec),
        "{again:?}"
    );
    let mut plant = Plant::new(imported.spec, 1);
    let sectors = plant.sectors().get();
    let mut at = Time::ZERO;
    for step in 0..6_u64 {
        let start = (sectors - 1) / 5 * (step % 6);
        let count = (sectors - start).min(1 + 7 * step);
        let op = if step % 2 == 0 { Op::Read } else { Op::Write };
        let service = plant.service(at, op, Sector(start), SectorCount(count));
        assert!(service.completed >= service.begun);
        assert_eq!(service.completed - service.begun, service.breakdown.total());
        at = service.completed;
    }
}
