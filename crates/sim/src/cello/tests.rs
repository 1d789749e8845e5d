//! That the generator meets the thesis's tables.

use super::*;

const DISK: Bytes = Bytes(1 << 30);

/// Requests per slot of a disk.
fn per_slot(period: &Period, requests: &[TraceRequest], device: u32) -> Vec<u64> {
    let mut counts = vec![0; period.slots as usize];
    for request in requests.iter().filter(|request| request.device == device) {
        counts[(request.at.get() / period.slot.get()) as usize] += 1;
    }
    counts
}

fn share(count: usize, of: usize) -> f64 {
    count as f64 / of as f64
}

#[test]
fn every_disk_has_its_requests_and_its_peak() {
    for (period, total) in [(Period::day(), 801_007), (Period::busy(), 53_752)] {
        let requests = period.requests(DISK, 1);
        assert_eq!(requests.len(), total);
        for (device, load) in (0..).zip(period.disks) {
            let counts = per_slot(&period, &requests, device);
            assert_eq!(counts.iter().sum::<u64>(), load.requests, "disk {device}");
            assert_eq!(counts.iter().max(), Some(&load.peak), "disk {device}");
        }
        assert!(requests.is_sorted_by_key(|request| request.at));
        assert!(
            requests
                .iter()
                .all(|request| request.at < Time::ZERO + period.length())
        );
        assert!(
            requests
                .iter()
                .all(|request| request.start + request.length <= DISK)
        );
    }
}

#[test]
fn shares_are_those_of_the_thesis() {
    for seed in 0..3 {
        let period = Period::day();
        let requests = period.requests(DISK, seed);
        let mut before = [None::<TraceRequest>; 8];
        let (mut close, mut sequential, mut of_op) = (0, [0, 0], [0, 0]);
        for request in &requests {
            let op = usize::from(request.op == Op::Write);
            of_op[op] += 1;
            if let Some(before) = before[request.device as usize].replace(*request) {
                close += usize::from(request.at < before.at + CLOSE);
                sequential[op] += usize::from(request.start == before.start + before.length);
            }
        }
        let (reads, total) = (share(of_op[0], requests.len()), requests.len());
        assert!((reads - 0.44).abs() < 0.005, "seed {seed}: {reads} read");
        let close = share(close, total);
        assert!((0.10..0.20).contains(&close), "seed {seed}: {close} close");
        for (op, wanted) in [(0, 0.077), (1, 0.063)] {
            let found = share(sequential[op], of_op[op]);
            assert!(
                (found - wanted).abs() < 0.003,
                "seed {seed}: {found} sequential"
            );
        }
        let eight = requests
            .iter()
            .filter(|request| request.length == Bytes::from_kib(8));
        assert!((share(eight.count(), total) - 0.8).abs() < 0.005);
    }
}

#[test]
fn the_same_seed_is_the_same_trace_and_another_is_another() {
    let of = |seed| Period::busy().requests(DISK, seed);
    assert!(of(7) == of(7));
    assert!(of(7) != of(8));
}
