//! Programs that do not outlive their test, and that no test waits for without end.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::skip;

/// Longest wait of a test for anything, on a machine that is busy building.
pub const WITHIN: Duration = Duration::from_secs(120);

/// A child that is killed when the test ends before it does, however the test ends.
pub struct Process {
    child: Child,
    command: String,
}

impl Process {
    /// Starts it.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.spawn();
        Self {
            child: child
                .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display())),
            command: format!("{command:?}"),
        }
    }

    /// Starts it without input and with all that it says kept.
    #[track_caller]
    pub fn captured(command: &mut Command) -> Self {
        Self::spawn(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        )
    }

    /// Waits for its end, which fails when that does not come.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let ended = self.wait_until(Instant::now() + WITHIN);
        ended.unwrap_or_else(|| panic!("not within {WITHIN:?}: the end of {}", self.command))
    }

    /// `None` if it has not ended by then.
    fn wait_until(&mut self, until: Instant) -> Option<ExitStatus> {
        if let Some(status) = self.child.try_wait().expect("it is a child") {
            return Some(status);
        }
        let pid = Pid::from_child(&self.child);
        let end = pidfd_open(pid, PidfdFlags::empty()).expect("it is not yet waited for");
        let is_ended = is_ready(&mut [PollFd::new(&end, PollFlags::IN)], until);
        is_ended.then(|| self.child.wait().expect("it has ended"))
    }

    /// Its output from here on, within the time limit of a test.
    pub fn heard(&mut self) -> OutputReader<ChildStdout> {
        OutputReader::new(self.child.stdout.take().expect("it is piped"), WITHIN)
    }

    /// Its output, with the time limit for each read alone: it may run for long between reads.
    pub fn heard_now_and_then(&mut self) -> OutputReader<ChildStdout> {
        let mut heard = self.heard();
        heard.until = None;
        heard
    }

    /// All that it says on what is piped, to its end, which fails when that does not come.
    #[track_caller]
    pub fn output(self) -> Output {
        self.output_within(WITHIN)
    }

    /// As `output`, with another time limit.
    #[track_caller]
    pub fn output_within(self, within: Duration) -> Output {
        self.try_output(within)
            .unwrap_or_else(|late| panic!("{late}"))
    }

    /// As `output`, without panics. The error tells that it did not end.
    pub fn try_output(mut self, within: Duration) -> Result<Output, String> {
        let until = Instant::now() + within;
        drop(self.child.stdin.take());
        let mut pipes = [
            self.child.stdout.take().map(OwnedFd::from),
            self.child.stderr.take().map(OwnedFd::from),
        ];
        let mut said = [Vec::new(), Vec::new()];
        let is_whole = read_all(&mut pipes, &mut said, until);
        let status = is_whole.then(|| self.wait_until(until)).flatten();
        let [stdout, stderr] = said;
        match status {
            Some(status) => Ok(Output {
                status,
                stdout,
                stderr,
            }),
            None => {
                let mut late = format!("not within {within:?}: the end of {}", self.command);
                for said in [stdout, stderr] {
                    let _ = write!(late, "\n{}", String::from_utf8_lossy(&said));
                }
                Err(late)
            }
        }
    }
}

/// Reads pipes, those that there are, to their ends; whether they came by then.
fn read_all(pipes: &mut [Option<OwnedFd>; 2], said: &mut [Vec<u8>; 2], until: Instant) -> bool {
    let mut part = [0; 65_536];
    loop {
        let mut open: Vec<_> = pipes
            .iter()
            .flatten()
            .map(|pipe| PollFd::new(pipe, PollFlags::IN))
            .collect();
        if open.is_empty() {
            return true;
        }
        if !is_ready(&mut open, until) {
            return false;
        }
        let mut ready = open.iter().map(|pipe| !pipe.revents().is_empty());
        let ready = [0, 1].map(|index| pipes[index].is_some() && ready.next() == Some(true));
        for (index, _) in ready.iter().enumerate().filter(|(_, is_ready)| **is_ready) {
            let pipe = pipes[index].as_ref().expect("it is ready");
            match rustix::io::read(pipe, &mut part).expect("a pipe can be read") {
                0 => pipes[index] = None,
                length => said[index].extend_from_slice(&part[..length]),
            }
        }
    }
}

/// Waits until one of these is ready; whether one is by then.
fn is_ready(fds: &mut [PollFd<'_>], until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a time that can be waited");
        match poll(fds, Some(&left)) {
            Err(Errno::INTR) => {}
            ready => return ready.expect("it can be waited for") > 0,
        }
    }
}

/// Output of a program. Reading fails if the expected text does not come in time.
pub struct OutputReader<R> {
    from: R,
    within: Duration,
    /// `None`: from when it is listened to.
    until: Option<Instant>,
}

impl<R> OutputReader<R> {
    pub fn new(from: R, within: Duration) -> Self {
        Self {
            from,
            within,
            until: Some(Instant::now() + within),
        }
    }

    /// Gives it so long from now on.
    pub fn give(&mut self, within: Duration) {
        self.within = within;
        self.until = Some(Instant::now() + within);
    }
}

impl<R: Read + AsFd> Read for OutputReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let until = self.until.unwrap_or_else(|| Instant::now() + self.within);
        if is_ready(&mut [PollFd::new(&self.from, PollFlags::IN)], until) {
            return self.from.read(buffer);
        }
        let late = format!("not within {:?}: all that it should say", self.within);
        Err(io::Error::new(ErrorKind::TimedOut, late))
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end, within the time that a test waits for anything, whatever its status.
pub fn output(tool: &str, arguments: &[&str]) -> Output {
    Process::captured(skip::tool(tool).args(arguments)).output()
}

/// Runs a program that must succeed; what it printed.
pub fn run(tool: &str, arguments: &[&str]) -> String {
    let output = output(tool, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{tool} {arguments:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}
