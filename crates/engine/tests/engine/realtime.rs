//! A disk's thread has real-time priority, or the pool reports that it has not. Runs in a process of its own,
//! so that the thread found is its own.

use engine::disk::Durability;
use testkit::disks::{MIB, Rig};
use testkit::own_process;
use testkit::threads::{FIFO, scheduling_of};

#[test]
fn disk_thread_is_real_time_or_the_pool_reports_that_it_is_not() {
    own_process(|| {
        let mut rig = Rig::new(1, 32 * MIB, Durability::WriteThrough);
        rig.create(MIB);
        for realtime in [true, false] {
            rig.options.realtime = realtime;
            let pool = rig.open();
            let warnings = pool.warnings();
            let refused = warnings
                .iter()
                .any(|warning| warning.what.contains("SCHED_FIFO"));
            let expected = if realtime && !refused {
                (FIFO, 40)
            } else {
                (0, 0)
            };
            assert_eq!(scheduling_of("disk 0"), expected, "{warnings:?}");
            assert!(
                realtime || !refused,
                "what was not asked for is not refused"
            );
            pool.close().unwrap();
        }
    });
}
