// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the wire format: worked examples, a capture of a kernel peer, hostile input.
