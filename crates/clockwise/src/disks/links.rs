//! Disks that share a link: longer predictions, and which of them promise.

use std::collections::HashMap;
use std::sync::Arc;

use drives::emulator::EmulatedLink;
use engine::pool::{Link, PoolDisk};
use sched::link::{LinkShare, carried};
use sched::units::BytesPerSecond;

use crate::config::{LinkAdmission, LinkConfig};
use crate::failure::Failure;
use crate::quantity::Rate;

/// The emulated link of each disk that is on one, by its place in the list of disks.
pub(super) fn emulated(links: &[LinkConfig]) -> HashMap<usize, Arc<EmulatedLink>> {
    let mut of_disks = HashMap::new();
    for link in links {
        let emulated = Arc::new(EmulatedLink::new(link.rate));
        let disks = link.disks.iter();
        of_disks.extend(disks.map(|disk| (*disk, Arc::clone(&emulated))));
    }
    of_disks
}

/// Gives the disks of each link their share of it. Returns the links for the pool.
///
/// # Errors
/// A link that is slower than one of its disks, and a disk that is given several requests at a time.
pub(super) fn apply(links: &[LinkConfig], disks: &mut [PoolDisk]) -> Result<Vec<Link>, Failure> {
    let mut shared = Vec::new();
    for link in links {
        let at_link = |what: String| Failure::bad_input(what).at(link.place.clone());
        for disk in link.disks.iter().map(|disk| &disks[*disk]) {
            let outstanding = disk.profile.outstanding();
            if outstanding > 1 {
                return Err(at_link(format!(
                    "disk {} of link `{}` is given {outstanding} requests at a time",
                    disk.name, link.name
                ))
                .help(
                    "set outstanding = 1 for it, or measure it so: times on a link hold for one",
                ));
            }
        }
        let fastest = fastest(link, disks);
        let carried = carried(link.rate, fastest) as usize;
        if carried == 0 {
            return Err(at_link(format!(
                "link `{}` carries {}, less than one of its disks ({})",
                link.name,
                Rate(link.rate),
                Rate(fastest)
            ))
            .help(
                "correct `rate`; a disk on such a link has to be measured on it, as the only one",
            ));
        }
        let promising = match link.admission {
            LinkAdmission::Inflate => link.disks.len(),
            LinkAdmission::Lend => carried.min(link.disks.len()),
        };
        let share = LinkShare {
            disks: u32::try_from(promising).unwrap_or(u32::MAX),
            rate: link.rate,
            burst_bytes: link.burst.get(),
        };
        for disk in &link.disks {
            let profile = &mut disks[*disk].profile;
            *profile = Arc::new(profile.on_link(share));
        }
        let names = link.disks.iter().map(|disk| disks[*disk].name.clone());
        shared.push(Link {
            name: link.name.clone(),
            rate: link.rate,
            disks: names.collect(),
            promising,
        });
    }
    Ok(shared)
}

/// The rate of the fastest disk of a link.
fn fastest(link: &LinkConfig, disks: &[PoolDisk]) -> BytesPerSecond {
    let rates = link.disks.iter().map(|disk| disks[*disk].profile.fastest());
    rates.max().unwrap_or(BytesPerSecond(1))
}
