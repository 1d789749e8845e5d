//! Circles: files that import each other in a loop, directly or by way of others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::imports::Imports;

/// The circles of more than one file, the largest first (the strongly connected components of the graph;
/// Tarjan, 1972).
pub(crate) fn of(imports: &Imports) -> Vec<Vec<PathBuf>> {
    let files: BTreeSet<&PathBuf> = imports
        .iter()
        .flat_map(|(from, to)| std::iter::once(from).chain(to))
        .collect();
    let mut search = Search {
        imports,
        order: BTreeMap::new(),
        lowest: BTreeMap::new(),
        stack: Vec::new(),
        circles: Vec::new(),
    };
    for file in files {
        if !search.order.contains_key(file) {
            search.visit(file);
        }
    }
    search
        .circles
        .sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    search.circles
}

struct Search<'a> {
    imports: &'a Imports,
    order: BTreeMap<&'a PathBuf, usize>,
    lowest: BTreeMap<&'a PathBuf, usize>,
    stack: Vec<&'a PathBuf>,
    circles: Vec<Vec<PathBuf>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, file: &'a PathBuf) -> usize {
        let number = self.order.len();
        self.order.insert(file, number);
        self.stack.push(file);
        let mut lowest = number;
        for next in self.imports.get(file).into_iter().flatten() {
            if !self.order.contains_key(next) {
                lowest = lowest.min(self.visit(next));
            } else if self.stack.contains(&next) {
                lowest = lowest.min(self.order[next]);
            }
        }
        self.lowest.insert(file, lowest);
        if lowest == number {
            let from = self
                .stack
                .iter()
                .position(|other| *other == file)
                .unwrap_or(0);
            let circle: Vec<PathBuf> = self.stack.drain(from..).cloned().collect();
            if circle.len() > 1 {
                self.circles.push(circle);
            }
        }
        lowest
    }
}
