// SPDX-License-Identifier: BSD-3-Clause
//! Bytes in shared memory: either their reader sees them, or it is notified.

use loom::sync::Arc;
use loom::thread;

use super::super::attention::{Attention, Orders, Tick};
use super::super::sync::{AtomicBool, AtomicU32, Mutex, Ordering, Ordering::Relaxed, lock};
use super::super::wakeup::Wakeup;
use super::check_all;
use crate::policy::mode::Mode;
use crate::policy::trust::MIN_TRUST;

/// A ring for one message, its reader's set, and the state of the kernel and the engine. The words and their
/// order are those of `link::ring`.
struct Line {
    attention: Attention,
    put: AtomicU32,
    taken: AtomicU32,
    reader: Wakeup,
    writer: Wakeup,
    /// The writer has found the ring full.
    full: AtomicBool,
    /// Stands for the turns of the two ends.
    reads: Mutex<()>,
    /// Unread notifications, of the reader and of the writer.
    notified: AtomicU32,
    notified_for_room: AtomicU32,
    kicked: AtomicU32,
    ticking: AtomicU32,
    armed: AtomicBool,
}

impl Orders for Line {
    fn wake_engine(&self, wanted: bool) -> bool {
        self.armed.store(wanted, Relaxed);
        true
    }

    fn tick(&self) {
        assert_eq!(self.ticking.fetch_add(1, Relaxed), 0, "on the list twice");
    }

    /// Like `Watch` with `Rings`.
    fn request_notifications(&self) {
        self.reader.about_to_sleep();
        if self.put.load(Ordering::Acquire) != self.taken.load(Relaxed) {
            self.kicked.fetch_add(1, Relaxed);
        }
    }
}

impl Line {
    fn new(mode: Mode) -> Arc<Self> {
        let zero = || AtomicU32::new(0);
        Arc::new(Self {
            attention: Attention::new(mode),
            put: zero(),
            taken: zero(),
            reader: Wakeup::new(),
            writer: Wakeup::new(),
            full: AtomicBool::new(false),
            reads: Mutex::new(()),
            notified: zero(),
            notified_for_room: zero(),
            kicked: zero(),
            ticking: zero(),
            armed: AtomicBool::new(true),
        })
    }

    /// The program polls, and the engine checks only at its ticks, in modes that permit it.
    fn quiet(mode: Mode) -> Arc<Self> {
        let line = Self::new(mode);
        let polls = if matches!(mode, Mode::Random(_)) { u32::MAX } else { MIN_TRUST };
        for _ in (0..polls).take_while(|_| line.attention.notify_requested()) {
            line.attention.polled(&*line);
        }
        assert_eq!(line.attention.notify_requested(), mode == Mode::Never);
        if mode == Mode::Never {
            // The first step of the connection.
            line.read();
        }
        line
    }

    /// The reader drives: takes all bytes. It always wants more, so it requests a notification before it
    /// leaves, as `Rings::available` does.
    fn read(&self) -> bool {
        let _turn = lock(&self.reads);
        let taken = self.taken.load(Relaxed);
        let mut put = self.put.load(Ordering::Acquire);
        if self.attention.notify_requested() {
            self.reader.about_to_sleep();
            put = self.put.load(Ordering::Acquire);
        }
        self.taken.store(put, Ordering::Release);
        if put != taken && self.writer.must_wake() {
            self.notified_for_room.fetch_add(1, Relaxed);
        }
        put != taken
    }

    fn poll(&self) {
        if self.read() {
            self.attention.polled(self);
        }
    }

    /// The engine's tick, if the set is on its list.
    fn tick(&self) {
        if self.ticking.swap(0, Relaxed) > 0
            && self.attention.tick(self, || self.reader_was_notified() && self.read()) != Tick::Over
        {
            Orders::tick(self);
        }
    }

    /// Whether the engine or a sleeper would wake up.
    fn reader_was_notified(&self) -> bool {
        let notified = self.notified.swap(0, Ordering::AcqRel) > 0;
        self.kicked.swap(0, Ordering::AcqRel) > 0 || notified
    }

    /// The peer puts a message if there is room.
    fn write(&self) -> bool {
        let put = self.put.load(Relaxed);
        if put != self.taken.load(Ordering::Acquire) {
            self.full.store(true, Relaxed);
            self.writer.about_to_sleep();
            if put != self.taken.load(Ordering::Acquire) {
                return false;
            }
        }
        self.full.store(false, Relaxed);
        self.put.store(put + 1, Ordering::Release);
        if self.reader.must_wake() {
            self.notified.fetch_add(1, Ordering::AcqRel);
        }
        true
    }

    /// Runs only the threads that were notified. There is no poll, as the program has stopped.
    fn assert_all_taken(&self) {
        self.tick();
        self.tick();
        assert_eq!(self.ticking.load(Relaxed), 0);
        while self.reader_was_notified() {
            self.read();
        }
        assert_eq!(self.put.load(Relaxed), self.taken.load(Relaxed), "bytes without a notification");
        if self.full.load(Relaxed) {
            assert!(self.notified_for_room.load(Relaxed) > 0, "room without a notification of the writer");
        }
    }
}

#[test]
fn the_program_stops_polling_when_a_message_comes() {
    check_all(|mode| {
        move || {
            let line = Line::quiet(mode);
            let engine = thread::spawn({
                let line = line.clone();
                move || {
                    line.tick();
                    line.tick();
                }
            });
            let program = thread::spawn({
                let line = line.clone();
                move || line.poll()
            });
            assert!(line.write());
            engine.join().unwrap();
            program.join().unwrap();
            line.assert_all_taken();
        }
    });
}

#[test]
fn a_thread_goes_to_sleep_when_a_message_comes() {
    check_all(|mode| {
        move || {
            let line = Line::quiet(mode);
            let program = thread::spawn({
                let line = line.clone();
                move || {
                    line.poll();
                    line.attention.sleep(&*line);
                    while line.reader_was_notified() {
                        line.read();
                    }
                    line.attention.wake(&*line);
                }
            });
            assert!(line.write());
            program.join().unwrap();
            line.assert_all_taken();
        }
    });
}

#[test]
fn polls_make_the_set_quiet_when_messages_come() {
    check_all(|mode| {
        move || {
            let line = Line::new(mode);
            (1..MIN_TRUST).for_each(|_| line.attention.polled(&*line));
            let program = thread::spawn({
                let line = line.clone();
                move || {
                    line.poll();
                    line.poll();
                }
            });
            assert!(line.write());
            line.write();
            program.join().unwrap();
            line.assert_all_taken();
        }
    });
}

#[test]
fn a_writer_without_room_is_notified_of_it() {
    check_all(|mode| {
        move || {
            let line = Line::quiet(mode);
            assert!(line.write());
            let program = thread::spawn({
                let line = line.clone();
                move || line.poll()
            });
            line.write();
            program.join().unwrap();
            line.assert_all_taken();
        }
    });
}
