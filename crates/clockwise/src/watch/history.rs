//! A disk's service times over all runs of the server with one profile.

use std::time::Duration;

use engine::dispatcher::{BUCKET_PERMILLE, BUCKETS, KindTimes, Overrun, Piece, RequestUser};
use engine::pool::ObservedTimes;
use sched::request::Op;
use sched::units::SECTOR_BYTES;
use serde::{Deserialize, Serialize};

use super::moment::{Day, Moment};
use crate::wire::service_times::{KindView, OverrunView, PieceView};

/// Number of overruns that are kept.
const OVERRUNS_KEPT: usize = 16;

/// Number of days with numbers of their own.
const DAYS_KEPT: usize = 30;

/// Number of former profiles that are kept.
const EARLIER_KEPT: usize = 8;

/// The conditions of a disk's service times. If any of it changes, a new history begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subject {
    /// The identity of the disk in its pool, in hexadecimal.
    pub(super) disk: String,
    /// The serial number of the drive.
    pub(super) serial: Option<String>,
    /// The name of the profile.
    pub(super) profile: String,
    /// A hash of the profile's text, in hexadecimal.
    pub(super) profile_hash: String,
}

/// Service times of one kind of request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KindRow {
    pub(super) op: String,
    pub(super) user: String,
    pub(super) length_bytes_max: u64,
    pub(super) count: u64,
    pub(super) overruns: u64,
    pub(super) predicted_ns: u64,
    pub(super) actual_ns: u64,
    pub(super) excess_max_ns: u64,
    pub(super) took_permille_max: u64,
    pub(super) buckets: [u64; BUCKETS],
}

/// Requests of one day.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DayRow {
    pub(super) day: Day,
    pub(super) count: u64,
    pub(super) overruns: u64,
}

/// A former profile of the disk, or a former drive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EarlierRow {
    pub(super) profile: String,
    pub(super) profile_hash: String,
    pub(super) serial: Option<String>,
    pub(super) since: Moment,
    pub(super) until: Moment,
    pub(super) count: u64,
    pub(super) overruns: u64,
    pub(super) took_permille_max: u64,
    pub(super) slower_since: Option<Moment>,
    pub(super) faster_since: Option<Moment>,
}

/// The history of a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct History {
    pub(super) subject: Subject,
    /// The disk's name, for people.
    pub(super) name: String,
    /// The begin of the history.
    pub(super) since: Moment,
    /// By kind of request.
    pub(super) kinds: Vec<KindRow>,
    /// The latest days on which a request completed, the oldest first.
    pub(super) days: Vec<DayRow>,
    /// The begin of the present drift in each direction.
    pub(super) slower_since: Option<Moment>,
    pub(super) faster_since: Option<Moment>,
    /// The last overruns, the oldest first.
    pub(super) overruns: Vec<OverrunView>,
    /// Former profiles, the oldest first.
    pub(super) earlier: Vec<EarlierRow>,
}

impl History {
    /// An empty history.
    pub(super) fn new(subject: Subject, name: String, now: Moment) -> Self {
        Self {
            subject,
            name,
            since: now,
            kinds: Vec::new(),
            days: Vec::new(),
            slower_since: None,
            faster_since: None,
            overruns: Vec::new(),
            earlier: Vec::new(),
        }
    }

    /// The history to continue with at a start: this one, if it is of the same subject; otherwise a new one, in
    /// which this one is summed up.
    pub(super) fn continued(self, subject: Subject, name: String, now: Moment) -> Self {
        if self.subject == subject {
            return Self { name, ..self };
        }
        let summary = EarlierRow {
            since: self.since,
            until: now,
            count: self.count(),
            overruns: self.overrun_count(),
            took_permille_max: self.took_permille_max(),
            slower_since: self.slower_since,
            faster_since: self.faster_since,
            profile: self.subject.profile,
            profile_hash: self.subject.profile_hash,
            serial: self.subject.serial,
        };
        let mut earlier = self.earlier;
        earlier.push(summary);
        keep_last(&mut earlier, EARLIER_KEPT);
        Self {
            earlier,
            ..Self::new(subject, name, now)
        }
    }

    /// This history with the service times of the present run. The days are not changed.
    pub(super) fn with(&self, run: &ObservedTimes, now: Moment) -> Self {
        let mut sum = self.clone();
        for (kind, times) in run.times.kinds() {
            let row = KindRow::new(kind.op, kind.user, kind.size.bytes_max(), times);
            match sum.kinds.iter_mut().find(|known| known.is_of_kind(&row)) {
                Some(known) => known.add(&row),
                None => sum.kinds.push(row),
            }
        }
        let overruns = run.times.overruns();
        sum.overruns
            .extend(overruns.map(|overrun| overrun_view(overrun, run, now)));
        keep_last(&mut sum.overruns, OVERRUNS_KEPT);
        sum
    }

    /// Adds requests to the present day.
    pub(super) fn add_to_day(&mut self, day: Day, count: u64, overruns: u64) {
        if count == 0 {
            return;
        }
        match self.days.last_mut() {
            // A clock that was set back adds to the latest day.
            Some(last) if last.day >= day => {
                last.count = last.count.saturating_add(count);
                last.overruns = last.overruns.saturating_add(overruns);
            }
            _ => self.days.push(DayRow {
                day,
                count,
                overruns,
            }),
        }
        keep_last(&mut self.days, DAYS_KEPT);
    }

