//! Durability as the protocol defines it: the power is cut right after an answer, and data covered by a flush
//! or a forced write is there.

use crate::served::Rig;
use engine::disk::Durability;
use rand::SeedableRng;
use rand::rngs::StdRng;
use testkit::nbd::{Wire, cmd};
use testkit::{pattern, seed};

const MIB: u64 = 1 << 20;

const SECTOR: usize = 512;

/// Length of the writes: with this many sectors at risk, chance does not keep all of them.
const LENGTH: usize = 128 * SECTOR;

/// Places of writes: once over existing data, once at unwritten places, so that the volume's map changes too.
const REWRITTEN: u64 = MIB;
const FRESH: u64 = 4 * MIB;

/// The disks that there are: those in the host's care, and those that can be asked to force a write.
const KINDS: [Durability; 2] = [Durability::Host, Durability::Fua];

/// A volume `v` whose first 2 MiB hold `before`, durably.
fn rig(durability: Durability, before: &[u8]) -> Rig {
    let rig = Rig::fragile(&[("v", 8)], durability);
    let mut wire = Wire::structured(&rig.socket, "v");
    assert_eq!(wire.write(0, REWRITTEN, before).error, 0);
    assert_eq!(wire.ask(cmd::FLUSH, 0, 0, 0).error, 0);
    rig
}

/// Number of sectors of `found` that equal `data`.
fn survivors(found: &[u8], data: &[u8]) -> usize {
    let pairs = found.chunks(SECTOR).zip(data.chunks(SECTOR));
    pairs.filter(|(found, data)| found == data).count()
}

/// Cuts the power and reads both places.
fn after_crash(rig: Rig, rng: &mut StdRng) -> [Vec<u8>; 2] {
    let rig = rig.crash(rng);
    let mut wire = Wire::structured(&rig.socket, "v");
    [REWRITTEN, FRESH].map(|offset| wire.read_range(offset, LENGTH as u32))
}

/// Has `write` write data at both places by one connection, with another one beside it, cuts the power
/// after it, and checks that all of it is there.
fn written_data_survives(what: &str, write: impl Fn(&mut Wire, &mut Wire, &[u8])) {
    let mut rng = StdRng::seed_from_u64(seed(what, None));
    for durability in KINDS {
        let rig = rig(durability, &pattern(1, LENGTH));
        let [mut writer, mut other] = [(); 2].map(|()| Wire::structured(&rig.socket, "v"));
        let data = pattern(2, LENGTH);
        write(&mut writer, &mut other, &data);
        let [rewritten, fresh] = after_crash(rig, &mut rng);
        assert!(rewritten == data, "{durability:?}: the data");
        assert!(fresh == data, "{durability:?}: the data and its place");
    }
}

#[test]
fn a_flush_on_one_connection_covers_what_was_answered_on_another() {
    written_data_survives("flush", |writer, other, data| {
        assert_eq!(writer.write(0, REWRITTEN, data).error, 0);
        assert_eq!(writer.write(0, FRESH, data).error, 0);
        assert_eq!(other.ask(cmd::FLUSH, 0, 0, 0).error, 0);
    });
}

#[test]
fn a_forced_write_needs_no_flush() {
    written_data_survives("forced", |writer, _, data| {
        assert_eq!(writer.write(cmd::FUA, REWRITTEN, data).error, 0);
        assert_eq!(writer.write(cmd::FUA, FRESH, data).error, 0);
    });
}

#[test]
fn a_forced_write_in_several_parts_needs_no_flush() {
    let mut rng = StdRng::seed_from_u64(seed("forced parts", None));
    for durability in KINDS {
        let rig = rig(durability, &pattern(1, LENGTH));
        let mut wire = Wire::structured(&rig.socket, "v");
        let data = pattern(2, 7 << 20);
        assert_eq!(wire.write(cmd::FUA, 512, &data).error, 0);
        let rig = rig.crash(&mut rng);
        let mut wire = Wire::structured(&rig.socket, "v");
        assert!(wire.read_range(512, 7 << 20) == data, "{durability:?}");
    }
}

#[test]
fn forced_zeros_need_no_flush() {
    let mut rng = StdRng::seed_from_u64(seed("forced zeros", None));
    for durability in KINDS {
        for (kind, how) in [
            (cmd::WRITE_ZEROES, 0),
            (cmd::WRITE_ZEROES, cmd::NO_HOLE),
            (cmd::TRIM, 0),
        ] {
            let rig = rig(durability, &pattern(1, LENGTH));
            let mut wire = Wire::structured(&rig.socket, "v");
            let reply = wire.ask(kind, cmd::FUA | how, REWRITTEN, LENGTH as u32);
            assert_eq!(reply.error, 0, "{}", reply.text);
            let [rewritten, _] = after_crash(rig, &mut rng);
            assert!(rewritten == [0; LENGTH], "{durability:?}, {kind}, {how}");
        }
    }
}

#[test]
fn unflushed_write_is_old_or_new_after_a_crash() {
    let mut rng = StdRng::seed_from_u64(seed("unflushed", None));
    for durability in KINDS {
        let before = pattern(1, LENGTH);
        let rig = rig(durability, &before);
        let mut wire = Wire::structured(&rig.socket, "v");
        let data = pattern(2, LENGTH);
        assert_eq!(wire.write(0, REWRITTEN, &data).error, 0);
        assert_eq!(wire.write(0, FRESH, &data).error, 0);
        let [rewritten, fresh] = after_crash(rig, &mut rng);
        let sectors = LENGTH / SECTOR;
        let new = survivors(&rewritten, &data);
        assert_eq!(new + survivors(&rewritten, &before), sectors);
        let written = survivors(&fresh, &data);
        assert_eq!(written + survivors(&fresh, &[0; LENGTH]), sectors);
        // Without a loss the other tests could not fail. A disk that can force writes is given no
        // others, so there only what the volume's map has to learn is at risk.
        assert!(written < sectors, "{durability:?}");
        assert!(new < sectors || durability == Durability::Fua);
    }
}
