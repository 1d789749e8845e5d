use super::*;

fn event(id: u64) -> EventView {
    EventView {
        id,
        at_unix_ns: id * 10,
        disk: Some("sda".to_owned()),
        ..EventView::new(EventKind::DiskStalled, "it has stalled".to_owned())
    }
}

fn next(queue: &Queue) -> Option<(u64, Option<u64>)> {
    queue.next().map(|event| (event.id, event.lost))
}

#[test]
fn file_has_the_format_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let mut queue = Queue::open(folder.path(), "run notify");
    queue.push(event(5));
    queue.push(event(6));
    queue.delivered(5);
    let path = queue.path.clone();
    assert!(
        path.ends_with("hook-b34bd684ab5636cb.queue"),
        "{}",
        path.display()
    );
    let text = std::fs::read_to_string(&path).unwrap();
    insta::assert_snapshot!(text, @r#"
    {"hook":{"version":1,"target":"run notify"}}
    {"event":{"id":5,"at_unix_ns":50,"kind":"disk-stalled","what":"it has stalled","disk":"sda"}}
    {"event":{"id":6,"at_unix_ns":60,"kind":"disk-stalled","what":"it has stalled","disk":"sda"}}
    {"delivered":5}
    "#);
    // Opened again it has what is left, and so has the file.
    drop(queue);
    let queue = Queue::open(folder.path(), "run notify");
    assert_eq!(next(&queue), Some((6, None)));
    let text = std::fs::read_to_string(&path).unwrap();
    insta::assert_snapshot!(text, @r#"
    {"hook":{"version":1,"target":"run notify"}}
    {"event":{"id":6,"at_unix_ns":60,"kind":"disk-stalled","what":"it has stalled","disk":"sda"}}
    "#);
}

#[test]
fn the_oldest_events_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut queue = Queue::open(folder.path(), "run notify");
    for id in 1..=EVENTS_MAX as u64 + 3 {
        queue.left.events.push_back(event(id));
        if queue.left.events.len() == EVENTS_MAX {
            break;
        }
    }
    queue.replace();
    for id in EVENTS_MAX as u64 + 1..=EVENTS_MAX as u64 + 3 {
        queue.push(event(id));
    }
    assert_eq!(next(&queue), Some((3, Some(3))));
    drop(queue);
    let mut queue = Queue::open(folder.path(), "run notify");
    assert_eq!(next(&queue), Some((3, Some(3))));
    queue.delivered(3);
    assert_eq!(next(&queue), Some((4, None)));
    assert_eq!(queue.left.events.len(), EVENTS_MAX);
}

#[test]
fn file_that_has_become_long_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let mut queue = Queue::open(folder.path(), "run notify");
    for id in 1..=LINES_SPARE as u64 {
        // Not synced, which would take long.
        queue.left.events.push_back(event(id));
        queue.append(&Line::Event(event(id)), false);
        queue.delivered(id);
    }
    let text = std::fs::read_to_string(&queue.path).unwrap();
    assert!(
        text.lines().count() <= LINES_SPARE + 2,
        "{}",
        text.lines().count()
    );
    assert_eq!(next(&Queue::open(folder.path(), "run notify")), None);
}

#[test]
fn torn_line_is_ignored_and_other_damage_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let mut queue = Queue::open(folder.path(), "run notify");
    queue.push(event(1));
    let path = queue.path.clone();
    drop(queue);
    let whole = std::fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let queue = Queue::open(folder.path(), "run notify");
        assert_eq!(next(&queue), None, "{cut}");
    }
    let newer = String::from_utf8(whole)
        .unwrap()
        .replace("\"version\":1", "\"version\":2");
    std::fs::write(&path, &newer).unwrap();
    let mut queue = Queue::open(folder.path(), "run notify");
    assert_eq!(next(&queue), None);
    let aside = path.with_extension("queue.damaged");
    assert_eq!(std::fs::read_to_string(aside).unwrap(), newer);
    // It goes on from there.
    queue.push(event(7));
    assert_eq!(
        next(&Queue::open(folder.path(), "run notify")),
        Some((7, None))
    );
}

#[test]
fn queue_without_a_folder_is_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let mut queue = Queue::open(&file, "run notify");
    queue.push(event(1));
    assert_eq!(next(&queue), Some((1, None)));
    queue.delivered(1);
    assert_eq!(next(&queue), None);
}
