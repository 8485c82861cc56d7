// SPDX-License-Identifier: BSD-3-Clause
//! The table of exported functions of the C library, by version node: those by which programs inspect the
//! files of a device before they use it. They handle the paths of `soft0` (`files.rs`); for any other path
//! they call the real function.
//!
//! `open`, `stat` and `access` are called by UCX, `__xstat` by builds of it for a glibc before 2.33,
//! `open64` by programs in Rust and Python.
//!
//! `open` and `open64` are variadic in C: `mode` is absent without O_CREAT and O_TMPFILE. On the
//! architectures of [`crate::real::glibc`] a function receives a variadic integer in the same register as a
//! named one, so the third argument is passed on as it is, and its value is used only by the real function.
//!
//! `nodes.awk` generates the version script from the lines that begin with `exports!` and `fn`, so their form
//! is fixed. The nodes are those of x86-64, see [`crate::real::glibc`].

use libc::{c_char, c_int, mode_t, size_t, ssize_t, stat};

use crate::files;

exports! { "GLIBC_2.2.5" from the C library, except for paths of soft0 {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, at path: |file| files::open(file, flags);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, at path: |file| files::open(file, flags);
    fn access(path: *const c_char, mode: c_int) -> c_int, at path: |file| files::access(file, mode);
    fn readlink(path: *const c_char, buffer: *mut c_char, size: size_t) -> ssize_t, at path: |file| files::readlink(file);
    fn __xstat(version: c_int, path: *const c_char, buffer: *mut stat) -> c_int, at path: |file| files::stat(file, buffer);
} }

exports! { "GLIBC_2.33" from the C library, except for paths of soft0 {
    fn stat(path: *const c_char, buffer: *mut stat) -> c_int, at path: |file| files::stat(file, buffer);
} }
