//! Faults of a configuration or a command line are reported with their place and a remedy.

use testkit::site::{Outcome, Site, clockwise, outcome};

fn serve(site: &Site, text: &str) -> Outcome {
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site.run(&["serve"])
}

/// Two disks, and a link of these disks and this rate.
fn link(disks: &str, rate: &str) -> String {
    let of = |path| format!("[[disk]]\npath = \"{path}\"\nkind = \"file\"\n");
    let link = format!("[[link]]\nname = \"l\"\ndisks = {disks}\nrate = {rate}\n");
    of("d") + &of("e") + &link
}

#[test]
fn each_wrong_key_is_shown_where_it_stands() {
    let site = Site::new(1);
    let disk = "[[disk]]\npath = \"d\"\nkind = \"file\"\n";
    let cases: &[(String, &str, &[&str])] = &[
        (
            "[server]\napi = 7\n".to_owned() + disk,
            ":2:7",
            &["expected"],
        ),
        (
            "[server]\nsocket = \"x\"\n".to_owned() + disk,
            ":2:1",
            &["unknown field `socket`", "help"],
        ),
        (
            format!("[server]\npermissions = \"rw\"\n{disk}"),
            ":2:15",
            &["permissions", "0660"],
        ),
        (
            format!("[nbd]\ntcp = \"localhost\"\n{disk}"),
            ":2:7",
            &["not an address and a port"],
        ),
        (
            format!("[memory]\ntotal = \"lots\"\n{disk}"),
            ":2:9",
            &["is not valid", "not a number"],
        ),
        (
            format!("[memory]\ntotal = \"-1GiB\"\n{disk}"),
            ":2:9",
            &["negative"],
        ),
        (
            format!("[memory]\ntotal = \"0MiB\"\n{disk}"),
            ":2:9",
            &["zero"],
        ),
        (
            format!("[memory]\ntotal = \"4095KiB\"\n{disk}"),
            ":2:9",
            &["`total` is 4.00 MiB", "at least 4 MiB"],
        ),
        (
            format!("[memory]\ntotal = 64\n{disk}"),
            ":2:9",
            &["a string with a unit"],
        ),
        (
            format!("[scheduler]\npolicy = \"fifo\"\n{disk}"),
            ":2:10",
            &["no scheduler is called `fifo`", "exact, delta-l"],
        ),
        (
            format!("[scheduler]\nfloor = \"150%\"\n{disk}"),
            ":2:9",
            &["too large"],
        ),
        (
            format!("[scheduler]\nfloor_slice = \"5ms\"\n{disk}"),
            ":1:1",
            &["given incompletely"],
        ),
        (
            format!("[[nbd.reservation]]\nvolume = \"v\"\nslice = \"20ms\"\n{disk}"),
            ":1:1",
            &["missing field `period`"],
        ),
        (
            format!("[[nbd.reservation]]\nvolume = \"v\"\nslice = \"3s\"\nperiod = \"2s\"\n{disk}"),
            ":2:10",
            &["3.00 s in each 2.00 s", "not longer than the `period`"],
        ),
        (
            format!("[[nbd.reservation]]\nvolume = \"v\"\nslice = 20\nperiod = \"2s\"\n{disk}"),
            ":3:9",
            &["a string with a unit"],
        ),
        (
            format!(
                "{0}{0}{disk}",
                "[[nbd.reservation]]\nvolume = \"v\"\nslice = \"20ms\"\nperiod = \"2s\"\n"
            ),
            ":6:10",
            &["`v` has two reservations", "share"],
        ),
        (
            format!(
                "[[nbd.reservation]]\nvolume = \"v\"\nslice = \"20ms\"\nperiod = \"2s\"\n{disk}"
            ),
            ":2:10",
            &["nothing is exported", "`unix` or `tcp`"],
        ),
        (
            format!("[rtsp]\nlisten = \"everywhere\"\n{disk}"),
            ":2:10",
            &["`everywhere` is not an address"],
        ),
        (
            format!("[http]\nlisten = \"everywhere\"\n{disk}"),
            ":2:10",
            &["`everywhere` is not an address"],
        ),
        (
            format!("[[hook]]\non = [\"disk-lost\"]\nrun = [\"x\"]\n{disk}"),
            ":2:7",
            &["unknown variant `disk-lost`", "`disk-failed`"],
        ),
        (
            format!("[[hook]]\non = [\"disk-failed\"]\n{disk}"),
            ":1:1",
            &["neither `run` nor `post`"],
        ),
        (
            format!("[[hook]]\nrun = [\"x\"]\npost = \"http://h/\"\n{disk}"),
            ":3:8",
            &["both `run` and `post`", "for each"],
        ),
        (
            format!("[[hook]]\nrun = []\n{disk}"),
            ":2:7",
            &["names no program"],
        ),
        (
            format!("[[hook]]\npost = \"ftp://h/\"\n{disk}"),
            ":2:8",
            &["not an address for a hook", "https://HOST/PATH"],
        ),
        (
            format!("[[hook]]\npost = \"h:1\"\n{disk}"),
            ":2:8",
            &["`h:1` is not an address", "http://"],
        ),
        (
            format!(
                "[[hook]]\nrun = [\"x\", \"y z\"]\n[[hook]]\nrun = [\"x\", \"y\", \"z\"]\n{disk}"
            ),
            ":4:7",
            &["the same target", "one `on`"],
        ),
        (
            format!("[metrics]\nlisten = \"everywhere\"\n{disk}"),
            ":2:10",
            &["`everywhere` is not an address"],
        ),
        (
            format!("[http]\nlisten = \"0\"\nallow_origin = [\"portal.example\"]\n{disk}"),
            ":3:16",
            &["`portal.example` is not an origin", "http://portal.example"],
        ),
        (
            format!("[http]\nallow_origin = [\"*\"]\n{disk}"),
            ":2:16",
            &["no effect", "`listen`"],
        ),
        (
            format!("[http]\nlisten = \"0\"\nwebrtc = \"on\"\n{disk}"),
            ":3:10",
            &["`on` is not an address"],
        ),
        (
            format!("[http]\nwebrtc = \"0\"\n{disk}"),
            ":2:10",
            &["no effect", "`listen`"],
        ),
        (
            format!("[http]\nlisten = \"0\"\npublish = true\n{disk}"),
            ":3:11",
            &["no effect", "[rtsp]"],
        ),
        (
            format!("[rtsp]\nblock = \"100KiB\"\n{disk}"),
            ":1:1",
            &["`block` is 100", "power of two"],
        ),
        (
            format!("[rtsp]\ntimeout = \"1s\"\n{disk}"),
            ":1:1",
            &["`timeout` is 1.00 s", "at least 2.00 s"],
        ),
        (
            format!(
                "[rtsp]\nusers = \"u\"\n[[rtsp.permit]]\nuser = \"a\"\nmay = [\"delete\"]\n{disk}"
            ),
            ":5:8",
            &[
                "no right is called `delete`",
                "live, recordings, export",
                "play",
            ],
        ),
        (
            format!("[http]\ntls_listen = \"8443\"\n{disk}"),
            ":2:14",
            &["incompletely", "`certificate` and `key` in [http]"],
        ),
        (
            format!("[http]\nlisten = \"8080\"\nkey = \"k\"\n{disk}"),
            ":3:7",
            &["`key` has no effect without `tls_listen`"],
        ),
        (
            format!("[[rtsp.permit]]\nuser = \"a\"\nmay = []\n{disk}"),
            ":2:8",
            &["no `users` file", "set `users`"],
        ),
        (
            format!("[rtsp]\nkey = \"k\"\ntls_listen = \"0\"\n{disk}"),
            ":3:14",
            &["configured incompletely", "`certificate`"],
        ),
        (
            format!("[rtsp]\nrate = \"0MB/s\"\n{disk}"),
            ":2:8",
            &["0MB/s"],
        ),
        (
            format!("[patience]\nstalled_after = 2\n{disk}"),
            ":2:17",
            &["a string with a unit"],
        ),
        (
            format!("[patience]\nstalled_after = \"1ms\"\n{disk}"),
            ":1:1",
            &["`stalled_after` is 1.0 ms", "at least 100.0 ms"],
        ),
        (
            format!("[patience]\ngive_up_after = \"2s\"\n{disk}"),
            ":1:1",
            &["`give_up_after` is 2.00 s", "longer than `stalled_after`"],
        ),
        (
            format!("[patience]\nforever = true\n{disk}"),
            ":2:1",
            &["unknown field `forever`", "help"],
        ),
        (
            "[server]\napi = \"a\"\n".to_owned(),
            ":1:1",
            &["has no disks", "[[disk]]"],
        ),
        (
            "[[disk]]\npath = \"d\"\n".to_owned(),
            ":1:1",
            &["missing field `kind`"],
        ),
        (
            "[[disk]]\npath = \"d\"\nkind = \"tape\"\n".to_owned(),
            ":3:8",
            &["unknown variant `tape`"],
        ),
        (
            format!("{disk}profile = \"no-such-drive\"\n"),
            ":4:11",
            &["no-such-drive", "hdd-8tb-7200"],
        ),
        (
            format!("{disk}profile = \"missing.toml\"\n"),
            ":4:11",
            &["missing.toml", "No such file"],
        ),
        (
            format!("{disk}plant = \"hdd-8tb-7200\"\n"),
            ":4:9",
            &["for emulated drives"],
        ),
        (
            format!("{disk}outstanding = 0\n"),
            ":4:15",
            &["must be from 1 to"],
        ),
        (
            format!("{disk}outstanding = 2\n"),
            ":4:15",
            &["2 outstanding requests", "no profile that was measured"],
        ),
        (
            format!("{disk}outstanding = 2\nprofile = \"quantum-atlas-ii\"\n"),
            ":4:15",
            &["2 outstanding requests", "was measured with 1"],
        ),
        (
            format!("{disk}outstanding = 2\nprofile = \"conservative-file\"\n"),
            ":4:15",
            &["2 outstanding requests", "was not measured"],
        ),
        (
            format!("{disk}durability = \"always\"\n"),
            ":4:14",
            &["unknown variant `always`"],
        ),
        (
            "[[disk]]\npath = \"d\"\nkind = \"emulated\"\n".to_owned(),
            ":1:1",
            &["needs a `plant`"],
        ),
        (
            "[[disk]]\npath = \"d\"\nkind = \"emulated\"\nplant = \"floppy\"\n".to_owned(),
            ":4:9",
            &["no drive model", "hdd-8tb-7200"],
        ),
        (format!("{disk}{disk}"), ":5:8", &["named twice", "line 2"]),
        (
            format!("{disk}[[disk]]\npath = \"./d\"\nkind = \"file\"\n"),
            ":5:8",
            &["named twice"],
        ),
        ("not toml at all".to_owned(), ":1:", &["expected"]),
        (link("[\"d\", \"e\"]", "\"0MB/s\""), ":10:8", &["zero"]),
        (
            link("[\"d\", \"f\"]", "\"1MB/s\""),
            ":9:15",
            &["link `l` names", "f, which is no disk", "[[disk]]"],
        ),
        (
            link("[\"d\", \"./d\"]", "\"1MB/s\""),
            ":9:15",
            &["is named twice", "once"],
        ),
        (
            link("[\"d\", \"e\"]", "\"1MB/s\"")
                + "[[link]]\nname = \"m\"\nrate = \"1MB/s\"\ndisks = [\"e\", \"d\"]\n",
            ":14:10",
            &["on another link already", "once"],
        ),
        (
            link("[\"d\", \"e\"]", "\"1MB/s\"") + "burst = \"1GiB\"\n",
            ":8:8",
            &["longer than 16", "256 KiB"],
        ),
        (
            link("[\"d\"]", "\"1MB/s\""),
            ":8:8",
            &["fewer than two disks"],
        ),
        (
            link(&format!("[{}]", ["\"d\""; 64].join(", ")), "\"1MB/s\""),
            ":8:8",
            &["more than 63 disks"],
        ),
        (
            link("[\"d\", \"e\"]", "\"1MB/s\"")
                + "[[link]]\nname = \"l\"\nrate = \"1MB/s\"\ndisks = [\"d\", \"e\"]\n",
            ":12:8",
            &["two links are called `l`"],
        ),
        (
            link("[\"d\", \"e\"]", "\"1MB/s\"") + "admission = \"hope\"\n",
            ":11:13",
            &["unknown variant `hope`", "inflate", "lend"],
        ),
    ];
    for (text, place, words) in cases {
        let outcome = serve(&site, text);
        outcome.fails(2, words);
        assert!(
            outcome.err.contains(&format!("clockwise.toml{place}")),
            "no {place} in {outcome:?}"
        );
    }
}

