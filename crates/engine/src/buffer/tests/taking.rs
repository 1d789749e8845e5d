//! Memory that passes from one account to another: requests to give back, revocation, reprieves, and waiting.

use sched::request::Op;
use sched::units::{Bytes, Nanos, Time};

use super::super::*;
use super::{MIB, manual, unlocked};
use testkit::until;

/// A client that holds all memory, and one that has little.
fn crowded(memory: &Memory) -> (Account, Vec<Buffer>, Account) {
    let greedy = memory.open_account("greedy", Bytes(64 << 10)).unwrap();
    let poor = memory.open_account("poor", Bytes(64 << 10)).unwrap();
    let mut held = Vec::new();
    while let Ok(buffer) = greedy.allocate(64 << 10) {
        held.push(buffer);
    }
    (greedy, held, poor)
}

#[test]
fn account_above_its_share_is_asked_and_gives_back() {
    let (memory, _) = manual();
    let (greedy, mut held, poor) = crowded(&memory);
    greedy.event().drain();
    let size = memory.size().0 as usize / 4;
    assert_eq!(poor.allocate(size), Err(MemoryError::NotNow));
    let (asked, by) = greedy.asked_back().unwrap();
    assert!(greedy.event().drain(), "it is told");
    assert_eq!(by, Time(1) + Nanos::from_millis(500));
    held.truncate(held.len() - (asked.0 as usize).div_ceil(64 << 10));
    assert_eq!(greedy.asked_back(), None);
    assert!(greedy.event().drain(), "it is told that it is over");
    assert!(poor.event().drain(), "it is told as well");
    assert!(poor.allocate(size).is_ok());
    assert!(held.iter().all(|buffer| !buffer.is_revoked()));
}

#[test]
fn account_that_does_not_give_back_in_time_loses_buffers() {
    let (memory, clock) = manual();
    let (greedy, mut held, poor) = crowded(&memory);
    let size = memory.size().0 as usize / 4;
    assert_eq!(poor.allocate(size), Err(MemoryError::NotNow));
    let (_, by) = greedy.asked_back().unwrap();
    clock.advance_to(Time(by.0 - 1));
    assert_eq!(memory.tick(), Some(by));
    assert!(held.iter().all(|buffer| !buffer.is_revoked()));
    clock.advance_to(by);
    memory.tick();
    let (lost, kept): (Vec<_>, Vec<_>) = held.iter_mut().partition(|buffer| buffer.is_revoked());
    assert!(!lost.is_empty() && !kept.is_empty());
    for buffer in lost {
        assert_eq!(buffer.with(|_| ()), Err(BufferError::Revoked));
        assert_eq!(buffer.with_mut(|_| ()), Err(BufferError::Revoked));
        assert_eq!(
            buffer.segments(Op::Read, 0..512).unwrap_err(),
            BufferError::Revoked
        );
    }
    for buffer in kept {
        assert_eq!(buffer.with_mut(|bytes| bytes.fill(1)), Ok(()));
    }
    assert!(poor.allocate(size).is_ok());
}

#[test]
fn large_buffer_is_found_in_fragmented_memory() {
    let (memory, clock) = manual();
    let (greedy, mut held, poor) = crowded(&memory);
    // Every fourth buffer is dropped: a quarter of the memory is free, in holes of 64 KiB.
    let mut index = 0;
    held.retain(|_| {
        index += 1;
        index % 4 != 0
    });
    let size = memory.size().0 as usize / 4;
    let mut attempts = 0;
    let large = loop {
        match poor.allocate(size) {
            Ok(large) => break large,
            Err(error) => assert_eq!(error, MemoryError::NotNow),
        }
        attempts += 1;
        assert!(
            attempts < 20,
            "it asks for more until what comes back is in one piece"
        );
        if let Some((_, by)) = greedy.asked_back() {
            clock.advance_to(by);
            memory.tick();
        }
    };
    assert_eq!(large.size(), size);
    drop((large, held));
    assert!(greedy.allocate(size).is_ok());
}

#[test]
fn account_is_notified_when_a_request_to_give_back_ends() {
    let (memory, clock) = manual();
    let (greedy, held, poor) = crowded(&memory);
    assert_eq!(
        poor.allocate(memory.size().0 as usize / 4),
        Err(MemoryError::NotNow)
    );
    let (_, by) = greedy.asked_back().unwrap();
    drop(poor);
    greedy.event().drain();
    clock.advance_to(by);
    memory.tick();
    assert_eq!(greedy.asked_back(), None);
    assert!(greedy.event().drain());
    assert!(held.iter().all(|buffer| !buffer.is_revoked()));
}

