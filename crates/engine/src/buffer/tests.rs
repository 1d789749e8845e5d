use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use proptest::prelude::*;
use sched::request::Op;
use sched::units::{Bytes, Time};

use super::*;
use crate::clock::ManualClock;

mod taking;

const MIB: usize = 1 << 20;

fn unlocked(size: Bytes) -> MemoryConfig {
    MemoryConfig {
        lock: false,
        ..MemoryConfig::new(size)
    }
}

/// Memory of 4 MiB, 2 MiB of it filler, with a clock that the test controls.
fn manual() -> (Memory, ManualClock) {
    let clock = ManualClock::new(Time(1));
    let memory =
        Memory::with_clock(&unlocked(Bytes::from_mib(4)), Arc::new(clock.clone())).unwrap();
    (memory, clock)
}

fn fill(buffer: &mut Buffer, byte: u8) {
    buffer.with_mut(|bytes| bytes.fill(byte)).unwrap();
}

#[test]
fn a_buffer_holds_what_is_put_in_and_begins_on_a_page() {
    let (memory, _) = manual();
    let account = memory.open_account("a", Bytes(0)).unwrap();
    let mut buffer = account.allocate(5000).unwrap();
    assert_eq!(buffer.size(), 5000);
    buffer.with_mut(|bytes| bytes[4999] = 7).unwrap();
    let (at, last) = buffer
        .with(|bytes| (bytes.as_ptr() as usize, bytes[4999]))
        .unwrap();
    assert!(at.is_multiple_of(BUFFER_ALIGN_BYTES));
    assert_eq!(last, 7);
    assert_eq!(account.allocate(0), Err(MemoryError::Empty));
    assert!(matches!(
        account.allocate(1 << 40),
        Err(MemoryError::TooMuch { .. })
    ));
}

#[test]
fn data_of_another_account_is_never_visible() {
    let (memory, _) = manual();
    let first = memory.open_account("first", Bytes(0)).unwrap();
    let second = memory.open_account("second", Bytes(0)).unwrap();
    let mut secret = first.allocate(MIB).unwrap();
    fill(&mut secret, 0xaa);
    drop(secret);
    let other = second.allocate(MIB).unwrap();
    assert!(
        other
            .with(|bytes| bytes.iter().all(|&byte| byte == 0))
            .unwrap()
    );
}

#[test]
fn a_fixed_part_is_there_whatever_others_do() {
    let (memory, _) = manual();
    let greedy = memory.open_account("greedy", Bytes(0)).unwrap();
    let stream = memory.open_account("stream", Bytes(MIB as u64)).unwrap();
    let mut held = Vec::new();
    while let Ok(buffer) = greedy.allocate(64 << 10) {
        held.push(buffer);
    }
    let blocks: Vec<_> = (0..4).map(|_| stream.allocate(MIB / 4).unwrap()).collect();
    assert_eq!(blocks.len(), 4);
    let refused = memory.open_account("more", memory.size());
    assert!(
        matches!(refused, Err(MemoryError::TooMuch { .. })),
        "{refused:?}"
    );
}

#[test]
fn pages_come_back_when_the_last_of_buffer_and_transfers_is_gone() {
    let (memory, _) = manual();
    let free = memory.free();
    let account = memory.open_account("a", Bytes(0)).unwrap();
    let buffer = account.allocate(MIB).unwrap();
    let whole = buffer.segments(Op::Read, 0..MIB).unwrap();
    let part = whole.slice(1000..2000).unwrap();
    drop(buffer);
    drop(whole);
    assert_eq!(memory.free().0, free.0 - MIB as u64);
    drop(account);
    assert_eq!(memory.free().0, free.0 - MIB as u64);
    drop(part);
    assert_eq!(memory.free(), free);
    assert!(memory.usage().is_empty());
}

#[test]
fn a_transfer_and_the_processor_keep_out_of_each_others_way() {
    let (memory, _) = manual();
    let account = memory.open_account("a", Bytes(0)).unwrap();
    let mut buffer = account.allocate(8192).unwrap();
    let into = buffer.segments(Op::Read, 0..4096).unwrap();
    assert_eq!(buffer.with(|_| ()), Err(BufferError::InUse));
    assert_eq!(buffer.with_mut(|_| ()), Err(BufferError::InUse));
    drop(into);
    let out_of = buffer.segments(Op::Write, 0..4096).unwrap();
    assert_eq!(buffer.with(|bytes| bytes.len()), Ok(8192));
    assert_eq!(buffer.with_mut(|_| ()), Err(BufferError::InUse));
    drop(out_of);
    assert_eq!(buffer.with_mut(|_| ()), Ok(()));
    assert_eq!(
        buffer.segments(Op::Read, 4096..8193).unwrap_err(),
        BufferError::Range
    );
}

