//! Disks that share a link: longer predictions, and which of them promise.

use std::collections::HashMap;
use std::sync::Arc;

use drives::emulator::EmulatedLink;
use engine::pool::{Link, PoolDisk};
use sched::link::{LinkShare, carried};
use sched::predict::Predictor;
use sched::units::BytesPerSecond;

use crate::config::{LinkAdmission, LinkConfig};
use crate::failure::Failure;
use crate::quantity::{Rate, Span};

/// The longest best effort of a borrower, as a multiple of that of a lender. The slack of a lender with the usual floor is
/// 19 times its own, less what its streams need.
const PIECES_RATIO_MAX: u64 = 2;

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
        let (fastest, disk) = fastest(link, disks);
        let carried = carried(link.rate, fastest) as usize;
        if carried == 0 {
            return Err(at_link(format!(
                "link `{}` carries {}, less than {} alone, whose profile has {}",
                link.name,
                Rate(link.rate),
                disk.name,
                Rate(fastest)
            ))
            .help(
                "correct `rate`; if the link is that slow, measure each disk through it, one at a time: its profile is then no \
                 faster",
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
        for borrower in &link.disks[promising..] {
            check_pieces(link, promising, disks, &disks[*borrower])?;
        }
        let names = link.disks.iter().map(|disk| disks[*disk].name.clone());
        if promising < link.disks.len() {
            tracing::info!(
                link = link.name,
                "the first {promising} of its disks have places and promise; the others serve best effort only"
            );
        }
        shared.push(Link {
            name: link.name.clone(),
            rate: link.rate,
            disks: names.collect(),
            promising,
        });
    }
    Ok(shared)
}

/// A disk lends its place for at most as long as its slack, which is sized by its own best effort.
///
/// # Errors
/// When the best effort of the borrower takes far longer than that of a disk that is to lend it a place.
fn check_pieces(
    link: &LinkConfig,
    promising: usize,
    disks: &[PoolDisk],
    borrower: &PoolDisk,
) -> Result<(), Failure> {
    let longest = |disk: &PoolDisk| {
        let predictor = Predictor::new(&disk.profile);
        predictor.piece_max(predictor.piece_limit())
    };
    let borrows = longest(borrower);
    for lender in link.disks[..promising].iter().map(|disk| &disks[*disk]) {
        let lends = longest(lender);
        if borrows > lends * PIECES_RATIO_MAX {
            return Err(Failure::bad_input(format!(
                "disk {} of link `{}` serves best effort in pieces of up to {}, and disk {}, which is to lend it a place, in \
                 pieces of up to {}",
                borrower.name,
                link.name,
                Span(borrows),
                lender.name,
                Span(lends)
            ))
            .at(link.place.clone())
            .help("put disks of one kind on a link that lends, name the slow ones first, or set admission = \"inflate\""));
        }
    }
    Ok(())
}

/// The fastest disk of a link, which has two disks or more.
fn fastest<'a>(link: &LinkConfig, disks: &'a [PoolDisk]) -> (BytesPerSecond, &'a PoolDisk) {
    let first = &disks[link.disks[0]];
    let all = link.disks.iter().map(|disk| &disks[*disk]);
    let rates = all.map(|disk| (disk.profile.fastest(), disk));
    rates
        .max_by_key(|(rate, _)| *rate)
        .unwrap_or((BytesPerSecond(1), first))
}
