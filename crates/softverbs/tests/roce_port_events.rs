// SPDX-License-Identifier: BSD-3-Clause
//! Asynchronous events of the port of a RoCE device. Each test changes the addresses of a network namespace
//! of its own.

mod common;

use common::restart::child_alone;
use rdma_sys::ibv_event_type::*;
use rdma_sys::{ibv_async_event, ibv_context};
use rustix::event::{PollFd, PollFlags, poll};
use softverbs::verbs;
use std::os::fd::BorrowedFd;
use std::process::Command;
use std::time::Duration;

fn open() -> *mut ibv_context {
    // SAFETY: the context has the device, and is valid in a child, too.
    let context = unsafe { verbs::ibv_open_device((*softverbs::context()).device) };
    assert!(!context.is_null());
    context
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}: {status}");
}

/// The type of the next event of the port within this time.
fn next_within(context: *mut ibv_context, within: Duration) -> Option<Type> {
    // SAFETY: the context is that of the device, and an event is written before it is read.
    unsafe {
        let fd = BorrowedFd::borrow_raw((*context).async_fd);
        if poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&within.try_into().unwrap())) != Ok(1) {
            return None;
        }
        let mut event: ibv_async_event = std::mem::zeroed();
        assert_eq!(verbs::ibv_get_async_event(context, &mut event), 0);
        assert_eq!(event.element.port_num, 1);
        verbs::ibv_ack_async_event(&mut event);
        Some(event.event_type)
    }
}

/// The types of the events of the port until none arrives for a while.
fn events(context: *mut ibv_context) -> Vec<Type> {
    let first = next_within(context, Duration::from_secs(10)).expect("an event");
    let further = std::iter::from_fn(|| next_within(context, Duration::from_millis(300)));
    [first].into_iter().chain(further).collect()
}

#[test]
fn events_that_are_not_read_are_queued_once() {
    if !child_alone("events_that_are_not_read_are_queued_once") {
        return;
    }
    let context = open();
    for _ in 0..20 {
        ip("addr add 10.47.92.1/32 dev lo");
        ip("addr del 10.47.92.1/32 dev lo");
        ip("link set lo down");
        ip("link set lo up");
    }
    // The last change is that of an address.
    ip("addr add 10.47.92.1/32 dev lo");
    std::thread::sleep(Duration::from_millis(300));
    let events = events(context);
    let of = |kind| events.iter().filter(|event| **event == kind).count();
    assert_eq!(of(IBV_EVENT_GID_CHANGE), 1, "{events:?}");
    assert_eq!(events.len(), 3, "{events:?}");
    let states: Vec<_> = events.iter().copied().filter(|event| *event != IBV_EVENT_GID_CHANGE).collect();
    assert_eq!(states, [IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE], "the last one is that of the port");
    ip("addr del 10.47.92.1/32 dev lo");
    assert_eq!(self::events(context), [IBV_EVENT_GID_CHANGE]);
}

/// Runs `f` in a child after fork(2). Returns the status of the child, which is 0 if `f` returns true.
fn in_child(f: impl FnOnce() -> bool) -> i32 {
    // SAFETY: with glibc a child may allocate, and the locks that `f` takes are those of the library, which
    // it may use after a fork.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(i32::from(!f())),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                status
            }
        }
    }
}

#[test]
fn a_child_has_the_events_since_it_opened_the_device() {
    if !child_alone("a_child_has_the_events_since_it_opened_the_device") {
        return;
    }
    let context = open();
    let status = in_child(|| {
        let own = open();
        ip("addr add 10.47.92.1/32 dev lo");
        next_within(own, Duration::from_secs(10)) == Some(IBV_EVENT_GID_CHANGE)
            && next_within(own, Duration::ZERO).is_none()
    });
    assert_eq!(status, 0);
    assert_eq!(events(context), [IBV_EVENT_GID_CHANGE], "that of the child is another one");
    // Nor is one that the child leaves unread.
    let status = in_child(|| {
        open();
        ip("addr del 10.47.92.1/32 dev lo");
        std::thread::sleep(Duration::from_millis(300));
        true
    });
    assert_eq!((status, events(context)), (0, vec![IBV_EVENT_GID_CHANGE]));
}

/// With an adapter, it would take events of its parent.
#[test]
fn a_child_that_does_not_open_the_device_takes_no_events() {
    if !child_alone("a_child_that_does_not_open_the_device_takes_no_events") {
        return;
    }
    let context = open();
    ip("addr add 10.47.92.1/32 dev lo");
    std::thread::sleep(Duration::from_millis(300));
    let status = in_child(|| {
        // SAFETY: the context stays valid in a child; the call waits until the signal ends the process.
        unsafe {
            libc::alarm(1);
            let mut event: ibv_async_event = std::mem::zeroed();
            verbs::ibv_get_async_event(context, &mut event);
        }
        false
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM, "{status:#x}");
    assert_eq!(events(context), [IBV_EVENT_GID_CHANGE]);
}
