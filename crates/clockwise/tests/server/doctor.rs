//! `clockwise doctor`: conditions that are wrong or weak are found, each with a remedy.

use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;
use testkit::site::{Site, outcome, read_text};
use testkit::skip::{have, is_root};

use crate::service::{of_nobody, rights, serve, started};

/// The findings of a check, in a report as JSON.
fn found<'a>(report: &'a Value, check: &str) -> Vec<&'a Value> {
    let findings = report["findings"].as_array().expect("findings");
    for finding in findings {
        for part in ["level", "check", "what", "why", "fix"] {
            let text = finding[part].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "no {part}: {finding}");
        }
    }
    let of_check = findings.iter().filter(|finding| finding["check"] == check);
    of_check.collect()
}

/// Runs the command. Its exit status says if something is wrong.
#[track_caller]
fn report_of(command: &mut Command) -> Value {
    let outcome = outcome(command);
    let report = outcome.json();
    let findings = report["findings"].as_array().expect("findings");
    let is_wrong = findings.iter().any(|finding| finding["level"] == "wrong");
    assert_eq!(outcome.code, i32::from(is_wrong), "{outcome:?}");
    report
}

#[track_caller]
fn report(site: &Site) -> Value {
    let mut command = testkit::site::clockwise();
    command.arg("--config").arg(site.config());
    report_of(command.args(["--json", "doctor"]))
}

/// Checks that a check has one finding of this level, which says these words.
#[track_caller]
fn is_found(report: &Value, check: &str, level: &str, words: &[&str]) {
    let found = found(report, check);
    let says = |finding: &&&Value| {
        let text = finding.to_string();
        finding["level"] == level && words.iter().all(|word| text.contains(word))
    };
    assert_eq!(
        found.iter().filter(says).count(),
        1,
        "{check} {words:?}: {report}"
    );
}

#[track_caller]
fn is_fine(report: &Value, check: &str) {
    let fine = report["fine"].as_array().expect("a list");
    assert!(fine.iter().any(|name| name == check), "{check}: {report}");
}

/// An address of this host that no other test uses.
fn own_address(port: u16) -> String {
    let pid = std::process::id();
    format!("127.{}.{}.9:{port}", 1 + (pid >> 8) % 250, pid % 256)
}

#[test]
fn configuration_disks_and_profiles_are_examined() {
    let site = Site::new(1);
    let before = report(&site);
    assert_eq!(before["server"], Value::Null);
    is_found(
        &before,
        "disks",
        "wrong",
        &["disk-0", "does not exist", "pool create"],
    );
    site.run(&["pool", "create"]).done();
    let made = report(&site);
    for check in [
        "configuration",
        "kernel",
        "io_uring",
        "disks",
        "ports",
        "links",
        "state",
    ] {
        is_fine(&made, check);
    }
    let measure = [
        "disk-0",
        "clockwise disk measure",
        "/disk-0.toml, then profile",
    ];
    is_found(&made, "profiles", "weak", &measure);
    is_found(&made, "rights", "weak", &["`realtime` is false"]);
    let text = site.run(&["doctor"]).done().out;
    assert!(
        text.contains("  why: ") && text.contains("  fix: clockwise disk measure"),
        "{text}"
    );
    assert!(text.contains("0 wrong, "), "{text}");
    is_fine(&made, "hooks");
    let hook = "[[hook]]\nrun = [\"/nothing/notify\"]\n";
    let with_hook = read_text(&site.config()) + hook;
    std::fs::write(site.config(), with_hook).expect("it can be written");
    let hooked = report(&site);
    is_found(&hooked, "hooks", "wrong", &["/nothing/notify", "chmod"]);
    std::fs::write(site.config(), "[server]\nsocket = \"x\"\n").expect("it can be written");
    let broken = report(&site);
    let place = [
        "clockwise.toml:2:1",
        "unknown field `socket`",
        "--print-example",
    ];
    is_found(&broken, "configuration", "wrong", &place);
    is_fine(&broken, "kernel");
    assert!(found(&broken, "disks").is_empty());
    std::fs::remove_file(site.config()).expect("it is there");
    is_found(&report(&site), "configuration", "wrong", &["cannot read"]);
}

#[test]
fn occupied_ports_are_told_from_the_servers_own() {
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let (occupied, own) = (own_address(18_080), own_address(18_554));
    let text = read_text(&site.config());
    let section = |address: &str| format!("{text}[http]\nlisten = \"{address}\"\n");
    std::fs::write(site.config(), section(&occupied)).expect("it can be written");
    is_fine(&report(&site), "ports");
    let other = TcpListener::bind(&occupied).expect("it is free");
    let port = ["18080", "HTTP", "ss -lnp --tcp"];
    is_found(&report(&site), "ports", "wrong", &port);
    std::fs::write(site.config(), section(&own)).expect("it can be written");
    let server = site.serve();
    let served = report(&site);
    assert_eq!(served["server"], server.pid());
    is_fine(&served, "ports");
    is_fine(&served, "server");
    is_found(&served, "profiles", "weak", &["disk-0", "--online"]);
    // Of a server that runs, another program may have a port that it does not listen at yet.
    std::fs::write(site.config(), section(&occupied)).expect("it can be written");
    is_found(&report(&site), "ports", "wrong", &port);
    drop(other);
    assert_eq!(server.terminate().0, Some(0));
    // An address of no host.
    std::fs::write(site.config(), section("192.0.2.1:18080")).expect("it can be written");
    is_found(
        &report(&site),
        "ports",
        "wrong",
        &["192.0.2.1", "(tcp)", "ip address"],
    );
}

#[test]
fn denied_rights_are_found_with_and_without_a_server() {
    if !have("setpriv") || !is_root("another user") {
        return;
    }
    let (site, program) = of_nobody();
    let limits = ["--rtprio=0", "--memlock=65536", "--nofile=512"];
    let mut doctor = started(&limits, "-all");
    doctor.arg(&program).arg("--config").arg(site.config());
    let alone = report_of(doctor.args(["--json", "doctor"]));
    is_found(
        &alone,
        "rights",
        "weak",
        &["this user", "SCHED_FIFO", "LimitRTPRIO=40"],
    );
    is_found(
        &alone,
        "rights",
        "weak",
        &["mlockall", "LimitMEMLOCK=infinity"],
    );
    is_found(
        &alone,
        "rights",
        "weak",
        &["PR_SET_IO_FLUSHER", "CAP_SYS_RESOURCE"],
    );
    is_found(&alone, "memory", "weak", &["64 KiB", "64 MiB"]);
    is_found(&alone, "open files", "weak", &["512", "LimitNOFILE"]);
    let server = serve(&site, started(&limits, "-all"), &program);
    let served = report(&site);
    is_found(
        &served,
        "rights",
        "weak",
        &["the server", "SCHED_FIFO", "LimitRTPRIO=40"],
    );
    is_found(&served, "open files", "weak", &["512", "LimitNOFILE"]);
    // Each fact is told once.
    assert_eq!(found(&served, "server").len(), 0, "{served}");
    assert_eq!(server.terminate().0, Some(0));
    let rights = rights();
    let mut doctor = started(&rights.limits, &rights.capabilities);
    doctor.arg(&program).arg("--config").arg(site.config());
    let permitted = report_of(doctor.args(["--json", "doctor"]));
    for check in ["memory", "open files"] {
        is_fine(&permitted, check);
    }
    if rights.are_the_units {
        is_fine(&permitted, "rights");
    } else {
        is_found(&permitted, "rights", "weak", &["PR_SET_IO_FLUSHER"]);
    }
}
