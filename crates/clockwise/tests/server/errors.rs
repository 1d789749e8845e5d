//! Every way to go wrong that the command line has without a server, walked over: each says what, and
//! what to do about it, for people and for programs, with the exit status that is documented, and sizes
//! with units.

use testkit::process::WITHIN;
use testkit::site::told::{file, is_told};
use testkit::site::{Outcome, Site, clockwise, outcome};

#[test]
fn command_lines_that_make_no_sense() {
    let site = Site::new(1);
    let run = |arguments: &[&str]| site.run(arguments);
    for arguments in [
        &["frobnicate"][..],
        &["volume"],
        &["volume", "create"],
        &["volume", "create", "v", "--size", "-1"],
        &["volume", "create", "v", "--size", "1K"],
        &["volume", "create", "v", "--size", "1MiB", "--run", "0"],
        &["volume", "list", "--colour"],
        &["stream", "record", "--volume", "v"],
        &[
            "stream", "play", "--volume", "v", "--rate", "NaN", "--to", "-",
        ],
        &["stream", "rate", "x", "1MB/s"],
        &["status", "--interval", "1s"],
        &["demo", "--seconds", "-1"],
        &["completions", "csh"],
        &["disk", "show", "a", "b"],
    ] {
        is_told(2, run, arguments);
    }
}

#[test]
fn missing_server_and_missing_disks_are_reported() {
    let site = Site::new(1);
    let run = |arguments: &[&str]| site.run(arguments);
    // Each of them waits for a server that is about to listen: all at once.
    let without_a_server = [
        &["pool", "show"][..],
        &["disk", "show"],
        &["volume", "list"],
        &["volume", "create", "v", "--size", "1MiB"],
        &["volume", "move", "v", "--zone", "0"],
        &["stream", "list"],
        &[
            "stream",
            "play",
            "--volume",
            "v",
            "--rate",
            "1MB/s",
            "--to",
            "/dev/null",
        ],
        &["status"],
        &["status", "--watch"],
    ];
    std::thread::scope(|scope| {
        for arguments in without_a_server {
            scope.spawn(move || is_told(1, run, arguments));
        }
    });
    for arguments in [&["serve"][..], &["pool", "check"]] {
        is_told(2, run, arguments);
    }
    // A server that is none.
    let socket = site.path("strange.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let (called, calls) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // One call for programs and one for people, and each looks again what it is that does not answer.
        for connection in listener.incoming().take(4) {
            drop(connection.expect("a connection"));
            // A test that gave up does not wait for it.
            let _ = called.send(());
        }
    });
    let to = socket.display().to_string();
    is_told(1, run, &["volume", "list", "--socket", &to]);
    for _ in 0..2 {
        calls.recv_timeout(WITHIN).expect("a call");
    }
    let plain = |arguments: &[&str]| -> Outcome { outcome(clockwise().args(arguments)) };
    is_told(2, plain, &["serve", "--config", "/nonexistent/c.toml"]);
    is_told(
        2,
        plain,
        &["volume", "list", "--config", "/nonexistent/c.toml"],
    );
    let binary = file(&site, "binary", &[0xff, 0xfe, 0]);
    is_told(2, plain, &["serve", "--config", &binary]);
    let folder = site.folder.path().display().to_string();
    is_told(2, plain, &["serve", "--config", &folder]);
}

