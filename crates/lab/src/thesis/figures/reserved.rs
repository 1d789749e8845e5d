//! Figures 6.12 and 6.13: best effort with disk time of its own.

use sched::policy::Policy;
use sched::units::{Nanos, Time};

use super::table::Table;
use super::{Figure, FigureError, Options, Page, Statement, SweepError};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::farm::{Admitted, Load, Reserved, Slot};
use crate::run::Hash;
use crate::sweep::Sweep;
use crate::thesis::{Layout, Thesis};

/// The disk of CELLO that gets disk time.
const DISK: usize = 5;
/// Its period.
const PERIOD: Nanos = Nanos::from_secs(1);
/// The shares that are tried, in percent.
const SHARES: [u64; 3] = [0, 10, 20];
const POLICIES: [Policy; 2] = [Policy::DeltaL, Policy::Exact];
/// Length of the examined part of the day: where the disk is busiest.
const WINDOW_MINUTES: usize = 60;
const MINUTE: Nanos = Nanos::from_secs(60);

/// Requests of the disk by minute.
fn by_minute(load: &Load) -> Vec<u64> {
    let minutes = load.last.get() / MINUTE.get() + 1;
    let mut counts = vec![0; minutes as usize];
    let requests = load.disks.iter().flatten();
    for request in requests.filter(|request| usize::from(request.source) == DISK) {
        counts[(request.at.get() / MINUTE.get()) as usize] += 1;
    }
    counts
}

/// The first minute of the busiest window.
fn busiest(load: &Load) -> usize {
    let counts = by_minute(load);
    let length = WINDOW_MINUTES.min(counts.len());
    let windows = counts.windows(length).map(|window| window.iter().sum());
    let sums: Vec<u64> = windows.collect();
    let most = sums.iter().max().copied().unwrap_or_default();
    sums.iter().position(|sum| *sum == most).unwrap_or_default()
}

/// The disks and their load; and from which minute on that is looked at.
fn setting(options: &Options) -> Result<(Thesis, Load, usize), FigureError> {
    let thesis =
        Thesis::new(Layout::Rotation, options.times, options.seed).map_err(SweepError::from)?;
    let load = thesis.cello(&options.source.period(), options.seed);
    let first = busiest(&load);
    Ok((thesis, load, first))
}

pub(super) fn requests(options: &Options) -> Result<Page, FigureError> {
    let (_, load, first) = setting(options)?;
    let from = Time::ZERO + MINUTE * first as u64;
    let mut seconds = vec![0_u64; WINDOW_MINUTES * 60];
    for request in load.disks.iter().flatten() {
        let second = request.at.saturating_since(from).get() / 1_000_000_000;
        if usize::from(request.source) == DISK
            && request.at >= from
            && let Some(count) = seconds.get_mut(second as usize)
        {
            *count += 1;
        }
    }
    let mut table = Table::new(&["second", "requests"]);
    let mut hash = Hash::default();
    let origin = first * 60;
    for (second, count) in seconds.iter().enumerate() {
        table.row(&[(origin + second).to_string(), count.to_string()]);
        hash.add(*count);
    }
    let busy = seconds.iter().filter(|count| **count >= 20).count();
    let most = seconds.iter().max().copied().unwrap_or_default();
    let total: u64 = seconds.iter().sum();
    let points = seconds.iter().enumerate();
    let chart = Chart {
        title: format!("requests of CELLO disk {DISK}"),
        x: Axis::linear("time of day, s"),
        y: Axis::linear("requests per second"),
        curves: vec![Curve {
            name: "requests".to_owned(),
            points: points
                .map(|(second, count)| ((origin + second) as f64, *count as f64))
                .collect(),
            colour: 1,
            is_aid: false,
        }],
    };
    Ok(Page {
        figure: Figure::Requests,
        title: format!("requests of CELLO disk {DISK} in its busiest {WINDOW_MINUTES} minutes"),
        notes: "The times are those of the generated day.".to_owned(),
        svg: draw("Figure 6.12", &[chart], 1)?,
        csv: table.into_text(),
        statements: vec![Statement::new(
            "20 to 40 requests per second are what disk time should be reserved for",
            busy > 0 && most >= 40,
            format!("{total} requests, {most} in the busiest second, 20 or more in {busy} seconds"),
        )],
        hash: hash.0,
    })
}

/// The largest number of pairs that fit beside the largest share.
fn pairs(thesis: &Thesis) -> usize {
    let largest = SHARES.iter().max().copied().unwrap_or_default();
    let (_, mut pairs, _) = thesis.admit(usize::MAX);
    while pairs > 0 && with_share(thesis, pairs, largest).is_none() {
        pairs -= 1;
    }
    pairs
}

fn with_share(thesis: &Thesis, pairs: usize, percent: u64) -> Option<Admitted> {
    let (mut admitted, _, refused) = thesis.admit(pairs);
    if refused.is_some() {
        return None;
    }
    if percent > 0 {
        let reserved = Reserved {
            source: DISK,
            slice: Nanos(PERIOD.get() / 100 * percent),
            period: PERIOD,
            piece_max: thesis.disks.piece_max(),
        };
        admitted.reserve(reserved).ok()?;
    }
    Some(admitted)
}

/// Results of a share under a scheduler.
struct Share {
    policy: Policy,
    percent: u64,
    minutes: Vec<Slot>,
    missed: u64,
    hash: u64,
}

impl Share {
    fn name(&self) -> String {
        format!("{}, {} %", self.policy, self.percent)
    }

    fn mean_ms(&self) -> f64 {
        let count: u64 = self.minutes.iter().map(|slot| slot.count).sum();
        let sum: Nanos = self.minutes.iter().map(|slot| slot.sum).sum();
        sum.as_secs_f64() * 1e3 / count.max(1) as f64
    }

