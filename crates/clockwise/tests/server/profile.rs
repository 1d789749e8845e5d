//! Drive profiles: what may be asked of a disk with one, and what is learned from requests that take longer.

use sched::profile::{DriveProfile, MeasurementSpec, ProfileSpec};
use serde_json::{Value, json};
use testkit::site::{Site, call, read_text};
use testkit::{pattern, until};

/// A profile in a file of the site's own, made of a shipped one.
fn write(site: &Site, name: &str, shipped: &str, change: impl FnOnce(&mut ProfileSpec)) {
    let mut spec = DriveProfile::shipped(shipped)
        .expect("it is shipped")
        .spec()
        .clone();
    change(&mut spec);
    let profile = DriveProfile::new(spec).expect("a profile");
    std::fs::write(site.path(name), profile.to_toml()).expect("a file");
}

#[test]
fn a_disk_is_given_no_more_requests_at_a_time_than_its_profile_was_measured_with() {
    let site = Site::new(1);
    let config = read_text(&site.config());
    let configure = |keys: &str| {
        let text = format!("{config}profile = \"own.toml\"\n{keys}");
        std::fs::write(site.config(), text).expect("the configuration");
    };
    let measured = |measured: bool| {
        write(&site, "own.toml", "conservative-file", |spec| {
            (spec.measured, spec.outstanding) = (measured, 8);
        });
    };
    measured(true);
    configure("");
    site.run(&["pool", "create"]).done();
    for (keys, depth) in [("", 8), ("outstanding = 2\n", 2)] {
        configure(keys);
        let server = site.serve();
        assert_eq!(site.json(&["disk", "show", "0"])["outstanding"], depth);
        assert_eq!(server.terminate().0, Some(0));
    }
    configure("outstanding = 9\n");
    site.run(&["serve"])
        .fails(2, &["9 outstanding requests", "was measured with 8"]);
    measured(false);
    configure("");
    site.run(&["serve"]).fails(
        2,
        &["8 outstanding requests", "was not measured", "profile"],
    );
    configure("outstanding = 1\n");
    assert_eq!(site.serve().terminate().0, Some(0));
}

/// The service time that a stream of blocks of 64 KiB reserves.
fn reserved_ns(site: &Site) -> u64 {
    let ask = json!({ "volume": "v", "op": "play", "rate_bytes_per_second": 65_536, "block_bytes": 65_536 });
    let (status, stream) = call(site, "POST", "/v1/streams", &ask.to_string());
    assert_eq!(status, 201, "{stream}");
    let service = &stream["stream"]["disks"][0]["service_ns"];
    service.as_u64().expect("a service time")
}

/// A server with the same profile knows the requests of the one before it, and the overruns by name. One whose
/// statistics are damaged begins new ones.
fn is_remembered(site: &Site, most: f64) {
    let server = site.serve();
    let profile = site.json(&["disk", "profile", "0"]);
    let remembered = profile["actual_over_predicted_max"].as_f64();
    assert!(remembered >= Some(most), "{profile}");
    let disk = site.json(&["disk", "show", "0"]);
    let times = &disk["service_times"];
    assert!(times["count"].as_u64() > Some(0), "{times}");
    assert_eq!(times["since"], profile["since"]);
    let overruns = times["last_overruns"].as_array().expect("a list");
    assert!(
        overruns.iter().all(|one| {
            one["actual_ns"].as_u64() > one["predicted_ns"].as_u64()
                && one["piece"]["sector"].is_u64()
        }),
        "{times}"
    );
    assert!(overruns.iter().any(|one| one["before"]["op"].is_string()));
    let shown = site.run(&["disk", "show", "0"]).done().out;
    assert!(
        shown.contains("over all restarts") && shown.contains("overrun: "),
        "{shown}"
    );
    assert_eq!(server.terminate().0, Some(0));
    let files = std::fs::read_dir(site.config().parent().expect("a folder")).expect("a folder");
    let is_of_times = |path: &std::path::PathBuf| path.to_string_lossy().contains("service-times-");
    let paths: Vec<_> = files
        .map(|file| file.expect("a file").path())
        .filter(is_of_times)
        .collect();
    let [path] = &paths[..] else {
        panic!("{paths:?}");
    };
    std::fs::write(path, "{").expect("a file");
    let server = site.serve();
    assert!(path.with_extension("json.damaged").exists());
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0));
    assert!(log.contains("it is kept as"), "{log}");
}

