// SPDX-License-Identifier: BSD-3-Clause
//! The end of the counters that `RPMA_METRICS` asks for: the last figures are written when the program exits.

extern "C" fn at_exit() {
    rpma_metrics::at_exit();
}

// SAFETY: the loader calls what this section points to, once, when the C library is still usable.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
