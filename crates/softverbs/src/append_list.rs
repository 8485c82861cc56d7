// SPDX-License-Identifier: BSD-3-Clause
//! An append-only list: threads read it without a lock while others append.
#![forbid(unsafe_code)]

use std::sync::OnceLock;

struct Node<T> {
    value: T,
    next: Next<T>,
}

type Next<T> = OnceLock<Box<Node<T>>>;

pub(crate) struct AppendList<T> {
    first: Next<T>,
}

impl<T> AppendList<T> {
    pub(crate) const fn new() -> Self {
        Self { first: OnceLock::new() }
    }

    /// The values, in the order in which they were appended.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::successors(self.first.get(), |node| node.next.get()).map(|node| &node.value)
    }

    /// Appends a value, unless `is_same` is true for one of the list.
    pub(crate) fn append_unless(&self, value: T, is_same: impl Fn(&T, &T) -> bool) {
        let mut new = Box::new(Node { value, next: OnceLock::new() });
        let mut next = &self.first;
        loop {
            match next.get() {
                Some(node) if is_same(&node.value, &new.value) => return,
                Some(node) => next = &node.next,
                // Another thread may append here first; its value is compared then.
                None => match next.set(new) {
                    Ok(()) => return,
                    Err(back) => new = back,
                },
            }
        }
    }
}

impl<T> Drop for AppendList<T> {
    /// One node after the other: no stack is too small for a long list.
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut node) = next {
            next = node.next.take();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_stay_in_order_and_are_there_once() {
        let list = AppendList::new();
        assert_eq!(list.iter().next(), None);
        for value in [3, 1, 3, 2, 1] {
            list.append_unless(value, |a, b| a == b);
        }
        assert_eq!(list.iter().copied().collect::<Vec<_>>(), [3, 1, 2]);
    }

    #[test]
    fn two_threads_append_each_value_once() {
        let list = AppendList::new();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..200).for_each(|value| list.append_unless(value, |a, b| a == b)));
            }
        });
        let mut values: Vec<i32> = list.iter().copied().collect();
        values.sort_unstable();
        assert_eq!(values, (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_list_is_dropped_on_a_small_stack() {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let long = || {
            let list = AppendList::new();
            (0..10_000).for_each(|value| list.append_unless(value, |_, _| false));
            assert_eq!(list.iter().count(), 10_000);
        };
        small.spawn(long).unwrap().join().unwrap();
    }
}
