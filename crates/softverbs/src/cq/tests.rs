// SPDX-License-Identifier: BSD-3-Clause
//! Completion queues: order, overflow, sleeping threads, queue pairs that end.

use std::sync::Weak;

use super::*;
use crate::progress::ring::Ring;
use transport::wr::SendWr;

fn done(wr_id: u64) -> Completion {
    Completion { wr_id, ..Completion::default() }
}

fn poll_one(cq: &Cq) -> Option<u64> {
    let mut id = None;
    cq.poll(1, |_, c, _| id = Some(c.wr_id));
    id
}

fn events(channel: &EventQueue<usize>) -> usize {
    channel.withdraw(|_| true).len()
}

fn producer(cq: &Arc<Cq>) -> Producer {
    Producer::new(cq.clone(), None, None).unwrap()
}

fn request() -> SendWr {
    transport::testing::queues::request(1, transport::wr::Op::Write, true)
}

/// A send queue whose entries are all in use by requests that the connection has taken.
fn sends(capacity: u32) -> Arc<Ring<SendWr>> {
    let sends = Ring::new(capacity).unwrap();
    (0..capacity).for_each(|_| assert!(sends.push(request()).is_ok() && sends.take().is_some()));
    Arc::new(sends)
}

#[test]
fn completions_come_out_in_order_and_a_full_queue_refuses() {
    let cq = Arc::new(Cq::new(2, None).unwrap());
    let sends = sends(1);
    let requests = Producer::new(cq.clone(), Some(sends.clone()), None).unwrap();
    let receives = producer(&cq);
    assert!(requests.push(done(1)));
    assert!(receives.push(done(2)));
    assert!(!requests.push(done(3)));
    assert_eq!(sends.room(), 0);
    assert_eq!(poll_one(&cq), Some(1));
    assert_eq!(sends.room(), 1);
    assert!(receives.push(done(3)));
    assert_eq!(poll_one(&cq), Some(2));
    assert_eq!(poll_one(&cq), Some(3));
    assert_eq!(poll_one(&cq), None);
    assert_eq!(sends.room(), 1, "receives free no entry");
}

#[test]
fn discarded_completions_are_not_polled_and_free_their_entries() {
    let cq = Arc::new(Cq::new(4, None).unwrap());
    let sends = sends(2);
    let requests = Producer::new(cq.clone(), Some(sends.clone()), None).unwrap();
    let others = producer(&cq);
    // In the middle of the ring, so that it wraps around.
    assert!(others.push(done(9)) && others.push(done(9)));
    assert_eq!((poll_one(&cq), poll_one(&cq)), (Some(9), Some(9)));
    assert!(others.push(done(1)) && requests.push(done(2)) && others.push(done(3)) && requests.push(done(4)));
    assert!(!others.push(done(5)));
    requests.discard();
    assert_eq!(sends.room(), 2);
    assert!(others.push(done(5)));
    assert_eq!([(); 4].map(|()| poll_one(&cq)), [Some(1), Some(3), Some(5), None]);
    assert!(requests.push(done(6)), "it can be used again");
    assert_eq!(poll_one(&cq), Some(6));
    requests.discard();
    assert_eq!(poll_one(&cq), None);
}

#[test]
fn completions_outlive_their_producer_and_free_entries_of_no_other_one() {
    let cq = Arc::new(Cq::new(8, None).unwrap());
    let (first, second) = (sends(2), sends(2));
    let gone = Producer::new(cq.clone(), Some(first.clone()), None).unwrap();
    assert!(gone.push(done(1)) && gone.push(done(2)));
    drop(gone);
    let next = Producer::new(cq.clone(), Some(second.clone()), None).unwrap();
    assert!(next.push(done(3)));
    assert_eq!((poll_one(&cq), first.room(), Arc::strong_count(&first)), (Some(1), 1, 2));
    assert_eq!((poll_one(&cq), Arc::strong_count(&first)), (Some(2), 1), "the last one was polled");
    let again = producer(&cq);
    assert_eq!((next.owner, again.owner), (1, 0), "the index is used again");
    assert!(again.push(done(4)));
    assert_eq!((second.room(), poll_one(&cq), poll_one(&cq)), (0, Some(3), Some(4)));
    assert_eq!(second.room(), 1);
    drop((next, again));
    assert_eq!(Arc::strong_count(&second), 1, "nothing was left to poll");
}

