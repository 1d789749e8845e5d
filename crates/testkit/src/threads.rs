//! Threads of a test or of its programs, as the kernel sees them.

/// SCHED_FIFO, as the kernel counts.
pub const FIFO: u32 = 1;

/// Scheduling policy and real-time priority of this program's thread of that name.
pub fn scheduling_of(name: &str) -> (u32, u32) {
    scheduling_in("self", name)
}

/// The same of a thread of another process, by its number.
pub fn scheduling_in(process: &str, name: &str) -> (u32, u32) {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
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
