//! `clockwise sim plant import` and `clockwise sim replay-trace`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::drives::disksim::{Folder, import};
use ::drives::plant::{Plant, PlantSpec, SpecError};
use lab::demerit::{Comparison, compare};
use lab::replay::{self, Measured};
use sched::request::Op;
use sched::units::{Nanos, Time};
use serde::Serialize;

use super::{ImportArgs, ReplayTraceArgs};
use crate::failure::{Failure, Place, SourceFile, io_failure};
use crate::print::{Output, table};

/// Help for an error in a plant file.
const PLANT_HELP: &str = "docs/reference/plant.md describes the keys of a plant";

#[derive(Serialize, Debug)]
struct ImportView<'a> {
    plant: &'a Path,
    name: &'a str,
    sectors: u64,
    heads: u64,
    rotation_ns: u64,
    notes: &'a [String],
}

pub(super) fn run_import(args: &ImportArgs, output: &Output) -> Result<ExitCode, Failure> {
    if !args.folder.is_dir() {
        let what = format!("`{}` is not a folder", args.folder.display());
        return Err(Failure::bad_input(what).help("give the folder with the files of one drive"));
    }
    let files = Folder(args.folder.clone());
    let imported = import(&files, args.disk.as_deref()).map_err(|error| {
        let folder = args.folder.display();
        Failure::bad_input(format!("{folder}: {error}")).help(
            "correct the file; docs/reference/plant.md lists what is read from DiskSim's files",
        )
    })?;
    for note in &imported.notes {
        output.note(note);
    }
    fs::write(&args.out, &imported.toml).map_err(|error| io_failure("write", &args.out, &error))?;
    let spec = &imported.spec;
    let view = ImportView {
        plant: &args.out,
        name: spec.name(),
        sectors: spec.sectors().get(),
        heads: spec.heads(),
        rotation_ns: spec.rotation().get(),
        notes: &imported.notes,
    };
    output.result(&view, || {
        format!(
            "{}: {}, {} sectors, {} heads, {:.3} ms a rotation\n",
            view.plant.display(),
            view.name,
            view.sectors,
            view.heads,
            view.rotation_ns as f64 / 1e6
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize, Debug)]
struct ReplayView<'a> {
    plant: &'a str,
    seed: u64,
    #[serde(flatten)]
    all: Comparison,
    reads: Option<Comparison>,
    writes: Option<Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<PathBuf>,
}

pub(super) fn run_replay_trace(
    args: &ReplayTraceArgs,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let spec = plant(&args.plant)?;
    let spec = if args.without_caches {
        spec.without_caches()
    } else {
        spec
    };
    let name = spec.name().to_owned();
    let file =
        fs::File::open(&args.trace).map_err(|error| io_failure("read", &args.trace, &error))?;
    let trace = args.trace.display();
    let requests = replay::read(file).map_err(|error| {
        Failure::bad_input(format!("{trace}: {error}")).help(
            "a trace is text, packed or not, with a line `R|W word sector sectors response_us think_us` for each request",
        )
    })?;
    let sectors = spec.sectors();
    let mut drive = Plant::new(spec, args.seed);
    let begin = first_instant(&drive, args.seed);
    let simulated = replay::replay(&mut drive, begin, &requests).map_err(|number| {
        let Measured { start, count, .. } = requests[number];
        let what = format!(
            "{trace}: request {} is for {} sectors from sector {}, and the drive has {}",
            number + 1,
            count.get(),
            start.get(),
            sectors.get()
        );
        Failure::bad_input(what).help("give the plant of the drive that the trace was measured on")
    })?;
    let times = |of: Option<Op>| -> Vec<(Nanos, Nanos)> {
        let pairs = requests.iter().zip(&simulated);
        let pairs = pairs.filter(|(request, _)| of.is_none_or(|op| request.op == op));
        pairs
            .map(|(request, time)| (request.response, *time))
            .collect()
    };
    let Some(all) = compare(&times(None)) else {
        return Err(Failure::bug("a trace without requests was accepted"));
    };
    let mut view = ReplayView {
        plant: &name,
        seed: args.seed,
        all,
        reads: compare(&times(Some(Op::Read))),
        writes: compare(&times(Some(Op::Write))),
        page: None,
    };
    if let Some(folder) = &args.out {
        let figure = lab::demerit::figure(
            &name,
            &times(None),
            &times(Some(Op::Read)),
            &times(Some(Op::Write)),
        )
        .map_err(|error| {
            Failure::failed(error.to_string()).help("report the trace with this message")
        })?;
        view.page = Some(write(folder, &args.plant, &figure, &text(&view))?);
    }
    output.result(&view, || text(&view))?;
    Ok(ExitCode::SUCCESS)
}

/// The instant of the first request: the angle of the platters is left to chance, as in the measurement.
fn first_instant(drive: &Plant, seed: u64) -> Time {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let share = u128::from(seed.wrapping_mul(GOLDEN));
    Time(((share * u128::from(drive.spec().rotation().get())) >> 64) as u64)
}

/// The plant of a file, or of that name.
fn plant(path: &Path) -> Result<PlantSpec, Failure> {
    let name = path.to_str().filter(|_| !path.exists());
    if let Some(spec) = name.and_then(PlantSpec::built_in) {
        return Ok(spec);
    }
    let source = SourceFile::read(path)?;
    PlantSpec::parse(&source.text).map_err(|error| {
        let span = match &error {
            SpecError::Parse(error) => error.span(),
            SpecError::Invalid { .. } => None,
        };
        let what = match &error {
            SpecError::Parse(error) => error.message().to_owned(),
            SpecError::Invalid { .. } => format!("{}: {error}", path.display()),
        };
        let mut failure = Failure::bad_input(what);
        if let Some(span) = span {
            failure = failure.at(Place::new(path, &source.text, span));
        }
        failure.help(PLANT_HELP)
    })
}

fn text(view: &ReplayView<'_>) -> String {
    let row = |name: &str, of: &Comparison| {
        [
            name.to_owned(),
            of.requests.to_string(),
            format!("{:.3}", of.mean_measured_ms),
            format!("{:.3}", of.mean_simulated_ms),
            format!("{:.3}", of.demerit_ms),
        ]
    };
    let mut rows = vec![row("all", &view.all)];
    rows.extend(view.reads.iter().map(|reads| row("reads", reads)));
    rows.extend(view.writes.iter().map(|writes| row("writes", writes)));
    let head = [
        "requests",
        "number",
        "measured, ms",
        "simulated, ms",
        "demerit, ms",
    ];
    format!("{}\n{}", view.plant, table(head, &[1, 2, 3, 4], rows))
}

/// Writes a page with its picture and numbers, named after the plant's file.
fn write(
    folder: &Path,
    plant: &Path,
    figure: &lab::demerit::Figure,
    text: &str,
) -> Result<PathBuf, Failure> {
    fs::create_dir_all(folder).map_err(|error| io_failure("create the folder", folder, &error))?;
    let stem = plant
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let put = |kind: &str, text: &str| {
        let path = folder.join(format!("{stem}.{kind}"));
        fs::write(&path, text).map_err(|error| io_failure("write", &path, &error))?;
        Ok::<_, Failure>(path)
    };
    put("svg", &figure.svg)?;
    put("csv", &figure.csv)?;
    put("md", &figure.page(&stem, text))
}