#[test]
fn each_arming_generates_one_event() {
    let channel = Arc::new(EventQueue::new().unwrap());
    let cq = Arc::new(Cq::new(8, Some(channel.clone())).unwrap());
    let receives = producer(&cq);
    receives.push(done(1));
    assert_eq!(events(&channel), 0, "not armed");
    cq.arm(false);
    assert_eq!(events(&channel), 1, "the completion that no event has announced");
    cq.arm(false);
    assert_eq!(events(&channel), 0, "announced already");
    receives.push(done(2));
    assert_eq!(events(&channel), 1);
    receives.push(done(3));
    assert_eq!(events(&channel), 0, "one event for each arming");
    while poll_one(&cq).is_some() {}
    cq.arm(false);
    assert_eq!(events(&channel), 0, "nothing is left to announce");
}

#[test]
fn a_discarded_completion_takes_its_event_or_its_need_for_one_along() {
    let channel = Arc::new(EventQueue::new().unwrap());
    let cq = Arc::new(Cq::new(8, Some(channel.clone())).unwrap());
    let (first, second) = (producer(&cq), producer(&cq));
    let push_both = || {
        cq.arm(false);
        assert!(first.push(done(1)));
        assert_eq!(events(&channel), 1);
        assert!(second.push(done(2)));
    };
    push_both();
    first.discard();
    cq.arm(false);
    assert_eq!(events(&channel), 1, "no event has announced the other one");
    assert_eq!((poll_one(&cq), poll_one(&cq)), (Some(2), None));
    push_both();
    second.discard();
    cq.arm(false);
    assert_eq!(events(&channel), 0, "an event has announced the one that is left");
    assert_eq!((poll_one(&cq), poll_one(&cq)), (Some(1), None));
}

#[test]
fn a_queue_of_another_size_keeps_its_completions() {
    let channel = Arc::new(EventQueue::new().unwrap());
    let cq = Arc::new(Cq::new(3, Some(channel.clone())).unwrap());
    cq.record_times().unwrap();
    let receives = producer(&cq);
    assert!(receives.push(done(9)));
    assert_eq!(poll_one(&cq), Some(9));
    assert!(receives.push(done(1)) && receives.push(done(2)) && receives.push(done(3)));
    assert_eq!(cq.resize(2), Err(libc::EINVAL));
    assert_eq!((cq.resize(3), cq.entries()), (Ok(()), 3));
    assert!(!receives.push(done(4)), "it is full");
    assert_eq!((cq.resize(5), cq.entries()), (Ok(()), 5));
    assert!(receives.push(done(4)) && receives.push(done(5)) && !receives.push(done(6)));
    cq.arm(false);
    assert_eq!(events(&channel), 1, "no event has announced them");
    let mut times = Vec::new();
    assert_eq!(cq.poll(5, |i, c, time| times.push((i as u64 + 1 == c.wr_id, time))), 5);
    assert!(times.iter().all(|(in_order, time)| *in_order && *time > 0) && times.is_sorted(), "{times:?}");
}

#[test]
fn solicited_arming_waits_for_a_solicited_or_failed_completion() {
    let channel = Arc::new(EventQueue::new().unwrap());
    let cq = Arc::new(Cq::new(8, Some(channel.clone())).unwrap());
    let receives = producer(&cq);
    cq.arm(true);
    receives.push(done(1));
    assert_eq!(events(&channel), 0);
    receives.push(Completion { solicited: true, ..done(2) });
    assert_eq!(events(&channel), 1);
    cq.arm(true);
    receives.push(Completion { status: status::WR_FLUSH_ERR, ..done(3) });
    assert_eq!(events(&channel), 1);
}

/// Adds a completion each time it is driven.
struct Pusher(Weak<Producer>);

