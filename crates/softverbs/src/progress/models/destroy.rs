// SPDX-License-Identifier: BSD-3-Clause
//! The destruction and the start of a connection while other threads drive it.

use loom::sync::Arc;
use loom::thread;

use super::super::sync::{AtomicBool, AtomicU32, Mutex, Ordering::Relaxed, lock};
use super::super::turn::{Left, Turn};
use super::{AGAIN, Held, NOTHING, RECEIVE, check};

/// The state of a session.
#[derive(PartialEq)]
enum Session {
    Idle,
    Open,
    Destroyed,
}

struct Line {
    turn: Turn,
    held: Held,
    session: Mutex<Session>,
    again: u32,
    /// A message waits for a receive.
    stalled: AtomicBool,
    steps_when_open: AtomicU32,
}

impl Line {
    fn new(session: Session, again: u32) -> Arc<Self> {
        let (turn, held) = (Turn::new(), Held::new());
        let (stalled, steps_when_open) = (AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(Self { turn, held, session: Mutex::new(session), again, stalled, steps_when_open })
    }

    /// As `Qp::run`; true when the caller must list it.
    fn run(&self) -> bool {
        let step = |_| {
            let session = lock(&self.session);
            if self.turn.is_closed() {
                return None;
            }
            assert!(*session != Session::Destroyed, "a step after the end");
            self.held.step(|| {
                if *session == Session::Open {
                    self.steps_when_open.fetch_add(1, Relaxed);
                    Some(Left { again: self.again, stalled: self.stalled.load(Relaxed) })
                } else {
                    Some(NOTHING)
                }
            })
        };
        self.turn.run(8, false, RECEIVE, step, || false)
    }

    /// As `Qp::destroy`.
    fn destroy(&self) {
        self.turn.close();
        *lock(&self.session) = Session::Destroyed;
    }
}

fn drive(line: &Arc<Line>, reason: u32, list: &Mutex<Vec<Arc<Line>>>) {
    if line.turn.enter(reason) && line.run() {
        lock(list).push(line.clone());
    }
}

fn engine(list: &Mutex<Vec<Arc<Line>>>) {
    let listed = std::mem::take(&mut *lock(list));
    for line in listed {
        if line.turn.enter_listed() {
            line.run();
        }
    }
}

#[test]
fn no_thread_steps_a_destroyed_connection() {
    check(|| {
        let line = Line::new(Session::Open, AGAIN);
        let list = Arc::new(Mutex::new(Vec::new()));
        let thread = thread::spawn({
            let (line, list) = (line.clone(), list.clone());
            move || {
                drive(&line, 1, &list);
                engine(&list);
            }
        });
        line.destroy();
        assert!(!line.turn.enter(1) && !line.turn.enter_listed(), "the turn was closed");
        let steps = line.held.steps.load(Relaxed);
        thread.join().unwrap();
        engine(&list);
        assert!(lock(&list).is_empty());
        assert_eq!(line.held.steps.load(Relaxed), steps, "a step after the end");
        assert_eq!(Arc::strong_count(&line), 1, "the connection is still referenced");
    });
}

#[test]
fn two_drive_a_connection_that_is_being_destroyed() {
    check(|| {
        let line = Line::new(Session::Open, 0);
        let list = Arc::new(Mutex::new(Vec::new()));
        let threads = [1, 2].map(|reason| {
            let (line, list) = (line.clone(), list.clone());
            thread::spawn(move || drive(&line, reason, &list))
        });
        line.destroy();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!line.turn.enter(1));
        assert_eq!(Arc::strong_count(&line), 1, "the connection is still referenced");
    });
}

#[test]
fn a_connection_begins_while_a_poll_drives_it() {
    check(|| {
        let line = Line::new(Session::Idle, 0);
        line.stalled.store(true, Relaxed);
        let list = Arc::new(Mutex::new(Vec::new()));
        let thread = thread::spawn({
            let (line, list) = (line.clone(), list.clone());
            move || drive(&line, 1, &list)
        });
        // As `Qp::connect`.
        *lock(&line.session) = Session::Open;
        drive(&line, 1, &list);
        thread.join().unwrap();
        assert!(line.steps_when_open.load(Relaxed) > 0);
        assert!(line.turn.awaits_receive(), "a posted receive would be overlooked");
    });
}
