//! The text of `clockwise recording index`.

use sched::units::{Bytes, Nanos};

use crate::print::table;
use crate::quantity::{Size, Span};
use crate::wire::recordings::{IndexBlock, IndexFrame, IndexGroup, IndexKey, RecordingIndex};

fn at(ns: u64) -> String {
    Span(Nanos(ns)).to_string()
}

/// The groups of the whole recording, or the blocks and key frames of a time range, or its frames.
pub(super) fn text(of: &RecordingIndex) -> String {
    let (Some(blocks), Some(keys)) = (&of.blocks, &of.keys) else {
        let row = |group: &IndexGroup| {
            [
                group.block.to_string(),
                group.blocks.to_string(),
                at(group.begins_ns),
            ]
        };
        let head = ["BLOCK", "BLOCKS", "BEGINS"];
        return table(head, &[0, 1, 2], of.groups.iter().map(row)) + "\n";
    };
    if blocks.is_empty() && of.groups_missing == 0 {
        return format!(
            "nothing was recorded in that time range: the recording begins at {} and ends at {}\n",
            at(of.begins_ns),
            at(of.ends_ns)
        );
    }
    if let Some(frames) = &of.frames {
        return frames_text(of, frames);
    }
    let row = |block: &IndexBlock| {
        [
            block.block.to_string(),
            at(block.begins_ns),
            at(block.arrived_ns),
            block.frames.to_string(),
            block.packets.to_string(),
            Size(Bytes(block.bytes)).to_string(),
            block.lost.to_string(),
        ]
    };
    let head = [
        "BLOCK", "BEGINS", "CAME", "FRAMES", "PACKETS", "SIZE", "LOST",
    ];
    let mut out = table(head, &[0, 1, 2, 3, 4, 5, 6], blocks.iter().map(row)) + "\n";
    let row = |key: &IndexKey| {
        [
            at(key.begins_ns),
            key.block.to_string(),
            key.packet.to_string(),
            Size(Bytes(key.bytes)).to_string(),
        ]
    };
    let head = ["KEY FRAME", "BLOCK", "PACKET", "SIZE"];
    out.push('\n');
    out.push_str(&table(head, &[0, 1, 2, 3], keys.iter().map(row)));
    out.push('\n');
    if of.keys_left_out {
        out.push_str("some key frames between these are not listed, because the index had no room for them\n");
    }
    if of.groups_missing > 0 {
        out.push_str(&format!(
            "{} groups of blocks are not listed: they are damaged or still being recorded\n",
            of.groups_missing
        ));
    }
    out
}

/// The frames, a line each.
fn frames_text(of: &RecordingIndex, frames: &[IndexFrame]) -> String {
    let row = |frame: &IndexFrame| {
        [
            frame.number.map_or("-".to_owned(), |of| of.to_string()),
            at(frame.begins_ns),
            at(frame.arrived_ns),
            frame.block.to_string(),
            frame.offset_bytes.to_string(),
            frame.packets.to_string(),
            Size(Bytes(frame.bytes)).to_string(),
            frame.lost.to_string(),
            if frame.is_key { "key" } else { "" }.to_owned(),
        ]
    };
    let head = [
        "FRAME", "BEGINS", "CAME", "BLOCK", "OFFSET", "PACKETS", "SIZE", "LOST", "",
    ];
    let right = [0, 1, 2, 3, 4, 5, 6, 7];
    let mut out = table(head, &right, frames.iter().map(row)) + "\n";
    if of.blocks_missing > 0 {
        let missing = of.blocks_missing;
        out.push_str(&format!(
            "the frames of {missing} blocks are not listed: the blocks are damaged or overwritten\n"
        ));
    }
    out
}