impl Driven for Pusher {
    fn drive(&self, _reasons: u32, _by: By) -> bool {
        self.0.upgrade().is_some_and(|receives| receives.push(done(1)))
    }

    fn drive_listed(&self) {}

    fn drive_deferred(&self) {}

    fn flush_deferred(&self) {}
}

#[test]
fn threads_that_poll_one_queue_of_many_connections_do_not_block_one_another() {
    use std::io::Write;
    let cq = Arc::new(Cq::new(1024, None).unwrap());
    let receives = Arc::new(producer(&cq));
    for _ in 0..=POLL_DIRECTLY {
        cq.attach(Arc::new(Pusher(Arc::downgrade(&receives)))).unwrap();
    }
    let watch = cq.home(&Engine::get().unwrap()).unwrap();
    let (mut far, near) = std::os::unix::net::UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let near = near.into();
    let token = watch.add(&near, Arc::new(Pusher(Arc::downgrade(&receives)))).unwrap();
    let (ended, ends) = std::sync::mpsc::channel();
    for _ in 0..3 {
        let (cq, ended) = (cq.clone(), ended.clone());
        std::thread::spawn(move || {
            for _ in 0..100_000 {
                poll_one(&cq);
            }
            ended.send(()).unwrap();
        });
    }
    let mut open = 3;
    for _ in 0..600_000 {
        // An edge; a full socket needs no more of them.
        let _ = far.write(b"1");
        open -= ends.try_iter().count();
        if open == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_micros(20));
    }
    assert_eq!(open, 0, "threads that were blocked");
    watch.remove(&near, token, false);
    lock(&cq.connections).list.clear();
}

#[test]
fn a_watch_is_released_with_the_last_connection_that_needs_it() {
    let (sends, receives) = (Cq::new(8, None).unwrap(), Cq::new(8, None).unwrap());
    let watch = receives.home(&Engine::get().unwrap()).unwrap();
    let users = |cq: &Cq| cq.watches().iter().map(|watched| watched.users).collect::<Vec<_>>();
    sends.use_watch(&watch);
    sends.use_watch(&watch);
    assert_eq!((users(&sends), users(&receives)), (vec![2], vec![1]));
    assert_eq!(poll_one(&sends), None, "it keeps a copy");
    sends.release_watch(&watch);
    assert_eq!(users(&sends), [1]);
    drop(receives);
    let left = Arc::downgrade(&watch);
    drop(watch);
    assert!(left.upgrade().is_some(), "a connection needs it");
    sends.release_watch(&left.upgrade().unwrap());
    assert_eq!(users(&sends), []);
    let begin = std::time::Instant::now();
    while left.strong_count() > 0 {
        assert!(begin.elapsed().as_secs() < 10, "its descriptor stays open");
        std::thread::yield_now();
    }
}

/// The ids and times of the completions that a poll returns.
fn times(cq: &Cq) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    cq.poll(usize::MAX, |_, completion, time| found.push((completion.wr_id, time)));
    found
}

#[test]
fn a_completion_has_the_time_when_it_was_added() {
    let cq = Arc::new(Cq::new(4, None).unwrap());
    let (one, other) = (producer(&cq), producer(&cq));
    assert!(one.push(done(1)));
    assert_eq!(times(&cq), [(1, 0)], "nobody has asked for times");
    cq.record_times().unwrap();
    // From the last entry to the first ones.
    assert!(one.push(done(2)) && one.push(done(3)));
    times(&cq);
    let mut bounds = vec![clock::raw()];
    for (id, producer) in [(4, &one), (5, &other), (6, &one)] {
        assert!(producer.push(done(id)));
        bounds.push(clock::raw());
    }
    other.discard();
    cq.resize(7).unwrap();
    let found = times(&cq);
    assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [4, 6]);
    for ((_, time), bounds) in found.into_iter().zip([[bounds[0], bounds[1]], [bounds[2], bounds[3]]]) {
        assert!(bounds[0] <= time && time <= bounds[1], "{time} is not in {bounds:?}");
    }
    let age = clock::raw() - bounds[0];
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    assert!(clock::wall_at(bounds[0]).abs_diff(wall - age) < 10_000_000);
}
