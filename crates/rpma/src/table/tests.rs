// SPDX-License-Identifier: BSD-3-Clause
//! Operations in any order: made, posted in part, completed, failed, taken and cancelled at any time.

use super::*;
use crate::error::ErrorKind;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

fn error() -> Error {
    Error::new(ErrorKind::Lost, "a test")
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn one_operation() {
    let mut table = Table::new(2, 2);
    let (count, mut after) = (Arc::new(Count::default()), After::default());
    let waker = Waker::from(count.clone());
    let slot = table.add(Queue::Send, "work", 1);
    table.wait(slot, &waker, &mut after);
    assert!(table.take_whole(slot).is_none() && table.is_busy(Queue::Send));
    assert_eq!(table.next(Queue::Send), Some((slot, &"work")));
    assert!(table.next(Queue::Send).is_none() && table.next(Queue::Receive).is_none());
    let five = Arrived { len: 5, imm: Some(1), is_write: false };
    table.complete(slot, Ok(five), &mut after);
    after.run();
    let taken = table.take(slot, |work, arrived| (mem::take(work), arrived)).unwrap().ok();
    assert_eq!(taken, Some(("work", five)));
    assert_eq!((count.0.load(Ordering::SeqCst), table.is_busy(Queue::Send)), (1, false));
}

#[test]
fn an_operation_that_is_posted_at_once() {
    let mut table = Table::new(2, 1);
    let mut after = After::default();
    let place = table.place(Queue::Send).unwrap();
    let number = place.number();
    assert_eq!((table.room, table.is_busy(Queue::Send)), ([2, 1], false), "complete at once");
    let place = table.place(Queue::Send).unwrap();
    assert_eq!(place.number(), number);
    let first = place.keep("first");
    assert_eq!(first, number);
    assert_eq!((table.work(first), table.room), (Some(&"first"), [1, 1]));
    let batch = table.add(Queue::Send, "batch", 2);
    assert!(table.place(Queue::Send).is_none(), "it does not overtake");
    assert!(table.has_waiting() && table.next(Queue::Send).is_none());
    table.complete(first, Ok(Arrived::default()), &mut after);
    assert!(table.is_done(first) && table.take_whole(first).is_some());
    assert_eq!(table.next(Queue::Send), Some((batch, &"batch")));
    assert!(!table.has_waiting() && table.place(Queue::Send).is_none(), "there is no room");
    assert!(table.place(Queue::Receive).is_some());
    after.run();
}

#[test]
fn the_order_of_calls_is_the_order_of_posting() {
    let mut table = Table::new(3, 1);
    let mut after = After::default();
    let slots = [table.add(Queue::Send, 0, 2), table.add(Queue::Send, 1, 2), table.add(Queue::Send, 2, 1)];
    assert_eq!(table.next(Queue::Send).map(|(slot, _)| slot), Some(slots[0]));
    assert!(table.next(Queue::Send).is_none(), "the short one does not overtake");
    table.complete(slots[0], Ok(Arrived::default()), &mut after);
    assert_eq!(table.next(Queue::Send).map(|(slot, _)| slot), Some(slots[1]));
    after.run();
}

#[test]
fn what_was_posted_of_a_failed_batch_is_waited_for() {
    let mut table = Table::new(4, 1);
    let mut after = After::default();
    let slot = table.add(Queue::Send, "batch", 3);
    table.next(Queue::Send).unwrap();
    table.not_posted(slot, 1, error(), &mut after);
    assert!(table.take_whole(slot).is_none(), "a device may still read the buffers");
    table.complete(slot, Ok(Arrived::default()), &mut after);
    assert!(table.take(slot, |_, _| ()).unwrap().is_err());
    assert_eq!(table.room, [4, 1]);
    after.run();
}

#[test]
fn what_was_posted_of_an_abandoned_operation_is_kept() {
    let mut table = Table::<Option<Arc<u64>>>::new(4, 1);
    let mut after = After::default();
    let [memory, detached] = [1, 2].map(Arc::new);
    let slot = table.place(Queue::Send).unwrap().keep(Some(memory.clone()));
    let other = table.place(Queue::Receive).unwrap().keep(Some(detached.clone()));
    table.detach(other, &mut after);
    assert_eq!(table.posted().count(), 2);
    table.abandon(|_| error(), |work| (work, None), &mut after);
    after.run();
    let finished = table.take_whole(slot).unwrap();
    assert!(finished.result.is_err() && finished.work.is_none() && !table.is_busy(Queue::Send));
    assert_eq!([&memory, &detached].map(Arc::strong_count), [2, 2], "a device may still access it");
    drop(table.take_all());
    assert_eq!([&memory, &detached].map(Arc::strong_count), [1, 1]);
}

/// A number from a seed (splitmix64).
fn below(seed: &mut u64, end: usize) -> usize {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % end as u64) as usize
}

/// The operation of one step of a schedule, which owns its memory.
type Memory = Option<Arc<u64>>;

