//! Needs of a test that a machine may lack: tools, root, devices. A test that cannot run here is skipped, and
//! reports that.
//!
//! For the test runner such a test has passed, and its output is not shown. So it writes to the process's own
//! standard error, in lines that `make test` counts.

use std::ffi::OsString;
use std::io::Write;
use std::process::Command;

/// Set, it makes tests be skipped that need a tool which is not installed; without it they fail.
const SKIP_MISSING_TOOLS: &str = "CLOCKWISE_SKIP_MISSING_TOOLS";

/// Says that the test of this thread cannot run here, and why. The test has to return.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("without a name");
    let why: Vec<&str> = why.lines().map(str::trim).collect();
    // One line in one write, which what other tests and the runner say at the same time cannot part.
    let line = format!("SKIPPED test {test}: {}\n", why.join(" "));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Folders of programs, including those that only root's path has.
fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// A command that finds what [`have`] finds.
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", path());
    command
}

/// True if a tool is installed. A test that needs it fails without it, unless it may be skipped.
pub fn have(tool: &str) -> bool {
    let is_here = std::env::split_paths(&path()).any(|folder| folder.join(tool).is_file());
    if !is_here {
        assert!(
            std::env::var_os(SKIP_MISSING_TOOLS).is_some(),
            "{tool} is not installed (`make setup` installs it; {SKIP_MISSING_TOOLS}=1 skips the tests \
             that need it)"
        );
        skipped(&format!("{tool} is not installed"));
    }
    is_here
}

/// True if this process may do root's work, such as mounting and attaching devices. Otherwise the test is
/// skipped.
pub fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skipped(&format!("{what} needs root"));
    }
    is_root
}
