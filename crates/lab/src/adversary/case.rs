//! A case: tasks, a scheduler, and what was asked of it when; as a file that people read and programs replay.

use sched::policy::Policy;
use sched::task::TaskParams;
use sched::units::Nanos;
use serde::{Deserialize, Serialize};

/// The most tasks and events of a case.
const TASKS_MAX: usize = 1_000;
const EVENTS_MAX: usize = 1_000_000;
/// The longest time in a case.
const TIME_MAX: u64 = 1 << 40;

/// A task in units of time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseTask {
    /// The longest that a job takes.
    pub service: u64,
    /// The least time from one job to the next.
    pub period: u64,
}

/// Extra time of jobs for the arm's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Way {
    /// Extra time of a job after best effort, as if the arm had been left far from the jobs.
    #[serde(default)]
    pub away: u64,
    /// Jobs are sweeps of requests that take one each, and the way to where they begin, and the same again is
    /// kept for the sweep that is interrupted: how long that way is. 0: jobs are requests.
    #[serde(default)]
    pub sweep: u64,
}

impl Way {
    /// The shortest job that there is.
    pub(super) fn service_min(self) -> u64 {
        if self.sweep == 0 {
            1
        } else {
            2 * self.sweep + 1
        }
    }
}

impl CaseTask {
    /// Task parameters for admission and the scheduler; `None`: no valid task.
    pub(super) fn params(self, way: Way) -> Option<TaskParams> {
        let params = TaskParams::new(Nanos(self.service), Nanos(self.period)).ok()?;
        (self.service >= way.service_min()).then(|| {
            if way.sweep == 0 {
                params
            } else {
                params.in_pieces(Nanos(way.service_min()))
            }
        })
    }
}

/// Something that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// A job of the task of this number, from 0, is released.
    Release(usize),
    /// A best-effort request of this length is offered, at this instant only.
    BestEffort(u64),
}

/// Something that is asked for at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Line", into = "Line")]
pub struct CaseEvent {
    /// When.
    pub at: u64,
    /// The request.
    pub ask: Ask,
}

/// An event as it is written.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    release: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    best_effort: Option<u64>,
}

impl TryFrom<Line> for CaseEvent {
    type Error = &'static str;

    fn try_from(line: Line) -> Result<Self, Self::Error> {
        let ask = match (line.release, line.best_effort) {
            (Some(task), None) => Ask::Release(task),
            (None, Some(length)) => Ask::BestEffort(length),
            _ => return Err("an event is either a `release` or `best_effort`"),
        };
        Ok(Self { at: line.at, ask })
    }
}

impl From<CaseEvent> for Line {
    fn from(event: CaseEvent) -> Self {
        let (release, best_effort) = match event.ask {
            Ask::Release(task) => (Some(task), None),
            Ask::BestEffort(length) => (None, Some(length)),
        };
        Self {
            at: event.at,
            release,
            best_effort,
        }
    }
}

/// Tasks, a scheduler, and what was asked of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The scheduler.
    pub scheduler: Policy,
    /// Origin of the case, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub found: String,
    /// The arm's way.
    #[serde(flatten)]
    pub way: Way,
    /// The tasks.
    pub task: Vec<CaseTask>,
    /// Events in order of time.
    #[serde(default)]
    pub event: Vec<CaseEvent>,
}