#[test]
fn files_that_are_wrong() {
    let site = Site::new(1);
    let run = |arguments: &[&str]| site.run(arguments);
    for (number, text) in [
        "",
        "[[task]]",
        "[[task]]\nservice_us = 1",
        "[[task]]\nservice_us = 0\nperiod_us = 1",
        "[[task]]\nservice_us = nan\nperiod_us = 1",
        "[[task]]\nservice_us = 1\nservice_ms = 1\nperiod_us = 9",
        "[[task]]\nservice_us = 1\nperiod_us = 9\ncount = 0",
        "[[task]]\nservice_us = 1\nperiod_us = 9\ncount = 99999999",
        "[[task]]\nservice_us = 1\nperiod_us = 9\ncolour = 1",
        "task = 7",
        "not toml",
    ]
    .iter()
    .enumerate()
    {
        let name = file(&site, &format!("tasks-{number}.toml"), text.as_bytes());
        is_told(2, run, &["admit", &name]);
    }
    is_told(2, run, &["admit", "/nonexistent.toml"]);
    let disk = "[[disk]]\npath = \"d\"\nkind = \"file\"\n";
    let emulated = "[[disk]]\npath = \"d\"\nkind = \"emulated\"\n";
    let profile = file(&site, "profile.toml", b"name = \"x\"\nkind = \"file\"\n");
    let sizeless = file(&site, "sizeless", b"");
    for text in [
        String::new(),
        "[server]\nsocket = \"x\"\n".to_owned(),
        format!("[scheduler]\npolicy = \"fifo\"\n{disk}"),
        format!("[scheduler]\nfloor_slice = \"5ms\"\n{disk}"),
        format!("[server]\npermissions = \"rw\"\n{disk}"),
        format!("[nbd]\ntcp = \"localhost\"\n{disk}"),
        format!("{disk}outstanding = 0\n"),
        format!("{disk}profile = \"none.toml\"\n"),
        format!("{disk}profile = \"{profile}\"\n"),
        format!("{disk}profile = \"none\"\n"),
        emulated.to_owned(),
        format!("{emulated}plant = \"none.toml\"\n"),
        format!("{emulated}plant = \"{profile}\"\n"),
        format!("{emulated}plant = \"hdd-8tb-7200\"\nsize = \"1GiB\"\n"),
        format!("{disk}{disk}"),
        format!("[[disk]]\npath = \"{sizeless}\"\nkind = \"file\"\n"),
        format!("[[disk]]\npath = \"{sizeless}\"\nkind = \"emulated\"\nplant = \"hdd-8tb-7200\"\n"),
        format!("[[disk]]\npath = \"{sizeless}\"\nkind = \"block\"\n"),
        "[[disk]]\npath = \".\"\nkind = \"file\"\n".to_owned(),
    ] {
        file(&site, "clockwise.toml", text.as_bytes());
        is_told(2, run, &["serve"]);
    }
    file(&site, "clockwise.toml", disk.as_bytes());
    is_told(2, run, &["pool", "create"]);
    let missing = format!(
        "[[disk]]\npath = \"/nonexistent/d\"\nkind = \"file\"\nsize = \"{}\"\n",
        "64MiB"
    );
    file(&site, "clockwise.toml", missing.as_bytes());
    is_told(2, run, &["pool", "create"]);
    let page = file(&site, "page", b"");
    is_told(1, run, &["man", &page]);
}

#[test]
fn pools_that_are_none() {
    let site = Site::new(2);
    let run = |arguments: &[&str]| site.run(arguments);
    is_told(2, run, &["pool", "create", "--extent", "3MiB"]);
    is_told(2, run, &["pool", "create", "--extent", "1GiB"]);
    run(&["pool", "create"]).done();
    is_told(1, run, &["pool", "create"]);
    site.configure(&["disk-0".to_owned()]);
    is_told(1, run, &["serve"]);
    file(
        &site,
        "blank",
        &vec![0; (testkit::site::DISK_MIB << 20) as usize],
    );
    site.configure(&["disk-0".to_owned(), "blank".to_owned()]);
    is_told(1, run, &["serve"]);
    site.configure(&["disk-0".to_owned(), "disk-1".to_owned()]);
    let taken = file(&site, "api.sock", b"");
    is_told(2, run, &["serve"]);
    std::fs::remove_file(taken).expect("it can be taken away");
    let server = site.serve();
    is_told(2, run, &["serve"]);
    is_told(2, run, &["pool", "create", "--force"]);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn help_and_version_are_json_for_programs() {
    let site = Site::new(1);
    for (arguments, member) in [
        (&["--version", "--json"][..], "version"),
        (&["--json", "-V"], "version"),
        (&["volume", "--version", "--json"], "version"),
        (&["--json", "--help"], "help"),
        (&["--json", "help", "volume"], "help"),
        (&["volume", "move", "-h", "--json"], "help"),
    ] {
        let said = site.run(arguments).done();
        assert!(said.json()[member].is_string(), "{arguments:?}: {said:?}");
        assert_eq!(said.err, "", "{arguments:?}");
    }
    assert_eq!(
        site.run(&["--version", "--json"]).json()["version"],
        env!("CARGO_PKG_VERSION")
    );
}

/// A file that nobody may write, until this is dropped.
struct Immutable(String);

impl Immutable {
    /// `None`: the file system has no such files, or this user may not make one.
    fn new(path: String) -> Option<Self> {
        let made = outcome(std::process::Command::new("chattr").args(["+i", &path]));
        (made.code == 0).then_some(Self(path))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        let _ = std::process::Command::new("chattr")
            .args(["-i", &self.0])
            .status();
    }
}

#[test]
fn nobody_is_told_to_be_root_of_a_file_that_root_may_not_write() {
    if !testkit::skip::have("chattr") {
        return;
    }
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let Some(_immutable) = Immutable::new(site.path("disk-0").display().to_string()) else {
        return;
    };
    for command in [
        &["serve"][..],
        &["pool", "check"],
        &["pool", "create", "--force"],
    ] {
        let said = site.run(command);
        said.fails(2, &["disk-0", "chattr -i"]);
        assert!(!said.err.contains("as root"), "{said:?}");
    }
}
