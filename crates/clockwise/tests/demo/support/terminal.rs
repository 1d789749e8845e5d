//! Demos on a terminal of their own, by `script`.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus};

use super::DEMO_WITHIN;
use testkit::process::{OutputReader, Process};

/// A demo on a terminal, which is a session of its own too. It replaces the shell that `script` starts,
/// because that would get a Ctrl-C as well.
pub(crate) fn on_a_terminal(demo: &Command) -> Command {
    // Without `setsid`, which would take it away from its terminal.
    let words = demo.get_args();
    let quoted: Vec<String> = words.map(|word| format!("'{}'", word.display())).collect();
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--flush"])
        .args([
            "--command",
            &format!("exec {}", quoted.join(" ")),
            "/dev/null",
        ])
        .env("TERM", "xterm");
    command
}

/// A terminal that a demo runs on.
pub(crate) struct Terminal {
    script: Process,
    keyboard: ChildStdin,
    screen: BufReader<OutputReader<ChildStdout>>,
    shown: Vec<u8>,
}

impl Terminal {
    /// Runs what is on it, with keyboard and screen piped.
    #[track_caller]
    pub(crate) fn begin(script: &mut Command) -> Self {
        let mut script = Process::spawn(script);
        let keyboard = script.stdin.take().expect("it is piped");
        let screen = script.stdout.take().expect("it is piped");
        Self {
            script,
            keyboard,
            screen: BufReader::new(OutputReader::new(screen, DEMO_WITHIN)),
            shown: Vec::new(),
        }
    }

    /// The next picture: from the upper left corner to where what is below it is wiped.
    #[track_caller]
    pub(crate) fn picture(&mut self) -> String {
        self.shown_until(b"\x1b[H");
        let picture = self.shown_until(b"\x1b[J");
        String::from_utf8_lossy(&picture).into_owned()
    }

    /// Output up to these bytes.
    #[track_caller]
    fn shown_until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut part = Vec::new();
        while !part.ends_with(end) {
            let last = *end.last().expect("there is an end");
            let length = self.screen.read_until(last, &mut part);
            let length = length.unwrap_or_else(|error| panic!("{error}: {}", self.said()));
            assert!(length > 0, "it ended: {}", self.said());
            self.shown.extend_from_slice(&part[part.len() - length..]);
        }
        part
    }

    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("it listens");
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Waits for its end; how the demo ended, and all that was shown.
    #[track_caller]
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let read = self.screen.read_to_end(&mut self.shown);
        read.unwrap_or_else(|error| panic!("{error}: {}", self.said()));
        let status = self.script.wait();
        (status, self.said())
    }
}
