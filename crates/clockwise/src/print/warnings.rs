//! Warnings as text: a line each, with the disks and parts of the host that they concern.

use super::output::short;
use crate::wire::view::WarningView;

/// The names that a warning concerns. If it concerns all `disks` of the pool, they are summarised.
fn concerned(warning: &WarningView, disks: &[&str]) -> String {
    let is_about = |disk: &&str| warning.concerns.iter().any(|other| other == disk);
    let concerns_all = disks.len() > 1 && disks.iter().all(is_about);
    let mut names = Vec::new();
    if concerns_all {
        names.push(format!("all {} disks", disks.len()));
    }
    for name in &warning.concerns {
        if !(concerns_all && disks.contains(&name.as_str())) {
            names.push(short(name));
        }
    }
    names.join(", ")
}

/// The warnings of a pool with these disks, a line each, as all commands print them.
#[must_use]
pub(crate) fn lines<'a>(
    warnings: &[WarningView],
    disks: impl IntoIterator<Item = &'a str>,
) -> String {
    let disks: Vec<&str> = disks.into_iter().collect();
    warnings
        .iter()
        .map(|warning| match concerned(warning, &disks).as_str() {
            "" => format!("warning: {}\n", warning.what),
            names => format!("warning: {} ({names})\n", warning.what),
        })
        .collect()
}

/// The warnings that concern a disk, without its name.
#[must_use]
pub(crate) fn of_disk(warnings: &[WarningView], disk: &str) -> String {
    warnings
        .iter()
        .filter(|warning| warning.concerns.iter().any(|name| name == disk))
        .map(|warning| format!("warning: {}\n", warning.what))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_for_all_disks_does_not_list_them() {
        let warning = |what: &str, concerns: &[&str]| WarningView {
            what: what.to_owned(),
            concerns: concerns.iter().map(|name| (*name).to_owned()).collect(),
        };
        let warnings = [
            warning("not measured", &["/d/a", "/d/b", "/d/c"]),
            warning("no hurry", &["/d/a", "/d/b", "/d/c", "the pool's worker"]),
            warning("hot", &["/d/a", "/d/c"]),
            warning("no floor", &[]),
        ];
        let disks = ["/d/a", "/d/b", "/d/c"];
        assert_eq!(
            lines(&warnings, disks),
            "warning: not measured (all 3 disks)\n\
             warning: no hurry (all 3 disks, the pool's worker)\n\
             warning: hot (a, c)\n\
             warning: no floor\n"
        );
        assert_eq!(
            lines(&warnings[2..3], ["/d/a"]),
            "warning: hot (a, c)\n",
            "one disk is named"
        );
        assert_eq!(
            of_disk(&warnings, "/d/b"),
            "warning: not measured\nwarning: no hurry\n"
        );
    }
}
