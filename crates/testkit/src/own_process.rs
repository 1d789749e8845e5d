//! Tests of what belongs to a whole process: its limits, its threads, its allocator.

use std::io::Write;
use std::process::Command;

use crate::process::Process;

/// Set in a process that has one test to run.
const OWN: &str = "CLOCKWISE_TEST_OWN_PROCESS";

/// Runs a test in a process of its own, with no other test beside it. Called by the test, with all that it
/// does.
pub fn own_process(test: impl FnOnce()) {
    if std::env::var_os(OWN).is_some() {
        return test();
    }
    let thread = std::thread::current();
    let name = thread.name().expect("a test's thread has its name");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--include-ignored", "--nocapture"]);
    let output = Process::captured(command.env(OWN, "1")).output();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    for line in err.lines() {
        // Lines that count skips of this process go to the counter; the rest goes to the test's output.
        if line.starts_with("SKIPPED ") {
            let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
        }
    }
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{}\n{out}{err}",
        output.status
    );
}
