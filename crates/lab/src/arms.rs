//! Schedulers of a disk's arm from the literature on video servers.
//!
//! # What they are for
//!
//! Each is given the time, the place of the arm and the queue, and says which request comes next. But for
//! [`Clockwise`] none gives a guarantee, so none is a policy of the server. [`FarmRun::run_by`] runs one on a farm.
//!
//! [`FarmRun::run_by`]: crate::farm::FarmRun::run_by
//!
//! | rule | who | which request comes next |
//! |---|---|---|
//! | [`Edf`] | | the one with the earliest deadline |
//! | [`CScan`] | | the next one upwards; after the last one, the lowest |
//! | [`FdScan`] | Abbott and Garcia-Molina 1990 | the next one on the way to the most urgent that can still be in time |
//! | [`ScanEdf`] | Reddy and Wyllie 1994 | of those with the earliest deadline, the next one of an elevator |
//! | [`Gss`] | Yu, Chen and Kandlur 1993 | groups of streams in turn, each in the order of an elevator |
//! | [`GScan`] | Kim, Bahn and Won 2014 | the first of the best of some schedules, for real-time requests and best effort |
//! | [`RtWindow`] | Chen and Thapar 1996 | the next one on the way to the most urgent, of the `window` most urgent |
//! | [`Clockwise`] | | what the server's scheduler serves next |
//!
//! # What all of them have in common
//!
//! Of requests between which a rule does not decide, the one with the earlier place in the queue comes first. A
//! request on the cylinder of the arm is reached without a seek: it lies in the way of every scan.

mod c_scan;
mod clockwise;
mod edf;
mod elevator;
mod fd_scan;
mod g_scan;
mod gss;
mod rt_window;
mod scan_edf;

use sched::units::Time;

pub use c_scan::CScan;
pub use clockwise::Clockwise;
pub(crate) use clockwise::cylinder_starts;
pub use edf::Edf;
pub use fd_scan::FdScan;
pub use g_scan::GScan;
pub use gss::Gss;
pub use rt_window::RtWindow;
pub use scan_edf::ScanEdf;

/// A request in a disk's queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ArmRequest {
    /// The time by which it must be done.
    pub deadline: Time,
    /// The time at which it joined the queue.
    pub arrived: Time,
    /// The cylinder where it begins.
    pub cylinder: u32,
    /// The stream that it belongs to.
    pub stream: u32,
    /// A number that no other request of the queue has.
    pub number: u64,
}

/// Chooses the next request of a disk.
pub trait ArmScheduler: Send {
    /// The place in `queue` of the request to serve next. `queue` is not empty, and sorted by deadline, then by
    /// arrival.
    fn choose(&mut self, now: Time, arm: u32, queue: &[ArmRequest]) -> usize;
}

/// The place of the request that the arm meets first on its way from `arm` to `end`, both included. `None` if it
/// meets none.
fn first_on_the_way(arm: u32, end: u32, queue: &[ArmRequest]) -> Option<usize> {
    let (low, high) = (arm.min(end), arm.max(end));
    let met = |request: &ArmRequest| (low..=high).contains(&request.cylinder);
    let places = (0..queue.len()).filter(|&place| met(&queue[place]));
    places.min_by_key(|&place| queue[place].cylinder.abs_diff(arm))
}