    /// Requests and overruns from the day `from` on.
    pub(super) fn since_day(&self, from: Day) -> (u64, u64) {
        let days = self.days.iter().filter(|row| row.day >= from);
        days.fold((0, 0), |(count, overruns): (u64, u64), row| {
            (
                count.saturating_add(row.count),
                overruns.saturating_add(row.overruns),
            )
        })
    }

    /// Number of pieces.
    pub(super) fn count(&self) -> u64 {
        self.kinds
            .iter()
            .map(|row| row.count)
            .fold(0, u64::saturating_add)
    }

    /// Number of pieces that took longer than predicted.
    pub(super) fn overrun_count(&self) -> u64 {
        self.kinds
            .iter()
            .map(|row| row.overruns)
            .fold(0, u64::saturating_add)
    }

    /// The largest ratio of actual to predicted time, in thousandths.
    pub(super) fn took_permille_max(&self) -> u64 {
        let ratios = self.kinds.iter().map(|row| row.took_permille_max);
        ratios.max().unwrap_or(0)
    }

    /// The longest time beyond a prediction, in nanoseconds.
    pub(super) fn excess_max_ns(&self) -> u64 {
        let longest = self.kinds.iter().map(|row| row.excess_max_ns);
        longest.max().unwrap_or(0)
    }

    /// The kinds, in an order for people.
    pub(super) fn kind_views(&self) -> Vec<KindView> {
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|row| {
            (
                &row.op,
                row.user != "stream",
                &row.user,
                row.length_bytes_max,
            )
        });
        kinds.into_iter().map(KindRow::view).collect()
    }
}

impl KindRow {
    fn new(op: Op, user: RequestUser, length_bytes_max: u64, times: &KindTimes) -> Self {
        Self {
            op: op_name(op).to_owned(),
            user: user_name(user).to_owned(),
            length_bytes_max,
            count: times.count,
            overruns: times.overruns,
            predicted_ns: times.predicted.0,
            actual_ns: times.actual.0,
            excess_max_ns: times.excess_max.0,
            took_permille_max: times.took_permille_max,
            buckets: times.buckets,
        }
    }

    fn is_of_kind(&self, other: &Self) -> bool {
        self.op == other.op
            && self.user == other.user
            && self.length_bytes_max == other.length_bytes_max
    }

    fn add(&mut self, more: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.count, more.count);
        add(&mut self.overruns, more.overruns);
        add(&mut self.predicted_ns, more.predicted_ns);
        add(&mut self.actual_ns, more.actual_ns);
        self.excess_max_ns = self.excess_max_ns.max(more.excess_max_ns);
        self.took_permille_max = self.took_permille_max.max(more.took_permille_max);
        for (sum, more) in self.buckets.iter_mut().zip(more.buckets) {
            add(sum, more);
        }
    }

    fn view(&self) -> KindView {
        KindView {
            op: self.op.clone(),
            user: self.user.clone(),
            length_bytes_max: self.length_bytes_max,
            count: self.count,
            overruns: self.overruns,
            excess_max_ns: self.excess_max_ns,
            actual_over_predicted: self.actual_ns as f64 / self.predicted_ns.max(1) as f64,
            actual_over_predicted_p99: self.percentile_permille(99) as f64 / 1e3,
            actual_over_predicted_max: self.took_permille_max as f64 / 1e3,
        }
    }

    /// The ratio that `percent` of the pieces kept within, in thousandths.
    fn percentile_permille(&self, percent: u64) -> u64 {
        let rank = u128::from(self.count) * u128::from(percent);
        let mut seen = 0;
        for (index, count) in self.buckets[..BUCKETS - 1].iter().enumerate() {
            seen += u128::from(*count);
            if seen * 100 >= rank {
                let limit = (index as u64 + 1) * BUCKET_PERMILLE;
                return limit.min(self.took_permille_max);
            }
        }
        self.took_permille_max
    }
}

fn keep_last<T>(list: &mut Vec<T>, most: usize) {
    list.drain(..list.len().saturating_sub(most));
}

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
    }
}

fn user_name(user: RequestUser) -> &'static str {
    match user {
        RequestUser::Stream => "stream",
        RequestUser::Sync => "sync",
        RequestUser::Async => "async",
    }
}

fn piece_view(piece: Piece) -> PieceView {
    PieceView {
        op: op_name(piece.op).to_owned(),
        sector: piece.start.0,
        position_bytes: piece.start.0.saturating_mul(SECTOR_BYTES),
        length_bytes: piece.count.bytes().0,
    }
}

fn overrun_view(overrun: &Overrun, run: &ObservedTimes, now: Moment) -> OverrunView {
    let ago = Duration::from_nanos(run.at.saturating_since(overrun.at).0);
    let idle = |ended: sched::units::Time| {
        let issued = overrun.at.0.saturating_sub(overrun.actual.0);
        issued.saturating_sub(ended.0)
    };
    OverrunView {
        at: now.before(ago).to_string(),
        piece: piece_view(overrun.piece),
        user: user_name(overrun.user).to_owned(),
        predicted_ns: overrun.predicted.0,
        actual_ns: overrun.actual.0,
        host_ns: overrun.host.0,
        before: overrun.before.map(|(piece, _)| piece_view(piece)),
        idle_before_ns: overrun.before.map_or(0, |(_, ended)| idle(ended)),
    }
}
