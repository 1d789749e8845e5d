//! `clockwise sim adversary` and `clockwise sim replay`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lab::adversary::{
    Case, CaseError, Findings, Happening, Options, Step, Way, gantt, replay, search,
};
use serde::Serialize;

use super::{AdversaryArgs, ReplayArgs, threads};
use crate::failure::{Failure, Place, io_failure};
use crate::print::{Output, table};

#[derive(Serialize, Debug)]
struct FindingsView {
    scheduler: &'static str,
    seed: u64,
    #[serde(flatten)]
    way: Way,
    sets: u64,
    sets_with_misses: u64,
    first_miss: Option<u64>,
    smallest: Option<Case>,
    case: Option<PathBuf>,
}

pub(super) fn run_adversary(args: &AdversaryArgs, output: &Output) -> Result<ExitCode, Failure> {
    let bar = output.progress(args.sets, "sets");
    let way = Way {
        away: args.away,
        sweep: args.sweep,
    };
    let options = Options {
        scheduler: args.scheduler,
        sets: args.sets,
        seed: args.seed,
        way,
        threads: threads(args.threads),
    };
    let findings = search(&options, &|tried| bar.set_position(tried));
    bar.finish_and_clear();
    let Findings {
        sets,
        sets_with_misses,
        first_miss,
        smallest,
    } = findings;
    let mut case = None;
    if let (Some(path), Some(smallest)) = (&args.case, &smallest) {
        fs::write(path, smallest.to_toml()).map_err(|error| io_failure("write", path, &error))?;
        case = Some(path.clone());
    }
    let view = FindingsView {
        scheduler: args.scheduler.name(),
        seed: args.seed,
        way,
        sets,
        sets_with_misses,
        first_miss,
        smallest,
        case,
    };
    output.result(&view, || findings_text(&view))?;
    Ok(ExitCode::SUCCESS)
}

fn findings_text(view: &FindingsView) -> String {
    let FindingsView {
        scheduler,
        seed,
        sets,
        sets_with_misses,
        ..
    } = view;
    let mut text = format!(
        "{scheduler}: missed deadlines in {sets_with_misses} of {sets} sets (seed {seed})\n"
    );
    if let Some(first) = view.first_miss {
        text += &format!("the first such set was set {first}\n");
    }
    if let Some(smallest) = &view.smallest {
        let tasks: Vec<String> = smallest
            .task
            .iter()
            .map(|task| format!("({}, {})", task.service, task.period))
            .collect();
        text += &format!(
            "the smallest case: {} with {} events\n",
            tasks.join(" "),
            smallest.event.len()
        );
    }
    match &view.case {
        Some(case) => text += &format!("to see it: clockwise sim replay {}\n", case.display()),
        None if view.smallest.is_some() => {
            text += "to save it, give a file with --case\n";
        }
        None => {}
    }
    text
}

#[derive(Serialize, Debug)]
struct StepView {
    at: u64,
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_by: Option<u64>,
}

impl StepView {
    fn of(step: &Step) -> Self {
        let (what, task, length, deadline, late_by) = match step.what {
            Happening::Released { task, deadline } => {
                ("released", Some(task), None, Some(deadline), None)
            }
            Happening::Declined { length } => ("best effort waits", None, Some(length), None, None),
            Happening::BestEffort { length, .. } => ("best effort", None, Some(length), None, None),
            Happening::Job {
                task,
                service,
                deadline,
            } => ("job", Some(task), Some(service), Some(deadline), None),
            Happening::Done => ("done", None, None, None, None),
            Happening::Late { task, deadline, by } => {
                ("late", Some(task), None, Some(deadline), Some(by))
            }
        };
        Self {
            at: step.at,
            what,
            task,
            length,
            deadline,
            late_by,
        }
    }
}

#[derive(Serialize, Debug)]
struct ReplayView {
    scheduler: &'static str,
    late: bool,
    steps: Vec<StepView>,
}

pub(super) fn run_replay(args: &ReplayArgs, output: &Output) -> Result<ExitCode, Failure> {
    let mut case = read(&args.case)?;
    if let Some(scheduler) = args.scheduler {
        case.scheduler = scheduler;
    }
    let (steps, late) = replay(&case);
    if let Some(path) = &args.picture {
        let picture = gantt(&case, &steps);
        fs::write(path, picture).map_err(|error| io_failure("write", path, &error))?;
    }
    let view = ReplayView {
        scheduler: case.scheduler.name(),
        late: late.is_some(),
        steps: steps.iter().map(StepView::of).collect(),
    };
    output.result(&view, || replay_text(&case, &view))?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Case, Failure> {
    let text = fs::read_to_string(path).map_err(|error| io_failure("read", path, &error))?;
    Case::parse(&text).map_err(|error| match &error {
        CaseError::Parse(inner) => {
            let failure = Failure::bad_input(inner.message().to_owned());
            let span = inner.span().unwrap_or(0..0);
            failure
                .at(Place::new(path, &text, span))
                .help("docs/reference/case.md describes the keys of a case")
        }
        CaseError::Invalid { .. } => Failure::bad_input(format!("{}: {error}", path.display()))
            .help("docs/reference/case.md describes a case"),
    })
}

fn replay_text(case: &Case, view: &ReplayView) -> String {
    let mut text = format!("{}:", view.scheduler);
    for (index, task) in case.task.iter().enumerate() {
        text += &format!(" task {index} ({}, {})", task.service, task.period);
    }
    text.push('\n');
    let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    let rows = view.steps.iter().map(|step| {
        [
            step.at.to_string(),
            step.what.to_owned(),
            number(step.task.map(|task| task as u64)),
            number(step.length),
            number(step.deadline),
            number(step.late_by),
        ]
    });
    text += &table(
        ["at", "what", "task", "takes", "due", "late by"],
        &[0, 2, 3, 4, 5],
        rows,
    );
    text.push('\n');
    text += if view.late {
        "A deadline was missed.\n"
    } else {
        "No deadline was missed.\n"
    };
    text
}
