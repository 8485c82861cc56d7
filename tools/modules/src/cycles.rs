// SPDX-License-Identifier: BSD-3-Clause
//! Cycles of a directed graph.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Some shortest cycles that together contain each node that is part of a cycle. A cycle has each of its
/// nodes once.
pub(crate) fn find<N: Copy + Ord>(edges: impl IntoIterator<Item = (N, N)>) -> Vec<Vec<N>> {
    let mut next = BTreeMap::<N, BTreeSet<N>>::new();
    for (from, to) in edges {
        next.entry(from).or_default().insert(to);
    }
    let mut named = BTreeSet::new();
    let mut cycles = Vec::new();
    for &node in next.keys() {
        if named.contains(&node) {
            continue;
        }
        if let Some(cycle) = through(node, &next) {
            named.extend(cycle.iter().copied());
            cycles.push(cycle);
        }
    }
    cycles
}

/// A shortest cycle through a node.
fn through<N: Copy + Ord>(node: N, next: &BTreeMap<N, BTreeSet<N>>) -> Option<Vec<N>> {
    let mut came_from = BTreeMap::new();
    let mut waiting = VecDeque::from([node]);
    while let Some(from) = waiting.pop_front() {
        for &to in next.get(&from).into_iter().flatten() {
            if to == node {
                let back = |at: &N| came_from.get(at).copied();
                let mut cycle: Vec<_> = std::iter::successors(Some(from), back).collect();
                cycle.reverse();
                return Some(cycle);
            }
            if let Entry::Vacant(unseen) = came_from.entry(to) {
                unseen.insert(from);
                waiting.push_back(to);
            }
        }
    }
    None
}
