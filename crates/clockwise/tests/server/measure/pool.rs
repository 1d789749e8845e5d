//! A pool on a measured device.

use testkit::host::Loop;
use testkit::process::run as run_tool;
use testkit::site::read_text;

use super::*;

/// Requests of a stream and of `fio` together: no more of them exceed their prediction than the measurement says. On a
/// host whose disk others use, a few more may.
#[test]
#[ignore = "alone: measures a device of the host"]
fn overruns_of_a_measured_device_stay_within_the_confidence() {
    let bench = Bench::new();
    let medium = bench.file("medium", 512);
    let Some(device) = Loop::attach(&medium, 512) else {
        return;
    };
    if !have("fio") {
        return;
    }
    let name = device.path().file_name().expect("a name").to_string_lossy();
    let options = ["--json", "--write", "--destroy", &*name];
    let result = bench.measure(device.path(), &options).done().json();
    let profile = bench.profile();
    check_validated(&result, &profile);
    let site = Site::new(0);
    let config = format!(
        "{}[[disk]]\npath = \"{}\"\nkind = \"block\"\nprofile = \"{}\"\n",
        read_text(&site.config()).replace("realtime = false", "realtime = true"),
        device.path().display(),
        bench.path("p.toml").display()
    );
    std::fs::write(site.config(), config).expect("the configuration");
    site.run(&["pool", "create", "--force"]).done();
    let server = site.serve();
    assert_eq!(
        site.json(&["disk", "show", "0"])["profile_is_measured"],
        true
    );
    for volume in ["stream", "files"] {
        site.run(&["volume", "create", volume, "--size", "128MiB"])
            .done();
    }
    std::fs::write(site.path("in"), pattern(3, 2 << 20)).expect("a file");
    let from = site.path("in").display().to_string();
    let to = [
        "stream", "record", "--volume", "stream", "--block", "256KiB",
    ];
    let mut record = clockwise();
    record
        .arg("--config")
        .arg(site.config())
        .args(to)
        .args(["--rate", "100KB/s", "--from", &from]);
    let mut recording = Process::captured(&mut record);
    let uri = format!(
        "--uri=nbd+unix:///files?socket={}",
        site.path("nbd.sock").display()
    );
    let load = [
        "--name=load",
        "--ioengine=nbd",
        &uri,
        "--rw=randrw",
        "--bsrange=4k-64k",
    ];
    let limits = ["--size=64m", "--iodepth=8", "--time_based", "--runtime=12"];
    run_tool("fio", &[&load[..], &limits].concat());
    assert!(recording.wait().success());
    let disk = site.json(&["disk", "show", "0"]);
    let number = |value: &Value| value.as_u64().expect("a number");
    let served = &disk["served"];
    let kinds = ["real_time", "early", "slack", "container"];
    let requests: u64 = kinds.iter().map(|kind| number(&served[kind])).sum();
    let origin = profile.measurement().expect("an origin");
    let stated = (requests * origin.overruns_per_million_max()).div_ceil(1_000_000);
    let most = stated.max(requests / 200);
    assert!(requests > 500, "{disk}");
    assert!(
        number(&disk["overruns"]) <= most,
        "more than {most} of {requests}: {disk}"
    );
    assert_eq!(disk["misses"], 0, "{disk}");
    assert_eq!(server.terminate().0, Some(0));
}
