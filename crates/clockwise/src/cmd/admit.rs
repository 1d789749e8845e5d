//! `clockwise admit`: the admission test on a list of tasks, without any disk.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use sched::admission::{Admission, Refusal, RefusedBy};
use sched::delta_l::{delta_l, delta_l_published};
use sched::task::{TaskError, TaskId, TaskParams};
use sched::units::Nanos;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::failure::{Failure, FailureKind, SourceFile};
use crate::print::{Output, list, percent};
use crate::quantity::Span;

/// The most tasks: more than a disk could serve even at one byte per second each.
const TASKS_MAX: u64 = 1_000_000;

/// Options of `clockwise admit`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The file lists tasks:\n\n    [[task]]\n    name = \"camera\"       # optional\n    \
    service_us = 4000     # or service_ns, service_ms: worst-case time of a request\n    \
    period_us = 200000    # or period_ns, period_ms: time between requests, and their deadline\n    \
    count = 33            # optional: number of such tasks\n\n\
    Exit status: 0 schedulable, 3 refused, 2 invalid file."
)]
pub struct Args {
    /// The list of tasks, a TOML file.
    file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    #[serde(default)]
    task: Vec<Spanned<TaskEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskEntry {
    name: Option<String>,
    service_ns: Option<Spanned<Number>>,
    service_us: Option<Spanned<Number>>,
    service_ms: Option<Spanned<Number>>,
    period_ns: Option<Spanned<Number>>,
    period_us: Option<Spanned<Number>>,
    period_ms: Option<Spanned<Number>>,
    count: Option<Spanned<i64>>,
}

/// A number of a TOML file, an integer or a float.
#[derive(Clone, Copy)]
enum Number {
    Integer(i64),
    Float(f64),
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
                Ok(Number::Integer(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
                Ok(Number::Float(value))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Number {
    /// The duration in units of `unit_ns` nanoseconds, or the reason why it is not valid.
    fn nanos(self, unit_ns: u64) -> Result<Nanos, &'static str> {
        let nanos = match self {
            Self::Integer(value) if value <= 0 => return Err("it must be more than zero"),
            Self::Integer(value) => value.unsigned_abs().checked_mul(unit_ns),
            Self::Float(value) if value.is_nan() => return Err("it is not a number"),
            Self::Float(value) if value <= 0.0 => return Err("it must be more than zero"),
            Self::Float(value) => {
                let nanos = (value * unit_ns as f64).round();
                (nanos < u64::MAX as f64).then_some(nanos as u64)
            }
        };
        match nanos {
            Some(0) => Err("it is less than a nanosecond"),
            Some(nanos) => Ok(Nanos(nanos)),
            None => Err("it is too large; the maximum is 584 years"),
        }
    }
}

type Keys<'a> = [(&'static str, &'a Option<Spanned<Number>>, u64); 3];

/// The value and the place of the only one of three keys that is given.
fn time(
    source: &SourceFile<'_>,
    entry: &std::ops::Range<usize>,
    what: &str,
    keys: Keys<'_>,
) -> Result<(Nanos, std::ops::Range<usize>), Failure> {
    let names = keys.map(|(name, ..)| name).join(", ");
    let mut given = keys
        .iter()
        .filter_map(|(name, value, unit)| value.as_ref().map(|value| (name, value, *unit)));
    let Some((name, value, unit)) = given.next() else {
        return Err(source
            .bad_input(head(entry), format!("the task has no {what}"))
            .help(format!("give one of {names}")));
    };
    if let Some((second, again, _)) = given.next() {
        return Err(source
            .bad_input(
                again.span(),
                format!("the task has two values for the {what}: {name} and {second}"),
            )
            .help("keep one of them"));
    }
    match value.get_ref().nanos(unit) {
        Ok(nanos) => Ok((nanos, value.span())),
        Err(reason) => Err(source
            .bad_input(value.span(), format!("{name} is not valid: {reason}"))
            .help("give a number above zero and up to 584 years, such as 4000 or 2.5")),
    }
}

/// The place of the `[[task]]` header of an entry.
fn head(entry: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    entry.start..entry.end.min(entry.start + "[[task]]".len())
}

/// The result of the admission test.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Verdict {
    /// True if all tasks meet all deadlines.
    pub schedulable: bool,
    /// The share of the disk's time that the tasks need.
    pub utilization: f64,
    /// Delta-L, corrected: the time that best effort may take at the worst moment; 0 for a refused set.
    pub delta_l_ns: u64,
    /// True if `delta_l_ns` is exact, false if it is a safe lower bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta_l_is_exact: Option<bool>,
    /// Delta-L as the papers define it, which can be too large; 0 for a refused set.
    pub delta_l_published_ns: u64,
    /// The condition that fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_by: Option<RefusedBy>,
    /// The length of the interval in which the demand exceeds the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ns: Option<u64>,
    /// The excess of demand in that interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_by_ns: Option<u64>,
    /// The task at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

/// The tasks of a file and their names.
#[derive(Default)]
struct Tasks {
    params: Vec<(TaskId, TaskParams)>,
    names: Vec<String>,
    /// The number of tasks in the file.
    listed: u64,
    utilization: f64,
    /// The first task that even a disk of its own could not serve.
    infeasible: Option<InfeasibleTask>,
}

/// A task whose requests take longer than its period.
struct InfeasibleTask {
    name: String,
    service: Nanos,
    period: Nanos,
}

impl Tasks {
    fn add(&mut self, name: &str, copy: Option<u64>, params: TaskParams) {
        let id = TaskId(self.params.len() as u64);
        self.params.push((id, params));
        self.names.push(match copy {
            None => name.to_owned(),
            Some(copy) => format!("{name} #{copy}"),
        });
    }

    /// The first task in the file that is at fault. If a request is too long for tasks with shorter periods,
    /// every task with requests of that length is at fault, and the test reports any of them.
    fn first_at_fault(&self, refusal: &Refusal) -> usize {
        let found = refusal.task.0 as usize;
        if refusal.by == RefusedBy::Utilization {
            return found;
        }
        let service = self.params[found].1.service();
        let is_at_fault = |(_, task): &(TaskId, TaskParams)| {
            task.service() == service && task.period() >= refusal.interval
        };
        let first = self.params.iter().position(is_at_fault);
        first.unwrap_or(found)
    }
}

fn tasks(source: &SourceFile<'_>) -> Result<Tasks, Failure> {
    let file: TaskFile = source
        .parse()
        .map_err(|draft| draft.help("`clockwise admit --help` shows a file with every key"))?;
    if file.task.is_empty() {
        return Err(source
            .bad_input(0..0, "the file has no tasks")
            .help("add a [[task]]; see `clockwise admit --help`"));
    }
    let mut tasks = Tasks::default();
    for (index, entry) in file.task.iter().enumerate() {
        let span = entry.span();
        let task = entry.get_ref();
        let (service, _) = time(
            source,
            &span,
            "service time",
            [
                ("service_ns", &task.service_ns, 1),
                ("service_us", &task.service_us, 1_000),
                ("service_ms", &task.service_ms, 1_000_000),
            ],
        )?;
        let (period, period_span) = time(
            source,
            &span,
            "period",
            [
                ("period_ns", &task.period_ns, 1),
                ("period_us", &task.period_us, 1_000),
                ("period_ms", &task.period_ms, 1_000_000),
            ],
        )?;
        let count = count(source, entry, tasks.listed)?;
        tasks.listed += count;
        let name = task
            .name
            .clone()
            .unwrap_or_else(|| format!("task {}", index + 1));
        tasks.utilization += count as f64 * service.get() as f64 / period.get() as f64;
        match TaskParams::new(service, period) {
            Ok(params) if count == 1 => tasks.add(&name, None, params),
            Ok(params) => (1..=count).for_each(|copy| tasks.add(&name, Some(copy), params)),
            Err(TaskError::LongerThanPeriod { .. }) => {
                tasks.infeasible.get_or_insert(InfeasibleTask {
                    name,
                    service,
                    period,
                });
            }
            Err(error) => {
                return Err(source
                    .bad_input(period_span, error.to_string())
                    .help("set a period of less than nine years"));
            }
        }
    }
    Ok(tasks)
}

/// The number of tasks of an entry, if `before` tasks were listed before it.
fn count(source: &SourceFile<'_>, entry: &Spanned<TaskEntry>, before: u64) -> Result<u64, Failure> {
    let given = entry.get_ref().count.as_ref();
    let place = given.map_or_else(|| head(&entry.span()), Spanned::span);
    match given.map_or(Ok(1), |given| u64::try_from(*given.get_ref())) {
        Ok(count) if count > 0 && count <= TASKS_MAX - before => Ok(count),
        Ok(count) if count > 0 => Err(source
            .bad_input(
                place,
                format!("there are too many tasks: the maximum is {TASKS_MAX} in total"),
            )
            .help("combine many small tasks into one task with their total rate")),
        _ => Err(source
            .bad_input(place, "count must be at least 1")
            .help("remove the task if there are none")),
    }
}

fn verdict(tasks: &Tasks) -> Verdict {
    let utilization = tasks.utilization;
    let refused = |by, interval: Nanos, short_by: Nanos, task| Verdict {
        schedulable: false,
        utilization,
        delta_l_ns: 0,
        delta_l_is_exact: None,
        delta_l_published_ns: 0,
        refused_by: Some(by),
        interval_ns: Some(interval.get()),
        short_by_ns: Some(short_by.get()),
        task,
    };
    if let Some(alone) = &tasks.infeasible {
        // One request of it takes longer than its whole period.
        let short_by = alone.service.saturating_sub(alone.period);
        let task = Some(alone.name.clone());
        return refused(RefusedBy::Utilization, alone.period, short_by, task);
    }
    match Admission::of(tasks.params.iter().copied()) {
        Ok(admitted) => {
            let corrected = delta_l(&admitted);
            Verdict {
                schedulable: true,
                utilization,
                delta_l_ns: corrected.value.get(),
                delta_l_is_exact: Some(corrected.exact),
                delta_l_published_ns: delta_l_published(&admitted).value.get(),
                refused_by: None,
                interval_ns: None,
                short_by_ns: None,
                task: None,
            }
        }
        Err(refusal) => {
            let task = tasks.names.get(tasks.first_at_fault(&refusal)).cloned();
            refused(refusal.by, refusal.interval, refusal.short_by, task)
        }
    }
}

fn text(verdict: &Verdict, tasks: u64) -> String {
    let exact = if verdict.delta_l_is_exact == Some(false) {
        " (a safe lower bound)"
    } else {
        ""
    };
    let named = |nanos: u64| format!("{nanos}  ({})", Span(Nanos(nanos)));
    let mut pairs = vec![
        ("schedulable", verdict.schedulable.to_string()),
        ("tasks", tasks.to_string()),
        (
            "utilization",
            format!(
                "{:.6}  ({})",
                verdict.utilization,
                percent(verdict.utilization)
            ),
        ),
        ("delta_l_ns", named(verdict.delta_l_ns) + exact),
        ("delta_l_published_ns", named(verdict.delta_l_published_ns)),
    ];
    if let Some(by) = verdict.refused_by {
        pairs.push(("refused_by", by.to_string()));
    }
    if let Some(interval) = verdict.interval_ns {
        pairs.push(("interval_ns", named(interval)));
    }
    if let Some(short) = verdict.short_by_ns {
        pairs.push(("short_by_ns", named(short)));
    }
    if let Some(task) = &verdict.task {
        pairs.push(("task", task.clone()));
    }
    list(&pairs)
}

pub(super) fn run(args: &Args, output: &Output) -> Result<ExitCode, Failure> {
    let source = SourceFile::read(&args.file)?;
    let tasks = tasks(&source)?;
    let verdict = verdict(&tasks);
    output.result(&verdict, || text(&verdict, tasks.listed))?;
    Ok(if verdict.schedulable {
        ExitCode::SUCCESS
    } else {
        FailureKind::Refused.exit_code()
    })
}
