//! Disk time that is reserved for an export: kept while another export floods the disk, shared by all
//! connections, refused where it does not fit, and shown.

mod common;
mod nbd_support;

use clockwise::export::nbd::ExportReservation;
use common::Site;
use engine::front::BestEffortReservation;
use nbd_support::{Rig, Wire, cmd, pattern};
use sched::units::Nanos;

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

/// Writes to `db` by two connections in turn while `flood` has more queued than the disk can do. Returns the rig
/// as it was when the last of the four was answered, and the pieces that were served in containers.
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
    let mut wires = [(); 2].map(|()| Wire::structured(&rig.socket, "db"));
    for number in 0..4 {
        let wire = &mut wires[number % 2];
        let offset = number as u64 * 4096;
        assert_eq!(wire.write(0, offset, &pattern(2, 4096)).error, 0);
    }
    let in_containers = rig.pool.status().disks[0].served.container;
    for _ in 1..count {
        assert_eq!(flood.structured_reply().error, 0);
    }
    flooding.join().unwrap();
    (rig, in_containers)
}

#[test]
fn a_reserved_export_gets_its_share_beside_a_flood() {
    let (rig, in_containers) = write_beside_a_flood(vec![reservation("db", 80, 250)]);
    assert!(in_containers > 0, "the flood never stood back");
    let status = rig.pool.status();
    assert!(status.warnings.iter().all(|w| !w.what.contains("export")));
    let [share] = &status.reservations[..] else {
        panic!("both connections share one: {:?}", status.reservations);
    };
    assert_eq!(share.name, "export db");
    assert_eq!((share.slice_ns, share.period_ns), (80_000_000, 250_000_000));
    assert_eq!(share.disks.len(), 1);
    assert_eq!((share.disks[0].completed, share.disks[0].queued), (4, 0));
    assert!(status.disks[0].utilization_promised > 0.31);
    // Without one nothing ever has to stand back.
    let (rig, in_containers) = write_beside_a_flood(Vec::new());
    assert_eq!(in_containers, 0);
    assert!(rig.pool.status().reservations.is_empty());
}

#[test]
fn what_does_not_fit_is_refused_and_the_export_served_like_any_other() {
    let rig = Rig::reserving(
        &[("a", 8), ("b", 8)],
        vec![
            reservation("a", 100, 250),
            reservation("b", 200, 250),
            reservation("typing error", 80, 10_000),
        ],
    );
    let status = rig.pool.status();
    let warned = |words: &[&str]| {
        let all = |what: &str| words.iter().all(|word| what.contains(word));
        status.warnings.iter().any(|warning| all(&warning.what))
    };
    assert!(
        warned(&[
            "export b has no reservation",
            "promised 40.0 %",
            "utilization"
        ]),
        "{status:?}"
    );
    assert!(warned(&["typing error", "no such volume"]), "{status:?}");
    assert_eq!(status.reservations.len(), 2);
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
    let status = site.json(&["status"]);
    assert_eq!(status["reservations"][0]["name"], "export db");
    assert_eq!(status["reservations"][0]["slice_ns"], 600_000_000);
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("export greedy has no reservation"), "{log}");
}