/// Revoked buffers count as buffers until their holder drops them.
#[test]
fn account_refused_for_lack_of_slots_is_notified_when_one_is_free() {
    let (memory, clock) = manual();
    let greedy = memory.open_account("greedy", Bytes(64 << 10)).unwrap();
    let poor = memory.open_account("poor", Bytes(64 << 10)).unwrap();
    let small = 4 << 10;
    let mut held: Vec<_> = std::iter::from_fn(|| greedy.allocate(small).ok()).collect();
    assert_eq!(poor.allocate(MIB), Err(MemoryError::NotNow));
    let (_, by) = greedy.asked_back().unwrap();
    clock.advance_to(by);
    memory.tick();
    let mut had = Vec::new();
    while let Ok(buffer) = poor.allocate(small) {
        had.push(buffer);
    }
    let pages = memory.size().0 as usize / small;
    assert_eq!(
        held.len() + had.len(),
        pages,
        "as many buffers as there can be"
    );
    assert!(memory.free() >= Bytes(small as u64), "and there are pages");
    poor.event().drain();
    held.retain(|buffer| !buffer.is_revoked());
    assert!(poor.event().drain(), "it is told");
    assert!(poor.allocate(small).is_ok());
}

#[test]
fn memory_under_transfer_is_taken_only_when_the_transfer_is_over() {
    let (memory, clock) = manual();
    let (greedy, mut held, poor) = crowded(&memory);
    let transfers: Vec<_> = held
        .iter()
        .map(|buffer| buffer.segments(Op::Write, 0..4096).unwrap())
        .collect();
    let size = memory.size().0 as usize / 4;
    assert_eq!(poor.allocate(size), Err(MemoryError::NotNow));
    clock.advance_to(greedy.asked_back().unwrap().1);
    memory.tick();
    assert!(held.iter().any(Buffer::is_revoked));
    assert_eq!(
        poor.allocate(size),
        Err(MemoryError::NotNow),
        "the disk may still read there"
    );
    poor.event().drain();
    greedy.event().drain();
    drop(transfers);
    memory.tick();
    assert!(poor.event().drain(), "its pages are there");
    drop(held.pop());
    assert!(!poor.event().drain(), "it is told once");
    assert!(greedy.event().drain(), "it is not late any more");
    assert!(greedy.asked_back().unwrap().1 > clock.now());
    assert!(poor.allocate(size).is_ok());
}

/// A disk may take longer than the give-back time. The requester still gets the data.
#[test]
fn buffer_being_read_into_is_revoked_only_after_its_use() {
    for honest in [true, false] {
        let (memory, clock) = manual();
        let (greedy, mut held, poor) = crowded(&memory);
        let transfers: Vec<_> = held
            .iter()
            .map(|buffer| buffer.segments(Op::Read, 0..4096).unwrap())
            .collect();
        let size = memory.size().0 as usize / 4;
        assert_eq!(poor.allocate(size), Err(MemoryError::NotNow));
        clock.advance_to(greedy.asked_back().unwrap().1);
        for _ in 0..5 {
            let next = memory.tick().expect("it is looked at again");
            assert!(!held.iter().any(Buffer::is_revoked), "taken under the disk");
            assert_eq!(poor.allocate(size), Err(MemoryError::NotNow));
            assert!(next > clock.now());
            clock.advance_to(next);
        }
        let wanted: Vec<_> = held.iter().filter(|held| held.is_wanted_back()).collect();
        assert!(!wanted.is_empty());
        for buffer in wanted {
            let again = buffer.segments(Op::Read, 0..4096).unwrap_err();
            assert_eq!(again, BufferError::Revoked, "it could be kept for ever");
        }
        drop(transfers);
        memory.tick();
        let sent = held
            .iter()
            .map(|buffer| buffer.segments(Op::Write, 0..4096));
        assert_eq!(sent.filter(Result::is_err).count(), 0, "its reader lost it");
        if honest {
            held.clear();
        } else {
            // Kept after that, it is revoked.
            while let Some(next) = memory.tick() {
                clock.advance_to(next);
            }
            assert!(held.iter().any(Buffer::is_revoked));
        }
        assert!(poor.allocate(size).is_ok());
        assert_eq!(greedy.asked_back(), None);
        drop((held, greedy, poor));
        assert_eq!((memory.free(), memory.usage()), (memory.size(), Vec::new()));
    }
}

/// The give-back time ends just after a disk is done. The requester still gets the data; then the memory is
/// revoked, dropped or not.
#[test]
fn just_read_buffer_is_revoked_only_after_its_use() {
    let (memory, clock) = manual();
    let (greedy, held, poor) = crowded(&memory);
    for buffer in &held {
        drop(buffer.segments(Op::Read, 0..4096).unwrap());
    }
    let size = memory.size().0 as usize / 4;
    assert_eq!(poor.allocate(size), Err(MemoryError::NotNow));
    clock.advance_to(greedy.asked_back().unwrap().1);
    let next = memory.tick().expect("it is looked at again");
    for buffer in &held {
        assert!(buffer.with(|_| ()).is_ok(), "its reader lost it");
    }
    clock.advance_to(next);
    memory.tick();
    assert!(held.iter().any(Buffer::is_revoked));
    assert!(poor.allocate(size).is_ok());
}