#[test]
fn a_panic_in_a_reader_does_not_keep_the_buffer() {
    let (memory, _) = manual();
    let account = memory.open_account("a", Bytes(0)).unwrap();
    let mut buffer = account.allocate(4096).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = buffer.with(|_| panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(buffer.with_mut(|_| ()), Ok(()));
}

#[test]
fn segments_of_different_accounts_directions_or_memories_do_not_mix() {
    let (memory, _) = manual();
    let (elsewhere, _) = manual();
    let first = memory
        .open_account("first", Bytes(0))
        .unwrap()
        .allocate(4096)
        .unwrap();
    let second = memory
        .open_account("second", Bytes(0))
        .unwrap()
        .allocate(4096)
        .unwrap();
    let mut segments = first.segments(Op::Write, 0..4096).unwrap();
    assert_eq!(segments.push(&second, 0..10), Err(BufferError::Foreign));
    assert_eq!(
        segments.push_filler(&elsewhere, 10),
        Err(BufferError::Foreign)
    );
    assert_eq!(
        segments.append(first.segments(Op::Read, 0..1).unwrap()),
        Err(BufferError::Foreign)
    );
    assert_eq!(
        segments.append(second.segments(Op::Write, 0..1).unwrap()),
        Err(BufferError::Foreign)
    );
    assert_eq!(segments.account(), Some(first.account()));
    assert_eq!(segments.size(), 4096);
    drop(segments);
    // The failed calls left no use behind.
    let (mut first, mut second) = (first, second);
    fill(&mut first, 1);
    fill(&mut second, 1);
}

#[test]
fn filler_reads_as_zeros_and_swallows_what_is_read() {
    let (memory, _) = manual();
    let mut sink = Segments::empty(Op::Read);
    sink.push_filler(&memory, 3 * MIB).unwrap();
    sink.copy_from(0, &vec![0xff; 3 * MIB]);
    let mut zeros = Segments::empty(Op::Write);
    zeros.push_filler(&memory, 3 * MIB).unwrap();
    let mut seen = vec![1; 3 * MIB];
    zeros.copy_to(0, &mut seen);
    assert!(seen.iter().all(|&byte| byte == 0));
    assert_eq!(zeros.account(), None);
}

/// One step of building a list: a piece of one of two buffers, or filler.
fn step() -> impl Strategy<Value = (u8, usize, usize)> {
    (0u8..3, 0usize..8192, 0usize..3000)
}

proptest! {
    #![proptest_config(testkit::cases(if cfg!(miri) { 4 } else { 200 }))]

    /// A list and any slice of it copy out to the bytes that they were made of.
    #[test]
    fn a_list_is_the_bytes_it_was_made_of(steps in proptest::collection::vec(step(), 0..12), cut in any::<(prop::sample::Index, prop::sample::Index)>()) {
        let (memory, _) = manual();
        let account = memory.open_account("a", Bytes(0)).unwrap();
        let mut buffers = [account.allocate(8192).unwrap(), account.allocate(8192).unwrap()];
        for (index, buffer) in buffers.iter_mut().enumerate() {
            buffer.with_mut(|bytes| bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + index) as u8 | 1)).unwrap();
        }
        let mut list = Segments::empty(Op::Write);
        let mut model = Vec::new();
        for (which, from, size) in steps {
            if which == 2 {
                list.push_filler(&memory, size).unwrap();
                model.resize(model.len() + size, 0);
            } else {
                let range = from..(from + size).min(8192);
                let buffer = &buffers[which as usize];
                list.push(buffer, range.clone()).unwrap();
                buffer.with(|bytes| model.extend_from_slice(&bytes[range])).unwrap();
            }
        }
        prop_assert_eq!(list.size(), model.len());
        let (a, b) = (cut.0.index(model.len() + 1), cut.1.index(model.len() + 1));
        let range = a.min(b)..a.max(b);
        let slice = list.slice(range.clone()).unwrap();
        let mut out = vec![9; slice.size()];
        slice.copy_to(0, &mut out);
        prop_assert_eq!(&out[..], &model[range]);
        prop_assert_eq!(list.slice(0..model.len() + 1).unwrap_err(), BufferError::Range);

        let mut joined = list.slice(0..a).unwrap();
        joined.append(list.slice(a..model.len()).unwrap()).unwrap();
        drop((list, slice));
        let mut out = vec![9; model.len()];
        joined.copy_to(0, &mut out);
        prop_assert_eq!(out, model);
        drop(joined);
        for buffer in &mut buffers {
            prop_assert_eq!(buffer.with_mut(|_| ()), Ok(()));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs files")]
fn lists_go_to_a_file_and_come_back() {
    let (memory, _) = manual();
    let account = memory.open_account("a", Bytes(0)).unwrap();
    let file = tempfile::tempfile().unwrap();
    let mut from = account.allocate(9000).unwrap();
    from.with_mut(|bytes| {
        bytes
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = at as u8)
    })
    .unwrap();
    let mut out = from.segments(Op::Write, 4000..9000).unwrap();
    out.push_filler(&memory, 100).unwrap();
    out.push(&from, 0..4000).unwrap();
    out.write_to_file(&file, 123).unwrap();
    let to = account.allocate(9100).unwrap();
    to.segments(Op::Read, 0..9100)
        .unwrap()
        .read_from_file(&file, 123)
        .unwrap();
    to.with(|bytes| {
        assert!(
            bytes[..5000]
                .iter()
                .enumerate()
                .all(|(at, &byte)| byte == (at + 4000) as u8)
        );
        assert!(bytes[5000..5100].iter().all(|&byte| byte == 0));
        assert!(
            bytes[5100..]
                .iter()
                .enumerate()
                .all(|(at, &byte)| byte == at as u8)
        );
    })
    .unwrap();
    let past_end = to
        .segments(Op::Read, 0..9100)
        .unwrap()
        .read_from_file(&file, 124)
        .unwrap_err();
    assert_eq!(past_end.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
#[cfg_attr(miri, ignore = "needs sockets")]
fn messages_go_out_whole_and_in_order_through_a_socket_that_takes_little() {
    let (memory, _) = manual();
    let account = memory.open_account("a", Bytes(0)).unwrap();
    let mut body = account.allocate(300_000).unwrap();
    body.with_mut(|bytes| {
        bytes
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = (at % 251) as u8)
    })
    .unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut queue = SendQueue::default();
    let mut expected = Vec::new();
    for index in 0..100usize {
        let header = vec![index as u8; index % (HEADER_BYTES_MAX + 1)];
        let range = index * 10..index * 2500;
        let list = (index % 3 != 0).then(|| {
            body.segments(Op::Write, range.clone().start.min(range.end)..range.end)
                .unwrap()
        });
        expected.extend_from_slice(&header);
        if list.is_some() {
            body.with(|bytes| {
                expected.extend_from_slice(&bytes[range.start.min(range.end)..range.end])
            })
            .unwrap();
        }
        queue.push(&header, list);
    }
    assert_eq!(queue.pending(), expected.len());
    let total = expected.len();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; total];
        theirs.read_exact(&mut got).unwrap();
        got
    });
    while !queue.send(&ours).unwrap() {
        let mut fds = [rustix::event::PollFd::new(
            &ours,
            rustix::event::PollFlags::OUT,
        )];
        rustix::event::poll(&mut fds, None).unwrap();
    }
    assert_eq!(queue.pending(), 0);
    assert!(reader.join().unwrap() == expected);
    // The queue has released all its uses.
    assert_eq!(body.with_mut(|_| ()), Ok(()));
}

#[test]
#[cfg_attr(miri, ignore = "needs sockets")]
fn bytes_after_a_payload_are_received_into_the_tail() {
    let (memory, _) = manual();
    let account = memory.open_account("a", Bytes(0)).unwrap();
    let buffer = account.allocate(8192).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut message = vec![1u8; 6000];
    message.extend_from_slice(&[2; 28]);
    message.extend_from_slice(&[3; 5]);
    theirs.write_all(&message).unwrap();
    drop(theirs);
    let list = buffer.segments(Op::Read, 1000..7000).unwrap();
    let mut tail = [0; 28];
    assert_eq!(list.receive(&ours, 0, &mut []).unwrap(), 6000);
    assert_eq!(list.receive(&ours, 6000, &mut tail).unwrap(), 28);
    assert_eq!(tail, [2; 28]);
    let mut rest = [0; 8];
    assert_eq!(list.receive(&ours, 6000, &mut rest).unwrap(), 5);
    assert_eq!(list.receive(&ours, 6000, &mut rest).unwrap(), 0, "the end");
    drop(list);
    assert!(
        buffer
            .with(|bytes| bytes[1000..7000].iter().all(|&byte| byte == 1))
            .unwrap()
    );
}
