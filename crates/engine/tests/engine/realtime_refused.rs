//! Disks' threads without real-time priority serve requests, and the pool reports the refusal. Runs in a
//! process of its own, because the limit belongs to the process.

use std::fs::File;
use testkit::own_process;

use engine::disk::Durability;
use engine::stream::{Recorder, Stop};
use rustix::process::Resource;
use rustix::thread::CapabilitySet;
use sched::request::Op;
use sched::units::Bytes;
use testkit::disks::{MIB, Rig, client, stream_spec, volume_on_two};
use testkit::rights::give_up;
use testkit::threads::scheduling_of;

#[test]
fn disks_whose_threads_are_refused_real_time_serve_and_the_pool_says_so() {
    own_process(|| {
        give_up(CapabilitySet::SYS_NICE, Resource::Rtprio, 0);
        let mut rig = Rig::new(2, 32 * MIB, Durability::WriteThrough);
        rig.options.realtime = true;
        rig.create(MIB);
        let pool = rig.open();
        for thread in ["disk 0", "disk 1", "pool worker"] {
            assert_eq!(scheduling_of(thread), (0, 0), "{thread}");
        }
        let warnings = pool.warnings();
        let of_fifo = |line: &String| line.contains("SCHED_FIFO");
        let told: Vec<String> = warnings
            .iter()
            .map(ToString::to_string)
            .filter(of_fifo)
            .collect();
        assert_eq!(
            told,
            [
                "the host refused: real-time scheduling (SCHED_FIFO, needs CAP_SYS_NICE): \
              Operation not permitted (os error 1) (disk0, disk1, the pool's worker)"
            ]
        );

        let volume = volume_on_two(&pool, "v");
        let client = client(&pool);
        client
            .write_at(&volume, Bytes(0), &vec![7; 2 << 20])
            .unwrap();
        client.flush(&volume).unwrap();
        let stream = pool
            .reserve(stream_spec(&volume, Op::Write, 16 * MIB, 65536))
            .unwrap();
        let zeros = File::open("/dev/zero").unwrap();
        let report = Recorder::new(&stream, Bytes::ZERO)
            .limit(Bytes(MIB + 65536))
            .run(zeros, &Stop::new().unwrap(), &mut |_| {})
            .unwrap();
        assert_eq!(report.bytes, MIB + 65536);
        let mut back = vec![1; 2 << 20];
        client.read_at(&volume, Bytes(0), &mut back).unwrap();
        let (recorded, before) = back.split_at(report.bytes as usize);
        assert!(recorded.iter().all(|&byte| byte == 0) && before.iter().all(|&byte| byte == 7));
        stream.close();
        pool.close().unwrap();
    });
}
