//! A disk's thread has the priority that it asks for, or the pool says that it has not. A program of its
//! own, so that the thread that is found is its own.

mod common;

use common::{MIB, Rig};
use engine::disk::Durability;

/// SCHED_FIFO, as the kernel counts.
const FIFO: u32 = 1;

/// Scheduling policy and real-time priority of this program's thread of that name.
fn scheduling_of(name: &str) -> (u32, u32) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stats =
        tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
    let named = |stat: &String| stat.contains(&format!("({name})"));
    let stat = stats
        .into_iter()
        .find(named)
        .expect("a thread of that name");
    // Behind the name come the fields from the third on; these are 40 and 41.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    (
        fields[41 - 3].parse().unwrap(),
        fields[40 - 3].parse().unwrap(),
    )
}

#[test]
fn a_disks_thread_is_real_time_or_the_pool_says_that_it_is_not() {
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
}
