//! SIGHUP: a server takes over a changed configuration while streams run, and ends with its terminal.

use rustix::process::{Pid, Signal, kill_process};
use testkit::process::Process;
use testkit::rtsp::login::DigestUser;
use testkit::rtsp::{rtp, users, with_rtsp};
use testkit::site::{Serve, Site, read_text};
use testkit::skip::have;
use testkit::until;

use crate::terminal::on_a_terminal;

const PERMITS: &str = "users = \"rtsp-users\"\n\
    [[rtsp.permit]]\nuser = \"anna\"\nmay = [\"play\", \"record\"]\n";
const OF_PAUL: &str = "[[rtsp.permit]]\nuser = \"paul\"\nmay = [\"play\"]\n";

/// True if programs started here ignore a closed terminal, as under `nohup`.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("of this process");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.expect("the signals that it ignores").trim();
    u64::from_str_radix(ignored, 16).expect("a mask") & 1 == 1
}

#[test]
fn rights_hooks_and_limits_change_while_a_camera_is_recorded() {
    if ignores_hang_up() {
        return;
    }
    let site = Site::new(2);
    with_rtsp(&site, &format!("{PERMITS}{OF_PAUL}"));
    let passwords = [("anna", "secret of anna"), ("paul", "of-paul")];
    users(&site, "rtsp-users", &passwords);
    site.run(&["pool", "create"]).done();
    let log = site.path("log");
    let serve = site.serve_json_to(std::fs::File::create(&log).expect("a file").into());
    let address = serve.said["rtsp"].as_str().expect("it is served");
    let address = address.parse().expect("an address");
    let hang_up = || {
        let pid = Pid::from_raw(serve.pid() as i32).expect("a process");
        kill_process(pid, Signal::HUP).expect("it is there");
    };
    let logged = |text: &str| until(text, || read_text(&log).contains(text));
    site.run(&["volume", "create", "cam", "--size", "20MiB"])
        .done();
    let mut anna = DigestUser::connect(address, "anna", "secret of anna");
    assert!(anna.records().ends_with("timeout=60"));
    anna.client.packet(0, &rtp(0, 0, 1, &[7; 500]));
    let paul = || {
        let mut paul = DigestUser::connect(address, "paul", "of-paul");
        paul.ask("DESCRIBE", "cam/9", "", "").status
    };
    assert_eq!(paul(), 404);
    // Paul loses his right, a hook is added, sessions may be silent for longer, and the memory is another.
    let before = read_text(&site.config());
    let taken = site.path("taken");
    let hook = format!(
        "[[hook]]\non = [\"recording-ended\"]\nrun = [\"touch\", \"{}\"]\n",
        taken.display()
    );
    let changed = before
        .replace(OF_PAUL, "")
        .replace("total = \"64MiB\"", "total = \"66MiB\"")
        .replace("[rtsp]\n", "[rtsp]\ntimeout = \"90s\"\n")
        + &hook;
    std::fs::write(site.config(), &changed).expect("it can be written");
    hang_up();
    logged("must be restarted for changes in these sections");
    assert!(
        read_text(&log).contains("sections=\"memory\""),
        "{}",
        read_text(&log)
    );
    assert_eq!(paul(), 403);
    // One that is not valid changes nothing.
    let invalid = changed.replace("[[rtsp.permit]]", "[[rtsp.nonsense]]");
    std::fs::write(site.config(), invalid).expect("it can be written");
    hang_up();
    logged("the configuration is not valid; keeping the previous one");
    assert!(
        read_text(&log).contains("clockwise.toml:"),
        "{}",
        read_text(&log)
    );
    assert_eq!(paul(), 403);
    std::fs::write(site.config(), changed + OF_PAUL).expect("it can be written");
    hang_up();
    until("paul has his right again", || paul() == 404);
    // The recording went on all the time, and its end reaches the hook.
    assert!(!taken.exists());
    anna.client.packet(0, &rtp(1, 100, 1, &[7; 500]));
    anna.ask("TEARDOWN", "cam", "", "").is(200);
    until("the hook has run", || taken.exists());
    let check = site.json(&["recording", "check", "cam", "1"]);
    assert_eq!(
        (&check["packets"], &check["lost"]),
        (&2.into(), &0.into()),
        "{check}"
    );
    let mut anna = DigestUser::connect(address, "anna", "secret of anna");
    let session = anna.records();
    assert!(session.ends_with("timeout=90"), "{session}");
    serve.terminate();
}

#[test]
fn a_server_ends_with_its_terminal() {
    if ignores_hang_up() || !have("script") {
        return;
    }
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let mut terminal = Process::spawn(&mut on_a_terminal(&site, &["serve"]));
    until("it serves", || site.run(&["pool", "show"]).code == 0);
    // The terminal is that of `script`.
    terminal.kill().expect("it is there");
    terminal.wait();
    until("it has ended", || !site.path("api.sock").exists());
    let server: Serve = site.serve();
    assert_eq!(server.terminate().0, Some(0));
}