#[test]
fn profile_measured_on_another_drive_is_an_estimate() {
    let site = Site::new(1);
    let config = read_text(&site.config()) + "profile = \"own.toml\"\n";
    std::fs::write(site.config(), config).expect("the configuration");
    let measured_on = |serial: &str| {
        write(&site, "own.toml", "conservative-file", |spec| {
            (spec.measured, spec.outstanding) = (true, 8);
            spec.measurement = Some(MeasurementSpec {
                model: "file".to_owned(),
                serial: serial.to_owned(),
                firmware: String::new(),
                date: "2026-11-30T04:20:00Z".to_owned(),
                method: "by hand".to_owned(),
                samples: 1_000,
                confidence_percent: 95,
                over_actual_permille: 1_200,
            });
        });
    };
    measured_on("file:/another/disk");
    site.run(&["pool", "create"]).done();
    let path = std::fs::canonicalize(site.path("disk-0")).expect("the disk");
    let own = format!("file:{}", path.display());
    for (serial, depth) in [("file:/another/disk", 1), (own.as_str(), 8)] {
        measured_on(serial);
        let is_own = depth == 8;
        let server = site.serve();
        let disk = site.json(&["disk", "show", "0"]);
        assert_eq!(disk["profile_is_measured"], is_own, "{disk}");
        assert_eq!(disk["outstanding"], depth, "{disk}");
        assert_eq!(disk["profile_doubt"].is_null(), is_own, "{disk}");
        let status = site.run(&["status"]).done().out;
        let is_said = status.contains("was measured on file, serial number file:/another/disk");
        assert_eq!(is_said, !is_own, "{status}");
        assert_eq!(server.terminate().0, Some(0));
    }
}

#[test]
fn overruns_widen_the_profile_of_the_next_start() {
    let (site, server) = Site::serving_drives(1);
    assert_eq!(server.terminate().0, Some(0));
    // A drive that is said to turn more than twice as fast as it does.
    write(&site, "narrow.toml", "quantum-atlas-ii", |spec| {
        let rotating = spec.rotating.as_mut().expect("it has platters");
        rotating.rotation_us = 4_000;
    });
    let config = read_text(&site.config()).replace(
        "profile = \"quantum-atlas-ii\"",
        "profile = \"narrow.toml\"",
    );
    std::fs::write(site.config(), &config).expect("the configuration");
    let server = site.serve();
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    let narrow_ns = reserved_ns(&site);
    // Nobody has to write much until one request takes longer than it would on such a drive.
    std::fs::write(site.path("in"), pattern(1, 2 << 20)).expect("a file");
    let from = site.path("in").display().to_string();
    let to_v = ["stream", "record", "--volume", "v", "--rate", "500KB/s"];
    let mut view = Value::Null;
    let mut most = 0.0;
    // The angle of the platters between requests depends on the host as well.
    until("a request takes longer than it would", || {
        let recorded = site.run(&[&to_v[..], &["--block", "64KiB", "--from", &from]].concat());
        // The stream may be late, because its promise rests on the wrong drive; it is not refused.
        assert!(matches!(recorded.code, 0 | 1), "{recorded:?}");
        view = site.json(&["disk", "profile", "drive-0"]);
        most = view["actual_over_predicted_max"].as_f64().expect("a ratio");
        most > 1.0
    });
    let widened = ((most * 1e3).round() as u64).div_ceil(10) - 100;
    assert_eq!(view["widened_percent"], widened, "{view}");
    let said = site.run(&["disk", "profile", "0"]).done();
    assert!(said.err.contains("took") && said.err.contains(&format!("{widened} %")));
    assert_eq!(
        said.out.trim_end(),
        view["toml"].as_str().expect("text").trim_end()
    );
    assert_eq!(server.terminate().0, Some(0));
    is_remembered(&site, most);
    std::fs::write(site.path("narrow.toml"), &said.out).expect("a file");
    let server = site.serve();
    let wider_ns = (narrow_ns * (100 + widened)).div_ceil(100);
    assert_eq!(reserved_ns(&site), wider_ns);
    site.run(&["disk", "profile", "7"])
        .fails(2, &["no disk", "disk show"]);
    assert_eq!(server.terminate().0, Some(0));
}