#[test]
fn one_disk_by_two_names_is_found() {
    let site = Site::new(1);
    std::fs::write(site.path("d"), b"x").expect("a file");
    std::os::unix::fs::symlink(site.path("d"), site.path("same")).expect("a link");
    let text =
        "[[disk]]\npath = \"d\"\nkind = \"file\"\n[[disk]]\npath = \"same\"\nkind = \"file\"\n";
    serve(&site, text).fails(2, &["named twice", "clockwise.toml:5:8"]);
    // One that is not there yet has other names as well.
    let text =
        "[[disk]]\npath = \"new\"\nkind = \"file\"\n[[disk]]\npath = \"./new\"\nkind = \"file\"\n";
    std::fs::write(site.config(), text).expect("the configuration can be written");
    let mut create = clockwise();
    let create = create
        .args(["pool", "create"])
        .current_dir(site.folder.path());
    outcome(create).fails(2, &["./new is named twice", "line 2"]);
}

#[test]
fn a_disk_that_is_not_there_or_no_disk_is_named() {
    let site = Site::new(1);
    site.run(&["serve"]).fails(
        2,
        &["disk-0", "does not exist", "pool create", "clockwise.toml:"],
    );
    let block = "[[disk]]\npath = \"/dev/no-such-disk\"\nkind = \"block\"\n";
    serve(&site, block).fails(2, &["/dev/no-such-disk", "does not exist", "lsblk"]);
    rustix::fs::mkfifoat(rustix::fs::CWD, site.path("pipe"), rustix::fs::Mode::RWXU)
        .expect("a pipe");
    for (path, kind, words) in [
        (".", "file", ["it is a folder, not a file", "give a file"]),
        ("pipe", "file", ["it is a pipe, not a file", "give a file"]),
        (
            "/dev/null",
            "file",
            ["it is a character device, not a file", "give a file"],
        ),
        (
            ".",
            "block",
            ["it is a folder, not a block device", "lsblk"],
        ),
        (
            "clockwise.toml",
            "block",
            ["it is a file, not a block device", "kind = \"file\""],
        ),
    ] {
        let text = format!("[[disk]]\npath = \"{path}\"\nkind = \"{kind}\"\n");
        serve(&site, &text).fails(2, &words);
    }
}

