//! The server under a service manager: the unit of systemd, the rights that it gives, and what the manager is told.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::thread::CapabilitySet;
use testkit::process::{WITHIN, output};
use testkit::site::{Serve, Site, clockwise, read_text};
use testkit::skip::{have, is_root, tool};
use testkit::threads::{FIFO, scheduling_in};

/// The user and group that own nothing.
const NOBODY: u32 = 65534;

/// The most that systemd may count as exposed, in tenths: 2.0 of 10 is "OK", as is up to 4.0.
const EXPOSURE_MAX: &str = "20";

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name)
}

/// The values that the unit gives to a setting.
fn settings(name: &str) -> Vec<String> {
    let unit = read_text(&packaging("clockwise.service"));
    let assigned = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    assigned.map(str::to_owned).collect()
}

#[test]
fn the_unit_is_valid_and_exposes_little() {
    if !have("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let unit = folder.path().join("clockwise.service");
    let program = clockwise().get_program().display().to_string();
    let text = read_text(&packaging("clockwise.service"));
    // The checks look for the program, which is not installed.
    std::fs::write(&unit, text.replace("/usr/bin/clockwise", &program)).expect("room");
    let unit = unit.display().to_string();
    let check = |arguments: &[&str]| {
        let checked = output("systemd-analyze", arguments);
        let said = [checked.stdout, checked.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(checked.status.success(), "{arguments:?}: {said}");
        said
    };
    let verify = ["verify", "--man=no", "--generators=no", &unit];
    assert_eq!(check(&verify), "");
    let exposed = format!("--threshold={EXPOSURE_MAX}");
    check(&["security", "--no-pager", "--offline=true", &exposed, &unit]);
    // The additions for users are valid, too.
    for addition in ["fuse.conf", "smart.conf"] {
        let folder = folder.path().join("clockwise.service.d");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::copy(packaging(addition), folder.join(addition)).expect("room");
        let mut verify_all = tool("systemd-analyze");
        verify_all.env(
            "SYSTEMD_UNIT_PATH",
            format!("{}:", folder.parent().expect("it has one").display()),
        );
        let checked = testkit::site::outcome(verify_all.args(verify)).done();
        assert_eq!(checked.err, "", "{addition}");
    }
}

/// Limits and capabilities, as `prlimit` and `setpriv` take them.
pub(crate) struct Rights {
    pub(crate) limits: Vec<String>,
    pub(crate) capabilities: String,
    /// False on a host whose root cannot give what the unit gives: capabilities take the place of limits.
    pub(crate) are_the_units: bool,
}

/// The rights that the unit gives, as far as this process can give them.
pub(crate) fn rights() -> Rights {
    let limit = |option: &str, name: &str| {
        let limit = settings(name).pop().expect("a limit");
        format!("--{option}={}", limit.replace("infinity", "unlimited"))
    };
    let ambient = settings("AmbientCapabilities");
    assert_eq!(ambient, settings("CapabilityBoundingSet"));
    assert_eq!(ambient, ["CAP_SYS_RESOURCE"]);
    let own = rustix::thread::capabilities(None).expect("a process has some");
    if !own.permitted.contains(CapabilitySet::SYS_RESOURCE) {
        return Rights {
            // The limits stay as they are.
            limits: vec!["--core=0".to_owned()],
            capabilities: "-all,+sys_nice,+ipc_lock".to_owned(),
            are_the_units: false,
        };
    }
    let threads = limit("rtprio", "LimitRTPRIO");
    let memory = limit("memlock", "LimitMEMLOCK");
    let files = limit("nofile", "LimitNOFILE");
    Rights {
        limits: vec![threads, memory, files],
        capabilities: "-all,+sys_resource".to_owned(),
        are_the_units: true,
    }
}

/// The server as the unit starts it, but with these limits and capabilities.
pub(crate) fn started<L: AsRef<OsStr>>(limits: &[L], capabilities: &str) -> Command {
    let mut command = tool("prlimit");
    command.args(limits).arg("setpriv");
    command.args([
        format!("--reuid={NOBODY}"),
        format!("--regid={NOBODY}"),
        "--clear-groups".to_owned(),
        "--no-new-privs".to_owned(),
        format!("--inh-caps={capabilities}"),
        format!("--ambient-caps={capabilities}"),
        format!("--bounding-set={capabilities}"),
    ]);
    command
}

/// A pool that belongs to nobody, and asks for real time.
pub(crate) fn of_nobody() -> (Site, PathBuf) {
    let site = Site::new(1);
    let text = read_text(&site.config()).replace("realtime = false", "realtime = true");
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    // Other users may not look into the folder of the build.
    let program = site.path("program");
    std::fs::copy(clockwise().get_program(), &program).expect("room");
    for path in [site.folder.path(), &site.config(), &site.path("disk-0")] {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("it is root's");
    }
    (site, program)
}

pub(crate) fn serve(site: &Site, mut command: Command, program: &Path) -> Serve {
    site.serve_by({
        command.arg(program).env("NO_COLOR", "1");
        command
    })
}

/// A line of `/proc/PID/status`.
fn kernel_says(server: &Serve, name: &str) -> String {
    let status = read_text(Path::new(&format!("/proc/{}/status", server.pid())));
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("a line of that name").trim().to_owned()
}

#[test]
fn the_unit_gives_the_rights_that_the_server_wants() {
    if !have("setpriv") || !is_root("another user") {
        return;
    }
    let rights = rights();
    let (site, program) = of_nobody();
    let command = started(&rights.limits, &rights.capabilities);
    let server = serve(&site, command, &program);
    let pid = server.pid().to_string();
    assert_eq!(scheduling_in(&pid, "disk 0"), (FIFO, 40));
    assert_eq!(scheduling_in(&pid, "pool worker"), (FIFO, 39));
    let locked = kernel_says(&server, "VmLck");
    assert_ne!(locked, "0 kB");
    assert_eq!(kernel_says(&server, "NoNewPrivs"), "1");
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    let refused = log.lines().filter(|line| line.contains("the host refused"));
    let is_expected = |line: &&str| !rights.are_the_units && line.contains("PR_SET_IO_FLUSHER");
    let refused: Vec<&str> = refused.filter(|line| !is_expected(line)).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn without_rights_the_server_serves_and_says_which_it_lacks() {
    if !have("setpriv") || !is_root("another user") {
        return;
    }
    let (site, program) = of_nobody();
    let command = started(&["--rtprio=0", "--memlock=65536"], "-all");
    let server = serve(&site, command, &program);
    assert_eq!(scheduling_in(&server.pid().to_string(), "disk 0"), (0, 0));
    site.run(&["volume", "create", "v", "--size", "1MiB"])
        .done();
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    for right in ["SCHED_FIFO", "mlockall", "PR_SET_IO_FLUSHER"] {
        let refused = |line: &str| line.contains("the host refused") && line.contains(right);
        assert!(log.lines().any(refused), "{right}: {log}");
    }
}

#[test]
fn the_service_manager_hears_of_start_life_and_end() {
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let path = site.path("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(WITHIN)).expect("a time");
    let mut command = clockwise();
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "20000");
    let hear = || {
        let mut message = [0; 512];
        let length = manager.recv(&mut message).ok()?;
        Some(String::from_utf8_lossy(&message[..length]).into_owned())
    };
    let server = site.serve_by(command);
    assert_eq!(hear().as_deref(), Some("STATUS=opening the pool"));
    let ready = "READY=1\nSTATUS=serving pool \"test\" on 1 disk";
    assert_eq!(hear().as_deref(), Some(ready));
    for _ in 0..3 {
        assert_eq!(hear().as_deref(), Some("WATCHDOG=1"));
    }
    server.tell_to_end();
    let mut later = std::iter::from_fn(hear).skip_while(|message| message == "WATCHDOG=1");
    let stopping = later.next().expect("the end is told");
    assert!(stopping.starts_with("STOPPING=1\nSTATUS="), "{stopping}");
    drop(later);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    manager.set_nonblocking(true).expect("it can be set");
    let rest: Vec<String> = std::iter::from_fn(hear).collect();
    assert!(
        rest.iter().all(|message| message == "WATCHDOG=1"),
        "{rest:?}"
    );
    // A watchdog for another process is none of ours.
    let mut command = clockwise();
    command.env("NOTIFY_SOCKET", &path);
    command
        .env("WATCHDOG_USEC", "1000")
        .env("WATCHDOG_PID", "1");
    let server = site.serve_by(command);
    assert_eq!(server.terminate().0, Some(0));
    let said: Vec<String> = std::iter::from_fn(hear).collect();
    assert_eq!(said.len(), 3, "{said:?}");
}

#[test]
fn log_lines_are_objects_for_programs_on_request() {
    let site = Site::new(1);
    let log_of = |site: &Site| {
        let mut command = clockwise();
        command.arg("--config").arg(site.config());
        let ended = testkit::site::outcome(command.args(["serve", "--log-format", "json"]));
        assert_ne!(ended.code, 0, "{ended:?}");
        let last = ended.err.lines().last().expect("a line").to_owned();
        serde_json::from_str::<serde_json::Value>(&last).expect("an object")
    };
    // The failure that ends the server is one as well.
    let no_disk = log_of(&site);
    assert_eq!(no_disk["level"], "ERROR");
    assert!(
        no_disk["message"]
            .as_str()
            .expect("words")
            .contains("does not exist"),
        "{no_disk}"
    );
    assert!(
        no_disk["help"].is_string() && no_disk["place"].is_string(),
        "{no_disk}"
    );
    site.run(&["pool", "create"]).done();
    let mut command = clockwise();
    let server = site.serve_by({
        command.env("CLOCKWISE_LOG_FORMAT", "json");
        command
    });
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let serving = lines.iter().find(|line| line["message"] == "serving");
    let serving = serving.unwrap_or_else(|| panic!("no such line: {log}"));
    assert_eq!(serving["pool"], "test");
    assert_eq!(serving["level"], "INFO");
    assert_eq!(serving["api"], *site.path("api.sock").display().to_string());
}

#[test]
fn configuration_is_checked_without_serving() {
    let site = Site::new(1);
    let checked = site.run(&["serve", "--check"]).done();
    assert!(checked.out.contains("valid"), "{checked:?}");
    assert_eq!(site.json(&["serve", "--check"])["disks"], 1);
    assert!(!site.path("disk-0").exists());
    std::fs::write(site.config(), "[server]\n").expect("it can be written");
    site.run(&["serve", "--check"])
        .fails(2, &["no disks", "[[disk]]"]);
    // The configuration of the package names no disk.
    let packaged = read_text(&packaging("clockwise.toml"));
    std::fs::write(site.config(), &packaged).expect("it can be written");
    site.run(&["serve", "--check"]).fails(2, &["no disks"]);
    let disk = "[[disk]]\npath = \"/var/lib/clockwise/disk-1.img\"\nkind = \"file\"\n";
    std::fs::write(site.config(), packaged + disk).expect("it can be written");
    site.run(&["serve", "--check"]).done();
}
