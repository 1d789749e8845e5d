//! Warnings for people: one line for what is the same of several disks.

use super::output::short;

/// A warning, and the disks that it is about.
struct Group<'a> {
    what: &'a str,
    disks: Vec<&'a str>,
}

/// `warnings` with those that differ only in the disk that they begin with put together, in the order
/// in which each comes first.
#[must_use]
pub(crate) fn grouped<'a>(
    warnings: &'a [String],
    disks: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    let disks: Vec<&str> = disks.into_iter().collect();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for warning in warnings {
        let (disk, what) = match of_disk(warning, &disks) {
            Some((disk, what)) => (Some(disk), what),
            None => (None, warning.as_str()),
        };
        let place = groups
            .iter()
            .position(|group| group.what == what && group.disks.is_empty() == disk.is_none());
        let group = match place {
            Some(place) => &mut groups[place],
            None => {
                groups.push(Group {
                    what,
                    disks: Vec::new(),
                });
                groups.last_mut().expect("one was pushed")
            }
        };
        if let Some(disk) = disk.filter(|disk| !group.disks.contains(disk)) {
            group.disks.push(disk);
        }
    }
    groups
        .iter()
        .map(|group| match group.disks.as_slice() {
            [] => group.what.to_owned(),
            [one] => format!("{}: {}", short(one), group.what),
            all if all.len() == disks.len() => format!("all {} disks: {}", all.len(), group.what),
            some => {
                let names: Vec<String> = some.iter().map(|disk| short(disk)).collect();
                format!("{}: {}", names.join(", "), group.what)
            }
        })
        .collect()
}

/// The disk that a warning begins with, and what it says of it.
fn of_disk<'a>(warning: &'a str, disks: &[&'a str]) -> Option<(&'a str, &'a str)> {
    disks.iter().find_map(|disk| {
        let what = warning.strip_prefix(disk)?.strip_prefix(": ")?;
        Some((*disk, what))
    })
}

/// The same, a line each, as every command shows them.
#[must_use]
pub(crate) fn lines<'a>(
    warnings: &'a [String],
    disks: impl IntoIterator<Item = &'a str>,
) -> String {
    grouped(warnings, disks)
        .into_iter()
        .map(|warning| format!("warning: {warning}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_of_several_disks_is_said_once() {
        let warnings = [
            "/d/a: not measured",
            "/d/b: not measured",
            "/d/a: not measured",
            "memory is not locked",
            "/d/a: hot",
            "/d/c: not measured",
            "/d/a: cold",
            "/d/c: cold",
        ]
        .map(str::to_owned);
        assert_eq!(
            grouped(&warnings, ["/d/a", "/d/b", "/d/c"]),
            [
                "all 3 disks: not measured",
                "memory is not locked",
                "a: hot",
                "a, c: cold",
            ]
        );
        assert_eq!(grouped(&warnings[..1], ["/d/a"]), ["a: not measured"]);
    }
}
