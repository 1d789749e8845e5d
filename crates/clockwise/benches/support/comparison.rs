//! A comparison of servers that have the same content in memory, each in processes of its own and driven by fio.
//!
//! Rounds alternate between the servers. Figures are medians of rounds. Ratios are medians of each round's ratio to the
//! better of the peers, with the least and the greatest. Processor time is that of all processes of a server.
//!
//! Variables of the environment, after the comparison's name and `_BENCH`: `_ROUNDS`, `_SECONDS` of each measurement,
//! `_SERVERS` and `_JOBS` (lists with commas, of servers and of fio's values of `rw`).

mod disk;
mod fio;
mod own_server;
mod report;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sched::units::Bytes;

pub(crate) use own_server::OwnServer;

/// The size of the volume or file under test.
pub(crate) const SIZE: Bytes = Bytes::from_mib(512);

/// The name of the volume or file under test.
pub(crate) const VOLUME: &str = "bench";

/// Time for a server to start.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// Set in a process that is to be our own server: its folder and its candidate's name.
const SERVE_IN: &str = "CLOCKWISE_BENCH_SERVE_IN";
const SERVE_AS: &str = "CLOCKWISE_BENCH_SERVE_AS";

/// A server to be measured.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    /// Configuration of our own server, if this is one.
    pub(crate) own: Option<OwnServer>,
    pub(crate) role: Role,
}

/// The role of a candidate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Compared with the better of the peers.
    Subject,
    Peer,
}

/// A running server. Its processes are killed when it is dropped.
pub(crate) struct Running {
    pub(crate) processes: Vec<Child>,
    /// Unmounted when dropped.
    pub(crate) mount: Option<PathBuf>,
    /// Arguments of fio that name the target.
    pub(crate) target: Vec<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // The process may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
        if let Some(mount) = &self.mount {
            let _ = Command::new("umount").arg("--lazy").arg(mount).status();
        }
    }
}

/// A comparison of several servers.
pub(crate) struct Comparison<'a> {
    /// Prefix of the variables and name of the report: `nbd` reads `NBD_BENCH_ROUNDS` and writes `nbd.json`.
    pub(crate) name: &'static str,
    pub(crate) candidates: &'a [Candidate],
    /// The default of `_ROUNDS`.
    pub(crate) rounds: usize,
    /// Starts a candidate in a folder, and returns once it is ready.
    pub(crate) start: fn(&Candidate, &Path) -> Running,
}

impl Comparison<'_> {
    /// Serves, if this is a process of [`start_own`]. Returns true if it was.
    pub(crate) fn serve(&self) -> bool {
        let Some(folder) = std::env::var_os(SERVE_IN) else {
            return false;
        };
        let name = std::env::var(SERVE_AS).expect("the candidate's name");
        let candidate = self.candidates.iter().find(|one| one.name == name);
        let own = candidate.and_then(|candidate| candidate.own);
        own_server::serve(&name, own.expect("our own server"), Path::new(&folder));
        true
    }

    /// Measures, and writes the report.
    pub(crate) fn run(&self) {
        let (rounds, seconds) = (
            self.number("ROUNDS", self.rounds),
            self.number("SECONDS", 2),
        );
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        let candidates: Vec<&Candidate> = self
            .candidates
            .iter()
            .filter(|candidate| self.is_chosen("SERVERS", candidate.name))
            .collect();
        let running: Vec<Running> = candidates
            .iter()
            .map(|candidate| (self.start)(candidate, folder.path()))
            .collect();
        let mut results = Vec::new();
        for job in fio::JOBS
            .into_iter()
            .filter(|job| self.is_chosen("JOBS", job.rw))
        {
            let mut samples = vec![Vec::new(); running.len()];
            for round in 0..rounds {
                for turn in 0..running.len() {
                    let index = (turn + round) % running.len();
                    let sample = fio::measure(&running[index], job, seconds, folder.path());
                    samples[index].push(sample);
                }
            }
            results.push((job, samples));
        }
        report::report(&candidates, &results, &format!("{}.json", self.name));
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(format!("{}_BENCH_{name}", self.name.to_uppercase())).ok()
    }

    fn number(&self, name: &str, default: usize) -> usize {
        self.variable(name)
            .map_or(default, |text| text.parse().expect(name))
    }

    fn is_chosen(&self, name: &str, item: &str) -> bool {
        self.variable(name)
            .is_none_or(|list| list.split(',').any(|word| word == item))
    }
}

/// Starts our own server as a process of this program, and returns once it is ready.
pub(crate) fn start_own(candidate: &Candidate, folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .env(SERVE_IN, folder)
        .env(SERVE_AS, candidate.name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect(candidate.name);
    let mut line = String::new();
    let output = child.stdout.take().expect("piped");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("the first line of our server");
    assert_eq!(line.trim(), own_server::READY, "our server did not start");
    child
}

/// The unix socket of our server.
pub(crate) fn socket_of(name: &str, folder: &Path) -> PathBuf {
    folder.join(format!("{name}.sock"))
}

/// Waits until a server is ready.
pub(crate) fn wait_until_ready(name: &str, is_ready: impl Fn() -> bool) {
    let until = Instant::now() + STARTS_WITHIN;
    while !is_ready() {
        assert!(Instant::now() < until, "{name} did not start");
        std::thread::yield_now();
    }
}

/// Writes a file of [`SIZE`] whose pages are all allocated.
pub(crate) fn write_file(path: &Path) {
    let block = block_of_bytes();
    let mut file = std::fs::File::create(path).expect("a file in memory");
    for _ in 0..SIZE.0 / block.len() as u64 {
        file.write_all(&block).expect("room in memory");
    }
}

/// Content of the servers, 1 MiB of it.
pub(crate) fn block_of_bytes() -> Vec<u8> {
    testkit::pattern(1, 1 << 20)
}
