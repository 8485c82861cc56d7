// SPDX-License-Identifier: BSD-3-Clause
//! How long a connection waits for others that the same thread serves, on a clock that only their work
//! advances.

use super::host::*;
use crate::iwarp::conn::Sizes;
use crate::step::{Budget, Quota, Stepped, reason};

/// What the thread does on a connection before it serves the next one.
const TURN: Quota = Quota { bytes: 1 << 20, operations: 256 };
/// What an operation takes, in microseconds.
const OPERATION_US: usize = 1;
const FLOODED: usize = 4;
const WRITES: usize = 20_000;

fn flooded() -> Bench {
    let mut bench = Bench::with(terms(), Sizes::default());
    bench.budget = Budget { send: TURN, receive: TURN };
    bench
}

/// Serves the connections in turn, as the engine does with those on its run list, until nothing is left to
/// do, and gives the longest round and the sum of all.
fn serve(all: &mut [Bench], mut last: Vec<Stepped>) -> (usize, usize) {
    let (mut longest, mut sum) = (0, 0);
    loop {
        let round: usize =
            all.iter_mut().map(|bench| bench.calls().iter().filter(|call| is_work(call)).count()).sum();
        longest = longest.max(round * OPERATION_US);
        sum += round * OPERATION_US;
        if last.iter().all(|stepped| !stepped.again) {
            return (longest, sum);
        }
        let again = |(bench, last): (&mut Bench, &Stepped)| match last.again {
            true => bench.step(reason::AGAIN),
            false => Stepped::default(),
        };
        last = all.iter_mut().zip(&last).map(again).collect();
    }
}

fn is_work(call: &Call) -> bool {
    matches!(call, Call::Placed(_) | Call::SendDone(_) | Call::RecvDone(_))
}

#[test]
fn a_flood_of_small_writes_delays_others_for_a_bounded_time() {
    let mut all: Vec<_> = (0..FLOODED).map(|_| flooded()).collect();
    let writes: Vec<u8> =
        (0..WRITES as u64).flat_map(|i| write(STAG, BASE + 8 * (i % 8), b"8 bytes.")).collect();
    let first = all.iter_mut().map(|bench| bench.receive(&writes)).collect();
    let (longest, sum) = serve(&mut all, first);
    assert_eq!(sum, FLOODED * WRITES * OPERATION_US, "nothing is lost");
    assert!(longest <= FLOODED * TURN.operations * OPERATION_US, "{longest} us");
    assert!(all.iter().all(|bench| bench.host.bytes(BASE, 8) == b"8 bytes."));
}

#[test]
fn a_flood_of_receives_does_as_well() {
    let mut bench = flooded();
    bench.host.queues.receives.extend((0..WRITES as u64).map(|i| receive(i, 8)));
    let sends: Vec<u8> = (1..=WRITES as u32).flat_map(|msn| send(msn, b"")).collect();
    let first = vec![bench.receive(&sends)];
    let (longest, sum) = serve(&mut [bench], first);
    assert_eq!(sum, WRITES * OPERATION_US);
    assert!(longest <= TURN.operations * OPERATION_US, "{longest} us");
}
