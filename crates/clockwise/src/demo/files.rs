//! Best effort in the demo: what people and programs do beside the streams, and how long it took them.
//!
//! Many desks: `fio` jobs that each ask for a small block of a volume about once a second over NBD, at
//! random, and wait for it. And, with root, somebody who waits for each step: `git clone`, `tar`, `sync`
//! and `rm` follow each other on a mounted ext4, with a little `fio` beside them.
//!
//! `fio` with a rate waits for what it has asked before it sleeps, however deep its queue is. One job
//! with a high rate would therefore hold back just the requests that a slow disk makes wait, and its mean
//! would tell of the fast ones. Hence many jobs with a low rate each.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::sync::watch;

use super::noise;
use super::process::{End, Ending, Ends, is_there, run, run_until};
use crate::failure::{Failure, io_failure};

/// The load of `fio` over NBD, in words.
pub(super) const DESKS_WORDS: &str = "fio over NBD: 36 jobs that read and 20 that write, each 4 KiB about once a second, \
     at random, waiting for each answer";

/// The load on the file system, in words.
pub(super) const FILES_WORDS: &str =
    "git clone, tar, sync and rm in turn, and fio with up to 4 reads and 2 writes a second";

/// Files of the repository that is cloned, and their size: a small project.
const REPOSITORY_FILES: u32 = 400;
const REPOSITORY_FILE_BYTES: usize = 16 << 10;

/// A latency as a program saw it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(super) struct Seen {
    /// Requests.
    pub count: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Results of the programs.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(super) struct FileLoad {
    /// True if there was a mounted file system.
    pub is_mounted: bool,
    /// Repositories cloned.
    pub clones: u64,
    /// Archives written.
    pub archives: u64,
    /// Latency of reads over NBD.
    pub nbd_reads: Seen,
    /// Latency of writes over NBD.
    pub nbd_writes: Seen,
    /// Latency of fio's reads on the file system.
    pub file_reads: Seen,
    /// Latency of its writes.
    pub file_writes: Seen,
}

/// Targets of the load.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The export that is read and written as it is.
    pub uri: String,
    /// Folder of programs that need no file system.
    pub scratch: PathBuf,
    /// The mounted file system, and the repository to clone onto it.
    pub files: Option<(PathBuf, PathBuf)>,
}

/// Options of `fio` for an export.
fn on_export(uri: &str) -> [String; 2] {
    ["--ioengine=nbd".to_owned(), format!("--uri={uri}")]
}

/// Options of `fio` for its file on a file system.
fn on_files(folder: &Path) -> [String; 4] {
    [
        "--ioengine=psync".to_owned(),
        "--direct=1".to_owned(),
        "--size=64m".to_owned(),
        format!("--directory={}", folder.display()),
    ]
}

/// Fails if there is no program for a file load.
pub(super) fn require_fio() -> Result<(), Failure> {
    if is_there("fio") {
        return Ok(());
    }
    Err(
        Failure::failed("fio is not installed; the demo needs it for the file load")
            .help("install it: apt-get install fio, or `make setup` as root"),
    )
}

/// Makes a repository to clone.
pub(super) fn make_repository(scratch: &Path) -> Result<PathBuf, Failure> {
    let folder = scratch.join("repository");
    let failed = |error: std::io::Error| io_failure("make the repository", &folder, &error);
    for number in 0..REPOSITORY_FILES {
        let file = folder.join(format!("part-{:02}/file-{number:03}.txt", number % 20));
        std::fs::create_dir_all(file.parent().unwrap_or(&folder)).map_err(failed)?;
        std::fs::write(&file, letters(number)).map_err(failed)?;
    }
    let path = folder.to_string_lossy().into_owned();
    let git = |arguments: &[&str]| {
        let identity = [
            "-C",
            &path,
            "-c",
            "user.name=demo",
            "-c",
            "user.email=demo@localhost",
        ];
        run(
            "git",
            identity
                .iter()
                .chain(arguments)
                .copied()
                .collect::<Vec<_>>(),
        )
    };
    git(&["init", "--quiet"])?;
    git(&["add", "."])?;
    git(&["commit", "--quiet", "--message", "files"])?;
    Ok(folder)
}

/// Text that does not compress to nothing.
fn letters(seed: u32) -> Vec<u8> {
    let letters = noise(u64::from(seed)).take(REPOSITORY_FILE_BYTES);
    letters
        .enumerate()
        .map(|(index, number)| match index % 72 {
            71 => b'\n',
            _ => b'a' + ((number >> 33) % 26) as u8,
        })
        .collect()
}

/// Writes what `fio` is going to read, once: holes would be read without a disk.
pub(super) async fn prepare(
    target: &Target,
    mut ending: watch::Receiver<Ending>,
) -> Result<(), Failure> {
    let export = on_export(&target.uri).to_vec();
    let files = target.files.as_ref();
    let files = files.map(|(folder, _)| on_files(folder).to_vec());
    for reach in [Some(export), files].into_iter().flatten() {
        let fixed = [
            "--name=desk",
            "--thread",
            "--rw=write",
            "--bs=1m",
            "--end_fsync=1",
        ];
        let arguments = fixed.map(str::to_owned).into_iter().chain(reach);
        run_until(
            "fio",
            arguments,
            &target.scratch,
            Ends::WhenTold,
            &mut ending,
        )
        .await?;
    }
    Ok(())
}