/// Why a file is no case.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// Not TOML, or an unknown, missing or mistyped key, with its place.
    #[error("{0}")]
    Parse(#[from] toml::de::Error),
    /// Well formed, but without sense.
    #[error("{at}: {problem}")]
    Invalid {
        /// Place: `task 1`, `event 3`, counted from 1.
        at: String,
        /// The fault.
        problem: String,
    },
}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    /// When the text is none.
    pub fn parse(text: &str) -> Result<Self, CaseError> {
        let case: Self = toml::from_str(text)?;
        case.check()?;
        Ok(case)
    }

    fn check(&self) -> Result<(), CaseError> {
        let wrong = |at: String, problem: &str| {
            let problem = problem.to_owned();
            Err(CaseError::Invalid { at, problem })
        };
        if self.task.is_empty() || self.task.len() > TASKS_MAX || self.event.len() > EVENTS_MAX {
            return wrong(
                "the case".to_owned(),
                "it needs from 1 to 1,000 tasks and at most 1,000,000 events",
            );
        }
        if self.way.away > TIME_MAX || self.way.sweep > TIME_MAX {
            let problem = "`away` and `sweep` are from 0 to 2^40";
            return wrong("the case".to_owned(), problem);
        }
        for (index, task) in self.task.iter().enumerate() {
            let at = format!("task {}", index + 1);
            if task.service == 0 || task.service > task.period || task.period > TIME_MAX {
                return wrong(at, "0 < service <= period <= 2^40 does not hold");
            }
            if task.service < self.way.service_min() {
                return wrong(
                    at,
                    "a sweep takes at least twice its `sweep`, and at least 1 for a request",
                );
            }
        }
        let mut last = 0;
        let mut next = vec![0; self.task.len()];
        for (index, event) in self.event.iter().enumerate() {
            let at = format!("event {}", index + 1);
            if event.at < last || event.at > TIME_MAX {
                return wrong(at, "events are in order of time, up to 2^40");
            }
            last = event.at;
            match event.ask {
                Ask::BestEffort(length) if length == 0 || length > TIME_MAX => {
                    return wrong(at, "a request takes from 1 to 2^40");
                }
                Ask::BestEffort(_) => {}
                Ask::Release(task) => match next.get_mut(task) {
                    None => return wrong(at, "there is no such task: they count from 0"),
                    Some(earliest) if event.at < *earliest => {
                        return wrong(
                            at,
                            "the task's previous job was released less than a period before",
                        );
                    }
                    Some(earliest) => *earliest = event.at + self.task[task].period,
                },
            }
        }
        Ok(())
    }

    /// The text of the case's file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for line in self.found.lines() {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(text, "scheduler = \"{}\"", self.scheduler);
        for (key, way) in [("away", self.way.away), ("sweep", self.way.sweep)] {
            if way > 0 {
                let _ = writeln!(text, "{key} = {way}");
            }
        }
        for task in &self.task {
            let CaseTask { service, period } = task;
            let _ = write!(text, "\n[[task]]\nservice = {service}\nperiod = {period}\n");
        }
        for CaseEvent { at, ask } in &self.event {
            let _ = write!(text, "\n[[event]]\nat = {at}\n");
            let _ = match ask {
                Ask::Release(task) => writeln!(text, "release = {task}"),
                Ask::BestEffort(length) => writeln!(text, "best_effort = {length}"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        let event = |at, ask| CaseEvent { at, ask };
        Case {
            scheduler: Policy::Lst,
            found: String::new(),
            way: Way { away: 3, sweep: 4 },
            task: vec![
                CaseTask {
                    service: 10,
                    period: 40,
                },
                CaseTask {
                    service: 20,
                    period: 30,
                },
            ],
            event: vec![
                event(0, Ask::Release(0)),
                event(0, Ask::BestEffort(25)),
                event(20, Ask::Release(1)),
            ],
        }
    }

    #[test]
    fn a_case_is_read_as_it_was_written() {
        assert_eq!(Case::parse(&case().to_toml()).unwrap(), case());
    }

    #[test]
    fn senseless_case_is_refused_with_its_place() {
        for (from, to, said) in [
            ("service = 10", "service = 41", "task 1: 0 < service"),
            (
                "release = 1",
                "release = 2",
                "event 3: there is no such task",
            ),
            ("at = 20", "at = 20\nrelase = 3", "relase"),
            ("at = 20", "at = 20\nbest_effort = 3", "either a `release`"),
            ("best_effort = 25", "best_effort = 0", "event 2: a request"),
            ("away = 3", "away = 2_000_000_000_000", "the case: `away`"),
            ("sweep = 4", "sweep = 5", "task 1: a sweep takes"),
            ("sweep = 4", "sweeps = 5", "sweeps"),
            ("scheduler = \"lst\"", "scheduler = \"fifo\"", "fifo"),
        ] {
            let text = case().to_toml().replace(from, to);
            let error = Case::parse(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let mut early = case();
        early.event.push(CaseEvent {
            at: 49,
            ask: Ask::Release(1),
        });
        let error = Case::parse(&early.to_toml()).unwrap_err().to_string();
        assert!(
            error.starts_with("event 4: the task's previous job"),
            "{error}"
        );
    }
}