    fn max_ms(&self) -> f64 {
        let max = self.minutes.iter().map(|slot| slot.max).max();
        max.unwrap_or_default().as_secs_f64() * 1e3
    }
}

pub(super) fn page(options: &Options, sweep: &Sweep<'_>) -> Result<Page, FigureError> {
    let (thesis, load, first) = setting(options)?;
    let pairs = pairs(&thesis);
    let runs: Vec<(Policy, u64)> = POLICIES
        .into_iter()
        .flat_map(|policy| SHARES.map(|percent| (policy, percent)))
        .collect();
    let results = sweep.each(runs.len(), |index| {
        let (policy, percent) = runs[index];
        let admitted =
            with_share(&thesis, pairs, percent).expect("there is room for the largest share");
        let outcome = options.run(&thesis, &admitted, &load, policy, Some(MINUTE));
        let slots = &outcome.sources[DISK].slots;
        let window = first..(first + WINDOW_MINUTES).min(slots.len());
        Share {
            policy,
            percent,
            minutes: slots.get(window).unwrap_or_default().to_vec(),
            missed: outcome.missed(),
            hash: outcome.hash,
        }
    });
    let mut table = Table::new(&[
        "scheduler",
        "reserved_percent",
        "minute",
        "requests",
        "mean_ms",
        "max_ms",
    ]);
    let mut hash = Hash::default();
    for result in &results {
        hash.add(result.hash);
        for (minute, slot) in result.minutes.iter().enumerate() {
            table.row(&[
                result.policy.to_string(),
                result.percent.to_string(),
                (first + minute).to_string(),
                slot.count.to_string(),
                format!("{:.3}", mean_ms(slot)),
                format!("{:.3}", slot.max.as_secs_f64() * 1e3),
            ]);
        }
    }
    let max_ms = |slot: &Slot| slot.max.as_secs_f64() * 1e3;
    let charts = [
        chart("mean latency by minute, ms", &results, first, mean_ms),
        chart("worst latency by minute, ms", &results, first, max_ms),
    ];
    Ok(Page {
        figure: Figure::Reserved,
        title: format!("latency of CELLO disk {DISK} with disk time of its own"),
        notes: format!(
            "The thesis has 24 pairs; beside a fifth of each disk there is room for {pairs} here. A share is a slice of so \
             many percent of each second on each of the three disks. With room left for the largest share, the disks have \
             slack enough for the requests without one: a share changes little."
        ),
        svg: draw("Figure 6.13", &charts, 2)?,
        csv: table.into_text(),
        statements: statements(&thesis, pairs, &results),
        hash: hash.0,
    })
}

fn mean_ms(slot: &Slot) -> f64 {
    slot.sum.as_secs_f64() * 1e3 / slot.count.max(1) as f64
}

fn chart(title: &str, results: &[Share], first: usize, of: impl Fn(&Slot) -> f64) -> Chart {
    let curve = |(colour, result): (usize, &Share)| Curve {
        name: result.name(),
        points: result
            .minutes
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.count > 0)
            .map(|(minute, slot)| ((first + minute) as f64, of(slot)))
            .collect(),
        colour,
        is_aid: false,
    };
    Chart {
        title: title.to_owned(),
        x: Axis::linear("time of day, min"),
        y: Axis::log(title),
        curves: results.iter().enumerate().map(curve).collect(),
    }
}

fn statements(thesis: &Thesis, pairs: usize, results: &[Share]) -> Vec<Statement> {
    let slack_ms = |percent: u64| {
        let admitted = with_share(thesis, pairs, percent);
        let least = admitted.and_then(|admitted| {
            let disks = admitted.delta_l();
            disks.iter().map(|(corrected, _)| corrected.value).min()
        });
        least.unwrap_or_default().as_secs_f64() * 1e3
    };
    let slacks = SHARES.map(slack_ms);
    let of = |policy: Policy, percent: u64| {
        results
            .iter()
            .find(|result| (result.policy, result.percent) == (policy, percent))
            .expect("there is a result for each")
    };
    let means = |policy: Policy| SHARES.map(|percent| of(policy, percent).mean_ms());
    let text =
        |values: [f64; 3]| format!("{:.0}, {:.0} and {:.0} ms", values[0], values[1], values[2]);
    let delta_l = means(Policy::DeltaL);
    let missed: u64 = results.iter().map(|result| result.missed).sum();
    let worst = SHARES.map(|percent| of(Policy::DeltaL, percent).max_ms());
    vec![
        Statement::new(
            "each tenth of the disk time that is reserved takes 100 ms from Delta-L: 925, 825 and 725 ms",
            (slacks[0] - slacks[1] - 100.0).abs() < 30.0
                && (slacks[1] - slacks[2] - 100.0).abs() < 30.0,
            text(slacks),
        ),
        Statement::new(
            "with disk time of its own the mean latency is about the period of a second or less",
            delta_l[1] < 1_300.0 && delta_l[2] < 1_300.0,
            format!("Delta-L with 0, 10 and 20 %: {}", text(delta_l)),
        ),
        Statement::new(
            "without it latencies are high; a share lowers the mean and the worst",
            delta_l[1] < delta_l[0] && worst[1] < worst[0],
            format!("worst with 0, 10 and 20 %: {}", text(worst)),
        ),
        Statement::new(
            "20 % serve (slightly) better than 10 %",
            delta_l[2] <= delta_l[1],
            format!("{:.0} and {:.0} ms", delta_l[2], delta_l[1]),
        ),
        Statement::new(
            "(not in the thesis) the same under `exact`",
            true,
            text(means(Policy::Exact)),
        ),
        Statement::new(
            "(not in the thesis) no deadline is missed",
            missed == 0,
            format!("{missed} missed"),
        ),
    ]
}
