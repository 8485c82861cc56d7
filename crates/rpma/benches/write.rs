// SPDX-License-Identifier: BSD-3-Clause
//! The time of a write of 8 bytes and its completion: by the functions behind the C interface, by this crate
//! polled, and awaited under tokio.

mod ways;

use criterion::{Criterion, criterion_group, criterion_main};

fn write(criterion: &mut Criterion) {
    ways::core(|write| {
        criterion.bench_function("write, rpma-core", |bencher| bencher.iter(&mut *write));
    });
    ways::polled(|write| {
        criterion.bench_function("write, polled", |bencher| bencher.iter(&mut *write));
    });
    ways::awaited(|writes| {
        criterion.bench_function("write, awaited", |bencher| bencher.iter_custom(&mut *writes));
    });
}

criterion_group!(benches, write);
criterion_main!(benches);
