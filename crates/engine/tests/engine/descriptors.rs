//! A process that runs out of descriptors: an operation that needs one is refused before anything is reserved
//! for it. The limit belongs to the process, so the test runs in a process of its own.

use std::fs::File;
use std::os::fd::AsRawFd;
use testkit::own_process;

use engine::disk::Durability;
use engine::pool::PoolError;
use engine::stream::Refusal;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sched::request::Op;
use testkit::disks::{MIB, Rig, stream_spec, volume_on_two};

/// Limits the process to `more` further descriptors, until dropped.
struct DescriptorLimit {
    before: Rlimit,
    /// Files that fill the gaps between open descriptors.
    _gaps: Vec<File>,
}

impl DescriptorLimit {
    fn new(more: u64) -> Self {
        let open = || File::open("/dev/null").unwrap();
        let known = std::fs::read_dir("/proc/self/fd").unwrap();
        let numbers = known.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let last: i32 = numbers.max().unwrap();
        let mut gaps = vec![open()];
        while gaps[gaps.len() - 1].as_raw_fd() < last {
            gaps.push(open());
        }
        let next = gaps[gaps.len() - 1].as_raw_fd() as u64 + 1;
        let before = getrlimit(Resource::Nofile);
        let few = Rlimit {
            current: Some(next + more),
            ..before
        };
        setrlimit(Resource::Nofile, few).unwrap();
        Self {
            before,
            _gaps: gaps,
        }
    }
}

impl Drop for DescriptorLimit {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.before).unwrap();
    }
}

#[test]
fn a_stream_that_lacks_a_descriptor_reserves_nothing() {
    own_process(|| {
        let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
        let volume = volume_on_two(&pool, "v");
        let spec = |rate| stream_spec(&volume, Op::Write, rate, 65536);
        let promised = || {
            let status = pool.status();
            let promised = |disk: &engine::status::DiskStatus| {
                (disk.utilization_promised.to_bits(), disk.delta_l_ns)
            };
            let disks: Vec<_> = status.disks.iter().map(promised).collect();
            (disks, status.streams.len(), status.memory.len())
        };
        let before = promised();
        let mut needed = 0;
        loop {
            let few = DescriptorLimit::new(needed);
            // A stream that does not fit gets the same error, because admission comes later.
            let refused = [1 << 40, 1 << 20].map(|rate| pool.reserve(spec(rate)));
            let after = promised();
            drop(few);
            let [too_much, refused] = refused;
            if let Ok(stream) = refused {
                assert!(
                    matches!(too_much, Err(Refusal::Load { .. })),
                    "{too_much:?}"
                );
                stream.close();
                break;
            }
            for refused in [too_much, refused] {
                assert!(
                    matches!(refused, Err(Refusal::Pool(PoolError::Host { .. }))),
                    "with {needed}: {refused:?}"
                );
            }
            assert_eq!(after, before);
            needed += 1;
        }
        assert!(
            needed > 1,
            "one for its memory, one for its completions: {needed}"
        );
    });
}
