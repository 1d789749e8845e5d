//! Disk time that is reserved for an export: kept while another export floods the disk, shared by all
//! connections, refused where it does not fit, and shown.

use crate::served::Rig;
use clockwise::exports::ExportReservation;
use engine::volume_io::BestEffortReservation;
use sched::profile::DriveProfile;
use sched::units::{Nanos, SECTOR_BYTES};
use testkit::nbd::{Wire, cmd};
use testkit::pattern;
use testkit::site::Site;

/// Size and number of the writes that flood the disk, several seconds of work for it.
const FLOOD: (usize, u64) = (256 << 10, 128);

fn reservation(volume: &str, slice_ms: u64, period_ms: u64) -> ExportReservation {
    ExportReservation {
        volume: volume.into(),
        share: BestEffortReservation {
            slice: Nanos::from_millis(slice_ms),
            period: Nanos::from_millis(period_ms),
        },
    }
}

/// The period of the reservation beside the flood.
const PERIOD: Nanos = Nanos::from_millis(250);

/// Upper bound on the disk's writes in this time: tracks of the outermost zone, one after the other without a
/// gap.
fn most_written(within: Nanos) -> u64 {
    let profile = DriveProfile::shipped("quantum-atlas-ii").unwrap();
    let rotating = profile.spec().rotating.as_ref().unwrap();
    let track_bytes = rotating.zones[0].sectors_per_track * SECTOR_BYTES;
    track_bytes * within.get() / (rotating.rotation_us * 1_000)
}

/// Writes to `db` by two connections in turn while `flood` has more queued than the disk can do. Returns the rig
/// as it is when all is done, and the most bytes that the disk wrote while one of those writes waited: that
/// is how long it waited, in what the disk did, however late this host is.
fn write_beside_a_flood(reservations: Vec<ExportReservation>) -> (Rig, u64) {
    let rig = Rig::reserving(&[("flood", 40), ("db", 8)], reservations);
    let mut flood = Wire::structured(&rig.socket, "flood");
    let mut writer = flood.stream.try_clone().unwrap();
    let (size, count) = FLOOD;
    let flooding = std::thread::spawn(move || {
        use std::io::Write;
        let data = pattern(1, size);
        for number in 0..count {
            let offset = number * size as u64;
            let header = Wire::header(cmd::WRITE, 0, number, offset, size as u32);
            writer.write_all(&header).unwrap();
            writer.write_all(&data).unwrap();
        }
    });
    // From here on the disk is busy.
    assert_eq!(flood.structured_reply().error, 0);
    let written = |rig: &Rig| rig.pool.status().disks[0].written_bytes;
    let mut wires = [(); 2].map(|()| Wire::structured(&rig.socket, "db"));
    let mut longest = 0;
    for number in 0..4 {
        let wire = &mut wires[number % 2];
        let offset = number as u64 * 4096;
        let before = written(&rig);
        assert_eq!(wire.write(0, offset, &pattern(2, 4096)).error, 0);
        longest = longest.max(written(&rig) - before);
    }
    for _ in 1..count {
        assert_eq!(flood.structured_reply().error, 0);
    }
    flooding.join().unwrap();
    (rig, longest)
}

#[test]
fn a_reserved_export_gets_its_share_beside_a_flood() {
    // A request just after a spent container waits for the end of its period, and is served in the next one.
    // The same time again is for a host that is late to send, or to look.
    let most = most_written(Nanos(4 * PERIOD.get()));
    let period_ms = PERIOD.get() / 1_000_000;
    let (rig, longest) = write_beside_a_flood(vec![reservation("db", 80, period_ms)]);
    assert!(longest <= most, "{longest} B written, {most} B at most");
    let status = rig.pool.status();
    assert!(status.warnings.iter().all(|w| !w.what.contains("export")));
    let [share] = &status.reservations[..] else {
        panic!("both connections share one: {:?}", status.reservations);
    };
    assert_eq!(share.name, "export db");
    assert_eq!(
        (share.slice_ns, share.period_ns),
        (80_000_000, PERIOD.get())
    );
    assert_eq!(share.disks.len(), 1);
    assert_eq!((share.disks[0].completed, share.disks[0].queued), (4, 0));
    assert!(status.disks[0].utilization_promised > 0.31);
    // Without a reservation it waits for the flood, which has the same floor to be served from.
    let (rig, longest) = write_beside_a_flood(Vec::new());
    assert!(
        longest > most,
        "{longest} B written, {most} B would be enough"
    );
    assert!(rig.pool.status().reservations.is_empty());
}

#[test]
fn export_reservation_that_does_not_fit_is_refused_and_the_export_served() {
    let rig = Rig::reserving(
        &[("a", 8), ("b", 8)],
        vec![reservation("a", 100, 250), reservation("b", 200, 250)],
    );
    let status = rig.pool.status();
    let warned = |words: &[&str]| {
        let all = |what: &str| words.iter().all(|word| what.contains(word));
        status.warnings.iter().any(|warning| all(&warning.what))
    };
    assert!(
        warned(&[
            "export b has no reservation",
            "promised 45.0 %",
            "utilization"
        ]),
        "{status:?}"
    );
    assert_eq!(status.reservations.len(), 1);
    for volume in ["a", "b"] {
        let mut wire = Wire::structured(&rig.socket, volume);
        assert_eq!(wire.write(0, 0, &pattern(3, 4096)).error, 0);
    }
    let status = rig.pool.status();
    assert_eq!(status.reservations[0].disks[0].completed, 1);
}

#[test]
fn status_shows_what_is_reserved_and_what_was_refused() {
    let site = Site::new(1);
    let mut text = std::fs::read_to_string(site.config()).unwrap();
    for volume in ["db", "greedy"] {
        text += &format!(
            "[[nbd.reservation]]\nvolume = \"{volume}\"\nslice = \"600ms\"\nperiod = \"1s\"\n"
        );
    }
    text += "[scheduler]\nfloor = \"0\"\n";
    std::fs::write(site.config(), text).unwrap();
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    let shown = site.run(&["status"]).done().out;
    for words in [
        "RESERVED FOR",
        "export db",
        "600.0 ms",
        "export greedy has no reservation",
    ] {
        assert!(shown.contains(words), "no {words:?} in {shown}");
    }
    // The warning lasts as long as its cause: not for shares that were never granted, nor for a volume that
    // exists.
    let of_no_volume = || -> Vec<String> {
        let status = site.json(&["status"]);
        let warnings = status["warnings"].as_array().expect("a list").iter();
        let said = warnings.filter_map(|warning| warning["what"].as_str());
        said.filter(|what| what.contains("no volume has that name"))
            .map(str::to_owned)
            .collect()
    };
    let missing = "disk time is reserved for export db, but no volume has that name";
    assert_eq!(of_no_volume(), [missing]);
    site.run(&["volume", "create", "db", "--size", "1MiB"])
        .done();
    assert_eq!(of_no_volume(), [""; 0]);
    site.run(&["volume", "delete", "db"]).done();
    assert_eq!(of_no_volume(), [missing]);
    let status = site.json(&["status"]);
    assert_eq!(status["reservations"][0]["name"], "export db");
    assert_eq!(status["reservations"][0]["slice_ns"], 600_000_000);
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    for words in ["export greedy has no reservation", "export db, but no"] {
        assert!(log.contains(words), "no {words:?} in {log}");
    }
}