/// What a device would still access, by slot.
type Device = BTreeMap<u32, (std::sync::Weak<u64>, u32)>;

fn schedule(mut seed: u64) {
    let seed = &mut seed;
    let mut table = Table::<Memory>::new(1 + below(seed, 4) as u32, 1 + below(seed, 4) as u32);
    let (mut held, mut device) = (Vec::new(), Device::new());
    let (mut made, mut over) = (0_u64, 0);
    for step in 0..200 {
        let is_ending = step > 150;
        let queue = if below(seed, 2) == 0 { Queue::Send } else { Queue::Receive };
        let mut after = After::default();
        match below(seed, 6) {
            0 if !is_ending => {
                // One in four is complete when it is posted, and needs no slot.
                if let Some(place) = table.place(queue).filter(|_| below(seed, 4) > 0) {
                    let memory = Arc::new(made);
                    device.insert(place.number(), (Arc::downgrade(&memory), 1));
                    held.push(place.keep(Some(memory)));
                    made += 1;
                }
            }
            1 if !is_ending => {
                let requests = 1 + below(seed, table.size(queue) as usize) as u32;
                held.push(table.add(queue, Some(Arc::new(made)), requests));
                made += 1;
            }
            2 => {
                if let Some((slot, memory)) = table.next(queue) {
                    let memory = Arc::downgrade(memory.as_ref().unwrap());
                    let requests = table.slots[slot as usize].requests;
                    let posted =
                        if below(seed, 8) == 0 { below(seed, requests as usize) as u32 } else { requests };
                    if posted > 0 {
                        device.insert(slot, (memory, posted));
                    }
                    if posted < requests {
                        table.not_posted(slot, posted, error(), &mut after);
                    }
                }
            }
            3 | 4 => {
                let index = below(seed, device.len().max(1));
                if let Some((slot, (_, left))) = device.iter_mut().nth(index) {
                    let slot = *slot;
                    *left -= 1;
                    if *left == 0 {
                        device.remove(&slot);
                    }
                    let result = if below(seed, 4) == 0 { Err(error()) } else { Ok(Arrived::default()) };
                    table.complete(slot, result, &mut after);
                }
            }
            _ if !held.is_empty() => {
                let index = below(seed, held.len());
                let slot = held[index];
                if below(seed, 3) == 0 {
                    table.detach(slot, &mut after);
                    held.swap_remove(index);
                    over += 1;
                } else if table.take_whole(slot).is_some() {
                    held.swap_remove(index);
                    over += 1;
                } else {
                    table.wait(slot, Waker::noop(), &mut after);
                }
            }
            _ => {}
        }
        after.run();
        for (slot, (memory, _)) in &device {
            assert!(memory.upgrade().is_some(), "step {step}: the memory of slot {slot} is free");
        }
        let room: u32 = device
            .iter()
            .filter(|(slot, _)| table.slots[**slot as usize].queue == queue)
            .map(|(_, (_, left))| left)
            .sum();
        assert_eq!(table.room[queue as usize] + room, table.size(queue), "step {step}");
    }
    let mut after = After::default();
    table.fail_waiting(|_| error(), &mut after);
    while let Some((slot, (_, left))) = device.pop_first() {
        for _ in 0..left {
            table.complete(slot, Err(error()), &mut after);
        }
    }
    after.run();
    for slot in held {
        assert!(table.take_whole(slot).is_some(), "an operation without a result");
        over += 1;
    }
    assert_eq!(made, over);
    assert!(table.slots.iter().all(|slot| slot.work.is_none() && slot.stage == Stage::Free));
}

#[test]
fn any_order_of_cancellation() {
    for seed in 0..if cfg!(miri) { 20 } else { 20_000 } {
        schedule(seed);
    }
}

/// Which request of a batch is counted when a completion comes.
#[cfg(all(feature = "metrics", feature = "soft"))]
#[test]
fn the_request_of_a_completion() {
    use crate::call::Call;
    use crate::remote;
    use crate::testing::{Faults, pair};
    use crate::work::{Flush, Kept, Store};

    let pair = pair(1, Faults::none()).unwrap();
    let to = pair.client.remote(0).unwrap().slice(0..8).unwrap();
    let flush = || Flush { range: to, how: remote::Flush::Visible }.into();
    let mut table = Table::new(8, 1);
    let mut after = After::default();
    let slot = table.add(Queue::Send, Kept::whole(vec![flush(), Store { value: 1, to }.into(), flush()]), 3);
    table.next(Queue::Send).unwrap();
    let counted = |table: &Table<Kept>, slot| {
        let (work, complete) = table.completing(slot)?;
        let (call, len, _) = work.request(complete);
        Some((call, len))
    };
    table.not_posted(slot, 2, error(), &mut after);
    for request in [(Call::Flush, 0), (Call::Store, 8)] {
        assert_eq!(counted(&table, slot), Some(request));
        table.complete(slot, Ok(Arrived::default()), &mut after);
    }
    assert_eq!(counted(&table, slot), None, "a completion that no request has");
    after.run();
}
