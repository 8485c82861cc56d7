// SPDX-License-Identifier: BSD-3-Clause
//! Misuses that do not compile. The messages are those of the stable toolchain: `TRYBUILD=overwrite` takes
//! new ones.

#[test]
fn misuses_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/rejected/*.rs");
}