/// Data on its way to a client that does not take it: its buffers are dropped, but its memory is not free.
#[test]
fn dropped_buffer_in_transfer_counts_as_its_accounts() {
    let (memory, clock) = manual();
    let (greedy, held, poor) = crowded(&memory);
    let pieces = held
        .iter()
        .map(|buffer| buffer.segments(Op::Write, 0..4096));
    let mut sending: Vec<_> = pieces.map(Result::unwrap).collect();
    let variable = || memory.usage()[0].variable;
    let before = variable();
    drop(held);
    assert_eq!(variable(), before, "it counts as given back");
    let size = memory.size().0 as usize / 4;
    assert_eq!(poor.allocate(size), Err(MemoryError::NotNow));
    let (_, by) = greedy.asked_back().unwrap();
    // Data sent in time counts as given back.
    drop(sending.pop());
    assert_eq!(poor.allocate(size), Err(MemoryError::NotNow));
    assert!(variable() < before);
    clock.advance_to(by);
    memory.tick();
    // Revoked, but still in transfer: the account is reported as late until the transfers end.
    assert_eq!(poor.allocate(size), Err(MemoryError::NotNow));
    assert!(greedy.asked_back().unwrap().1 <= by);
    drop(sending);
    assert!(poor.allocate(size).is_ok());
    assert_eq!(greedy.asked_back(), None);
    drop((greedy, poor));
    assert_eq!((memory.free(), memory.usage()), (memory.size(), Vec::new()));
}

#[test]
fn a_thread_that_waits_gets_memory_when_the_time_to_give_back_is_over() {
    let config = MemoryConfig {
        give_back_within: Nanos::from_millis(20),
        ..unlocked(Bytes::from_mib(4))
    };
    let memory = Memory::new(&config).unwrap();
    let (_greedy, held, poor) = crowded(&memory);
    let size = memory.size().0 as usize / 4;
    let transfer = held[0].segments(Op::Read, 0..4096).unwrap();
    let thread =
        std::thread::spawn(move || poor.allocate_wait(size, None).map(|buffer| buffer.size()));
    until("memory is taken", || held.iter().any(Buffer::is_revoked));
    drop(transfer);
    assert_eq!(thread.join().unwrap(), Ok(size));
}

#[test]
fn waiting_ends_at_the_time_given() {
    let memory = Memory::new(&unlocked(Bytes::from_mib(4))).unwrap();
    let account = memory.open_account("a", Bytes(0)).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| account.allocate(64 << 10).ok()).collect();
    let until = crate::clock::now().saturating_add(Nanos::from_millis(5));
    assert_eq!(
        account.allocate_wait(MIB, Some(until)),
        Err(MemoryError::NotNow)
    );
    assert!(crate::clock::now() >= until);
    drop(all);
    assert!(account.allocate_wait(MIB, None).is_ok());
}

#[test]
fn new_fixed_part_takes_borrowed_memory() {
    let config = MemoryConfig {
        give_back_within: Nanos::from_millis(10),
        ..unlocked(Bytes::from_mib(4))
    };
    let memory = Memory::new(&config).unwrap();
    let (_greedy, held, _poor) = crowded(&memory);
    let half = Bytes(memory.size().0 / 2);
    let stream = memory.open_account("stream", half).unwrap();
    assert!(held.iter().any(Buffer::is_revoked));
    let blocks: Vec<_> = (0..half.0 / 4096)
        .map(|_| stream.allocate(4096).unwrap())
        .collect();
    let got: usize = blocks.iter().map(Buffer::size).sum();
    assert_eq!(got as u64, half.0);
}

#[test]
fn fixed_part_for_buffers_has_room_for_each_in_fragmented_memory() {
    const PIECE: usize = 128 << 10;
    let (memory, _) = manual();
    let greedy = memory.open_account("greedy", Bytes(0)).unwrap();
    let all = || std::iter::from_fn(|| greedy.allocate(PIECE).ok()).map(Some);
    let mut held: Vec<_> = all().collect();
    // Holes, by the number of pieces that they have room for. The first has the highest address.
    let mut at = 0;
    for room in [3, 1, 4, 1] {
        held[at..at + room].fill_with(|| None);
        at += room + 1;
    }
    const SIZE: usize = 3 * PIECE / 2;
    let rest = memory.free().0 - (9 * PIECE) as u64;
    assert!(rest < SIZE as u64, "it has room as well: {rest}");
    // Two buffers fit into each of the larger holes, but not five, although enough pages are free.
    let asked = Bytes(5 * SIZE as u64);
    let available = Bytes((2 + 2) * SIZE as u64);
    assert!(asked < memory.free());
    let refused = memory.open_account_for("stream", SIZE, 5).unwrap_err();
    assert_eq!(refused, MemoryError::TooMuch { asked, available });
    // Without a buffer size, the fixed part may consist of any pieces.
    drop(memory.open_account("pieces", asked).unwrap());
    let stream = memory.open_account_for("stream", SIZE, 4).unwrap();
    held.extend(all());
    let own: Vec<_> = std::iter::from_fn(|| stream.allocate(SIZE).ok()).collect();
    assert_eq!(own.len(), 4);
}
