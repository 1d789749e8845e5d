//! Patterns of patterns of tracks: each entry of a node repeats a node or a track below it.

use super::super::description::{Child, Entry, Remap, TrackPattern};
use super::{Home, angle_of_ppb, sector_width};

/// Nodes within each other.
const DEPTH_MAX: u32 = 16;

#[derive(Clone, Debug)]
pub(in super::super) struct Tree {
    tracks: Vec<TrackPattern>,
    nodes: Vec<Vec<Entry>>,
    /// Offset, and the sectors that are left out up to and with it.
    slips: Vec<(u64, u64)>,
}

/// Refuses trees without an end, with entries of nothing, or that name nothing.
pub(in super::super) fn check(tracks: &[TrackPattern], nodes: &[Vec<Entry>]) -> Result<(), String> {
    if nodes.is_empty() {
        return Err("there is no node".into());
    }
    for track in tracks {
        if track.low > track.high || track.high >= track.sectors_per_track {
            return Err("a pattern of a track has sectors that are not on it".into());
        }
    }
    for (number, node) in nodes.iter().enumerate() {
        let wrong = |problem: &str| Err(format!("node {number}: {problem}"));
        let mut end = 0;
        for entry in node {
            if entry.sectors == 0 || entry.run_sectors == 0 {
                return wrong("an entry has no sector");
            }
            if entry.first != end {
                return wrong("its entries do not follow each other");
            }
            end = entry.first + entry.run_sectors;
            let below = match entry.child {
                // A node names only nodes before it, so there is no circle.
                Child::Node(child) if child < number as u64 => nodes[child as usize]
                    .last()
                    .map_or(0, |last| last.first + last.run_sectors),
                Child::Node(_) => return wrong("it names a node that does not come before it"),
                Child::Track { pattern, .. } => match tracks.get(pattern as usize) {
                    Some(track) => track.high - track.low + 1,
                    None => return wrong("it names a track that is not there"),
                },
            };
            if below < entry.sectors.min(entry.run_sectors) {
                return wrong("it repeats more sectors than there are below");
            }
        }
        if end == 0 {
            return wrong("it has no entry");
        }
    }
    if depth(nodes) > DEPTH_MAX {
        return Err(format!("nodes are more than {DEPTH_MAX} levels deep"));
    }
    Ok(())
}

fn depth(nodes: &[Vec<Entry>]) -> u32 {
    let mut depths: Vec<u32> = Vec::new();
    for node in nodes {
        let below = node.iter().map(|entry| match entry.child {
            Child::Node(child) => depths.get(child as usize).copied().unwrap_or(0),
            Child::Track { .. } => 0,
        });
        depths.push(below.max().unwrap_or(0).saturating_add(1));
    }
    depths.last().copied().unwrap_or(0)
}

impl Tree {
    pub(super) fn new(tracks: &[TrackPattern], nodes: &[Vec<Entry>], slips: &[(u64, u64)]) -> Self {
        let mut total = 0;
        let slips = slips.iter().map(|(at, count)| {
            total += count;
            (*at, total)
        });
        Self {
            slips: slips.collect(),
            tracks: tracks.to_vec(),
            nodes: nodes.to_vec(),
        }
    }

    pub(super) fn home(&self, sector: u64) -> Home {
        let mut rest = sector;
        for (at, total) in &self.slips {
            if *at > rest {
                break;
            }
            rest = sector + total;
        }
        let mut node = self.nodes.len() - 1;
        let (mut cylinder, mut angle) = (0_i64, 0_u64);
        loop {
            let entries = &self.nodes[node];
            let number = entries.partition_point(|entry| entry.first <= rest);
            let entry = &entries[number.saturating_sub(1)];
            rest -= entry.first;
            let repeated = rest / entry.sectors;
            rest %= entry.sectors;
            // Repetitions go outwards if the run does.
            let step = if entry.run_cylinders < 0 {
                -(repeated as i64)
            } else {
                repeated as i64
            };
            cylinder = cylinder
                .wrapping_add(entry.cylinder)
                .wrapping_add(step.wrapping_mul(entry.cylinders));
            angle = angle
                .wrapping_add(angle_of_ppb(entry.angle_ppb))
                .wrapping_add(angle_of_ppb(entry.turn_ppb).wrapping_mul(repeated));
            match entry.child {
                Child::Node(child) => node = child as usize,
                Child::Track { pattern, head } => {
                    let spt = self.tracks[pattern as usize].sectors_per_track;
                    return Home {
                        cylinder: cylinder.max(0) as u64,
                        head,
                        angle: angle.wrapping_add(sector_width(spt).wrapping_mul(rest)),
                        sectors_per_track: spt,
                    };
                }
            }
        }
    }

    /// Remapped sectors, each with its place. The angle of sector 0 of the new track is taken to be that of
    /// the index mark: the tree has no way from a track to its skew.
    pub(super) fn remapped(&self, remaps: &[Remap]) -> Vec<(u64, Home)> {
        let places = remaps.iter().flat_map(|remap| {
            (0..remap.count).map(|offset| {
                let spt = remap.sectors_per_track.max(1);
                let index = (remap.sector + offset) % spt;
                let home = Home {
                    cylinder: remap.cylinder,
                    head: remap.head,
                    angle: sector_width(spt).wrapping_mul(index),
                    sectors_per_track: spt,
                };
                (remap.first + offset, home)
            })
        });
        places.collect()
    }
}
