//! Requests in order of position: a forest of treaps over the slots of a fixed table.
//!
//! The dispatcher may not allocate per request, so the nodes live in one vector, a node for each slot
//! of the request table, and a tree is nothing but the number of its root. A slot is in one tree at a
//! time. Priorities are a hash of the slot and its sequence number, not random numbers: the same requests make the
//! same trees. Insertion, removal and the neighbours of a position take O(log n) expected.
//!
//! Deliberately absent: balancing guarantees against somebody who chooses sequence numbers; they are
//! counted here.

use alloc::vec;
use alloc::vec::Vec;

/// The number of no slot.
pub(crate) const NONE: u32 = u32::MAX;

/// Position of a request on the disk, and its arrival number to tell equal positions apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Key {
    pub(crate) sector: u64,
    pub(crate) sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    priority: u64,
    left: u32,
    right: u32,
}

/// The trees' nodes and their roots.
#[derive(Clone, Debug)]
pub(crate) struct Forest {
    nodes: Vec<Node>,
    roots: Vec<u32>,
}

/// A place that holds the number of a node.
#[derive(Clone, Copy)]
enum Link {
    Root(usize),
    Left(u32),
    Right(u32),
}

fn mix(number: u64) -> u64 {
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z ^ (z >> 32)
}

impl Forest {
    /// `trees` empty trees over `slots` slots.
    pub(crate) fn new(slots: usize, trees: usize) -> Self {
        let empty = Node {
            key: Key::default(),
            priority: 0,
            left: NONE,
            right: NONE,
        };
        Self {
            nodes: vec![empty; slots],
            roots: vec![NONE; trees],
        }
    }

    /// Makes room for more trees; the new ones are empty.
    pub(crate) fn grow(&mut self, trees: usize) {
        if trees > self.roots.len() {
            self.roots.resize(trees, NONE);
        }
    }

    pub(crate) fn is_empty(&self, tree: usize) -> bool {
        self.roots[tree] == NONE
    }

    fn get(&self, link: Link) -> u32 {
        match link {
            Link::Root(tree) => self.roots[tree],
            Link::Left(node) => self.nodes[node as usize].left,
            Link::Right(node) => self.nodes[node as usize].right,
        }
    }

    fn set(&mut self, link: Link, to: u32) {
        match link {
            Link::Root(tree) => self.roots[tree] = to,
            Link::Left(node) => self.nodes[node as usize].left = to,
            Link::Right(node) => self.nodes[node as usize].right = to,
        }
    }

    /// The link below `node` on the side of `key`.
    fn towards(&self, node: u32, key: Key) -> Link {
        if key < self.nodes[node as usize].key {
            Link::Left(node)
        } else {
            Link::Right(node)
        }
    }

    pub(crate) fn insert(&mut self, tree: usize, slot: u32, key: Key) {
        let priority = mix(key.sequence);
        let mut link = Link::Root(tree);
        let mut below = self.get(link);
        while below != NONE && self.nodes[below as usize].priority >= priority {
            link = self.towards(below, key);
            below = self.get(link);
        }
        self.nodes[slot as usize] = Node {
            key,
            priority,
            left: NONE,
            right: NONE,
        };
        self.set(link, slot);
        // The children of the old node are divided between the sides of the new node.
        let (mut smaller, mut larger) = (Link::Left(slot), Link::Right(slot));
        while below != NONE {
            if self.nodes[below as usize].key < key {
                self.set(smaller, below);
                smaller = Link::Right(below);
                below = self.get(smaller);
            } else {
                self.set(larger, below);
                larger = Link::Left(below);
                below = self.get(larger);
            }
        }
        self.set(smaller, NONE);
        self.set(larger, NONE);
    }

    /// Takes a slot out of the tree that it is in.
    pub(crate) fn remove(&mut self, tree: usize, slot: u32) {
        let key = self.nodes[slot as usize].key;
        let mut link = Link::Root(tree);
        let mut node = self.get(link);
        while node != slot {
            debug_assert!(node != NONE, "the slot is in this tree");
            link = self.towards(node, key);
            node = self.get(link);
        }
        let (mut smaller, mut larger) = (
            self.nodes[slot as usize].left,
            self.nodes[slot as usize].right,
        );
        while smaller != NONE && larger != NONE {
            if self.nodes[smaller as usize].priority >= self.nodes[larger as usize].priority {
                self.set(link, smaller);
                link = Link::Right(smaller);
                smaller = self.get(link);
            } else {
                self.set(link, larger);
                link = Link::Left(larger);
                larger = self.get(link);
            }
        }
        self.set(link, if smaller == NONE { larger } else { smaller });
    }

    /// The first slot at or beyond a sector, and the last one before it.
    pub(crate) fn around(&self, tree: usize, sector: u64) -> (Option<u32>, Option<u32>) {
        let (mut above, mut below) = (NONE, NONE);
        let mut node = self.roots[tree];
        while node != NONE {
            let Node {
                key, left, right, ..
            } = self.nodes[node as usize];
            if key.sector >= sector {
                (above, node) = (node, left);
            } else {
                (below, node) = (node, right);
            }
        }
        (
            Some(above).filter(|slot| *slot != NONE),
            Some(below).filter(|slot| *slot != NONE),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;
    use testkit::cases;

    proptest! {
        #![proptest_config(cases(300))]

        /// Two trees over the same slots behave like two ordered maps.
        #[test]
        fn a_tree_is_an_ordered_map(
            steps in proptest::collection::vec((0_u32..40, 0_usize..2, 0_u64..30, any::<bool>()), 1..300),
        ) {
            let mut forest = Forest::new(40, 2);
            let mut maps = [BTreeMap::new(), BTreeMap::new()];
            let mut place: [Option<(usize, Key)>; 40] = [None; 40];
            for (sequence, (slot, tree, sector, probe_only)) in (0_u64..).zip(steps) {
                if !probe_only {
                    match place[slot as usize].take() {
                        Some((tree, key)) => {
                            forest.remove(tree, slot);
                            maps[tree].remove(&(key.sector, key.sequence));
                        }
                        None => {
                            let key = Key { sector, sequence };
                            forest.insert(tree, slot, key);
                            maps[tree].insert((sector, sequence), slot);
                            place[slot as usize] = Some((tree, key));
                        }
                    }
                }
                for (tree, map) in maps.iter().enumerate() {
                    let above = map.range((sector, 0)..).next().map(|entry| *entry.1);
                    let below = map.range(..(sector, 0)).next_back().map(|entry| *entry.1);
                    let (found_above, found_below) = forest.around(tree, sector);
                    prop_assert_eq!(found_above, above);
                    prop_assert_eq!(found_below.map(|slot| place[slot as usize].unwrap().1.sector),
                        below.map(|slot: u32| place[slot as usize].unwrap().1.sector));
                    prop_assert_eq!(found_below, below);
                    prop_assert_eq!(forest.is_empty(tree), map.is_empty());
                }
            }
        }
    }
}