#[test]
fn sockets_that_cannot_be_are_shown_where_they_are_named() {
    let site = Site::new(1);
    let disk = "[[disk]]\npath = \"d\"\nkind = \"file\"\n";
    std::fs::write(site.path("file"), b"x").expect("a file");
    let folder = site.folder.path().display().to_string();
    // One byte too many, with the slash and the folder before it.
    let long = "s".repeat(107 - folder.len());
    for (text, words) in [
        (
            format!("[server]\napi = \"{long}\"\n"),
            ["has 108 bytes", ":2:7"],
        ),
        (
            format!("[server]\ndata = \"{long}\"\n"),
            ["the maximum is 107", ":2:8"],
        ),
        (
            format!("[nbd]\nunix = \"{long}\"\n"),
            ["shorter path", ":2:8"],
        ),
        (
            "[server]\napi = \"a\"\n[nbd]\nunix = \"./a\"\n".to_owned(),
            ["control API and the block export", ":4:8"],
        ),
        (
            "[server]\napi = \"a\"\n[nbd]\nunix = \"data.sock\"\n".to_owned(),
            ["streams' data and the block export", ":4:8"],
        ),
        (
            "[server]\napi = \"a\"\ndata = \"a\"\n".to_owned(),
            ["control API and the streams' data", ":3:8"],
        ),
    ] {
        serve(&site, &(text + disk)).fails(2, &words);
    }
    let fits = &long[1..];
    let text = testkit::site::read_text(&Site::new(1).config());
    let with = |api: &str, nbd: &str| {
        let text = text.replace("\"api.sock", &format!("\"{api}"));
        text.replace("\"nbd.sock", &format!("\"{nbd}"))
    };
    std::fs::write(site.config(), with(fits, "new/folder/nbd.sock")).expect("it can be written");
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    assert!(site.path("new/folder/nbd.sock").exists());
    site.run(&["volume", "list"]).done();
    assert_eq!(server.terminate().0, Some(0));
    serve(&site, &with("api.sock", "file/nbd.sock"))
        .fails(1, &["cannot create the folder", "file", "another path"]);
}