/// Clones, archives and deletes until it is to end.
async fn churn(
    repository: &Path,
    folder: &Path,
    mut ending: watch::Receiver<Ending>,
) -> Result<(u64, u64), Failure> {
    let (mut clones, mut archives) = (0, 0);
    let clone = folder.join("clone").to_string_lossy().into_owned();
    let archive = folder.join("archive.tar").to_string_lossy().into_owned();
    let source = format!("file://{}", repository.display());
    let steps: [(&str, Vec<&str>); 4] = [
        // First, because a run before this one was ended in the middle of something.
        ("rm", vec!["-rf", &clone, &archive]),
        ("git", vec!["clone", "--quiet", &source, &clone]),
        ("tar", vec!["--create", "--file", &archive, "clone"]),
        ("sync", vec!["--file-system", &archive]),
    ];
    loop {
        for (program, arguments) in &steps {
            let end = run_until(
                program,
                arguments.iter(),
                folder,
                Ends::WhenTold,
                &mut ending,
            )
            .await?;
            if end.is_stopped() {
                return Ok((clones, archives));
            }
            clones += u64::from(*program == "git");
            archives += u64::from(*program == "tar");
        }
    }
}

/// Options of all runs of `fio`.
fn fio_options(seconds: u64) -> Vec<String> {
    let fixed = [
        "--thread",
        "--bs=4k",
        "--rate_process=poisson",
        "--time_based",
        "--randrepeat=1",
        "--group_reporting",
        "--output-format=json",
    ];
    let mut options: Vec<String> = fixed.map(str::to_owned).to_vec();
    options.push(format!("--runtime={seconds}"));
    options
}

/// The desks.
fn desks_options(uri: &str, seconds: u64) -> Vec<String> {
    let mut options = fio_options(seconds);
    options.extend(on_export(uri));
    options.push("--rate_iops=1".to_owned());
    for job in [
        ["--name=readers", "--rw=randread", "--numjobs=36"],
        ["--name=writers", "--rw=randwrite", "--numjobs=20"],
    ] {
        options.extend(job.map(str::to_owned));
    }
    options
}

/// A little on the file system.
fn files_options(folder: &Path, seconds: u64) -> Vec<String> {
    let mut options = fio_options(seconds);
    options.extend(on_files(folder));
    options.extend(["--name=desk", "--rw=randrw", "--rate_iops=4,2"].map(str::to_owned));
    options
}

/// Runs fio until its time is over, and reads what it says.
async fn fio(
    options: Vec<String>,
    folder: &Path,
    mut ending: watch::Receiver<Ending>,
) -> Result<(Seen, Seen), Failure> {
    let (End::Stopped(text) | End::Done(text)) =
        run_until("fio", options, folder, Ends::ByItself, &mut ending).await?;
    seen(&text).ok_or_else(|| {
        Failure::failed("fio did not report its measurements in time")
            .help("one of its requests took very long: this machine is too busy")
    })
}

/// Reads and writes of a report of `fio`, if that is one.
fn seen(text: &str) -> Option<(Seen, Seen)> {
    let report = &text[text.find('{')?..];
    let report: serde_json::Value = serde_json::from_str(report).ok()?;
    let of = |op: &str| {
        let op = report.pointer("/jobs/0")?.get(op)?;
        Some(Seen {
            count: op["total_ios"].as_u64()?,
            mean_ns: op["lat_ns"]["mean"].as_f64()? as u64,
            max_ns: op["lat_ns"]["max"].as_u64()?,
        })
    };
    Some((of("read")?, of("write")?))
}

/// Loads `target` for `seconds`, or until it is to end.
pub(super) async fn load(
    target: Target,
    seconds: u64,
    ending: watch::Receiver<Ending>,
) -> Result<FileLoad, Failure> {
    let desks = fio(
        desks_options(&target.uri, seconds),
        &target.scratch,
        ending.clone(),
    );
    let Some((folder, repository)) = &target.files else {
        let (nbd_reads, nbd_writes) = desks.await?;
        return Ok(FileLoad {
            nbd_reads,
            nbd_writes,
            ..FileLoad::default()
        });
    };
    let files = fio(files_options(folder, seconds), folder, ending.clone());
    let churn = churn(repository, folder, ending);
    let (desks, files, churned) = tokio::join!(desks, files, churn);
    let ((nbd_reads, nbd_writes), (file_reads, file_writes)) = (desks?, files?);
    let (clones, archives) = churned?;
    Ok(FileLoad {
        is_mounted: true,
        clones,
        archives,
        nbd_reads,
        nbd_writes,
        file_reads,
        file_writes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_fio_is_found_behind_its_warnings() {
        let report = r#"fio: something to note
            { "jobs": [ { "read": { "total_ios": 3, "lat_ns": { "mean": 1500.5, "max": 9000 } },
                          "write": { "total_ios": 0, "lat_ns": { "mean": 0.0, "max": 0 } } } ] }"#;
        let (reads, writes) = seen(report).unwrap();
        assert_eq!(
            reads,
            Seen {
                count: 3,
                mean_ns: 1500,
                max_ns: 9000
            }
        );
        assert_eq!(writes, Seen::default());
        assert_eq!(seen("killed"), None);
        assert_eq!(
            seen("fio: terminating on signal 15\n{ \"jobs\": [] }"),
            None
        );
    }
}
