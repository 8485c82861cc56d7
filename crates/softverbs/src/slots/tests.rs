// SPDX-License-Identifier: BSD-3-Clause
use super::*;

/// Posts so many, as far as there is room.
fn post(slots: &Slots, count: u32) -> u32 {
    (0..count).filter(|_| slots.take()).count() as u32
}

/// These requests are over: so many unsignalled ones, then a signalled one.
fn over(slots: &Slots, unsignalled: u32) {
    (0..unsignalled).for_each(|_| slots.release());
    slots.completes();
}

#[test]
fn software_gives_an_unsignalled_place_back_at_once() {
    let slots = Slots::new(1, 4, Strict::Off);
    for _ in 0..3 {
        assert_eq!((post(&slots, 9), slots.room()), (4, 0));
        (0..4).for_each(|_| slots.release());
    }
    assert_eq!(slots.room(), 4);
}

#[test]
fn an_adapter_gives_places_back_with_a_completion_that_is_taken() {
    let slots = Slots::new(1, 4, Strict::Adapter);
    assert_eq!(post(&slots, 9), 4);
    (0..4).for_each(|_| slots.release());
    assert_eq!((post(&slots, 1), slots.room()), (0, 0), "all are over, and no completion says so");

    let slots = Slots::new(1, 4, Strict::Adapter);
    assert_eq!(post(&slots, 4), 4);
    over(&slots, 2);
    assert_eq!(slots.room(), 0, "the completion was not taken");
    slots.release();
    slots.taken();
    assert_eq!(slots.room(), 3, "the unsignalled request behind it keeps its place");
    assert_eq!(post(&slots, 9), 3);
    over(&slots, 2);
    slots.taken();
    assert_eq!(slots.room(), 4, "the last completion was for all four");
}

#[test]
fn completions_give_back_what_each_is_for() {
    let slots = Slots::new(1, 8, Strict::Adapter);
    assert_eq!(post(&slots, 8), 8);
    over(&slots, 0);
    over(&slots, 3);
    over(&slots, 1);
    for room in [1, 5, 7] {
        slots.taken();
        assert_eq!(slots.room(), room);
    }
}

#[test]
fn a_completion_without_room_is_counted_once() {
    let slots = Slots::new(1, 4, Strict::Adapter);
    assert_eq!(post(&slots, 3), 3);
    slots.release();
    for _ in 0..3 {
        slots.completes();
        slots.does_not_complete();
    }
    over(&slots, 1);
    slots.taken();
    assert_eq!(slots.room(), 4);
}

#[test]
fn a_request_that_was_not_posted_holds_nothing() {
    for mode in [Strict::Off, Strict::Warn, Strict::Adapter] {
        let slots = Slots::new(1, 1, mode);
        assert!(slots.take() && !slots.take());
        slots.untake();
        assert!(slots.take());
    }
}

#[test]
fn a_warning_stops_nobody() {
    let slots = Slots::new(1, 2, Strict::Warn);
    let warned = |slots: &Slots| !slots.adapter.as_ref().unwrap().places.is_first(Rule::SendQueue);
    for _ in 0..2 {
        assert!(slots.take());
        slots.release();
    }
    let other = Slots::new(1, 2, Strict::Warn);
    assert!(!warned(&other), "nothing was posted there");
    assert!(slots.take());
    assert!(warned(&slots), "the third one");
    slots.release();
    assert_eq!(slots.room(), 2);
}

#[test]
fn only_what_software_permits_is_reported() {
    let slots = Slots::new(1, 1, Strict::Adapter);
    assert!(slots.take() && !slots.take());
    slots.refused();
    assert!(
        slots.adapter.as_ref().unwrap().places.is_first(Rule::SendQueue),
        "the request is not over: it is full anyway"
    );
    let slots = Slots::new(1, 1, Strict::Adapter);
    assert!(slots.take());
    slots.release();
    assert!(!slots.take());
    slots.refused();
    assert!(!slots.adapter.as_ref().unwrap().places.is_first(Rule::SendQueue));
}