#[test]
fn the_least_memory_is_enough_to_make_and_move_volumes() {
    let site = Site::new(2);
    let least = testkit::site::read_text(&site.config()).replace(
        "64MiB\"\n[[disk]]\npath = \"disk-0",
        "4MiB\"\n[[disk]]\npath = \"disk-0",
    );
    assert!(least.contains("total = \"4MiB\""), "{least}");
    std::fs::write(site.config(), least).expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    let from = site.path("from").display().to_string();
    std::fs::write(&from, vec![1; 1 << 20]).expect("a file");
    let rate = ["--rate", "500KB/s", "--block", "64KiB"];
    let record = ["stream", "record", "--volume", "v", "--from", &from];
    let recorded = site.run(&[&record[..], &rate].concat());
    // A machine that is busy may make blocks late.
    assert!(matches!(recorded.code, 0 | 1), "{recorded:?}");
    site.run(&["volume", "move", "v", "--disk", "disk-1"])
        .done();
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn an_empty_variable_of_the_environment_is_not_set() {
    let (site, server) = Site::serving(1);
    let mut list = clockwise();
    let list = list
        .args(["volume", "list"])
        .current_dir(site.folder.path());
    for variable in ["CLOCKWISE_SOCKET", "CLOCKWISE_CONFIG"] {
        list.env(variable, "");
    }
    outcome(list).done();
    let wrong = outcome(list.env("CLOCKWISE_SOCKET", "nowhere.sock"));
    wrong.fails(1, &["no server answers at nowhere.sock"]);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_configuration_that_is_not_there_is_said_how_to_write() {
    let missing = outcome(clockwise().args(["serve", "--config", "/nonexistent/c.toml"]));
    missing.fails(2, &["/nonexistent/c.toml", "--print-example"]);
}

#[test]
fn the_example_runs_as_it_is_printed() {
    let printed = outcome(clockwise().args(["serve", "--print-example"]));
    let mut example = printed.done().out;
    // Somebody else on this machine may have its ports.
    for port in [8_554_u16, 8_080] {
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_err() {
            example = example.replace(&format!("127.0.0.1:{port}"), "127.0.0.1:0");
        }
    }
    let site = Site::new(1);
    std::fs::write(site.config(), example).expect("a file");
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    site.run(&["camera", "list"]).done();
    site.run(&["volume", "create", "v", "--size", "1GiB"])
        .done();
    assert_eq!(server.terminate().0, Some(0));
}

/// The sections of a configuration, and how the head of each is written.
const SECTIONS: [(&str, &str); 16] = [
    ("server", "[server]"),
    ("nbd", "[nbd]"),
    ("reservation", "[[nbd.reservation]]"),
    ("fuse", "[fuse]"),
    ("rtsp", "[rtsp]"),
    ("http", "[http]"),
    ("metrics", "[metrics]"),
    ("hook", "[[hook]]"),
    ("permit", "[[rtsp.permit]]"),
    ("access", "[access]"),
    ("pool", "[pool]"),
    ("memory", "[memory]"),
    ("scheduler", "[scheduler]"),
    ("patience", "[patience]"),
    ("disk", "[[disk]]"),
    ("link", "[[link]]"),
];

/// The keys that may stand at a place of the configuration, as the error for another one says.
fn keys(site: &Site, head: &str) -> Vec<String> {
    std::fs::write(site.config(), format!("{head}\nzz = 1\n")).expect("a file");
    let outcome = site.run(&["--json", "serve"]);
    let error: serde_json::Value = serde_json::from_str(&outcome.err).expect("JSON");
    let what = error["what"].as_str().expect("words");
    let (unknown, expected) = what.split_once(", expected ").expect("what there may be");
    assert_eq!(unknown, "unknown field `zz`");
    let quoted = expected.split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

#[test]
fn the_example_and_the_reference_have_every_key() {
    let example = clockwise::config::EXAMPLE;
    let reference = include_str!("../../../../docs/reference/config.md");
    let site = Site::new(1);
    for name in keys(&site, "") {
        assert!(
            SECTIONS.iter().any(|(section, _)| *section == name),
            "{name}"
        );
    }
    for (name, head) in SECTIONS {
        let (_, part) = example
            .split_once(head)
            .unwrap_or_else(|| panic!("no {head} in the example"));
        // Optional settings are comments there.
        let lines = part.lines().map(|line| line.trim_start_matches("# "));
        let of_section: Vec<_> = lines
            .skip(1)
            .take_while(|line| !line.starts_with('['))
            .collect();
        let keys = keys(&site, head);
        assert!(!keys.is_empty());
        for key in keys {
            // Disks of several kinds have keys that others do not, and some keys have a section of their own.
            let mut all = part.lines().map(|line| line.trim_start_matches("# "));
            let of_disks = name == "disk" && all.any(|line| line.starts_with(&format!("{key} = ")));
            let is_section = SECTIONS.iter().any(|(section, _)| *section == key);
            let in_section = of_section
                .iter()
                .any(|line| line.starts_with(&format!("{key} = ")));
            assert!(
                of_disks || is_section || in_section,
                "no {key} under {head} in the example"
            );
            assert!(
                is_section || reference.contains(&format!("`{key}`")),
                "no {key} in the reference"
            );
        }
    }
}

#[test]
fn sizes_and_rates_on_the_command_line_must_make_sense() {
    let site = Site::new(1);
    let volume = |size: &str| site.run(&["volume", "create", "v", &format!("--size={size}")]);
    volume("0").fails(2, &["zero"]);
    volume("-1GiB").fails(2, &["negative"]);
    volume("64K").fails(2, &["not a valid unit", "KiB"]);
    volume("99999999999999EiB").fails(2, &["not a valid unit"]);
    volume("99999999999999PiB").fails(2, &["too large"]);
    volume("").fails(2, &["empty"]);
    let rate = |rate: &str| {
        site.run(&[
            "stream",
            "record",
            "--volume",
            "v",
            &format!("--rate={rate}"),
            "--from",
            "/dev/null",
        ])
    };
    rate("0MB/s").fails(2, &["zero"]);
    rate("NaN").fails(2, &["not a number"]);
    rate("-3MB/s").fails(2, &["negative"]);
    rate("12").fails(2, &["no unit", "MB/s"]);
}

#[test]
fn commands_that_do_not_exist_and_help_have_their_statuses() {
    let run = |arguments: &[&str]| outcome(clockwise().args(arguments));
    run(&["frobnicate"]).fails(2, &["frobnicate"]);
    run(&["volume", "create"]).fails(2, &["NAME", "--size"]);
    assert!(run(&["--help"]).done().out.contains("QoS-aware"));
    assert!(
        run(&["completions", "bash"])
            .done()
            .out
            .contains("clockwise")
    );
    run(&["status", "--socket", "/nonexistent/api.sock"])
        .fails(1, &["no server answers", "clockwise serve"]);
}
