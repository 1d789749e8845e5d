//! Shared by the tests of the whole program: a folder with a configuration, the program, a server.

pub mod damage;
pub mod told;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;

use serde_json::Value;

use crate::process::{OutputReader, Process, WITHIN};
use crate::until;

/// The program, where cargo puts it: beside the folder with the tests and benchmarks of its package, which
/// alone may ask for it, for it is built with them.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let built = test.ancestors().nth(2).expect("a folder of what is built");
    built.join("clockwise")
}

/// The program.
pub fn clockwise() -> Command {
    let mut command = Command::new(program());
    command
        .env_remove("CLOCKWISE_CONFIG")
        .env_remove("CLOCKWISE_SOCKET")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
}

/// Result of a command.
#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn outcome(command: &mut Command) -> Outcome {
    Process::captured(command).output().into()
}

impl Outcome {
    /// The result as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the exit status, and that the error says each of `words`.
    #[track_caller]
    pub fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in {self:?}");
        }
        assert!(!self.err.contains("panicked"), "{self:?}");
    }

    /// Checks that it succeeded.
    #[track_caller]
    pub fn done(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

/// Size of each disk of a [`Site`].
pub const DISK_MIB: u64 = 64;

/// A folder with a configuration of disks in files.
pub struct Site {
    pub folder: tempfile::TempDir,
}

impl Site {
    /// A configuration of `disks` disks; nothing is made yet.
    pub fn new(disks: usize) -> Self {
        let site = Self {
            folder: tempfile::tempdir().expect("a folder for the test"),
        };
        site.configure(
            &(0..disks)
                .map(|disk| format!("disk-{disk}"))
                .collect::<Vec<_>>(),
        );
        site
    }

    /// Writes the configuration anew, of these disks.
    pub fn configure(&self, disks: &[String]) {
        let mut text = String::from(
            "[server]\napi = \"api.sock\"\nrealtime = false\n[nbd]\nunix = \"nbd.sock\"\n\
             [pool]\nname = \"test\"\nextent = \"1MiB\"\n[memory]\ntotal = \"64MiB\"\n",
        );
        for disk in disks {
            text += &format!(
                "[[disk]]\npath = \"{disk}\"\nkind = \"file\"\nsize = \"{DISK_MIB}MiB\"\n"
            );
        }
        std::fs::write(self.config(), text).expect("the configuration can be written");
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("clockwise.toml")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command with this configuration.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Outcome {
        let mut command = clockwise();
        command.arg("--config").arg(self.config());
        outcome(command.args(arguments))
    }

    /// As `run`, with this on standard input.
    #[track_caller]
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Outcome {
        let path = self.path("input");
        std::fs::write(&path, input).expect("it can be written");
        let mut command = clockwise();
        command
            .arg("--config")
            .arg(self.config())
            .args(arguments)
            .stdin(std::fs::File::open(path).expect("it can be read"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Process::spawn(&mut command).output().into()
    }

    /// As `run`, for JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.run(&[&["--json"], arguments].concat()).done().json()
    }

    /// Makes the pool and serves it.
    pub fn serving(disks: usize) -> (Self, Serve) {
        let site = Self::new(disks);
        site.run(&["pool", "create"]).done();
        let serve = site.serve();
        (site, serve)
    }

    /// As `serving`, on emulated drives of the nineties, with their zones and service times.
    pub fn serving_drives(drives: usize) -> (Self, Serve) {
        let site = Self::new(0);
        let mut text = read_text(&site.config());
        for drive in 0..drives {
            text += &format!(
                "[[disk]]\npath = \"drive-{drive}\"\nkind = \"emulated\"\nplant = \"quantum-atlas-ii\"\n\
                 profile = \"quantum-atlas-ii\"\n"
            );
        }
        std::fs::write(site.config(), text).expect("the configuration can be written");
        site.run(&["pool", "create"]).done();
        let serve = site.serve();
        (site, serve)
    }

    /// Serves the pool with `--json`; returns when the server says that it is ready.
    pub fn serve_json(&self) -> ReadyServer {
        self.serve_json_to(Stdio::null())
    }

    /// As `serve_json`, with a log that goes there.
    pub fn serve_json_to(&self, stderr: Stdio) -> ReadyServer {
        let mut serve = clockwise();
        serve
            .arg("--config")
            .arg(self.config())
            .args(["--json", "serve"])
            .stdout(Stdio::piped())
            .stderr(stderr);
        let mut child = Process::spawn(&mut serve);
        let mut rest =
            serde_json::Deserializer::from_reader(child.heard_now_and_then()).into_iter();
        let said = rest.next().and_then(Result::ok).unwrap_or(Value::Null);
        ReadyServer { child, said, rest }
    }

    /// Serves the pool; returns when the server is ready.
    #[track_caller]
    pub fn serve(&self) -> Serve {
        self.serve_by(clockwise())
    }

    /// As `serve`, by this command, which may belong to another user.
    #[track_caller]
    pub fn serve_by(&self, mut serve: Command) -> Serve {
        serve
            .arg("--config")
            .arg(self.config())
            .arg("serve")
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = Process::spawn(&mut serve);
        let log = child.stderr.take().expect("its log is piped");
        let (sender, ready) = mpsc::channel();
        let (whole, log_at_end) = mpsc::channel();
        std::thread::spawn(move || {
            let mut log_so_far = String::new();
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                let is_ready = line.contains("serving");
                log_so_far += &line;
                log_so_far.push('\n');
                if is_ready {
                    // A test that gave up does not wait for it.
                    let _ = sender.send(line);
                }
            }
            let _ = whole.send(log_so_far);
        });
        let serve = Serve {
            child,
            ready: String::new(),
            log: log_at_end,
        };
        match ready.recv_timeout(WITHIN) {
            Ok(ready) => Serve { ready, ..serve },
            Err(error) => panic!("the server is not ready ({error}): {}", serve.kill()),
        }
    }
}

/// A server that has said to programs that it is ready, and does not outlive its test.
pub struct ReadyServer {
    child: Process,
    /// Its output.
    pub said: Value,
    rest: serde_json::StreamDeserializer<
        'static,
        serde_json::de::IoRead<OutputReader<ChildStdout>>,
        Value,
    >,
}

impl ReadyServer {
    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM; checks that it ends well and has said nothing more.
    #[track_caller]
    pub fn terminate(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
        let more = self.rest.next();
        assert!(more.is_none(), "one value and no more: {more:?}");
        assert_eq!(self.child.wait().code(), Some(0));
    }
}

/// A server that does not outlive its test.
pub struct Serve {
    child: Process,
    /// Its message when it is ready.
    pub ready: String,
    /// All of it, once it has ended.
    log: mpsc::Receiver<String>,
}

impl Serve {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the server is there");
    }

    /// Tells it to end, and does not wait for that.
    pub fn tell_to_end(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Stops it: until it [goes on](Self::go_on) it does nothing.
    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        // Each thread only when it is told.
        let tasks = format!("/proc/{}/task", self.pid());
        until("all of it has stopped", || {
            let mut tasks = std::fs::read_dir(&tasks).expect("the server is there");
            tasks.all(|task| {
                let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
                stat.is_ok_and(|stat| stat.contains(") T "))
            })
        });
    }

    pub fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// Waits for its end; returns the exit status and the log.
    #[track_caller]
    pub fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait();
        let log = self.log.recv_timeout(WITHIN);
        (status.code(), log.expect("the end of its log"))
    }

    /// SIGTERM; returns the exit status and the log.
    #[track_caller]
    pub fn terminate(self) -> (Option<i32>, String) {
        self.tell_to_end();
        self.end()
    }

    /// SIGKILL; returns the log.
    #[track_caller]
    pub fn kill(self) -> String {
        self.signal(rustix::process::Signal::KILL);
        self.end().1
    }
}

