//! The place that failed, for people.

use sched::units::Bytes;

use super::wrong;
use crate::demo::failing_place::FailingPlace;
use crate::print::{counted, list, short, wrapped};
use crate::quantity::Size;

/// The promise where a place fails.
const RULE: &str = "The promise is kept there if every byte is right, and only blocks that were written a \
                    second time are late.";

/// The section of the report.
pub(super) fn section(place: &FailingPlace) -> String {
    let what = format!(
        "After that, {} of {} failed for writes and reads, ahead of the recording {}, while all streams went on:",
        Size(Bytes(place.bytes)),
        short(&place.disk),
        place.volume
    );
    let number = |number: u64| number.to_string();
    let rows = [
        (
            "writes that failed there and were made elsewhere",
            number(place.failed_writes),
        ),
        ("extents moved away", number(place.extents_left)),
        ("blocks lost", number(place.lost_blocks)),
        (
            "every byte of the recording compared",
            wrong(place.different),
        ),
        ("blocks of all streams meanwhile", number(place.blocks)),
        ("  late, written a second time", number(place.late_again)),
        ("  late, all others", number(place.late_others)),
    ];
    format!(
        "{}{}{}",
        wrapped(&what, "", ""),
        list(&rows),
        wrapped(RULE, "", "")
    )
}

/// Its part of the verdict.
pub(super) fn verdict(place: &FailingPlace) -> String {
    let disk = short(&place.disk);
    let mut text = match (place.lost_blocks, place.failed_writes) {
        (0, 0) => format!("No write failed at the place of {disk} that was to fail.\n"),
        (0, writes) => format!(
            "No block was lost where a place of {disk} failed: {} failed there and went elsewhere.\n",
            counted(writes, "write")
        ),
        (lost, _) => format!("Where a place of {disk} failed, {} lost.\n", was(lost)),
    };
    text += &match (place.late_again, place.late_others) {
        (0, 0) => "No block was late for it.\n".to_owned(),
        (again, 0) => format!(
            "{} late, written a second time; no other block was.\n",
            was(again)
        ),
        (_, others) => format!("{} late that had not failed there.\n", was(others)),
    };
    text
}

/// A number of blocks and its verb.
fn was(blocks: u64) -> String {
    let verb = if blocks == 1 { "was" } else { "were" };
    format!("{} {verb}", counted(blocks, "block"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_on_a_place_tells_excused_blocks_from_others() {
        let of = |lost_blocks, late_again, late_others| {
            verdict(&FailingPlace {
                disk: "/var/tmp/drive-0".to_owned(),
                failed_writes: 2,
                lost_blocks,
                late_again,
                late_others,
                ..FailingPlace::default()
            })
        };
        let kept = "No block was lost where a place of drive-0 failed: 2 writes failed there and went elsewhere.\n";
        assert_eq!(of(0, 0, 0), format!("{kept}No block was late for it.\n"));
        assert_eq!(
            of(0, 1, 0),
            format!("{kept}1 block was late, written a second time; no other block was.\n")
        );
        assert_eq!(
            of(0, 1, 3),
            format!("{kept}3 blocks were late that had not failed there.\n")
        );
        let lost = "Where a place of drive-0 failed, 1 block was lost.\n";
        assert!(of(1, 0, 0).starts_with(lost));
        let nothing = verdict(&FailingPlace::default());
        assert!(nothing.starts_with("No write failed "), "{nothing}");
    }
}
