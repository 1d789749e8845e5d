//! Sets at once and one by one, and disks that are just full.

use testkit::Random;

use super::*;

fn groups(tasks: &[(u64, u64)]) -> Vec<Group> {
    let mut groups = Vec::new();
    for &(service, period) in tasks {
        add(
            &mut groups,
            TaskParams::new(Nanos(service), Nanos(period)).unwrap(),
        );
    }
    groups
}

#[test]
fn a_set_is_judged_at_once_as_it_is_one_by_one() {
    let mut random = Random(7);
    let mut next = |most: u64| random.range(1, most);
    let (mut admitted, mut refused) = (0, 0);
    for _ in 0..2_000 {
        let tasks: Vec<_> = (0..next(5))
            .map(|id| {
                let period = next(40);
                let params = TaskParams::new(Nanos(next(period.min(12))), Nanos(period.max(12)));
                (TaskId(id), params.expect("no longer than its period"))
            })
            .collect();
        let mut one_by_one = Admission::new();
        let verdict = tasks
            .iter()
            .try_for_each(|&(id, params)| one_by_one.insert(id, params));
        match (Admission::of(tasks.iter().copied()), verdict) {
            (Ok(set), Ok(())) => {
                admitted += 1;
                assert_eq!(set.groups, one_by_one.groups);
            }
            (Err(refusal), Err(_)) => {
                refused += 1;
                assert!(refusal.short_by.0 > 0);
                assert!(tasks.iter().any(|task| task.0 == refusal.task));
            }
            other => panic!("{tasks:?}: {other:?}"),
        }
    }
    assert!(
        admitted > 100 && refused > 100,
        "{admitted} admitted, {refused} refused"
    );
}

#[test]
fn a_full_disk_is_told_from_one_that_is_a_hair_fuller() {
    assert!(fits_whole_disk(&groups(&[(1, 3), (1, 3), (1, 3)])));
    assert!(fits_whole_disk(&groups(&[(1, 3), (1, 2), (1, 7), (1, 42)])));
    assert!(!fits_whole_disk(&groups(&[
        (1, 3),
        (1, 2),
        (1, 7),
        (1, 41)
    ])));
    let p = (1u64 << 57) - 1;
    assert!(fits_whole_disk(&groups(&[(p / 2, p), (p / 2 + 1, p)])));
    assert!(!fits_whole_disk(&groups(&[
        (p / 2 + 1, p),
        (p / 2 + 1, p + 1)
    ])));
}

#[test]
fn the_task_at_fault_is_the_first_that_no_room_was_left_for() {
    for full in 1..=200u64 {
        let share = TaskParams::new(Nanos(4), Nanos(4 * full)).unwrap();
        let tiny = TaskParams::new(Nanos(1), Nanos(1 << 50)).unwrap();
        let tasks = (0..full)
            .map(|_| share)
            .chain([tiny, share])
            .zip(0..)
            .map(|(task, id)| (TaskId(id), task));
        let refusal = Admission::of(tasks).expect_err("more than the whole disk");
        assert_eq!(refusal.by, RefusedBy::Utilization);
        assert_eq!(refusal.task, TaskId(full), "of {full} that fill the disk");
    }
}