/// Reads a file whole.
pub fn read(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    bytes
}

/// Reads a file that is text.
pub fn read_text(path: &Path) -> String {
    String::from_utf8(read(path)).expect("text")
}

/// An answer of the API.
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub body: Value,
}

/// One call of the API, by hand: status and body.
pub fn call(site: &Site, method: &str, path: &str, body: &str) -> (u16, Value) {
    let answer = call_with(site, method, path, "application/json", body);
    (answer.status, answer.body)
}

/// As `call`, for a server that may be killed meanwhile: `None` if there is no answer. An answer that takes
/// too long fails the test.
pub fn call_if_there(site: &Site, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
    let answer = match try_call(site, method, path, "application/json", body) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            panic!("not within {WITHIN:?}: an answer to {method} {path}")
        }
        answer => answer.ok()?,
    };
    (answer.status != 0).then_some((answer.status, answer.body))
}

/// As `call`, with a content type for the body.
pub fn call_with(site: &Site, method: &str, path: &str, content_type: &str, body: &str) -> Answer {
    try_call(site, method, path, content_type, body).expect("the server is there and answers")
}

/// A connection to a socket of a server; neither side of it is waited for without end.
pub fn try_connect(socket: &Path) -> std::io::Result<UnixStream> {
    let connection = UnixStream::connect(socket)?;
    connection.set_read_timeout(Some(WITHIN))?;
    connection.set_write_timeout(Some(WITHIN))?;
    Ok(connection)
}

/// Connects to the socket of a running server.
#[track_caller]
pub fn connect(socket: &Path) -> UnixStream {
    try_connect(socket).unwrap_or_else(|error| panic!("{}: {error}", socket.display()))
}

fn try_call(
    site: &Site,
    method: &str,
    path: &str,
    content_type: &str,
    body: &str,
) -> std::io::Result<Answer> {
    let mut connection = try_connect(&site.path("api.sock"))?;
    let length = body.len();
    // In one piece: a server that refuses a request by its head may answer, and close, before the rest.
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {content_type}\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    connection.write_all(request.as_bytes())?;
    let mut text = String::new();
    connection.read_to_string(&mut text)?;
    Ok(answer_in(&text))
}

/// The answer that is all of what a connection brought; status 0 if that is none.
pub fn answer_in(text: &str) -> Answer {
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let content_type = head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "))
        .unwrap_or_default()
        .to_owned();
    Answer {
        status,
        content_type,
        body: serde_json::from_str(body).unwrap_or(Value::Null),
    }
}
