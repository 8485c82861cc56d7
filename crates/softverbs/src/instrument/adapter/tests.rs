// SPDX-License-Identifier: BSD-3-Clause
//! The entries of a send queue as an adapter counts them.

use super::*;
use transport::testing::queues;
use transport::wr::Op;

const ACCESSOR: Accessor = Accessor { pd: 1, qp: 1 };

fn request() -> SendWr {
    queues::request(1, Op::Send, false)
}

/// Posts this many requests, as far as there is room.
fn post(adapter: &Adapter, count: u32) -> u32 {
    (0..count).filter(|_| adapter.post(request(), |_| Ok(())).is_ok()).count() as u32
}

/// Requests complete: this many unsignalled ones, then a signalled one.
fn complete(adapter: &Adapter, unsignalled: u32) {
    (0..unsignalled).for_each(|_| adapter.released());
    adapter.completes();
}

fn adapter(max: u32) -> Adapter {
    Adapter::new(ACCESSOR, max, Strict::Adapter)
}

fn has_reported(adapter: &Adapter) -> bool {
    !adapter.logged.is_first(Rule::SendQueue as u32)
}

#[test]
fn polling_a_completion_frees_entries() {
    let queue = adapter(4);
    assert_eq!(post(&queue, 9), 4);
    (0..4).for_each(|_| queue.released());
    assert_eq!((post(&queue, 1), queue.room()), (0, 0), "all are complete, but none has a completion");

    let queue = adapter(4);
    assert_eq!(post(&queue, 4), 4);
    complete(&queue, 2);
    assert_eq!(queue.room(), 0, "the completion was not polled");
    queue.released();
    queue.taken();
    assert_eq!(queue.room(), 3, "the unsignalled request behind it keeps its entry");
    assert_eq!(post(&queue, 9), 3);
    complete(&queue, 2);
    queue.taken();
    assert_eq!(queue.room(), 4, "the last completion was for all four");
}

#[test]
fn a_completion_frees_the_entries_up_to_its_own() {
    let queue = adapter(8);
    assert_eq!(post(&queue, 8), 8);
    complete(&queue, 0);
    complete(&queue, 3);
    complete(&queue, 1);
    for room in [1, 5, 7] {
        queue.taken();
        assert_eq!(queue.room(), room);
    }
}

#[test]
fn a_completion_without_room_is_counted_once() {
    let queue = adapter(4);
    assert_eq!(post(&queue, 3), 3);
    queue.released();
    for _ in 0..3 {
        queue.completes();
        queue.does_not_complete();
    }
    complete(&queue, 1);
    queue.taken();
    assert_eq!(queue.room(), 4);
}

#[test]
fn a_request_that_was_not_posted_uses_no_entry() {
    for mode in [Strict::Warn, Strict::Adapter] {
        let queue = Adapter::new(ACCESSOR, 1, mode);
        assert!(queue.post(request(), Err).is_err());
        assert_eq!(post(&queue, 1), 1);
        assert!(!has_reported(&queue));
    }
}

#[test]
fn a_warning_refuses_nothing() {
    let queue = Adapter::new(ACCESSOR, 2, Strict::Warn);
    assert_eq!(post(&queue, 2), 2);
    (0..2).for_each(|_| queue.released());
    assert!(!has_reported(&Adapter::new(ACCESSOR, 2, Strict::Warn)), "nothing was posted there");
    assert_eq!(post(&queue, 1), 1);
    assert!(has_reported(&queue), "the third one");
    assert!(queue.has_room(usize::MAX));
}

#[test]
fn a_request_that_an_adapter_refuses_is_reported() {
    let queue = adapter(1);
    assert_eq!(post(&queue, 1), 1);
    queue.released();
    assert_eq!(post(&queue, 1), 0);
    assert!(has_reported(&queue));
}
